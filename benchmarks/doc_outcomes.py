"""Tables that rest on the outcome of each image: the frontier, and the photographs that chose nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from doc_data import Frontier, HeldOut, read
from doc_tables import TABLES, Cell, apart, marked, table
from whorl.analysis.cross_validation import family
from whorl.evaluation.image_counts import FEWEST, ImageCounts
from whorl.evaluation.statistics import Comparison, compare, holm, rate

_SOURCES = {"ResNet-18": "resnet18", "EfficientNet-Lite0": "efficientnet_lite0"}
_KERNELS = {"none": "", "narrow": "+ai0.5", "wide": "+t0s0r1.7", "narrowing ²": "+turn32-1.6"}
_PARTS = {
    "smooth rectifiers": "rectifier2",
    "shared pooling": "pool",
    "skip 0.5 and estimator": "skip0.5+ai0.5",
    "smooth warp": "warp",
    "poses on a lattice": "lattice",
    "mirror": "mirror",
    "poses on a Latin square": "latin",
    "scale 0.5 to 1.2": "scale0.5-1.2",
    "pace 20": "pace20",
    "skip 0.65": "skip0.65",
    "estimator, all parts, σ 0.5": "ai0.5",
    "gain 0.6": "gain0.6",
    "ghosts": "ghost",
    "antithetic poses": "antithetic",
    "shared channels 0.5": "channels0.5",
    "compressed gradient": "power0.5",
    "temperature 3": "temperature3",
    "relative loss": "relative",
    "feature decay": "decay",
    "overshoot 1.5": "overshoot1.5",
}


def _shown(counts: ImageCounts) -> float:
    return 100 * counts.value("mean")


def _candidate(row: Mapping[str, str]) -> str:
    base = (
        row["attack"]
        .replace(", σ 0.5", "+ai0.5")
        .replace("ri-dim ²", "dim+turn32-1.6")
        .replace(" ¹", "")
        .replace("ai-best before", "ai-best@d86f66b")
    )
    return f"{base}{_KERNELS[row['kernel']] if 'kernel' in row else ''}/{row['gradients'].replace(',', '')}"


@table("frontier")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("attack", "gradients", "kernel"):
            return None
        source, _, eps = column.partition(", ε ")
        data, name = Frontier(_SOURCES[source]), _candidate(row)
        return [_shown(data.counts(name, eps))] if data.has(name, eps) else []

    return cell


@cache
def _beside_eot() -> dict[tuple[str, str, str], Comparison]:
    """By source, eps and gradients, with Holm's correction."""
    found = {}
    for source in _SOURCES.values():
        data = Frontier(source)
        for eps in ("16", "8"):
            for gradients in ("10", "50"):
                ours, eot = data.counts(f"ai-best/{gradients}", eps), data.counts("eot/2500", eps)
                found[source, eps, gradients] = compare(ours, eot, "mean")
    return holm(found)


@table("frontier-eot")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        source, eps, gradients = _SOURCES[row["source"]], row["ε"], row["gradients"]
        found = _beside_eot()[source, eps, gradients]
        values = {
            "`ai-best`": lambda: [_shown(Frontier(source).counts(f"ai-best/{gradients}", eps))],
            "EOT": lambda: [_shown(Frontier(source).counts("eot/2500", eps))],
            "difference": lambda: apart(found),
            "p": lambda: [found.p_value],
        }
        return values[column]() if column in values else None

    return cell


@table("frontier-parts")
def _() -> Cell:
    data = Frontier("resnet18")

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "part":
            return None
        name = f"ram+{_PARTS[row['part']]}/10"
        return apart(compare(data.counts(name, "8"), data.counts("ram/10", "8"), "mean"))

    return cell


@table("frontier-wrapped")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("attack", "steps × gradients"):
            return None
        source, _, eps = column.partition(", ε ")
        data = Frontier(_SOURCES[source])
        if not data.has(f"{row['attack']}/10", eps):
            return []
        plain, wrapped = (data.counts(f"{row['attack']}{more}/10", eps) for more in ("", "+ai0.5"))
        return [_shown(plain), _shown(wrapped), *apart(compare(wrapped, plain, "mean"))]

    return cell


PLAIN = ("mobilenet_v2", "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2", "inception_v3")
HARDENED = (
    "efficientnet_lite0.ens-at",
    "efficientnet_lite0.alp",
    "efficientnet_lite0.ai-at",
    "mobilenet_v2.ens-at",
    "mobilenet_v2.alp",
)
WHITE_BOX = "resnet18"  # the source, where nothing else is said
OURS = {"10": "ai-best", "50": "ai-best-50", "200": "ai-max"}  # by gradients


@cache
def _held_out(source: str = WHITE_BOX) -> HeldOut:
    return HeldOut(read(f"held-out-{source}-cuda.json"))


def plain(source: str = WHITE_BOX) -> tuple[str, ...]:
    """The networks that are not hardened and of another family than the source."""
    return tuple(one for one in (WHITE_BOX, *PLAIN) if family(one) != family(source))


