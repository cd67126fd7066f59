"""Table 7 of the paper: what a transfer attack as a start saves score-based attacks, target by target.

What is counted. An image counts for a target if the target, defence and all, classifies the clean image correctly;
that is asked beforehand, outside the budget. Success: within the budget the target was shown an image inside the ball
that it answered wrongly. Every image that a target is shown during an attack is a query, the check of the start
included, so a start that succeeds by itself costs one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import whorl
from whorl.attacks import Attack
from whorl.attacks.blackbox.score.noise import NoiseSearch
from whorl.data import Images, StartFolder
from whorl.defenses import load_defense
from whorl.errors import WhorlError
from whorl.models import Classifier, Ensemble, load_model, model_names
from whorl.progress import Progress, silent
from whorl.runs.crafting import craft
from whorl.runs.folder import environment, folder_name
from whorl.runs.pictures import Loaded
from whorl.runs.query_blocks import Blocks
from whorl.runs.query_rows import Table7, count, write
from whorl.runs.targets import split_target

ATTACKS = ("nes", "spsa", "nattack")
STARTS = ("none", "pgd", "ti-dim", "ai-dim")
SURROGATES = ("resnet18", "mobilenet_v2", "efficientnet_lite1")
DEFENDED = tuple(f"efficientnet_lite0+{name}" for name in ("jpeg", "bitdepth", "resize-pad", "randmix"))
NOISE = "noise"
"""A row of its own, beside the attacks: sign noise at the ball's corners. It has no start."""


def default_targets() -> tuple[str, ...]:
    """EfficientNet-Lite0 behind each input defence, and every adversarially trained model that there is."""
    trained = tuple(name for name in model_names() if name.endswith((".ens-at", ".alp")))
    return (*trained, *DEFENDED)


