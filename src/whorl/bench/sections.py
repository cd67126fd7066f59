"""What ``whorl bench`` measures: our attacks beside other libraries', the estimator beside a copy, in one run."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from whorl.bench.clock import Timing, metadata, significant, take_turns
from whorl.bench.compiled import GRADIENT, gradient_calls, replayed_gradient
from whorl.bench.peers import EPS, TimedCall, Workload, peer_calls, reason, toolbox_eot
from whorl.errors import WhorlError, unknown_name
from whorl.progress import Progress, silent
from whorl.transforms import RandomAffine

OURS = "whorl"
# Rounds for those that no target names.
_FEW = 5
# What a library's rounding may add to the radius.
_SLACK = 0.5 / 255
_Section = tuple[str, list[dict[str, Any]], dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class BenchSize:
    """How much is done.

    Attributes:
        network: an architecture, as ``whorl.models.architectures.build`` takes it.
        side: of the images.
        batch: images.
        steps: of the iterative attacks.
        eot_batch: images of the expectation over transformations.
        eot_steps: its steps.
        draws: its draws a step.
        repeats: rounds that count.
        quick: whether all this is only to see that it runs.
    """

    network: str
    side: int
    batch: int
    steps: int
    eot_batch: int
    eot_steps: int
    draws: int
    repeats: int
    quick: bool = False

    @property
    def name(self) -> str:
        """The network's, without where it comes from."""
        return self.network.rpartition(":")[2]


# What is compiled takes minutes before its first call is over: by name alone.
SECTIONS = ("attacks", "eot", "estimator", "compiled")
DEFAULT_SECTIONS = SECTIONS[:3]
ATTACKS = tuple(whorl.attack_names(kind="gradient"))
DEFAULT_ATTACKS = ("fgsm", "pgd", "mim", "dim", "ai-dim", "ri-dim", "ram", "ai-ram", "ai-best")
_CPU = BenchSize(
    network="torchvision:resnet18", side=224, batch=8, steps=10, eot_batch=1, eot_steps=1, draws=10, repeats=3
)
SIZES = {
    "cuda": BenchSize(
        network="torchvision:inception_v3", side=299, batch=64, steps=10, eot_batch=8, eot_steps=2, draws=50, repeats=20
    ),
    "cpu": _CPU,
    "quick": replace(_CPU, side=32, batch=2, steps=2, draws=2, repeats=2, quick=True),
}


def size_for(
    device: torch.device,
    *,
    quick: bool = False,
    network: str | None = None,
    side: int | None = None,
    batch: int | None = None,
    repeats: int | None = None,
) -> BenchSize:
    """How much to do on a device.

    Args:
        device: where; a GPU does more.
        quick: tiny and few, to see that it runs.
        network: another than the size's, such as ``timm:efficientnet_lite0``.
        side: of the images, in pixels; None for the size's.
        batch: images; None for as many as the size has.
        repeats: rounds that count; None for as many as the size has.

    >>> size_for(torch.device("cpu"), quick=True, batch=5).batch
    5
    """
    numbers = {"repeats": repeats, "batch": batch, "side": side}
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise WhorlError(f"{name} must be a whole number from 1; got {value}.")
    size = SIZES["quick" if quick else device.type]
    given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    return replace(size, network=network or size.network, **given)


