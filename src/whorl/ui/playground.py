"""What the page offers, networks and bundled photographs; and who has it open, held in memory until they leave."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock

import torch

from whorl.data.layouts import list_samples
from whorl.errors import WhorlError
from whorl.models import Classifier, load_model
from whorl.models.architectures import imagenet_labels
from whorl.runs.catalog import model_catalog
from whorl.ui.image import ChosenImage, sample
from whorl.ui.pair import CraftedPair, PairSettings, PosedPair, StepTaken, SuccessMap, craft

_KEPT_NETWORKS = 3
_MOST_VISITS = 16
_LONGEST_PATH = 300
# Of all bundled photographs the one that resnet18 and mobilenet_v2 recognise clean in most poses of the map, 65 of 70.
_OPENS_WITH = "imagenet_18_317"


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A network to choose."""

    name: str
    """As ``whorl.load_model`` takes it."""
    here: bool
    """Whether it can be used at once; otherwise its weights are fetched when it is first chosen."""


def offers(extra: Sequence[str] = ()) -> list[Offer]:
    """List networks to choose from: those named, then those whose weights are here, then the rest.

    Args:
        extra: names or addresses that come first.
    """
    listed = sorted(model_catalog(), key=lambda entry: not entry.cached)
    named = [Offer(name=name, here=True) for name in dict.fromkeys(extra)]
    return named + [Offer(name=entry.name, here=entry.cached) for entry in listed if entry.name not in extra]


@dataclass
class PairJob:
    """An attack that runs, as far as it is; like a visit, it changes."""

    settings: PairSettings
    taken: list[StepTaken] = field(default_factory=list)
    """Steps so far."""
    state: str = "Starting."
    """What is going on, in a few words."""
    busy: bool = True
    """Whether it still runs."""

    def follow(self, step: StepTaken, title: str) -> None:
        """Note a step, of the attack that is called so."""
        self.taken.append(step)
        self.state = f"{title}: step {step.done} of {step.steps}."


@dataclass
class Visit:
    """One open page. It changes as its owner chooses, so unlike most records it is not frozen."""

    image: ChosenImage | None = None
    job: PairJob | None = None
    """The attack that runs, or ran last; None once another is ordered."""
    crafted: CraftedPair | None = None
    map: SuccessMap | None = None
    path: list[PosedPair] = field(default_factory=list)
    """Poses that the sliders went through, without their images."""
    stopped: bool = False
    """Whether its owner wants nothing at all; a new job changes that."""
    _order: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def order(self) -> int:
        """Take a number for a new job. Jobs with an older number are no longer wanted, and stop by themselves."""
        with self._lock:
            self._order += 1
            self.stopped, self.job = False, None
            return self._order

    def stop(self) -> None:
        """Want no job at all."""
        with self._lock:
            self._order += 1
            self.stopped = True

    def walk(self, posed: PosedPair) -> SuccessMap:
        """Add a pose to the path; the last few hundred are kept."""
        self.path = [*self.path[1 - _LONGEST_PATH :], replace(posed, images={})]
        return SuccessMap.of(self.path)

    def wants(self, order: int) -> bool:
        """Whether the job with this number is still wanted."""
        return self._order == order


class Visits:
    """Open pages by the key that the browser was given; the longest unused is forgotten when there are too many.

    >>> visits = Visits(most=1)
    >>> first = visits.of("a")
    >>> visits.of("a") is first, visits.of("b") is first, visits.of("a") is first
    (True, False, False)
    """

    def __init__(self, most: int = _MOST_VISITS) -> None:
        self._most, self._lock = most, Lock()
        self._open: OrderedDict[str, Visit] = OrderedDict()

    def of(self, key: str) -> Visit:
        """The visit of one page, new if need be."""
        with self._lock:
            visit = self._open.setdefault(key, Visit())
            self._open.move_to_end(key)
            while len(self._open) > self._most:
                _, forgotten = self._open.popitem(last=False)
                forgotten.stop()
            return visit

    def leave(self, key: str) -> None:
        """Forget a page that was closed, and stop what it still waits for."""
        with self._lock:
            visit = self._open.pop(key, None)
        if visit is not None:
            visit.stop()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._open))


class Playground:
    """Everything behind the page.

    Args:
        networks: to choose from; the first is chosen when the page opens, and the next whose weights are here stands
            beside it, unattacked.
        device: where they compute.
        seed: of all randomness.
        load: gets a network by name.
    """

    def __init__(
        self,
        networks: Sequence[Offer],
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        load: Callable[[str], Classifier] | None = None,
    ) -> None:
        if not networks:
            raise WhorlError("expected at least one network to offer, got none.")
        self.networks, self.device, self.seed = tuple(networks), torch.device(device), seed
        self.visits = Visits()
        self.second = next((offer.name for offer in self.networks[1:] if offer.here), "")
        self.pace: dict[str, float] = {}
        self._load = load or (lambda name: load_model(name, device=self.device))
        self._loaded: OrderedDict[str, Classifier] = OrderedDict()
        self._lock = Lock()
        self._loading = {offer.name: Lock() for offer in self.networks}

    def network(self, name: str) -> Classifier:
        """Get an offered network; the last few stay loaded.

        Raises:
            WhorlError: it is not on offer, or its weights cannot be had.
        """
        # What a browser sends may be any address, and loading one can run code: only what is on offer is loaded.
        if name not in self._loading:
            raise WhorlError(f"expected a network from the list, got {name!r}.")
        # One lock a network: while weights are fetched, others can be used. It is held until the network is kept, or
        # whoever waited for it would load it again.
        with self._loading[name]:
            loaded = self._loaded.get(name) or self._load(name)
            with self._lock:
                self._loaded[name] = loaded
                self._loaded.move_to_end(name)
                while len(self._loaded) > _KEPT_NETWORKS:
                    self._loaded.popitem(last=False)
        return loaded

    @cached_property
    def samples(self) -> tuple[ChosenImage, ...]:
        """The bundled photographs; none where they are neither here nor can be fetched."""
        try:
            return tuple(sample(entry, imagenet_labels()) for entry in list_samples())
        except WhorlError as error:
            self.trouble = str(error)
            return ()

    @property
    def example(self) -> ChosenImage | None:
        """The photograph that the page opens with; None without any."""
        return next((one for one in self.samples if one.id == _OPENS_WITH), next(iter(self.samples), None))

    trouble: str = ""
    """Why there are no samples, if there are none."""

    def craft(
        self,
        network: str,
        second: str,
        image: ChosenImage,
        settings: PairSettings,
        on_step: Callable[[StepTaken], None] | None = None,
    ) -> CraftedPair:
        """Craft on an offered network, and remember how long it took; see :func:`whorl.ui.pair.craft`.

        Args:
            network: to attack.
            second: evaluated beside it; "" for none.
            image: to start from.
            settings: what to craft.
            on_step: called after each step.
        """
        model, other = self.network(network), self.network(second) if second not in ("", network) else None
        start = time.monotonic()
        made = craft(model, image, settings, other=other, on_step=on_step)
        self.pace[network] = (time.monotonic() - start) / sum(settings.gradients().values())
        return made

    def expected(self, network: str, settings: PairSettings) -> float | None:
        """About how many seconds both attacks take, by the last on the same network; None if there was none."""
        pace = self.pace.get(network)
        return None if pace is None else pace * sum(settings.gradients().values())
