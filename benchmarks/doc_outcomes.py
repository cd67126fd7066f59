"""Tables that rest on the outcome of each image: the frontier, and the photographs that chose nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from doc_data import Frontier, HeldOut
from doc_tables import TABLES, Cell, table
from whorl.evaluation.image_counts import ImageCounts
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


def _apart(found: Comparison) -> list[float]:
    return [100 * found.difference, 100 * found.interval[0], 100 * found.interval[1]]


def _candidate(row: Mapping[str, str]) -> str:
    base = row["attack"].replace(", σ 0.5", "+ai0.5").replace("ri-dim ²", "dim+turn32-1.6").replace(" ¹", "")
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
            "difference": lambda: _apart(found),
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
        return _apart(compare(data.counts(name, "8"), data.counts("ram/10", "8"), "mean"))

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
        return [_shown(plain), _shown(wrapped), *_apart(compare(wrapped, plain, "mean"))]

    return cell


PLAIN = ("mobilenet_v2", "efficientnet_lite0", "efficientnet_lite1")
HARDENED = ("efficientnet_lite0.ens-at", "efficientnet_lite0.ai-at", "mobilenet_v2.ens-at")


@cache
def _held_out() -> HeldOut:
    return HeldOut()


@cache
def photographs(eps: int) -> int:
    """How many photographs the figures at an eps rest on."""
    return _held_out().n(eps, (*PLAIN, *HARDENED))


@cache
def _judged(target: str, attack: str, eps: int = 16, *, identity: bool = False) -> ImageCounts:
    return _held_out().counts(target, f"{attack}-{eps}", photographs(eps), identity=identity)


@cache
def success(target: str, attack: str, eps: int = 16, *, identity: bool = False) -> Sequence[float]:
    """In percent, with its interval."""
    found = rate(_judged(target, attack, eps, identity=identity))
    return [100 * value for value in (found.value, *found.interval)]


@cache
def gain(target: str, first: str, second: str, eps: int = 16) -> Comparison:
    """How far one attack is ahead of another."""
    return compare(_judged(target, first, eps), _judged(target, second, eps))


def _recognised(target: str, *, identity: bool) -> float:
    """Of the clean photographs, in percent."""
    return 100 * float(_judged(target, "dim", identity=identity).eligible.mean())


@table("held-out")
def _(eps: str, poses: str) -> Cell:
    identity = {"poses": False, "identity": True}[poses]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        name = row["attack"].partition(",")[0]  # whose it is may follow
        if column == "attack":
            return None
        if column == "gradients":
            return [_held_out().data["settings"][f"{name}-{eps}"]["steps"]]
        if name == "clean images recognised":
            return [_recognised(column, identity=identity)]
        return success(column, name, int(eps), identity=identity)

    return cell


_COMPARED = (("ai-dim", "dim"), ("ri-dim", "dim"), ("ri-dim", "ai-dim"), ("ai-best", "dim"), ("ai-best", "ai-dim"))


@cache
def _gains(eps: int) -> Mapping[tuple[str, str, str], Comparison]:
    """All gains of a table, with Holm's correction."""
    there = {attack for attack in ("dim", "ai-dim", "ri-dim", "ai-best") if eps == 16 or attack != "ai-dim"}
    pairs = [(first, second) for first, second in _COMPARED if {first, second} <= there]
    targets = (*PLAIN, *HARDENED)
    return holm({(t, first, second): gain(t, first, second, eps) for t in targets for first, second in pairs})


@table("held-out-gains")
def _(eps: str) -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "gain":
            return None
        first, _, second = row["gain"].partition(" over ")
        found = _gains(int(eps))[column, first, second]
        return [*_apart(found), found.p_value]

    return cell


@cache
def _hardening() -> Mapping[tuple[str, str], Comparison]:
    """How much less an attack succeeds against a hardened network than against its original, with Holm's correction."""
    return holm(
        {
            (network, attack): compare(_judged(network.partition(".")[0], attack), _judged(network, attack))
            for network in HARDENED
            for attack in ("dim", "ai-dim", "ai-best")
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
            return [_recognised(one, identity=True) for one in (original, network)]
        attack = column.strip("`")
        rates = [success(one, attack)[0] for one in (original, network)]
        return [*rates, *_apart(_hardening()[network, attack])]

    return cell


def gain_range(first: str, second: str, targets: Sequence[str]) -> list[float]:
    """The least and the largest gain on some targets, in points."""
    gains = [100 * gain(target, first, second).difference for target in targets]
    return [min(gains), max(gains)]


def ahead(first: str, second: str, targets: Sequence[str], eps: int = 16) -> bool:
    """Whether one attack is significantly ahead on all of these."""
    return all(_gains(eps)[target, first, second].ahead == 1 for target in targets)


def eot_is_ahead(eps: str, gradients: str) -> list[bool]:
    """Whether EOT is significantly ahead of ``ai-best``, from each source."""
    return [found.ahead == -1 for (_, *key), found in _beside_eot().items() if key == [eps, gradients]]


def nothing_is_ahead(eps: str) -> bool:
    """Whether neither ``ai-best`` nor EOT is significantly ahead, from any source, with 10 gradients or with 50."""
    return all(found.ahead == 0 for key, found in _beside_eot().items() if key[1] == eps)


def wrapped_gains(name: str) -> list[float]:
    """Lower ends of the intervals of what wrapping the network gains for an attack of another library."""
    cell, ends = TABLES["frontier-wrapped"](), []
    for source in _SOURCES:
        for eps in ("16", "8"):
            values = cell({"attack": name}, f"{source}, ε {eps}")
            ends += [values[3]] if values else []
    return ends
