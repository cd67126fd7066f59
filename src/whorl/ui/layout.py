"""Which controls the page has, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whorl.errors import imported
from whorl.models.zoo import PAPER
from whorl.ui import fragments
from whorl.ui.pair import PairSettings, pairs
from whorl.ui.playground import Offer, Playground

_HEADING = """
<header class="w-heading"><h1>whorl playground</h1>
<p>Craft an adversarial image twice, without and with the affine-invariant gradient. Then rotate, scale and translate
it, and see which version still fools the network that was attacked, and one that was not.</p></header>
"""
NO_TILES = fragments.empty(
    "Craft first; then the three versions appear here, and you can rotate, scale and translate them."
)
NO_WHORLS = fragments.empty("The perturbations.")
NO_MAPS = fragments.empty("A map over angle and scale.")
NO_PATH = ""
NO_FILES = fragments.empty("The images, the settings, and the commands that repeat them.")
NO_SECOND = "none"
# A click on a button inside tells Python which one it was.
_ON_CLICK = """
element.addEventListener("click", (event) => {
  const hit = event.target.closest("button[data-sample], button[data-angle]");
  if (hit) trigger("click", {...hit.dataset});
});
"""
_TICK = 0.3  # seconds


@dataclass(frozen=True, kw_only=True)
class PageParts:
    """The controls that do something, each a component of gradio's."""

    sent: Any
    samples: Any
    picked: Any
    network: Any
    second: Any
    attack: Any
    cost: Any
    eps: Any
    steps: Any
    start: Any
    stop: Any
    progress: Any
    tiles: Any
    angle: Any
    scale: Any
    right: Any
    down: Any
    upright: Any
    path: Any
    added: Any
    maps: Any
    files: Any
    order: Any
    """Hidden: the number of the job that was ordered last."""
    clock: Any
    """Hidden: ticks while an attack runs."""

    @property
    def pose(self) -> list[Any]:
        """The four sliders."""
        return [self.angle, self.scale, self.right, self.down]


def library() -> Any:
    """Gradio, imported when it is needed.

    Raises:
        WhorlError: it is not installed.
    """
    return imported("gradio", "the playground", extra="ui")


def lay_out(playground: Playground) -> PageParts:
    """Put the controls onto the ``gradio.Blocks`` that is open."""
    gr = library()
    parts: dict[str, Any] = {}
    _still(_HEADING)
    with gr.Row(elem_id="whorl"):
        with gr.Column(scale=4, min_width=300, elem_id="whorl-choose"):
            parts |= _image(gr, playground) | _attack(gr, playground)
        with gr.Column(scale=8, min_width=320, elem_id="whorl-see"):
            parts |= _pose(gr) | _findings(gr)
    return PageParts(**parts, order=gr.Number(0, visible=False, precision=0), clock=gr.Timer(_TICK, active=False))


def _image(gr: Any, playground: Playground) -> dict[str, Any]:
    _still("<h2>1 · Choose an image</h2>")
    return {
        "sent": gr.File(
            label="Drop a photograph, or choose one", file_types=["image"], height=140, elem_id="whorl-upload"
        ),
        "samples": gr.HTML(fragments.samples(playground.samples), js_on_load=_ON_CLICK, elem_id="whorl-samples"),
        "picked": _still(fragments.notice(playground.trouble, bad=True), "whorl-picked"),
    }


def _attack(gr: Any, playground: Playground) -> dict[str, Any]:
    _still("<h2>2 · Choose a network and an attack</h2>")
    network = gr.Dropdown(
        [(_describe(offer), offer.name) for offer in playground.networks],
        value=playground.networks[0].name,
        label="Network",
    )
    second = gr.Dropdown(
        [*((_describe(offer), offer.name) for offer in playground.networks), ("none", NO_SECOND)],
        value=playground.second or NO_SECOND,
        label="Second network, not attacked",
    )
    attack = gr.Dropdown(
        [(" and ".join(fragments.title(name) for name in both), key) for key, both in pairs().items()],
        value=PairSettings().attack,
        label="Two attacks",
    )
    cost = _still(fragments.cost(PairSettings(), None), "whorl-cost")
    with gr.Row():
        eps = gr.Slider(1, 32, value=round(PairSettings().eps * 255), step=1, label="ε (/255)", min_width=130)
        steps = gr.Slider(1, 50, value=PairSettings().steps, step=1, label="Steps", min_width=130)
    with gr.Row():
        start = gr.Button("Craft", variant="primary", elem_id="whorl-craft", min_width=130)
        stop = gr.Button("Stop", elem_id="whorl-stop", min_width=90)
    return {
        "network": network,
        "second": second,
        "attack": attack,
        "cost": cost,
        "eps": eps,
        "steps": steps,
        "start": start,
        "stop": stop,
        "progress": _still("", "whorl-progress"),
    }


def _pose(gr: Any) -> dict[str, Any]:
    _still("<h2>3 · Rotate, scale and translate it</h2>")
    tiles = _still(NO_TILES, "whorl-tiles")
    with gr.Row(elem_id="whorl-pose"):
        sliders = {
            "angle": gr.Slider(-180, 180, value=0, step=1, label="Angle", min_width=150),
            "scale": gr.Slider(0.4, 2, value=1, step=0.05, label="Scale", min_width=150),
            "right": gr.Slider(-80, 80, value=0, step=1, label="Right", min_width=150),
            "down": gr.Slider(-80, 80, value=0, step=1, label="Down", min_width=150),
        }
    upright = gr.Button("Back to upright, and start a new path", size="sm", elem_id="whorl-upright")
    return {"tiles": tiles, **sliders, "upright": upright, "path": _still(NO_PATH, "whorl-path")}


def _findings(gr: Any) -> dict[str, Any]:
    _still("<h2>Where each attack succeeds</h2>")
    maps = gr.HTML(NO_MAPS, js_on_load=_ON_CLICK, elem_id="whorl-maps")
    with gr.Row():
        with gr.Column(min_width=280):
            _still("<h2>Perturbations</h2>")
            added = _still(NO_WHORLS, "whorl-added")
        with gr.Column(min_width=280):
            _still("<h2>Download</h2>")
            files = _still(NO_FILES, "whorl-files")
    return {"added": added, "maps": maps, "files": files}


def _still(text: str, name: str | None = None) -> Any:
    """HTML that takes no clicks."""
    return library().HTML(text, js_on_load=None, elem_id=name)


def _describe(offer: Offer) -> str:
    if offer.here:
        return offer.name
    return f"{offer.name} ({'from the hub' if offer.name in PAPER else 'weights are fetched first'})"