@cache
def photographs(eps: int, source: str = WHITE_BOX) -> int:
    """How many photographs the figures at an eps rest on."""
    return _held_out(source).n(eps, (*PLAIN, *HARDENED, WHITE_BOX))


@cache
def judged(target: str, attack: str, eps: int = 16, *, identity: bool = False, source: str = WHITE_BOX) -> ImageCounts:
    """The outcomes that all figures rest on."""
    return _held_out(source).counts(target, f"{attack}-{eps}", photographs(eps, source), identity=identity)


@cache
def judged_mean(
    targets: tuple[str, ...], attack: str, eps: int, *, identity: bool = False, source: str = WHITE_BOX
) -> ImageCounts:
    """A row for each target, poses pooled: for the mean over targets."""
    return _held_out(source).mean(targets, f"{attack}-{eps}", photographs(eps, source), identity=identity)


@cache
def success(
    target: str, attack: str, eps: int = 16, *, identity: bool = False, source: str = WHITE_BOX
) -> Sequence[float]:
    """In percent, with its interval."""
    found = rate(judged(target, attack, eps, identity=identity, source=source))
    return [100 * value for value in (found.value, *found.interval)]


@cache
def gain(
    target: str, first: str, second: str, eps: int = 16, *, identity: bool = False, source: str = WHITE_BOX
) -> Comparison:
    """How far one attack is ahead of another."""
    ours, other = (judged(target, attack, eps, identity=identity, source=source) for attack in (first, second))
    return compare(ours, other)


def _recognised(target: str, eps: int = 16, *, identity: bool, source: str = WHITE_BOX) -> ImageCounts:
    return judged(target, "dim", eps, identity=identity, source=source)


def _gradients(cell: str, source: str = WHITE_BOX) -> int:
    settings = _held_out(source).data["settings"][cell]
    return int(settings["steps"] * settings["samples"])


def _attack(row: Mapping[str, str]) -> str:
    """The attack of a row, behind whose name it may say whose it is, and which may have other gradients than 10."""
    name = row["attack"].partition(",")[0]
    return "ai-best-50" if (name, row.get("gradients")) == ("ai-best", "50") else name


PLACES = {"poses": False, "as they are": True}


@table("held-out")
def _(eps: str, poses: str, source: str = WHITE_BOX) -> Cell:
    identity = {"poses": False, "identity": True}[poses]
    shown = photographs(int(eps), source) * (1 if identity else len(_held_out(source).poses))

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        name = _attack(row)
        if column == "attack":
            return [shown] if ", of" in row[column] else None
        if name == "clean images recognised":
            if column == "gradients":
                return []
            return [int(_recognised(column, int(eps), identity=identity, source=source).eligible.sum())]
        if column == "gradients":
            return [_gradients(f"{name}-{eps}", source)]
        return success(column, name, int(eps), identity=identity, source=source)

    return cell


@table("held-out-white-box")
def _() -> Cell:
    """The source itself; columns are ``ε 16, poses`` and so on."""

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        if column == "gradients":
            return [_gradients(f"{_attack(row)}-16")] if row["attack"] != "clean images recognised" else []
        eps, _, poses = column.removeprefix("ε ").partition(", ")
        if row["attack"] == "clean images recognised":
            return [int(_recognised(WHITE_BOX, int(eps), identity=PLACES[poses]).eligible.sum())]
        return success(WHITE_BOX, _attack(row), int(eps), identity=PLACES[poses])

    return cell


_COMPARED = (
    ("ai-dim", "dim"),
    ("ri-dim", "dim"),
    ("ri-dim", "ai-dim"),
    ("ai-best", "dim"),
    ("ai-best", "ti-dim"),
    ("ai-best", "ai-dim"),
)


@cache
def _gains(eps: int) -> Mapping[tuple[str, str, str], Comparison]:
    """All gains at an eps, with Holm's correction."""
    targets = (*PLAIN, *HARDENED)
    return holm({(t, first, second): gain(t, first, second, eps) for t in targets for first, second in _COMPARED})


@table("held-out-gains")
def _(eps: str) -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "gain":
            return None
        first, _, second = row["gain"].partition(" over ")
        return marked(_gains(int(eps))[column, first, second])

    return cell


@cache
def less_eot(gradients: str, source: str = WHITE_BOX) -> Mapping[tuple[str, str, str], Comparison]:
    """Ours with so many gradients less EOT with 2,500: by target, eps and poses, with Holm's correction."""
    return holm(
        {
            (target, eps, poses): gain(target, OURS[gradients], "eot", int(eps), identity=identity, source=source)
            for target in (*plain(source), *HARDENED)
            for eps in ("16", "8")
            for poses, identity in PLACES.items()
        }
    )


@table("held-out-eot")
def _(gradients: str, source: str = WHITE_BOX) -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "network":
            return None
        eps, _, poses = column.removeprefix("ε ").partition(", ")
        return marked(less_eot(gradients, source)[row["network"], eps, poses])

    return cell


