"""PGD of each other library on a network and on ``est.wrap(network)``: who is fooled in the paper's twelve poses.

    python benchmarks/interop.py --data NIPS17_FOLDER --n 500 --device cuda

Each library is called as its own documentation shows, with the same bound, steps and step size, on batches of the same
images from the same seed. Prints the mean success rate over the paper's twelve poses with the plain and with the
affine-invariant gradient, and an exact paired test of the two. A library that cannot be imported is named and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from judge import Data, evaluated, percent, rows
from measure import HERE, headline, metadata, save, table
from whorl.geometry.kernels import Sigma
from whorl.interop.libraries import find_library

EPS, STEPS = 16 / 255, 10
ALPHA = 5 * EPS / STEPS
PLAIN, WRAPPED = "plain", "affine-invariant"
KERNEL: Sigma = "reference"  # the authors' kernel, as in the paper's tables


@dataclass(frozen=True, kw_only=True)
class Row:
    """One library, its attack, and how its documentation calls it on (network, images, labels)."""

    library: str
    attack: str
    run: Callable[[nn.Module, Tensor, Tensor], Tensor]


def torchattacks_pgd(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """PGD of torchattacks."""
    library = import_module("torchattacks")
    adv: Tensor = library.PGD(net, eps=EPS, alpha=ALPHA, steps=STEPS)(x, y)
    return adv


def torchattack_pgd(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """PGD of torchattack."""
    library = import_module("torchattack")
    adv: Tensor = library.PGD(net, device=x.device, eps=EPS, alpha=ALPHA, steps=STEPS)(x, y)
    return adv.detach()


def foolbox_pgd(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """PGD of foolbox."""
    library = import_module("foolbox")
    attack = library.attacks.LinfPGD(abs_stepsize=ALPHA, steps=STEPS)
    _, adv, _ = attack(library.PyTorchModel(net, bounds=(0, 1), device=x.device), x, y, epsilons=EPS)
    clipped: Tensor = adv
    return clipped


def art_pgd(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """PGD of the Adversarial Robustness Toolbox."""
    with torch.no_grad():
        classes = net(x[:1]).shape[1]
    classifier = import_module("art.estimators.classification").PyTorchClassifier(
        model=net,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(x.shape[1:]),
        nb_classes=classes,
        clip_values=(0.0, 1.0),
        device_type="gpu" if x.is_cuda else "cpu",
    )
    attack = import_module("art.attacks.evasion").ProjectedGradientDescent(
        classifier, eps=EPS, eps_step=ALPHA, max_iter=STEPS, num_random_init=1, batch_size=len(x), verbose=False
    )
    return torch.from_numpy(attack.generate(x.cpu().numpy(), y.cpu().numpy())).to(x)


def autoattack_apgd(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """APGD on the cross entropy, the first attack of AutoAttack; the images of highest loss."""
    library = import_module("pyautoattack")
    attack = library.AutoAttack(net, norm="Linf", eps=EPS, seed=0, device=x.device)
    attack.apgd.n_restarts, attack.apgd.n_iter = 1, STEPS
    # The whole AutoAttack leaves images alone that the source takes for something else to begin with.
    adv: Tensor = attack.apgd.perturb(x, y, best_loss=True)
    return adv


ROWS = (
    Row(library="torchattacks", attack="PGD", run=torchattacks_pgd),
    Row(library="torchattack", attack="PGD", run=torchattack_pgd),
    Row(library="foolbox", attack="LinfPGD", run=foolbox_pgd),
    Row(library="art", attack="ProjectedGradientDescent", run=art_pgd),
    Row(library="pyautoattack", attack="APGD-CE", run=autoattack_apgd),
)


def importable(rows: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """Those whose library is there, and why each of the others is not."""
    there, missing = [], {}
    for row in rows:
        try:
            find_library(row.library).load()
        except (ImportError, whorl.WhorlError) as error:
            missing[row.library] = str(error)
        else:
            there.append(row)
    return there, missing


def craft(row: Row, net: nn.Module, x: Tensor, y: Tensor, *, batch_size: int, seed: int) -> tuple[Tensor, float]:
    """Attack all images, a batch at a time; give them and the seconds it took."""
    torch.manual_seed(seed)  # the libraries draw from the global generator
    start, parts = time.perf_counter(), []
    for i in range(0, len(x), batch_size):
        parts.append(row.run(net, x[i : i + batch_size], y[i : i + batch_size]).detach().cpu())
    made = torch.cat(parts).to(x.device)
    far = float((made - x).abs().max())
    assert far <= EPS + 1e-5, f"{row.library} left the ball: {far}"
    return made, time.perf_counter() - start


def measure(
    row: Row, source: nn.Module, targets: Mapping[str, nn.Module], data: Data, *, batch_size: int, seed: int
) -> dict[str, Any]:
    """Attack with both gradients and evaluate on the targets in twelve poses."""
    estimator = whorl.AffineInvariant(sigma=KERNEL)
    networks = {PLAIN: source, WRAPPED: estimator.wrap(source).eval()}
    made, seconds = {}, {}
    for name, net in networks.items():
        made[name], seconds[name] = craft(row, net, data.x, data.y, batch_size=batch_size, seed=seed)
    done = evaluated(targets, data, made, batch_size=batch_size)
    results = []
    for target in targets:
        compared = done.compare(WRAPPED, PLAIN, target)
        results.append(
            {
                "target": target,
                "mean_success_rate": {name: percent(done, name, target) for name in networks},
                "wrapped_better": compared.b,
                "plain_better": compared.c,
                "p_value": compared.p_value,
                "counts": [
                    {"gradient": cell["attack"], **{key: cell[key] for key in cell if key not in ("attack", "target")}}
                    for cell in rows(done)
                    if cell["target"] == target
                ],
            }
        )
    return {
        "library": row.library,
        "version": find_library(row.library).version(),
        "attack": row.attack,
        "estimator": repr(estimator),
        "seconds": seconds,
        "targets": results,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Craft, evaluate, print, save."""
    options = _options(argv)
    device = torch.device(options.device)
    data = Data.load(options.data, options.n, options.size, device)
    source = whorl.load_model(options.source, device=device)
    targets = {name: whorl.load_model(name, device=device) for name in options.targets.split(",")}
    there, missing = importable([row for row in ROWS if options.libraries in ("all", row.library)])
    for library, reason in missing.items():
        print(f"{library} left out: {reason}", file=sys.stderr)
    if not there:
        raise SystemExit("none of the libraries can be imported. pip install 'torchwhorl[interop]'")
    results = []
    for row in there:
        results.append(measure(row, source, targets, data, batch_size=options.batch_size, seed=options.seed))
        print(json.dumps({"library": row.library, "seconds": results[-1]["seconds"]}), file=sys.stderr, flush=True)
    about = metadata(
        device,
        data=Path(options.data).name if options.data else "samples",
        n=len(data.ids),
        ids=data.ids,
        size=options.size,
        eps="16/255",
        steps=STEPS,
        alpha="8/255",
        seed=options.seed,
        batch_size=options.batch_size,
        source=options.source,
        weights_sha256={name: target.weights_sha256 for name, target in targets.items()},
        left_out=missing,
    )
    print(headline(about))
    print(markdown(results) if options.markdown else shown(results))
    path = options.json or (None if options.quick else HERE / "results" / f"interop-{device.type}.json")
    if path:
        save({"metadata": about, "results": results}, path)