def table7(
    images: Images,
    out: str | Path,
    *,
    attacks: Sequence[str] = ATTACKS,
    starts: Sequence[str] = STARTS,
    start_settings: Mapping[str, Mapping[str, Any]] | None = None,
    targets: Sequence[str] | Mapping[str, nn.Module] | None = None,
    surrogates: Sequence[str] | Classifier | Ensemble = SURROGATES,
    eps: float = 16 / 255,
    budget: int = 10_000,
    seed: int = 0,
    block: int = 25,
    limits: Mapping[str, int] | None = None,
    device: str | torch.device = "cpu",
    time_limit: float | None = None,
    progress: Progress = silent,
) -> Table7:
    """Run table 7, going on where an earlier call with the same settings stopped.

    Images are worked through in blocks; each block meets every target, attack and start before the next one begins.
    So whenever it ends, by the limit, by Ctrl-C or by force, what is there is a table over fewer images. A block that
    was cut is done again from scratch, and its queries are reported as discarded.

    Args:
        images: (N, 3, H, W) images in [0, 1], labels, and ids.
        out: folder for results, and for the starts as 8-bit images (``starts/``).
        attacks: names of score-based attacks, and "noise" for the baseline, which runs without a start.
        starts: "none", or names of gradient attacks, crafted on the surrogates with the same ``eps``.
        start_settings: by start, settings of its attack other than ``eps``; its defaults where none are given.
        targets: names such as ``efficientnet_lite0+jpeg``, or networks by name; None is :func:`default_targets`.
        surrogates: names of the ensemble's members (mean logits), or a loaded one.
        eps: L∞ radius of starts and attacks.
        budget: most queries for each image.
        seed: of all randomness, the defences' included.
        block: images that are attacked together.
        limits: by target, the most images to use; for targets that are dear to ask.
        device: where to load networks given by name, and to compute.
        time_limit: seconds after which to stop; None is no limit.
        progress: called with each attack that is done.

    Returns:
        Table7, which is also written to ``out`` whenever a block is done.

    Raises:
        WhorlError: an unknown name, settings that differ from those of what ``out`` already holds, or a target that
            fails (what was finished is kept).
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    folder, where = Path(out), torch.device(device)
    named = default_targets() if targets is None else targets
    nets = dict(named) if isinstance(named, Mapping) else {name: load_target(name, where, seed) for name in named}
    cells = _cells(attacks, starts)
    blocks = Blocks(
        folder=folder,
        identity={
            "eps": eps,
            "budget": budget,
            "seed": seed,
            "block": block,
            "size": list(images.x.shape[-2:]),
            "attacks": {name: repr(_attack(name, eps=eps, budget=budget)) for name, _ in cells},
            "whorl_version": whorl.__version__,
        },
    )
    chosen = {start: {**(start_settings or {}).get(start, {}), "eps": eps} for start in starts if start != "none"}
    folders = _craft_starts(images, folder / "starts", chosen, surrogates, where, seed=seed, progress=progress)
    stopped = False
    jobs = [
        (begin, target, name, start)
        for begin in range(0, len(images.ids), block)
        for target in nets
        for name, start in cells
        if begin < (limits or {}).get(target, len(images.ids))
    ]
    try:
        for done, (begin, target, name, start) in enumerate(jobs):
            progress("table 7", done, len(jobs))
            end = min(begin + block, (limits or {}).get(target, len(images.ids)))
            part = Images(images.x[begin:end].to(where), images.y[begin:end].to(where), images.ids[begin:end])
            attack = _attack(name, eps=eps, budget=budget)
            if start != "none":
                attack = attack.with_(init=StartFolder(folders[start]))
            if not blocks.run(nets[target], part, attack, (name, start, target), seed=seed, deadline=deadline):
                stopped = True
                break
        else:
            progress("table 7", len(jobs), len(jobs))
    finally:
        table = count(
            blocks.done,
            cells,
            list(nets),
            complete=not stopped,
            discarded=blocks.discarded,
            folder=folder,
        )
        write(table, blocks.identity, environment(where))
    return table


def load_target(name: str, device: torch.device, seed: int = 0) -> nn.Module:
    """Load a network by a name such as ``efficientnet_lite0+jpeg``, its defences before it."""
    model, layers = split_target(name)
    net: nn.Module = load_model(model, device=device)
    for layer in layers:
        net = load_defense(layer, net, seed=seed)
    return net


def _cells(attacks: Sequence[str], starts: Sequence[str]) -> list[tuple[str, str]]:
    score = whorl.attack_names(kind="score")
    for name in attacks:
        if name not in (*score, NOISE):
            raise WhorlError(f"table 7 has score-based attacks: {', '.join(score)} or {NOISE}; got {name!r}.")
    if not attacks or not starts:
        raise WhorlError(f"expected an attack and a start at least; got {list(attacks)} and {list(starts)}.")
    for start in starts:
        if start not in ("none", *whorl.attack_names(kind="gradient")):
            raise WhorlError(f"a start is 'none' or a gradient attack such as 'ai-dim'; got {start!r}.")
    return [(name, start) for name in attacks for start in (("none",) if name == NOISE else starts)]


def _attack(name: str, *, eps: float, budget: int) -> Attack:
    return NoiseSearch(eps=eps, budget=budget) if name == NOISE else whorl.attack(name, eps=eps, budget=budget)


def _craft_starts(
    images: Images,
    out: Path,
    starts: Mapping[str, Mapping[str, Any]],
    surrogates: Sequence[str] | Classifier | Ensemble,
    device: torch.device,
    *,
    seed: int,
    progress: Progress,
) -> dict[str, Path]:
    """Craft every start, with its settings, on the surrogates, as 8-bit images: folders by start."""
    if not starts:
        return {}
    ensemble = (
        surrogates
        if isinstance(surrogates, Classifier | Ensemble)
        else Ensemble([load_model(name, device=device) for name in surrogates])
    )
    for start, settings in starts.items():
        craft(start, ensemble, Loaded(images), out, settings=settings, seed=seed, progress=progress)
    return {start: out / "adv" / start / folder_name(ensemble.name) for start in starts}
