"""What was found, in a few honest sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from whorl.evaluation import FEWEST, Comparison, Rate, compare, for_headline, holm
from whorl.report.content import Content
from whorl.report.gallery import CLEAN
from whorl.report.series import Series, Transfer, attacks, headline_rate, pairs, series, target_name, transfers
from whorl.report.tables import span
from whorl.runs.results import Cell, joined_images

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

    Attacks are ranked by their success rate, pooled over the poses and targets that all of them were measured on; cells
    of fewer than ``whorl.evaluation.FEWEST`` eligible images have no part in it. One is called ahead only if the paired
    test, corrected for all pairs of attacks, says so. Targets that an attack was crafted on count only where there are
    no others. A report that has nothing but photographs is about the first way in which images were cut out of them.
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
    notes = (*_undefined(cells), *_left_out(shared or chosen), *few)
    names = attacks(chosen)
    if not shared:
        rates = ", ".join(f"{name} {_rate(_pooled(chosen, name), cells)}" for name in names)
        statement = f"The attacks were measured on different targets or poses, so none is called the best: {rates}."
        return Headline(statement=statement, details=notes)
    rates_by_name = {name: _pooled(shared, name) for name in names}
    if all(math.isnan(one.value) for one in rates_by_name.values()):
        statement = "No target recognised any clean image, so there is no success rate to report."
        return Headline(statement=statement, details=few)
    if all(one.few for one in rates_by_name.values()):
        statement = f"Too few images for a summary: no target recognises {FEWEST} clean images in any pose."
        said = ", ".join(f"{name} {one.successes} of {one.n}" for name, one in rates_by_name.items())
        counted = f"Images fooled, on {scope.replace('it was', 'they were')}, {_where(scope, shared, place)}: {said}."
        return Headline(statement=statement, details=(counted, *notes))
    where, ranked = _where(scope, shared, place), sorted(names, key=lambda name: -rates_by_name[name].value)
    best = ranked[0]
    if len(ranked) == 1:
        statement = f"{best} fools {scope} in {_rate(rates_by_name[best], cells)} of cases, {where}."
        return Headline(statement=statement, details=notes)
    pairs_tested = _all_pairs(shared, ranked)
    statement = _leading(ranked, rates_by_name, pairs_tested, scope, where, cells)
    tested = _tested(best, ranked[1], transfers(shared), comparisons)
    gains = _gains(set(ranked[:2]), rates_by_name, pairs_tested, transfers(shared), cells, comparisons)
    return Headline(statement=statement, details=(*tested, *gains, *notes))


def _all_pairs(shared: Mapping[Series, tuple[Cell, ...]], names: Sequence[str]) -> dict[tuple[str, str], Comparison]:
    """Every two attacks over all that they share, corrected for their number; nothing without counts image by image."""
    images = {name: joined_images(_cells_of(shared, name)) for name in names}
    found: dict[tuple[str, str], Comparison] = {}
    for one, other in combinations(names, 2):
        first, second = images[one], images[other]
        if first is None or second is None or first.eligible.shape != second.eligible.shape:
            return {}
        kept = for_headline(first, second)
        found[one, other] = compare(kept[0], kept[1])
    return holm(found)


def _leading(
    ranked: Sequence[str],
    rates: Mapping[str, Rate],
    tested: Mapping[tuple[str, str], Comparison],
    scope: str,
    where: str,
    cells: Sequence[Cell],
) -> str:
    """Which attack is first, and whether it is ahead of the others."""
    best, second = ranked[:2]
    rate, behind = _rate(rates[best], cells), _rate(rates[second], cells)
    if not tested:
        apart = _counted(_points(rates[best].value - rates[second].value, cells), "point")
        return (
            f"{best} has the highest success rate on {scope}: {rate}, {where}; {second} has {behind}, {apart} less. "
            "The difference was not tested for significance."
        )
    found = tested[best, second]
    apart = f"the difference is {_difference(found, cells, len(tested))}"
    if found.ahead > 0:
        said = f"{best} fools {scope} most often: in {rate} of cases, {where}; {second} in {behind}"
        return f"{said}. {apart[0].upper()}{apart[1:]}."
    level = [name for name in ranked[1:] if tested[best, name].ahead <= 0]
    if len(level) > 1:
        return (
            f"{best} has the highest success rate on {scope}, {rate}, {where}, but is not significantly ahead of "
            f"{_listed(level)}; {second} has {behind}, {apart}."
        )
    on = scope.replace("that it was", "that they were")
    return f"{best} and {second} do not differ significantly on {on}: {rate} and {behind}, {where}; {apart}."


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


def _cells_of(chosen: Mapping[Series, tuple[Cell, ...]], name: str) -> list[Cell]:
    return [cell for key, own in chosen.items() if key.attack == name for cell in own]


def _pooled(chosen: Mapping[Series, tuple[Cell, ...]], name: str) -> Rate:
    """An attack's rate, over transfers and poses together."""
    return headline_rate(_cells_of(chosen, name))


def _where(scope: str, shared: Mapping[Series, tuple[Cell, ...]], place: str) -> str:
    """Over what the mean was taken; ``place`` says it where poses do not."""
    poses = {cell.pose for own in shared.values() for cell in own}
    seen, sources = transfers(shared), {transfer.source for transfer in transfers(shared)}
    over_poses = f"pooled over {len(poses)} poses" if len(poses) > 1 else place or f"at {next(iter(poses))}"
    targets = sorted({transfer.target for transfer in seen})
    if len(targets) > 1:
        link = "and" if len(poses) > 1 else "pooled over"
        over_poses += f" {link} {len(targets)} targets"
    elif "crafted on" in scope:
        over_poses += f" of {targets[0]}" if len(poses) > 1 else f" on {targets[0]}"
    return over_poses + (f" from {len(sources)} sources" if len(sources) > 1 else "")