HEADINGS = ("attack", "target", PLAIN, WRAPPED, "difference", "better on", "p")


def lines(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The cells of a table, a line a library and target."""
    made = []
    for result in results:
        for found in result["targets"]:
            rates = found["mean_success_rate"]
            made.append(
                [
                    f"{result['library']} {result['version']} {result['attack']}",
                    found["target"],
                    f"{rates[PLAIN]:.1f}",
                    f"{rates[WRAPPED]:.1f}",
                    f"{rates[WRAPPED] - rates[PLAIN]:+.1f}",
                    f"{found['wrapped_better']}:{found['plain_better']}",
                    f"{found['p_value']:.2g}",
                ]
            )
    return made


def shown(results: Sequence[Mapping[str, Any]]) -> str:
    """Lay the results out for a terminal."""
    return table(HEADINGS, lines(results))


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Lay the results out for the documentation."""
    rows = [HEADINGS, ["---", "---", *["---:"] * (len(HEADINGS) - 2)], *lines(results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="NIPS17 or class folder; the bundled samples without it")
    parser.add_argument("--n", type=int, help="first images only; at least 100 for a result that means anything")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--targets", default="efficientnet_lite0,mobilenet_v2,resnet18", help="joined by commas")
    parser.add_argument("--libraries", default="all", help="one of them, or all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to save (default: benchmarks/results/interop-DEVICE.json)")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")
    parser.add_argument("--quick", action="store_true", help="save only with --json")
    options = parser.parse_args(argv)
    if options.quick and options.n is None:
        options.n = 2
    return options


if __name__ == "__main__":
    main()
