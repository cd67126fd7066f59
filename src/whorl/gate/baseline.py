"""An earlier gate to compare with: the same images, paired; only a significant regression counts.

The rule. Of each image, the poses are counted in which it is recognised under attack, now and then. The drop is the
share of all images and poses that was lost, in points. The paired randomisation test over images
(``whorl.evaluation.compare``) says how likely so large a difference is if the two networks were the same: it swaps them
image by image, an image's poses together. The gate fails if the drop is more than the limit *and* p < 5%, corrected for
the number of attacks (Holm). So two gates of one network, with two seeds, fail in 2.5% of cases at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whorl.errors import WhorlError, some_of
from whorl.evaluation import FEWEST, Comparison, ImageCounts, Rule, compare, holm
from whorl.files import read_back
from whorl.gate.record import GateRecord
from whorl.runs.single_attack import differences

FILE = "gate.json"


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """An earlier gate.

    Attributes:
        path: of its ``gate.json``.
        record: what it kept.
    """

    path: Path
    record: GateRecord


@dataclass(frozen=True, kw_only=True)
class Regression:
    """What became of the images since.

    Attributes:
        rules: one for each attack that both have.
        changed: by subject, image's id to the poses that were lost, less those won; images that lost and won none are
            left out.
        notes: what must be known along with it.
    """

    rules: tuple[Rule, ...]
    changed: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()


def read_baseline(path: Path) -> Baseline:
    """Read an earlier gate: its folder, or its ``gate.json``.

    Raises:
        WhorlError: there is none, or it is damaged.
    """
    file = path / FILE if path.is_dir() else path
    record = read_back(file, GateRecord.parsed, remedy="and run the gate of the earlier network again")
    if record is None:
        raise WhorlError(
            f"there is no {file}. Expected the folder that `whorl gate` wrote for the earlier network, or its {FILE}."
        )
    return Baseline(path=file, record=record)


def regression(now: GateRecord, baseline: Baseline, *, fail_drop: float) -> Regression:
    """Compare a gate with an earlier one.

    Args:
        now: this one.
        baseline: the earlier one.
        fail_drop: points that may be lost, or more if it is not significant.

    Raises:
        WhorlError: the two share too few images or no attack, or an attack, its settings or the poses differ.
    """
    then = baseline.record
    subjects = [subject for subject in now.attacks if subject in then.attacks]
    if not subjects:
        raise WhorlError(
            f"{baseline.path} has none of this gate's attacks: it has {some_of(list(then.attacks))}, this one "
            f"{some_of(list(now.attacks))}. Run both with the same --attack and --surrogates."
        )
    for subject in subjects:
        # A network that is too sure for one loss is attacked with another; that is its doing.
        other = [name for name in differences(then.attacks[subject], now.attacks[subject]) if name != "loss"]
        if other:
            raise WhorlError(f"{baseline.path} was made with another {some_of(other)} of {subject}. Run both alike.")
    if set(then.outcomes.poses) != set(now.outcomes.poses):
        raise WhorlError(f"{baseline.path} was made in other poses. Run the earlier network's gate again.")
    mine, theirs = _paired(now, then, baseline.path)
    order = [then.outcomes.poses.index(pose) for pose in now.outcomes.poses]
    before = {subject: then.recognised(subject)[order][:, theirs] for subject in subjects}
    after = {subject: now.recognised(subject)[:, mine] for subject in subjects}
    count = ImageCounts.of_all
    found = holm({subject: compare(count(~after[subject]), count(~before[subject])) for subject in subjects})
    ids = [now.outcomes.ids[place] for place in mine]
    changed: dict[str, Mapping[str, int]] = {}
    for subject in subjects:
        lost = (before[subject].int() - after[subject].int()).sum(0).tolist()
        changed[subject] = {name: count for name, count in zip(ids, lost, strict=True) if count}
    rules = []
    for subject in subjects:
        was, now_is = (float(part[subject].float().mean()) for part in (before, after))
        rules.append(_rule(subject, found[subject], (was, now_is), fail_drop, then.model, changed[subject]))
    shared = f"{len(ids)} of {len(now.outcomes.ids)} images are in the baseline too, by their pixels"
    notes = [] if len(ids) == len(now.outcomes.ids) == len(then.outcomes.ids) else [shared]
    if new := [subject for subject in now.attacks if subject not in subjects]:
        notes.append(f"the baseline has no {some_of(new)}, so there nothing is compared")
    return Regression(rules=tuple(rules), changed=changed, notes=tuple(notes))


def _rule(
    subject: str,
    found: Comparison,
    rates: tuple[float, float],
    percent: float,
    earlier: str,
    changed: Mapping[str, int],
) -> Rule:
    drop, (low, high) = found.difference, found.interval
    failed = drop > percent / 100 + 1e-9 and found.ahead > 0
    worse, better = (sum(1 for count in changed.values() if sign * count > 0) for sign in (1, -1))
    ends = f"95% interval {0.0 - 100 * high:+.1f} to {0.0 - 100 * low:+.1f}, p = {found.p_value:.2g}"
    sentence = (
        f"{subject}: {rates[1]:.1%} recognised under attack, {rates[0]:.1%} in the baseline ({earlier}): "
        f"{0.0 - 100 * drop:+.1f} points ({ends}) on {found.n} shared images; {worse} fooled in more poses than "
        f"before, {better} in fewer; limit: a significant loss of {percent:g} points"
    )
    return Rule(
        name="fail-drop",
        subject=subject,
        limit=percent / 100,
        rate=drop,
        interval=(low, high),
        n=found.n,
        passed=not failed,
        sentence=sentence,
    )


def _paired(now: GateRecord, then: GateRecord, path: Path) -> tuple[list[int], list[int]]:
    """The places of the images that both have, by their pixels."""
    places = {key: place for place, key in enumerate(_keys(then.sha256))}
    both = [(place, places[key]) for place, key in enumerate(_keys(now.sha256)) if key in places]
    if len(both) < FEWEST:
        raise WhorlError(
            f"{path} shares {len(both)} images with this gate, by their pixels; {FEWEST} are the least to compare. It "
            f"had {len(then.sha256)}, this one {len(now.sha256)}: run both on the same --data, --limit and --size."
        )
    moved = [now.outcomes.ids[mine] for mine, theirs in both if now.labels[mine] != then.labels[theirs]]
    if moved and not _unnamed(now, then):
        raise WhorlError(
            f"{len(moved)} images are of another class than in {path}: {some_of(moved)}. Run both on the same labels."
        )
    mine, theirs = zip(*both, strict=True)
    return list(mine), list(theirs)


def _unnamed(*records: GateRecord) -> bool:
    """Whether the classes of some record are numbers only, which cannot be held against names."""
    return any(all(label.isdecimal() for label in record.labels) for record in records)


def _keys(sha256: Sequence[str]) -> list[tuple[str, int]]:
    """An image's hash, and how many of the same were before it: a data set may hold one twice."""
    seen = Counter[str]()
    keys = []
    for digest in sha256:
        keys.append((digest, seen[digest]))
        seen[digest] += 1
    return keys