def _tested(
    best: str, second: str, seen: Sequence[Transfer], comparisons: Mapping[tuple[str, str, str, str], Comparison]
) -> tuple[str, ...]:
    """Whether a paired test says that the two differ, target by target."""
    several = len({transfer.source for transfer in seen}) > 1
    groups: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for transfer, found in _compared(best, second, seen, comparisons):
        shown = f"{transfer if several else transfer.target}"
        groups[found.ahead].append(f"{shown} (p {_p_value(found.p_value)})")
    said = {
        1: f"{best} is significantly ahead on",
        0: "the two do not differ significantly on",
        -1: f"{second} is significantly ahead on",
    }
    parts = [f"{words} {_named(groups[sign])}" for sign, words in said.items() if groups[sign]]
    if not parts or (len(seen) == 1 and not groups[-1]):
        return ()  # the statement says it
    return (f"Target by target, compared image by image (exact paired test, Holm, 5%): {'; '.join(parts)}.",)


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
            yield transfer, reverse.swapped()


def _gains(
    said: set[str],
    rates: Mapping[str, Rate],
    tested: Mapping[tuple[str, str], Comparison],
    seen: Sequence[Transfer],
    cells: Sequence[Cell],
    comparisons: Mapping[tuple[str, str, str, str], Comparison],
) -> tuple[str, ...]:
    """How each attack's affine-invariant version differs from it, and on how many targets significantly."""
    both_ways = {**tested, **{(b, a): found.swapped() for (a, b), found in tested.items()}}
    parts = []
    for plain, invariant in pairs(list(rates)):
        change = rates[invariant].value - rates[plain].value
        if math.isnan(change) or {plain, invariant} <= said:
            continue
        found = [one for _, one in _compared(invariant, plain, seen, comparisons)]
        above, below = (sum(one.ahead == sign for one in found) for sign in (1, -1))
        on = f"significantly above on {above} and below on {below}" if above or below else "significant on none"
        by_target = f"; {on} of {_counted(str(len(found)), 'target')}" if found else ""
        if (pair := both_ways.get((invariant, plain))) is None:
            size = f"{_signed(change, _digits(cells))} points (not tested{by_target})"
        else:
            size = _difference(pair, cells, len(tested), by_target)
        parts.append(f"{invariant} less {plain} is {size}")
    return (f"On the same targets and poses, {'; '.join(parts)}.",) if parts else ()


def _left_out(chosen: Mapping[Series, tuple[Cell, ...]]) -> tuple[str, ...]:
    """How many cells have too few images for the headline."""
    places = {(key.transfer, cell.pose): cell.counts.few for key, own in chosen.items() for cell in own}
    few = sum(places.values())
    if not few or few == len(places):
        return ()
    what = "poses and targets" if len(transfers(chosen)) > 1 else "poses"
    return (
        f"{few} of {len(places)} {what} are left out of this rate, because fewer than {FEWEST} clean images are "
        "recognised there; the tables mark them.",
    )


def _undefined(cells: Sequence[Cell]) -> tuple[str, ...]:
    without = sum(1 for cell in cells if not cell.counts.n_clean_correct)
    if not without:
        return ()
    return (
        f"In {without} of {len(cells)} cells the target recognised no clean image: they have no success rate "
        "and are left out of rates over poses.",
    )


def _few(cells: Sequence[Cell], repeats: int) -> tuple[str, ...]:
    least, most = min(cell.counts.n for cell in cells), max(cell.counts.n for cell in cells)
    count = f"{span((least, most))} image{'s' if most != 1 else ''}"
    if repeats > 1:
        count += f" in photographs, about {repeats} of each print"
    if least >= FEW * repeats:
        return (f"Measured on {count}.",)
    return (f"Few images: measured on {count}, so intervals are wide and the figures preliminary.",)


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


def _rate(one: Rate, cells: Sequence[Cell]) -> str:
    """A rate with its interval."""
    if math.isnan(one.value) or math.isnan(one.interval[0]):
        return _percent(one.value, cells)
    low, high = (f"{100 * end:.{_digits(cells)}f}" for end in one.interval)
    return f"{_percent(one.value, cells)} (95% interval {low} to {high}%)"


def _difference(found: Comparison, cells: Sequence[Cell], tested: int, more: str = "") -> str:
    """A difference with its interval and p, which is corrected where several were tested, and the interval is not."""
    digits = _digits(cells)
    low, high = (_signed(end, digits) for end in found.interval)
    corrected = f", corrected for {tested} comparisons" if tested > 1 else ""
    interval = f"95% interval {low} to {high}; p {_p_value(found.p_value)}{corrected}"
    return f"{_signed(found.difference, digits)} points ({interval}{more})"


def _signed(share: float, digits: int) -> str:
    """In points with its sign; a tenth more where a number that is not 0 would be written as 0."""
    points = 100 * share or 0.0  # no -0
    text = f"{points:+.{digits}f}"
    return f"{points:+.{digits + 1}f}" if points and not float(text) else text


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
