"""The page: which function each control calls. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.ui import bundle, fragments
from whorl.ui.first_example import OpeningExample
from whorl.ui.image import ChosenImage, upload
from whorl.ui.layout import NO_FILES, NO_MAPS, NO_PATH, NO_SECOND, NO_TILES, NO_WHORLS, PageParts, lay_out, library
from whorl.ui.pair import CraftedPair, PairSettings, StepTaken, SuccessMap, predict, success_map, whorls
from whorl.ui.playground import PairJob, Playground, Visit

Changes = dict[Any, Any]
"""Which controls change, and to what."""

MOST_WAITING = 32
"""Calls that may wait, of all visitors together; whoever comes then sees that the page is busy."""


class _UnwantedError(Exception):
    """Nobody waits for the attack any longer."""


def style() -> str:
    """The page's own style sheet."""
    return resources.files("whorl.ui").joinpath("style.css").read_text(encoding="utf-8")


def build(playground: Playground, opening: OpeningExample) -> Any:
    """Make the page.

    Args:
        playground: what it offers.
        opening: the example that it opens with.

    Returns:
        A ``gradio.Blocks``, to be mounted by ``whorl.ui.server``.
    """
    gr = library()
    # Uploads are deleted as soon as they are read; whatever was never read goes within two minutes.
    with gr.Blocks(title="whorl playground", analytics_enabled=False, delete_cache=(60, 60)) as page:
        _connect(page, Handlers(playground, lay_out(playground), opening))
    return page.queue(max_size=MOST_WAITING, api_open=False)


def _connect(page: Any, do: Handlers) -> None:
    # Attacks and maps of all visitors wait in one line; a single pose is quick, and has a line of its own.
    heavy: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "craft", "trigger_mode": "multiple"}
    light: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "pose", "trigger_mode": "always_last"}
    fetching: dict[str, Any] = {"concurrency_limit": None, "trigger_mode": "multiple"}
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    # Not in a queue, so that a running attack learns at once that it is no longer wanted.
    at_once: dict[str, Any] = {"queue": False, "trigger_mode": "multiple"}
    parts = do.parts
    seen = [parts.tiles, parts.maps, parts.path]
    ran = [parts.progress, parts.clock]
    found = [*ran, *seen, parts.added, parts.files]
    chosen = [parts.network, parts.second, parts.attack, parts.eps, parts.steps]
    opened = page.load(_told(do.open), None, [parts.picked, parts.order, *found], **quiet)
    opened.then(_told(do.begin), [parts.order, *parts.pose], found, **fetching, **quiet)
    parts.samples.click(_told(do.sample), None, [parts.picked, *found], **quiet)
    parts.sent.upload(_told(do.upload), parts.sent, [parts.sent, parts.picked, *found], **quiet)
    ordered = parts.start.click(_told(do.order), None, parts.order, **at_once, **quiet)
    # Fetching weights may take minutes, in which others can craft.
    needed = [parts.order, parts.network, parts.second]
    fetched = ordered.then(_told(do.load), needed, parts.progress, **fetching, **quiet)
    fetched.then(_told(do.craft), [parts.order, *chosen, *parts.pose], found, **heavy, **quiet)
    parts.clock.tick(_told(do.tick), None, ran, concurrency_limit=None, trigger_mode="once", **quiet)
    parts.stop.click(_told(do.stop), None, parts.progress, **at_once, **quiet)
    parts.maps.click(_told(do.go_to_cell), None, parts.pose, **at_once, **quiet)
    parts.upright.click(_told(do.go_upright), None, [*parts.pose, parts.path], **at_once, **quiet)
    priced = [parts.network, parts.attack, parts.steps]
    library().on([one.change for one in priced], _told(do.price), priced, parts.cost, **at_once, **quiet)
    # One listener for all four, so that what is seen last is what the sliders say last, whoever moved them.
    moved = [slider.change for slider in parts.pose]
    library().on(moved, _told(do.show_pose), parts.pose, seen, **light, **quiet)
    page.unload(_told(do.leave))


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    """Say to gradio which arguments it is to fill in itself: it looks for its own types among the annotations."""
    # Gradio is imported late, so the annotations in the source cannot name its types.
    gr = library()
    own = {"request": gr.Request, "event": gr.EventData}
    plain: Any = getattr(function, "__func__", function)
    plain.__annotations__ = {name: kind for name, kind in own.items() if name in plain.__annotations__}
    return function


