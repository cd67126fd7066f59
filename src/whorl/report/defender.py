"""What the owner of a network reads first: how much an attack leaves of it, what a gate decided, where it is weak."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from whorl.evaluation import AttackedRates, ImageCounts, Outcomes, Pose, Rate, Rule, Verdict, rate
from whorl.evaluation.rate_table import whole_percent
from whorl.report.content import DefenderView, Table
from whorl.report.gallery import Gallery

_POSES, _CLASSES, _CHANGED = 5, 8, 12  # rows of a table
_FEWEST_OF_CLASS = 3  # a class of fewer images says nothing of the class


def withstood(found: Outcomes) -> DefenderView:
    """Say of every network what the attack that does worst to it leaves of it, over all poses.

    Args:
        found: what became of each image; attacks are called ``label/source``, or just by a label.
    """
    sentences = []
    for target in found.targets:
        name = _strongest(found, target)
        label, _, source = name.partition("/")
        by = f" ({label}{f', crafted on {source}' if source else ''})"
        sentences.append(f"{_sentence(target, found, name, by)}.")
    return DefenderView(sentences=tuple(sentences))


def gate_view(found: Outcomes, target: str, verdict: Verdict, classes: Mapping[str, str]) -> DefenderView:
    """Lead with a gate's decision, and show where the network is weak.

    Args:
        found: what became of each image; attacks are called ``label/source``.
        target: the network, as ``found`` has it.
        verdict: what was decided; it names the network.
        classes: image's id to the name of its class, as far as known.
    """
    worst = strongest(verdict)
    name = name_of(worst)
    by = "" if worst.kind == "white-box" else " by transfer"
    sentence = _sentence(verdict.model, found, name, by, target)
    sentences = (f"{sentence}.{f' {_decision(verdict)}.' if verdict.rules else ''}",)
    tables = [_pose_table(found, target, name), _class_table(found, target, name, classes), _changed(verdict, classes)]
    return DefenderView(
        sentences=sentences,
        passed=verdict.passed if verdict.rules else None,
        rules=verdict.rules,
        notes=verdict.notes,
        tables=tuple(table for table in tables if table is not None),
    )


def strongest(verdict: Verdict) -> AttackedRates:
    """The attack that leaves least of the network; of equals the one that succeeds most often."""
    return min(verdict.attacks, key=lambda one: (one.robust.value, -one.success.value))


def name_of(one: AttackedRates) -> str:
    """What an experiment's outcomes call an attack."""
    return f"{one.attack}/{one.source}"


def fragile_first(found: Outcomes, target: str, attack: str) -> list[int]:
    """The images that are fooled in some pose, by index: first those that are fooled in most."""
    clean, still = _recognised(found, target, attack)
    fooled = (clean & ~still).sum(0).tolist()
    return sorted((i for i in range(len(found.ids)) if fooled[i]), key=lambda i: -fooled[i])


def worst_poses(found: Outcomes, target: str, attack: str) -> list[Pose]:
    """Every pose, by how few images are recognised under an attack, the fewest first; of equals those fooled most."""
    clean, still = _recognised(found, target, attack)
    left, fooled = still.sum(1).tolist(), (clean & ~still).sum(1).tolist()
    return [found.poses[place] for place in sorted(range(len(found.poses)), key=lambda p: (left[p], -fooled[p]))]


def fooling_poses(found: Outcomes, target: str, attack: str) -> list[Pose]:
    """Every pose, by how many images an attack fools that are recognised clean, the most first."""
    clean, still = _recognised(found, target, attack)
    fooled = (clean & ~still).sum(1).tolist()
    return [found.poses[place] for place in sorted(range(len(found.poses)), key=lambda p: -fooled[p])]


def with_gallery(view: DefenderView, made: Gallery, total: int) -> DefenderView:
    """Add images to look at, and say by what rule they were chosen."""
    about = (
        f"{len(made.examples)} of {total} images: those that are fooled in the most poses, which is not a "
        "representative sample. The examples further below are chosen without regard to the attack."
    )
    return replace(view, galleries=(*view.galleries, replace(made, title="The most fragile images", about=about)))


def _sentence(model: str, found: Outcomes, attack: str, by: str, target: str = "") -> str:
    clean, still = _recognised(found, target or model, attack)
    left = _with_interval(rate(ImageCounts.of_all(still.all(0))))
    alone = whole_percent(float(clean.all(0).float().mean()))  # what a pose hides is not the attack's doing
    poses = len(found.poses)
    if poses == 1:
        where = f" in the pose {found.poses[0]}" if found.poses[0].changed else ""
        return f"{model}: images recognised{where}: {alone} clean, {left} under attack{by}"
    known = ""
    if Pose() in found.poses:
        upright = clean[found.poses.index(Pose())]
        known = f"{whole_percent(float(upright.float().mean()))} of images recognised clean. "
    return f"{model}: {known}Recognised in all {poses} poses: {alone} clean, {left} under attack{by}"