@cache
def _hardening() -> Mapping[tuple[str, str], Comparison]:
    """How much less an attack succeeds against a hardened network than against its original, with Holm's correction."""
    return holm(
        {
            (network, attack): compare(judged(network.partition(".")[0], attack), judged(network, attack))
            for network in HARDENED
            for attack in ("dim", "ai-dim", "ai-best", "eot")
        }
    )


@table("held-out-hardened")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "network":
            return None
        network = row["network"]
        original = network.partition(".")[0]
        if column == "clean top-1":
            return [100 * float(_recognised(one, identity=True).eligible.mean()) for one in (original, network)]
        attack = column.partition(",")[0].strip("`")
        rates = [success(one, attack)[0] for one in (original, network)]
        return [*rates, *apart(_hardening()[network, attack])]

    return cell


def gain_range(first: str, second: str, targets: Sequence[str]) -> list[float]:
    """The least and the largest gain on some targets, in points."""
    gains = [100 * gain(target, first, second).difference for target in targets]
    return [min(gains), max(gains)]


def ahead(first: str, second: str, targets: Sequence[str], eps: int = 16) -> bool:
    """Whether one attack is significantly ahead on all of these."""
    return all(_gains(eps)[target, first, second].ahead == 1 for target in targets)


def ahead_and_behind(first: str, second: str, targets: Sequence[str], eps: int = 16) -> list[float]:
    """On how many of these networks one attack is significantly ahead of another, and behind it."""
    found = [_gains(eps)[target, first, second].ahead for target in targets]
    return [found.count(1), found.count(-1)]


def eot_beaten_and_ahead(gradients: str, eps: str, poses: str, source: str = WHITE_BOX) -> list[float]:
    """On how many plain networks, then hardened ones, ours is significantly ahead of EOT; then behind."""
    comparisons = less_eot(gradients, source)
    return [
        [comparisons[target, eps, poses].ahead for target in targets].count(sign)
        for sign in (1, -1)
        for targets in (plain(source), HARDENED)
    ]


@table("held-out-gains-tally")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("gain", "ε"):
            return None
        first, _, second = row["gain"].partition(" over ")
        kind, mark = column.split()
        targets = {"plain": PLAIN, "hardened": HARDENED}[kind]
        return [ahead_and_behind(first, second, targets, int(row["ε"]))["✓✗".index(mark)]]

    return cell


@table("held-out-eot-tally")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("gradients", "ε", "images"):
            return None
        counts = eot_beaten_and_ahead(row["gradients"], row["ε"], row["images"])
        return [counts[("plain ✓", "hardened ✓", "plain ✗", "hardened ✗").index(column)]]

    return cell


def beside_eot(target: str, eps: str, poses: str) -> int:
    """1 where ``ai-best`` with 10 gradients is significantly ahead of EOT, -1 where it is behind, 0 elsewhere."""
    return less_eot("10")[target, eps, poses].ahead


def below_as_they_are(first: str, second: str, target: str, eps: int) -> bool:
    """Whether an attack has a lower rate than another on images without a pose."""
    return success(target, first, eps, identity=True)[0] < success(target, second, eps, identity=True)[0]


def enough_are_recognised() -> bool:
    """Whether every network recognises as many clean photographs in every pose as a rate needs."""
    return all(bool((judged(t, "dim").eligible.sum(1) >= FEWEST).all()) for t in (*PLAIN, *HARDENED, WHITE_BOX))


def above_all_else(source: str, eps: str) -> bool:
    """Whether ``ai-best`` has the highest rate of the attacks of the frontier with 10 gradients."""
    data = Frontier(source)
    ours = _shown(data.counts("ai-best/10", eps))
    others = [
        name
        for name in data.part["rows"]
        if name.endswith("/10") and not name.startswith("ai-best") and data.has(name, eps)
    ]
    return all(_shown(data.counts(name, eps)) < ours for name in others)


def frontier_eot(source: str, eps: str) -> list[int]:
    """How ``ai-best`` with 10 gradients and with 50 stands to EOT: 1 significantly ahead, -1 behind, 0 neither."""
    return [_beside_eot()[source, eps, gradients].ahead for gradients in ("10", "50")]


def weaker_than_before(source: str, eps: str) -> bool:
    """Whether ``ai-best`` is below the one before, with 10 gradients and with 50."""
    data = Frontier(source)
    return all(
        _shown(data.counts(f"ai-best/{n}", eps)) < _shown(data.counts(f"ai-best@d86f66b/{n}", eps)) for n in (10, 50)
    )


def wrapped_gains(name: str) -> list[float]:
    """Lower ends of the intervals of what wrapping the network gains for an attack of another library."""
    cell, ends = TABLES["frontier-wrapped"](), []
    for source in _SOURCES:
        for eps in ("16", "8"):
            values = cell({"attack": name}, f"{source}, ε {eps}")
            ends += [values[3]] if values else []
    return ends
