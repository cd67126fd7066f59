"""Table 7 of the paper on real weights: queries that a transfer attack as a start saves, target by target.

    python benchmarks/table7.py --data NIPS17_FOLDER --n 50 --device cuda --out table7 --time-limit 330

EfficientNet-Lite0 alone and behind each input defence is the target; ResNet-18, MobileNet-v2 and EfficientNet-Lite1 are
the surrogates. Beside the attacks stands sign noise at the same budget. What is counted, and what success means, is
said in ``whorl.runs.query_table``. Images go through in blocks that meet every target before the next block begins, so
that a run that is stopped by its time limit has a whole table over fewer images. Run again with the same --out, it goes
on.

The networks are the ones that ``whorl.load_model`` gives, with each normalisation folded into the convolution before it
(the same function, up to rounding; the largest difference is printed) and channels last. ``--half`` names the targets
whose convolutions run in float16: those behind a random defence, whose own randomness is far larger than the rounding.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from measure import headline, metadata, save, table
from parallel_jpeg import ParallelJpeg
from whorl.data import Images
from whorl.defenses import Defended, load_defense
from whorl.interop import find_estimator
from whorl.models.prepared.fold import fold
from whorl.runs.networks import split_target
from whorl.runs.query_rows import Table7
from whorl.runs.query_table import ATTACKS, DEFENDED, NOISE, STARTS, SURROGATES, table7

BARE = "efficientnet_lite0"
RANDOM = tuple(f"{BARE}+{name}" for name in ("resize-pad", "randmix"))


# ---------------------------------------------------------------------------------------------------------------------
# The same networks, faster


class Half(nn.Module):
    """A timm network whose features are computed in float16 and whose last layer is not: logits keep their digits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Classify normalised images."""
        with torch.autocast(x.device.type, torch.float16):
            features = self.net.forward_features(x)  # type: ignore[operator]  # timm's, untyped
        logits: Tensor = self.net.forward_head(features.float())  # type: ignore[operator]  # as above
        return logits


def quick(name: str, device: torch.device, like: Tensor, *, half: bool) -> whorl.Classifier:
    """Load a classifier, and make it fast without changing what it computes."""
    clf = whorl.load_model(name, device=device)
    with torch.no_grad():
        expected = clf(like)
        clf.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub forgets it
        folded = fold(clf.net, clf.size)
        if half:
            clf.net = Half(clf.net)
        gap = float((clf(like) - expected).abs().max())
    precision = "float16 features" if half else "float32"
    print(f"{name}: {folded} normalisations folded, {precision}, logits differ by at most {gap:.2g}", file=sys.stderr)
    return clf


def load_targets(
    names: Sequence[str], device: torch.device, like: Tensor, *, half: Sequence[str], workers: int, seed: int
) -> dict[str, nn.Module]:
    """Load targets by name, their defences before them."""
    nets: dict[str, nn.Module] = {}
    for name in names:
        model, layers = split_target(name)
        net: nn.Module = quick(model, device, like, half=name in half)
        for layer in layers:
            if layer == "jpeg" and workers > 1:
                net = Defended(net, ParallelJpeg(workers=workers), seed=seed)
            else:
                net = load_defense(layer, net, seed=seed)
        nets[name] = net
    return nets


@torch.no_grad()
def rates(nets: dict[str, nn.Module], like: Tensor, device: torch.device) -> dict[str, float]:
    """Images a second that each target answers, on one pass of an attack's size."""
    found = {}
    batch = like.repeat(-(-200 // len(like)), 1, 1, 1)[: 200 if device.type == "cuda" else 2]
    for name, net in nets.items():
        net(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        net(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found[name] = round(len(batch) / (time.perf_counter() - start), 1)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Showing


def show(found: Table7) -> str:
    """Lay out the rows target by target: success rate, mean queries over successes, over all."""
    lines = []
    for row in found.rows:
        asr = "-" if row.asr is None else f"{100 * row.asr:.1f}"
        means = ["-" if m is None else f"{m:.0f}" for m in (row.mean_queries, row.mean_queries_all)]
        counts = [str(row.n), asr, *means, str(row.n_start_success), f"{row.seconds:.0f}"]
        lines.append([f"{row.target}  {row.label}", *counts])
    return table(["target and attack", "n", "ASR %", "queries", "with failures", "start was enough", "s"], lines)


def verdicts(found: Table7, best: str = "ai-dim") -> dict[str, Any]:
    """What the table was made to find out: does ``best`` need fewest queries, and does it save nine tenths?"""
    defended = [f for f in found.findings if "+" in f["target"]]
    saved: dict[str, dict[str, float | None]] = {}
    for finding in defended:
        saving = finding.get("saving_mean_queries_all", {}).get(best)
        saved.setdefault(finding["target"], {})[finding["attack"]] = saving
    bare = {row.label: row.asr for row in found.rows if row.target == BARE and row.start == "none"}
    return {
        "fewest_with_failures_counted": sum(f["fewest_mean_queries_all"] == best for f in defended),
        "fewest_over_successes": sum(f["fewest_mean_queries"] == best for f in defended),
        "comparisons": len(defended),
        "saving_with_failures_counted": saved,
        "columns_that_save_90": sum(
            all(s is not None and s >= 0.9 for s in by_attack.values()) for by_attack in saved.values()
        ),
        "undefended_asr": bare,
        "undefended_at_least_90": all((bare.get(name) or 0) >= 0.9 for name in ATTACKS if name in bare),
        "beats_noise": {
            name: (bare[name] or 0) > (bare[NOISE] or 0) for name in ATTACKS if name in bare and NOISE in bare
        },
    }


def with_kernel(starts: Sequence[str], sigma: str) -> dict[str, dict[str, Any]]:
    """Settings of those starts that are affine-invariant with the default kernel.

    >>> with_kernel(["none", "ti-dim", "ai-dim"], "0.5")
    {'ai-dim': {'estimator': AffineInvariant(sigma=0.5)}}
    """
    kernel, default = find_estimator(f"ai:{sigma}"), whorl.AffineInvariant()
    chosen = [name for name in starts if name != "none" and getattr(whorl.attack(name), "estimator", None) == default]
    return {name: {"estimator": kernel} for name in chosen}


def main(argv: Sequence[str] | None = None) -> None:
    """Load, attack, print, save."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="NIPS17 or class folder; the bundled samples without it")
    parser.add_argument("--n", type=int, default=50, help="images")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True, help="folder; what it holds of the same work is kept")
    parser.add_argument("--attacks", default=",".join((NOISE, *ATTACKS)), help="comma-separated")
    parser.add_argument("--starts", default=",".join(STARTS), help="comma-separated")
    parser.add_argument("--sigma", default="reference", help="of affine-invariant starts: pixels, or a name")
    parser.add_argument("--targets", default=",".join((BARE, *DEFENDED)), help="comma-separated")
    parser.add_argument("--surrogates", default=",".join(SURROGATES), help="comma-separated")
    parser.add_argument("--limits", default="", help="fewer images for dear targets: NAME=8,NAME=20")
    parser.add_argument("--half", default=",".join(RANDOM), help="targets whose convolutions run in float16 on a GPU")
    parser.add_argument("--block", type=int, default=25, help="images attacked together")
    parser.add_argument("--eps", type=float, default=16, help="of 255")
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, help="seconds in all; then it stops and writes what it has")
    parser.add_argument("--jpeg-workers", type=int, default=torch.get_num_threads(), help="processes for JPEG")
    parser.add_argument("--json", type=Path, help="save the table here as well, with what it depends on")
    options = parser.parse_args(argv)

    device = torch.device(options.device)
    names = options.targets.split(",")
    limits = {name: int(most) for name, _, most in (part.rpartition("=") for part in options.limits.split(",") if part)}
    x, y, ids = (
        whorl.load_images(options.data, limit=options.n, size=options.size)
        if options.data
        else whorl.load_samples(options.n, size=options.size)
    )
    like = x[:8].to(device)
    half = options.half.split(",") if device.type == "cuda" else []
    nets = load_targets(names, device, like, half=half, workers=options.jpeg_workers, seed=options.seed)
    speeds = rates(nets, like, device)
    print("images a second:", ", ".join(f"{name} {rate:,.0f}" for name, rate in speeds.items()), file=sys.stderr)

    def report(stage: str, done: int, total: int) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {stage}: {done}/{total}", file=sys.stderr, flush=True)

    left = None if options.time_limit is None else options.time_limit - (time.monotonic() - began)
    found = table7(
        Images(x, y, ids),
        options.out,
        attacks=options.attacks.split(","),
        starts=options.starts.split(","),
        start_settings=with_kernel(options.starts.split(","), options.sigma),
        targets=nets,
        surrogates=options.surrogates.split(","),
        eps=options.eps / 255,
        budget=options.budget,
        seed=options.seed,
        block=options.block,
        limits=limits,
        device=device,
        time_limit=left,
        progress=report,
    )
    for net in nets.values():
        if isinstance(net, Defended) and isinstance(net.defense, ParallelJpeg):
            net.defense.close()
    about = metadata(
        device,
        data=Path(options.data).name if options.data else "samples",
        n=len(ids),
        size=options.size,
        eps=f"{options.eps:g}/255",
        budget=options.budget,
        seed=options.seed,
        block=options.block,
        surrogates=options.surrogates.split(","),
        sigma=options.sigma,
        half=half,
        images_per_second=speeds,
        complete=found.complete,
        discarded_queries=found.discarded_queries,
        seconds=round(time.monotonic() - began, 1),
    )
    print(headline(about))
    print(show(found))
    print(verdicts(found))
    content = {"metadata": about, "verdicts": verdicts(found), "findings": found.findings}
    save({**content, "rows": [{"label": row.label, **vars(row)} for row in found.rows]}, options.out / "results.json")
    if options.json:
        save({**content, "rows": [{"label": row.label, **vars(row)} for row in found.rows]}, options.json)


if __name__ == "__main__":
    main()