def _decision(verdict: Verdict) -> str:
    rules = verdict.failed or verdict.rules
    if len(rules) == 1:
        return f"Gate: {'passed' if verdict.passed else 'failed'} ({_limit(rules[0])})"
    shown = f"{len(verdict.failed)} of {len(verdict.rules)} rules" if verdict.failed else f"{len(rules)} rules"
    return f"Gate: {'passed' if verdict.passed else 'failed'} ({shown})"


def _limit(rule: Rule) -> str:
    found = {
        "fail-above": f"success rate {whole_percent(rule.rate)}, limit",
        "worst-case": f"{whole_percent(rule.rate)} fooled in some pose, limit",
        "min-accuracy": "at least",
        "fail-drop": f"{100 * rule.rate:+.1f} points fooled more than in the baseline, limit",
    }[rule.name]
    return f"{found} {100 * rule.limit:g}{' points' if rule.name == 'fail-drop' else '%'}"


def _strongest(found: Outcomes, target: str) -> str:
    left = {name: _recognised(found, target, name)[1] for name in found.attacks}
    return min(left, key=lambda name: (float(left[name].all(0).float().mean()), float(left[name].float().mean())))


def _recognised(found: Outcomes, target: str, attack: str) -> tuple[Tensor, Tensor]:
    """(P, N) bool, whether the image is recognised: clean, and under an attack."""
    place = found.targets.index(target)
    return found.clean[place], found.adversarial[found.attacks.index(attack), place]


def _pose_table(found: Outcomes, target: str, attack: str) -> Table | None:
    if len(found.poses) < 2:
        return None
    clean, still = _recognised(found, target, attack)
    rows = []
    for pose in worst_poses(found, target, attack)[:_POSES]:
        place = found.poses.index(pose)
        called = str(pose) if pose.changed else "as it is"
        rows.append((called, *(whole_percent(float(part[place].float().mean())) for part in (clean, still))))
    return Table(
        title="The worst poses",
        about=f"The poses, out of {len(found.poses)}, in which the fewest of {len(found.ids)} images are recognised "
        "under attack.",
        columns=("pose", "recognised clean", "recognised under attack"),
        rows=tuple(rows),
    )


def _class_table(found: Outcomes, target: str, attack: str, classes: Mapping[str, str]) -> Table | None:
    clean, still = _recognised(found, target, attack)
    members: dict[str, list[int]] = {}
    for place, name in enumerate(found.ids):
        if name in classes:
            members.setdefault(classes[name], []).append(place)
    shown = sorted(_class_rows(members, clean, still), key=lambda row: row[0])[:_CLASSES]
    if not shown:
        return None
    return Table(
        title="The most fragile classes",
        about=f"The classes, out of {len(members)}, recognised least often under attack: share of images and poses, "
        "clean and under attack, and images recognised in every pose under attack. Classes of fewer than "
        f"{_FEWEST_OF_CLASS} images are left out.",
        columns=("class", "images", "clean", "under attack", "in every pose"),
        rows=tuple(row for _, row in shown),
    )


def _class_rows(
    members: Mapping[str, Sequence[int]], clean: Tensor, still: Tensor
) -> Iterator[tuple[tuple[float, float], tuple[str, ...]]]:
    """What decides the order, and the row, of each class that has enough images."""
    for name, places in members.items():
        if len(places) < _FEWEST_OF_CLASS:
            continue
        own, robust = still[:, places], int(still[:, places].all(0).sum())
        share = float(own.float().mean())
        known = float(clean[:, places].float().mean())
        yield (
            (share, -known),
            (name, str(len(places)), whole_percent(known), whole_percent(share), f"{robust} of {len(places)}"),
        )


def _changed(verdict: Verdict, classes: Mapping[str, str]) -> Table | None:
    """The images that a change of the network costs most, against a baseline."""
    lost: dict[str, int] = {}  # of several attacks the one that costs it most
    for images in verdict.changed.values():
        for name, count in images.items():
            if count > lost.get(name, 0):
                lost[name] = count
    if not lost:
        return None
    first = sorted(lost, key=lambda name: -lost[name])[:_CHANGED]
    return Table(
        title="Images that were recognised more often in the baseline",
        about=f"{len(lost)} images are fooled in more poses than before; those with the most are listed.",
        columns=("image", "class", "poses lost"),
        words=2,
        rows=tuple((name, classes.get(name, "–"), str(lost[name])) for name in first),
    )


def _with_interval(one: Rate) -> str:
    if math.isnan(one.interval[0]):
        return whole_percent(one.value)
    low, high = one.interval
    return f"{whole_percent(one.value)} (95% interval {100 * low:.0f} to {100 * high:.0f}%)"


def classes_of(found: Outcomes, places: Mapping[str, int | None], labels: Sequence[str] | None) -> dict[str, str]:
    """Image's id to the name of its class, or its number where nobody knows the name.

    Args:
        found: names the images.
        places: image's id to its 0-based class; None where there is none.
        labels: one name per class, if known.
    """
    known = {name: place for name in found.ids if (place := places.get(name)) is not None}
    return {name: labels[place] if labels is not None else str(place) for name, place in known.items()}
