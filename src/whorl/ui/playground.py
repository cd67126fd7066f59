"""What the page offers: networks, bundled photographs, and who is looking."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import torch

from whorl.data.layouts import list_samples
from whorl.errors import WhorlError
from whorl.models import Classifier, load_model
from whorl.models.architectures import imagenet_labels
from whorl.runs.catalog import model_catalog
from whorl.ui.picture import Picture, sample
from whorl.ui.visits import Visits

_KEPT_NETWORKS = 3


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A network to choose."""

    name: str
    """As ``whorl.load_model`` takes it."""
    here: bool
    """Whether it can be used at once; otherwise its weights are fetched when it is first chosen."""


def offers(extra: Sequence[str] = ()) -> list[Offer]:
    """List networks to choose from: those asked for, then those whose weights are here, then the rest.

    Args:
        extra: names or addresses that come first.
    """
    listed = sorted(model_catalog(), key=lambda entry: not entry.cached)
    asked = [Offer(name=name, here=True) for name in dict.fromkeys(extra)]
    return asked + [Offer(name=entry.name, here=entry.cached) for entry in listed if entry.name not in extra]


class Playground:
    """Everything behind the page.

    Args:
        networks: to choose from; the first is chosen when the page opens.
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
    def samples(self) -> tuple[Picture, ...]:
        """The bundled photographs; none where they are neither here nor can be fetched."""
        try:
            return tuple(sample(entry, imagenet_labels()) for entry in list_samples())
        except WhorlError as error:
            self.trouble = str(error)
            return ()

    trouble: str = ""
    """Why there are no samples, if there are none."""