def bench(
    device: torch.device,
    size: BenchSize | None = None,
    *,
    sections: Sequence[str] = DEFAULT_SECTIONS,
    attacks: Sequence[str] = DEFAULT_ATTACKS,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Measure.

    Args:
        device: where.
        size: how much; None for what suits the device.
        sections: which of :data:`SECTIONS`.
        attacks: which of :data:`ATTACKS`, ours, in the first; what stands beside them comes with them.
        progress: called as it goes on.

    Returns:
        ``metadata``, ``missing`` (library to why), and ``sections``: each a title and rows of a name, milliseconds, how
        many rounds they are the median of, and ``ratio``, time over that of the section's row of ours that it stands
        beside: above 1, ours is faster. The estimator's rows also have ``share``, time over that of the network's input
        gradient, as the attack loop computes it here.
    """
    for name in sections:
        if name not in SECTIONS:
            raise unknown_name("section", name, SECTIONS, hint=f"There are {', '.join(SECTIONS)}.")
    for name in attacks:
        if name not in ATTACKS:
            raise unknown_name("attack to time", name, ATTACKS, hint=f"There are {', '.join(ATTACKS)}.")
    size = size or size_for(device)
    work = prepare(size, device)
    calls, versions, missing = peer_calls(work)
    about = metadata(device, peers=versions, **asdict(size))
    makers: dict[str, Callable[[], _Section]] = {
        "attacks": lambda: _attacks(work, size, calls, attacks, progress),
        "eot": lambda: _eot(work, size, progress),
        "estimator": lambda: _estimator(work, size, progress),
        "compiled": lambda: _compiled(work, size, progress),
    }
    made = []
    for name in sections:
        title, rows, failed = makers[name]()
        made.append({"name": name, "title": title, "rows": rows})
        missing |= failed
    return {"metadata": about, "missing": missing, "sections": made}


def prepare(size: BenchSize, device: torch.device) -> Workload:
    """Make a network with random weights, which do for throughput, and a batch of noise."""
    from whorl.models import Classifier
    from whorl.models.architectures import build

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision on the future of Inception's initial weights
        torch.manual_seed(0)
        net, given = build(size.network)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):  # as in a trained network, gradients neither vanish nor explode
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    model = Classifier(net, size=size.side, mean=given.mean, std=given.std, num_classes=1000, name=size.name)
    model = model.to(device)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(size.batch, 3, size.side, size.side, generator=generator).to(device)
    with torch.no_grad():
        # Any label but the answer: random weights are so sure of that one that its gradient vanishes.
        y = (model(x).argmax(1) + 1) % 1000
    return Workload(model=model, x=x, y=y, steps=size.steps, draws=size.draws)


def _attacks(
    work: Workload, size: BenchSize, calls: Sequence[TimedCall], names: Sequence[str], progress: Progress
) -> _Section:
    rivals = [call for call in (*calls, *_given_bf16(work)) if call.attack in names]
    listed = [*(_ours(name, work) for name in names), *(_watched(call, work) for call in rivals)]
    shape = "×".join(map(str, work.x.shape))
    title = f"attacks on {size.name}, {shape}, {work.steps} steps"
    return _timed(title, listed, work.x.device, size.repeats, progress, few=lambda call: not _named(call))


def _watched(call: TimedCall, work: Workload) -> TimedCall:
    """The same, refused if what it makes first is not in the ball: it would not have done the work."""
    checked = False

    def run() -> object:
        nonlocal checked
        made = call.run()
        if not checked:
            moved = float((torch.as_tensor(made).detach().to(work.x) - work.x).abs().max())
            if not 0 < moved <= EPS + _SLACK:
                raise WhorlError(f"moved pixels by up to {255 * moved:.1f}/255; expected at most {255 * EPS:g}/255.")
            checked = True
        return made

    return replace(call, run=run)


def _named(call: TimedCall) -> bool:
    """Whether an attack is ours, or a rival that we hold ourselves to."""
    return call.library == OURS or (call.library == "torchattacks" and call.attack == "ai-dim")


def _ours(name: str, work: Workload, **settings: Any) -> TimedCall:
    note = ""
    if name == "eot" and not settings:  # as many gradients as the others
        settings, note = {"steps": 1, "samples": work.steps}, f"one step of {work.steps} draws"
    elif name == "ai-best":
        settings = {"steps": work.steps, **settings}  # its step size falls from step to step
    elif not name.endswith("fgsm"):
        settings = {"steps": work.steps, "alpha": work.alpha, **settings}
    attack = whorl.attack(name, eps=EPS, **{"fast": None, **settings})
    return TimedCall(attack=name, library=OURS, name=name, run=lambda: attack(work.model, work.x, work.y), note=note)


def _given_bf16(work: Workload) -> list[TimedCall]:
    """The strongest rivals with a network in bfloat16 and channels-last memory, as a careful user would hand them."""
    if not work.x.is_cuda:
        return []
    model: Any = copy.deepcopy(work.model)
    model.net.to(torch.bfloat16).to(memory_format=torch.channels_last)
    x = work.x.contiguous(memory_format=torch.channels_last)
    calls, _, _ = peer_calls(replace(work, model=model, x=x))
    return [replace(call, name=f"{call.name}, given bf16 and channels-last") for call in calls if _named(call)]


def _eot(work: Workload, size: BenchSize, progress: Progress) -> _Section:
    few = size.eot_batch
    small = replace(work, x=work.x[:few], y=work.y[:few], steps=size.eot_steps)
    listed = [_ours("eot", small, samples=size.draws), _one_by_one(small)]
    failed = {}
    try:
        listed.append(toolbox_eot(small))
    except Exception as error:  # noqa: BLE001 - as in peer_calls
        failed["art EoT"] = reason(error)
    title = f"expectation over transformations, {size.eot_batch} images, {size.draws} draws, {size.eot_steps} steps"
    shown, rows, more = _timed(title, listed, work.x.device, min(size.repeats, _FEW), progress)
    return shown, rows, failed | more


def _one_by_one(work: Workload) -> TimedCall:
    return TimedCall(attack="eot", library="plain torch", name="draw by draw", run=lambda: draw_by_draw(work))


def draw_by_draw(work: Workload) -> Tensor:
    """Expectation over transformations as one writes it first: a draw for the batch, its gradient, the next draw."""
    transform = RandomAffine()
    adv, low, high = work.x.clone(), (work.x - EPS).clamp(0, 1), (work.x + EPS).clamp(0, 1)
    for step in range(work.steps):
        total = torch.zeros_like(adv)
        for draw in range(work.draws):
            leaf = adv.detach().requires_grad_()
            keys = torch.arange(len(adv), device=adv.device) + len(adv) * (draw + work.draws * step)
            loss = F.cross_entropy(work.model(transform(leaf, keys)), work.y, reduction="sum")
            total += torch.autograd.grad(loss, leaf)[0]
        adv = torch.clamp(adv + work.alpha * total.sign(), low, high)
    return adv


def _estimator(work: Workload, size: BenchSize, progress: Progress) -> _Section:
    g = torch.randn(work.x.shape, generator=torch.Generator().manual_seed(1)).to(work.x.device)
    short = g.to(torch.bfloat16)
    kernel = torch.full((3, 1, 15, 15), 1 / 225, device=g.device)
    ai, ri, ti = whorl.AffineInvariant(), whorl.RotationInvariant(), whorl.TranslationInvariant()

    def gradient() -> Tensor:
        leaf = work.x.detach().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(work.model(leaf), work.y, reduction="sum"), leaf)[0]

    def entry(name: str, run: Callable[[], object], library: str = "plain torch") -> TimedCall:
        return TimedCall(attack="AffineInvariant", library=library, name=name, run=run)

    listed = [
        entry("AffineInvariant", lambda: ai(g), OURS),
        entry("RotationInvariant", lambda: ri(g), OURS),
        entry("TranslationInvariant", lambda: ti(g), OURS),
        entry("copy", g.clone),
        entry("15×15 depthwise convolution", lambda: F.conv2d(g, kernel, padding=7, groups=3)),
        entry(f"{size.name} input gradient", gradient),
    ]
    lacking = {}
    if g.is_cuda:
        # What the loop of an attack with diverse inputs hands it.
        listed.append(entry("AffineInvariant in bfloat16", lambda: ai(short), OURS))
        listed.append(entry("RotationInvariant in bfloat16", lambda: ri(short), OURS))
        name = f"{size.name} input gradient, fast loop"
        try:
            listed.append(entry(name, replayed_gradient(work), OURS))
        except WhorlError as error:
            lacking[f"{OURS} {name}"] = reason(error)
    shape = "×".join(map(str, g.shape))
    title, rows, failed = _timed(f"the estimator on {shape}", listed, g.device, size.repeats, progress, queued=True)
    whole = rows[-1]["median_ms"]
    rows = [{**row, "share": significant(row["median_ms"] / whole)} for row in rows]
    return title, rows, failed | lacking


def _compiled(work: Workload, size: BenchSize, progress: Progress) -> _Section:
    title = f"{GRADIENT} of {size.name}, {'×'.join(map(str, work.x.shape))}"
    if not work.x.is_cuda:
        return title, [], {"compiled": "what attacks replay is recorded on a GPU alone"}
    return _timed(title, gradient_calls(work, OURS), work.x.device, size.repeats, progress, queued=True)


def _timed(
    title: str,
    listed: Sequence[TimedCall],
    device: torch.device,
    rounds: int,
    progress: Progress,
    *,
    few: Callable[[TimedCall], bool] = lambda _: False,
    queued: bool = False,
) -> _Section:
    calls = {f"{call.library} {call.name}": call for call in listed}
    timings, errors = take_turns(
        {name: call.run for name, call in calls.items()},
        device=device,
        repeats=rounds,
        fewer={name: min(rounds, _FEW) for name, call in calls.items() if few(call)},
        queued=queued,
        may_fail=[name for name, call in calls.items() if call.library != OURS],
        tell=lambda done: progress(title, done, rounds + 2),
    )
    rows = []
    for name, timing in timings.items():
        call = calls[name]
        ours: Timing = timings[f"{OURS} {call.attack}"]
        rows.append(
            {
                "library": call.library,
                "name": call.name,
                "beside": call.attack,
                **asdict(timing),
                "ratio": significant(timing.median_ms / ours.median_ms),
                "note": call.note,
            }
        )
    return title, rows, {name: reason(error) for name, error in errors.items()}
