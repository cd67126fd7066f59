"""Which attacks of TransferAttack's zoo run on a network of ours, and why the others do not.

    python benchmarks/transferattack_zoo.py --transferattack CLONE

Every name of the clone is tried on two photographs, in one batch and, where that fails, one by one: with two steps, and
with two of whatever else it has many of, so that it is quick; where it refuses those, as it comes. Targeted attacks get
targets. ``benchmarks/results/transferattack-zoo.json`` has what became of each, and is saved after each; run again, it
goes on where it stopped. ``--only`` takes names, and tries them again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

import whorl
from judge import Data
from measure import HERE, metadata, save
from whorl import WhorlError, interop
from whorl.interop.library import REQUIRED
from whorl.interop.transferattack import TransferAttackClone

FEW = 2
# Whatever an attack has many of; 4 where it must be a square.
MANY = re.compile(r"(num_|n_|N_).*|.*_?(epoch|iter|steps?|number)|K|N")
SQUARES = {"n_ens"}


class _Late(BaseException):
    """Not an Exception: nothing that an attack catches may stop it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise in whatever takes longer."""

    def late(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def small(known: dict[str, Any]) -> dict[str, Any]:
    """Settings with few of everything, for those whose default is a larger whole number.

    >>> small({"epoch": 300, "alpha": 0.1, "num_scale": 20, "n_ens": 25, "kernel_size": 5})
    {'epoch': 2, 'num_scale': 2, 'n_ens': 4}
    """
    found = {}
    for name, default in known.items():
        if MANY.fullmatch(name) and isinstance(default, int) and not isinstance(default, bool) and default > FEW:
            found[name] = FEW * FEW if name in SQUARES else FEW
    return found


def tried(zoo: TransferAttackClone, name: str, net: nn.Module, data: Data, seconds: float) -> dict[str, Any]:
    """What became of one attack: gradients and seconds, or why it does not run."""
    began = time.perf_counter()
    reasons: list[str] = []
    try:
        known = zoo.settings(name)
    except WhorlError as error:
        return {"ran": False, "reason": str(error)}
    default = zoo.targeted_only(name)
    y, target = (None, (data.y + 1) % 1000) if default else (data.y, None)
    steps = {word: FEW for word in ("epoch",) if known.get(word, REQUIRED) is not REQUIRED}
    for settings in (small(known), steps, {}):
        for batched in (True, False):
            try:
                attack = interop.peer(f"{zoo.key}:{name}", path=zoo.path, batched=batched, **settings)
                with limited(seconds - (time.perf_counter() - began)):
                    adv, info = attack(net, data.x, y, target=target, ids=data.ids, return_info=True)
            except WhorlError as error:
                reasons.append(str(error))
                continue
            except _Late:
                reasons.append(f"it takes longer than {seconds:g} s on this machine.")
                return {"ran": False, "reason": reasons[0]}
            return {
                "ran": True,
                "targeted": default,
                "batched": batched and not zoo.alone(name),
                "settings": settings,
                "gradients": None if info.grad_evals is None else info.grad_evals.tolist(),
                "change": round(255 * float((adv - data.x).abs().max()), 3),
                "seconds": round(time.perf_counter() - began, 1),
            }
    return {"ran": False, "reason": reasons[0]}


def commit(folder: str) -> str | None:
    """Of the clone; None where it is no git clone."""
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run([git, "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def main(argv: Sequence[str] | None = None) -> None:
    """Try what has not been tried yet, and save after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transferattack", required=True, help="folder of the clone")
    parser.add_argument("--only", help="names, joined by commas; they are tried again")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--seconds", type=float, default=120.0, help="most for one attack")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "transferattack-zoo.json")
    options = parser.parse_args(argv)
    zoo = TransferAttackClone(options.transferattack)
    net, data = whorl.load_model(options.source), Data.load(None, 2, options.size, "cpu")
    about = metadata(
        torch.device("cpu"),
        source=options.source,
        size=options.size,
        seconds=options.seconds,
        clone=commit(options.transferattack),
        clone_sha256=zoo.version(),
    )
    saved = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    there = saved.get("metadata", {}).get("clone_sha256") == zoo.version()
    found: dict[str, Any] = saved["attacks"] if there else {}
    again = options.only.split(",") if options.only else []
    for name in again or [name for name in zoo.attacks() if name not in found]:
        found[name] = tried(zoo, name, net, data, options.seconds)
        said = found[name].get("reason") or f"{found[name]['seconds']} s"
        print(f"{name:16s} {said}", file=sys.stderr, flush=True)
        listed = {name: found[name] for name in zoo.attacks() if name in found}
        save({"metadata": about, "attacks": listed}, options.json)
    print(f"{sum(one['ran'] for one in found.values())} of {len(found)} run")


if __name__ == "__main__":
    main()
