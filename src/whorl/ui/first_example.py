"""The example that the page opens with: crafted once, in the background, so that nobody looks at an empty page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from whorl.errors import WhorlError
from whorl.ui import fragments
from whorl.ui.pair import CraftedPair, PairSettings, StepTaken, SuccessMap, success_map
from whorl.ui.playground import PairJob, Playground


class _ClosedError(Exception):
    """The server ends."""


class OpeningExample:
    """A bundled photograph, attacked on the first network with the page's default settings.

    Args:
        playground: what is on offer.

    Attributes:
        job: how far it is; whoever opens the page meanwhile sees it.
        pair: the example, once ``done`` is set; None if it could not be crafted.
        map: where its attacks succeed, likewise.
        trouble: why there is none.
        done: set when it is there, or cannot be had.
    """

    def __init__(self, playground: Playground) -> None:
        self.playground = playground
        self.job = PairJob(PairSettings(seed=playground.seed), state="Preparing an example.")
        self.pair: CraftedPair | None = None
        self.map: SuccessMap | None = None
        self.trouble = ""
        self.done, self._closed = Event(), Event()

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Prepare it in a thread while the block runs."""
        thread = Thread(target=self.prepare, name="whorl-ui-opening", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closed.set()
            thread.join()

    def prepare(self) -> None:
        """Load the networks, craft, and evaluate."""
        offered, job = self.playground, self.job
        try:
            if offered.example is None:
                return
            first, second = offered.networks[0].name, offered.second
            job.state = f"Loading {first}{f' and {second}' if second else ''}."
            if second and offered.network(first).labels != offered.network(second).labels:
                second = ""
            made = offered.craft(first, second, offered.example, job.settings, self._follow)
            job.state = "Evaluating the example."
            for found in success_map(made):
                self._go_on()
                self.map = found
            self.pair = made
            job.state = "An example to begin with. Choose an image, a network and an attack, and craft your own."
        except WhorlError as error:
            self.trouble = str(error)
        except _ClosedError:
            pass
        finally:
            job.busy = False
            self.done.set()

    def _follow(self, step: StepTaken) -> None:
        self._go_on()
        self.job.follow(step, fragments.title(step.attack))

    def _go_on(self) -> None:
        if self._closed.is_set():
            raise _ClosedError
