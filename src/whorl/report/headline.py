"""What was found, in a few honest sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whorl.evaluation import Comparison
from whorl.report.content import Content
from whorl.report.gallery import CLEAN
from whorl.report.series import Series, Transfer, attacks, mean, pairs, series, target_name, transfers
from whorl.runs.results import Cell, mean_rate

FEW = 100
"""Below so many images, an interval is some twenty points wide, and the words say so."""
_NAMED = 4  # of so many targets at most are the names written out


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The finding in one sentence, and what must be known along with it."""

    statement: str
    details: tuple[str, ...] = ()


def headline(content: Content) -> Headline:
    """Say which attack does best on networks that it never saw, by how much, and how sure that is.

    Attacks are ranked by their mean success rate over the poses and targets that all of them were measured on. Targets
    that an attack was crafted on count only where there are no others. A report that has nothing but photographs is
    about the first way in which images were cut out of them.
    """
    shown = content.photographs
    if content.finding and not content.cells:
        return Headline(statement=content.finding)
    if content.cells or shown is None:
        return _ranked(content.cells, content.comparisons)
    if not shown.cut_out or not shown.cut_out[0].cells:
        return Headline(statement="No image could be identified in the photographs.")
    first = shown.cut_out[0]
    attacked = tuple(cell for cell in first.cells if cell.attack != CLEAN)
    if not attacked:
        known = [f"{target_name(cell)} {_percent(cell.counts.accuracy, first.cells)}" for cell in first.cells]
        statement = f"{shown.title}: of clean images, cut out {first.way}, are recognised: {', '.join(known)}."
        return Headline(statement=statement, details=_few(first.cells, shown.repeats))
    place = f"in {shown.title[0].lower()}{shown.title[1:]} (cut out {first.way})"
    return _ranked(attacked, shown.comparisons, place=place, repeats=shown.repeats)


def _ranked(
    cells: Sequence[Cell],
    comparisons: Mapping[tuple[str, str, str, str], Comparison],
    *,
    place: str = "",
    repeats: int = 1,
) -> Headline:
    measured = series(cells)
    if not measured:
        return Headline(statement="Nothing was measured.")
    scope, chosen = _scope(measured)
    shared = _shared(chosen)
    few = _few(cells, repeats)
    notes = (*_undefined(cells), *few)
    names = attacks(chosen)
    if not shared:
        means = ", ".join(f"{name} {_percent(_mean(chosen, name), cells)}" for name in names)
        statement = f"The attacks were measured on different targets or poses, so none is called the best: {means}."
        return Headline(statement=statement, details=notes)
    means_by_name = {name: _mean(shared, name) for name in names}
    if all(math.isnan(mean) for mean in means_by_name.values()):
        statement = "No target recognised any clean image, so there is no success rate to report."
        return Headline(statement=statement, details=few)
    where = _where(scope, shared, place)
    ranked = sorted(names, key=lambda name: -means_by_name[name])
    best, first = ranked[0], means_by_name[ranked[0]]
    if len(ranked) == 1:
        statement = f"{best} fools {scope} in {_percent(first, cells)} of cases, {where}."
        return Headline(statement=statement, details=notes)
    second, behind = ranked[1], means_by_name[ranked[1]]
    lead = _points(first - behind, cells)
    tested = _tested(best, second, transfers(shared), comparisons)
    level = [name for name in ranked if not float(_points(first - means_by_name[name], cells))]
    if len(level) > 1:
        on = scope.replace("that it was", "that they were")
        statement = f"{_listed(level)} are level on {on}: {_percent(first, cells)}, {where}."
        tested = tested if len(level) == 2 else ()
    else:
        statement = (
            f"{best} fools {scope} most often: in {_percent(first, cells)} of cases, {where}; "
            f"{_counted(lead, 'point')} more than {second}."
        )
    gains = _gains({best, second, *level}, means_by_name, transfers(shared), cells, comparisons)
    return Headline(statement=statement, details=(*tested, *gains, *notes))


def _scope(measured: Mapping[Series, tuple[Cell, ...]]) -> tuple[str, dict[Series, tuple[Cell, ...]]]:
    """What the ranking is about, in words, and its lines."""
    known = {key: own for key, own in measured.items() if key.transfer.source}
    unseen = {key: own for key, own in known.items() if not key.transfer.white_box}
    if unseen:
        return "networks that it was not crafted on", unseen
    if known:
        return "the network that it was crafted on", known
    return "the targets (where it was crafted is not recorded)", dict(measured)


def _shared(chosen: Mapping[Series, tuple[Cell, ...]]) -> dict[Series, tuple[Cell, ...]]:
    """The cells whose transfer and pose every attack has."""
    places = [
        {(key.transfer, cell.pose) for key, own in chosen.items() if key.attack == name for cell in own}
        for name in attacks(chosen)
    ]
    common = set.intersection(*places)
    kept = {key: tuple(cell for cell in own if (key.transfer, cell.pose) in common) for key, own in chosen.items()}
    return {key: own for key, own in kept.items() if own}


def _mean(chosen: Mapping[Series, tuple[Cell, ...]], name: str) -> float:
    """An attack's mean over transfers of the mean over poses."""
    return mean(mean_rate(own) for key, own in chosen.items() if key.attack == name)