class Handlers:
    """What happens when a control is used.

    Args:
        playground: what is on offer, and who has it open.
        parts: the controls.
        opening: the example that the page opens with.
    """

    def __init__(self, playground: Playground, parts: PageParts, opening: OpeningExample) -> None:
        self.playground, self.parts, self.opening = playground, parts, opening

    def open(self, request: Any) -> Changes:
        """A page was opened: the example's photograph is chosen."""
        example, visit = self.playground.example, self._visit(request)
        changes = self._pick(visit, example) if example else {self.parts.progress: ""}
        return changes | {self.parts.order: visit.order()}

    def begin(
        self, order: float, angle: float, scale: float, right: float, down: float, request: Any
    ) -> Iterator[Changes]:
        """Show the opening example, as soon as it is there."""
        visit, mine, opening = self._visit(request), int(order), self.opening
        if not visit.wants(mine) or self.playground.example is None:
            yield self._unchanged()
            return
        visit.job = opening.job
        yield {self.parts.progress: _progress(opening.job), self.parts.clock: library().Timer(active=True)}
        while not opening.done.wait(0.1):
            if not visit.wants(mine):
                return
        if opening.pair is None or not visit.wants(mine):
            words = fragments.notice(f"Sorry, {opening.trouble}", bad=True) if opening.trouble else ""
            yield {self.parts.progress: words} if visit.wants(mine) else self._unchanged()
            return
        yield {self.parts.progress: _progress(opening.job)}
        yield from self._show(visit, mine, opening.pair, _pose(angle, scale, right, down), known=opening.map)

    def leave(self, request: Any) -> None:
        """It was closed."""
        self.playground.visits.leave(str(request.session_hash))

    def sample(self, event: Any, request: Any) -> Changes:
        """A bundled photograph was chosen."""
        return self._pick(self._visit(request), self.playground.samples[int(event.sample)])

    def upload(self, path: str | None, request: Any) -> Changes:
        """A file was sent."""
        parts, visit = self.parts, self._visit(request)
        if path is None:
            return {parts.sent: None}
        try:
            return self._pick(visit, upload(Path(path))) | {parts.sent: None}
        except WhorlError as error:
            kept = fragments.chosen(visit.image) if visit.image else ""
            return {parts.sent: None, parts.picked: fragments.notice(f"Sorry, {error}", bad=True) + kept}
        finally:
            # Gradio put the file into a folder that is named by the file's hash.
            with suppress(OSError):
                Path(path).parent.rmdir()

    def order(self, request: Any) -> int:
        """An attack is wanted, and what runs is not any longer."""
        return self._visit(request).order()

    def stop(self, request: Any) -> Changes:
        """What runs is no longer wanted."""
        self._visit(request).stop()
        return {self.parts.progress: fragments.notice("Stopped.")}

    def price(self, network: str, attack: str, steps: float) -> Changes:
        """Another attack is chosen: what it costs is said before it starts."""
        settings = PairSettings(attack=attack, steps=int(steps), seed=self.playground.seed)
        return {self.parts.cost: fragments.cost(settings, self.playground.expected(network, settings))}

    def load(self, order: float, network: str, second: str, request: Any) -> Iterator[Changes]:
        """Networks are needed."""
        visit, mine = self._visit(request), int(order)
        if not visit.wants(mine):
            yield self._unchanged()
            return
        yield {self.parts.progress: fragments.notice(f"Loading {network}. Without its weights here, this takes long.")}
        try:
            for name in (network, second):
                if name != NO_SECOND:
                    self.playground.network(name)
        except WhorlError as error:
            if visit.wants(mine):
                visit.stop()  # there is nothing to craft on
                yield {self.parts.progress: fragments.notice(f"Sorry, {error}", bad=True)}

    def craft(  # wide: gradio fills an argument for each control
        self,
        order: float,
        network: str,
        second: str,
        attack: str,
        levels: float,
        steps: float,
        angle: float,
        scale: float,
        right: float,
        down: float,
        request: Any,
    ) -> Iterator[Changes]:
        """It is an attack's turn."""
        visit, mine = self._visit(request), int(order)
        shown, clock = self.parts.progress, self.parts.clock
        if not visit.wants(mine):
            yield self._unchanged()
            return
        if visit.image is None:
            yield {shown: fragments.notice("Choose an image first.", bad=True)}
            return
        settings = PairSettings(attack=attack, eps=levels / 255, steps=int(steps), seed=self.playground.seed)
        job = visit.job = PairJob(settings)
        yield {shown: _progress(job), clock: library().Timer(active=True)}

        def on_step(step: StepTaken) -> None:
            if not visit.wants(mine):
                raise _UnwantedError
            job.follow(step, fragments.title(step.attack))

        try:
            beside = "" if second == NO_SECOND else second
            made = self.playground.craft(network, beside, visit.image, settings, on_step)
            job.state, job.busy = "Crafted.", False
            yield {shown: _progress(job)}
            yield from self._show(visit, mine, made, _pose(angle, scale, right, down), network=network)
        except _UnwantedError:
            pass
        except WhorlError as error:
            visit.job = None
            yield {shown: fragments.notice(f"Sorry, {error}", bad=True), clock: library().Timer(active=False)}
        finally:
            job.busy = False
        if visit.stopped:  # otherwise what came next has the word
            job.state = "Stopped."
            yield {shown: _progress(job)}

    def tick(self, request: Any) -> Changes:
        """An attack may have gone on."""
        job = self._visit(request).job
        if job is None:
            return self._unchanged()
        return {self.parts.progress: _progress(job), self.parts.clock: library().Timer(active=job.busy)}

    def show_pose(self, angle: float, scale: float, right: float, down: float, request: Any) -> Changes:
        """A slider was moved."""
        visit = self._visit(request)
        crafted, found = visit.crafted, visit.map
        if crafted is None:
            return {self.parts.tiles: NO_TILES}
        pose = _pose(angle, scale, right, down)
        posed = predict(crafted, pose)
        path = fragments.path(visit.walk(posed), crafted)
        changes: Changes = {self.parts.tiles: fragments.tiles(posed, crafted), self.parts.path: path}
        if found is not None and found.complete:
            changes[self.parts.maps] = fragments.heat_maps(found, crafted, pose)
        return changes

    def go_to_cell(self, event: Any) -> Changes:
        """A cell of a map was chosen."""
        return self._go(Pose(angle=float(event.angle), scale=float(event.scale)))

    def go_upright(self, request: Any) -> Changes:
        """Everything is to be as it was, and a new path begins."""
        self._visit(request).path = []
        return self._go(Pose()) | {self.parts.path: NO_PATH}

    def _unchanged(self) -> Changes:
        # A generator that yields nothing would empty what it is connected to.
        return {self.parts.progress: library().skip()}

    def _go(self, pose: Pose) -> Changes:
        return dict(zip(self.parts.pose, (pose.angle, pose.scale, *pose.shift), strict=True))

    def _visit(self, request: Any) -> Visit:
        return self.playground.visits.of(str(request.session_hash))

    def _pick(self, visit: Visit, image: ChosenImage) -> Changes:
        shown = fragments.chosen(image)
        visit.order()  # whatever runs was about another image
        visit.image, visit.crafted, visit.map, visit.path = image, None, None, []
        parts = self.parts
        empty = {parts.progress: "", parts.tiles: NO_TILES, parts.added: NO_WHORLS, parts.maps: NO_MAPS}
        empty |= {parts.path: NO_PATH, parts.files: NO_FILES}
        return {parts.picked: shown, **empty, parts.clock: library().Timer(active=False)}

    def _show(
        self,
        visit: Visit,
        mine: int,
        crafted: CraftedPair,
        pose: Pose,
        *,
        network: str = "",
        known: SuccessMap | None = None,
    ) -> Iterator[Changes]:
        """Show an example: what it looks like, what to take home, and its map, which may be known."""
        parts = self.parts
        visit.crafted, visit.map, visit.path = crafted, None, []
        yield {
            parts.tiles: fragments.tiles(predict(crafted, pose), crafted),
            parts.added: fragments.perturbations(whorls(crafted), crafted.settings),
            parts.files: _files(crafted, network or self.playground.networks[0].name),
            parts.path: NO_PATH,
        }
        for found in success_map(crafted) if known is None else (known,):
            if not visit.wants(mine):
                return
            visit.map = found
            yield {parts.maps: fragments.heat_maps(found, crafted, pose)}


def _files(crafted: CraftedPair, network: str) -> str:
    files = bundle.downloads(crafted, network)
    if bundle.recognised(crafted):
        return fragments.downloads(files, bundle.commands(crafted, network))
    note = f"{crafted.model.name} does not recognise the clean image, so that `whorl attack` would refuse to repeat it."
    return fragments.downloads(files, (), note)


def _progress(job: PairJob) -> str:
    return fragments.progress(job.settings, job.taken, job.state)


def _pose(angle: float, scale: float, right: float, down: float) -> Pose:
    return Pose(angle=float(angle), scale=float(scale), shift=(float(right), float(down)))