def _where(scope: str, shared: Mapping[Series, tuple[Cell, ...]], place: str) -> str:
    """Over what the mean was taken; ``place`` says it where poses do not."""
    poses = {cell.pose for own in shared.values() for cell in own}
    seen, sources = transfers(shared), {transfer.source for transfer in transfers(shared)}
    over_poses = f"the mean over {len(poses)} poses" if len(poses) > 1 else place or f"at {next(iter(poses))}"
    targets = sorted({transfer.target for transfer in seen})
    if len(targets) > 1:
        link = "and" if len(poses) > 1 else "as the mean over"
        over_poses += f" {link} {len(targets)} targets"
    elif "crafted on" in scope:
        over_poses += f" of {targets[0]}" if len(poses) > 1 else f" on {targets[0]}"
    return over_poses + (f" from {len(sources)} sources" if len(sources) > 1 else "")


def _tested(
    best: str, second: str, seen: Sequence[Transfer], comparisons: Mapping[tuple[str, str, str, str], Comparison]
) -> tuple[str, ...]:
    """Whether a paired test tells the two apart, target by target."""
    several = len({transfer.source for transfer in seen}) > 1
    real: list[str] = []
    against: list[str] = []
    open_: list[str] = []
    for transfer, found in _compared(best, second, seen, comparisons):
        group = open_ if not found.differs() else real if found.b > found.c else against
        group.append(f"{transfer if several else transfer.target} (p {_p_value(found.p_value)})")
    parts = []
    if real:
        parts.append(f"{best} is ahead beyond chance on {_named(real)}")
    if open_:
        parts.append(f"the two cannot be distinguished on {_named(open_)}")
    if against:
        parts.append(f"{second} is ahead beyond chance on {_named(against)}")
    if not parts:
        return ("Whether the two differ by more than chance was not tested.",)
    return (f"Compared image by image (McNemar's exact test, 5%), {'; '.join(parts)}.",)


def _compared(
    first: str, second: str, seen: Sequence[Transfer], comparisons: Mapping[tuple[str, str, str, str], Comparison]
) -> Iterator[tuple[Transfer, Comparison]]:
    """The comparisons of two attacks, whichever way round they were made."""
    for transfer in seen:
        found = comparisons.get((first, second, transfer.source, transfer.target))
        reverse = comparisons.get((second, first, transfer.source, transfer.target))
        if found is not None:
            yield transfer, found
        elif reverse is not None:
            yield transfer, Comparison(n=reverse.n, b=reverse.c, c=reverse.b)


def _gains(
    said: set[str],
    means: Mapping[str, float],
    seen: Sequence[Transfer],
    cells: Sequence[Cell],
    comparisons: Mapping[tuple[str, str, str, str], Comparison],
) -> tuple[str, ...]:
    """What the affine-invariant gradient adds to each attack, losses included, and on how many targets that is real."""
    parts = []
    for plain, invariant in pairs(list(means)):
        change = means[invariant] - means[plain]
        if math.isnan(change) or {plain, invariant} <= said:
            continue
        size = _points(abs(change), cells)
        if not float(size):
            parts.append(f"{invariant} is level with {plain}")
            continue
        ahead, behind = (invariant, plain) if change > 0 else (plain, invariant)
        found = [one for _, one in _compared(ahead, behind, seen, comparisons)]
        real = sum(1 for one in found if one.differs() and one.b > one.c)
        beyond = f" (beyond chance on {real} of {_counted(str(len(found)), 'target')})" if found else ""
        verb = "gains" if change > 0 else "loses"
        parts.append(f"{invariant} {verb} {_counted(size, 'point')} against {plain}{beyond}")
    return (f"On the same targets and poses, {'; '.join(parts)}.",) if parts else ()


def _undefined(cells: Sequence[Cell]) -> tuple[str, ...]:
    without = sum(1 for cell in cells if not cell.counts.n_clean_correct)
    if not without:
        return ()
    return (
        f"In {without} of {len(cells)} cells the target recognised no clean image: they have no success rate "
        "and no part in a mean.",
    )


def _few(cells: Sequence[Cell], repeats: int) -> tuple[str, ...]:
    least, most = min(cell.counts.n for cell in cells), max(cell.counts.n for cell in cells)
    span = f"{least}" if least == most else f"{least} to {most}"
    count = f"{span} image{'s' if most != 1 else ''}"
    if repeats > 1:
        count += f" in photographs, about {repeats} of each print"
    if least >= FEW * repeats:
        return (f"Measured on {count}.",)
    return (f"Few images: measured on {count}, so a handful of answers decides. Take the figures as a first look.",)


def _digits(cells: Sequence[Cell]) -> int:
    """Tenths of a point mean nothing where one image weighs more than a point."""
    return 1 if min(cell.counts.n for cell in cells) >= FEW else 0


def _percent(share: float, cells: Sequence[Cell]) -> str:
    if math.isnan(share):
        return "no rate"
    digits = _digits(cells)
    # 99.97% is not all.
    if share < 1 and round(100 * share, digits) == 100:
        return f"more than {100 - 10**-digits:.{digits}f}%"
    return f"{100 * share:.{digits}f}%"


def _points(share: float, cells: Sequence[Cell]) -> str:
    return f"{100 * share:.{_digits(cells)}f}"


def _counted(number: str, word: str) -> str:
    return f"{number} {word}{'' if number == '1' else 's'}"


def _named(group: Sequence[str]) -> str:
    if len(group) > _NAMED:
        return f"{len(group)} targets"
    return _listed(group)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"
