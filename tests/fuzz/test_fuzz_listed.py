"""What a hostile user once got through with, case by case: stale results, two at work, classes, uploads, batches."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

import whorl
from attacks.test_batch_sizes import SIDE, parts, sensitive
from attacks.test_query_targets import write_linear
from attacks.test_threads import at_once, network
from cli.commands_at_work import WORK, leftovers, prepare
from cli.test_cli_classes import NAMES
from conftest import CLASSES, random_images, small_net
from fuzz.harness import Verdict, hold, judge
from models.test_weights import replace_with_hash, same
from runs.declaring import SMALL, made, save_toy_images, table
from ui.test_ui_image import header
from ui.test_ui_server import FOREIGN, begin, eventually, multipart, post, uploads
from ui.ui_toys import LABELS, gradio_is_here, playground
from whorl import files, progress
from whorl.attacks.contract import held_in_eval
from whorl.data import save_image
from whorl.evaluation import predictions
from whorl.models.weights import converted, read_state_dict, tensors_sha256
from whorl.runs import ray_cluster
from whorl.ui.image import upload
from whorl.ui.server import running

FAMILY = "listed"
INPUT = "size=18&mean=0.5,0.5,0.5&std=0.5,0.5,0.5"


# ---------------------------------------------------------------------------------------------------------------------
# Stale results: something changed that no name, size or time stamp tells

CODE = """
from torch import nn
from conftest import small_net
from listed_helper import seen

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small_net()

    def forward(self, x):
        return self.net(seen(x){})
"""
HELPER = "def seen(x):\n    return x{}\n"


def write_code(folder: Path, *, mine: str = "", helper: str = "") -> None:
    (folder / "listed_mine.py").write_text(CODE.format(mine))
    (folder / "listed_helper.py").write_text(HELPER.format(helper))


def write_onnx(folder: Path, sign: int = 1, *, place: str = "net.data") -> None:
    """A graph that compares images with those of each class; its weights, in another file, may have a changed sign."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(write_linear(folder / "net.onnx"))
    x = random_images(5)
    weight = torch.zeros(x[0].numel(), CLASSES)
    for image, label in zip(x - 0.5, small_net()(x).argmax(1).tolist(), strict=True):
        weight[:, label] += (sign if label > 2 else 1) * image.flatten()
    graph.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight.numpy(), "weight"))
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).unlink(missing_ok=True)
    onnx.save(graph, folder / "net.onnx", save_as_external_data=True, location=place, size_threshold=0)


def write_images(folder: Path, change: int = 0) -> None:
    """Images without compression: all of one size."""
    save_toy_images(folder / "data", 5)
    for place, path in enumerate(sorted((folder / "data").rglob("*.png"))):
        pixels = random_images(5)[int(path.stem)] * 255
        pixels[:, :4] = (pixels[:, :4] + change * (place == 2)) % 256
        Image.fromarray(pixels.round().byte().permute(1, 2, 0).numpy()).save(path, compress_level=0)


@dataclass(frozen=True)
class Stale:
    """A network, and how something that its answers rest on is written, and written anew."""

    target: str
    write: Callable[[Path], None]
    again: Callable[[Path], None]
    source: str = SMALL


MINE = f"python:listed_mine:Mine?{INPUT}&name=mine"
STALE = {
    "external data": Stale("onnx:{}/net.onnx?name=mine&" + INPUT, write_onnx, lambda folder: write_onnx(folder, -1)),
    "external data below": Stale(
        "onnx:{}/net.onnx?name=mine&" + INPUT,
        lambda folder: write_onnx(folder, place="below/net.data"),
        lambda folder: write_onnx(folder, -1, place="below/net.data"),
    ),
    "code": Stale(MINE, write_code, lambda folder: write_code(folder, mine=".round()"), source=MINE),
    "imported code": Stale(MINE, write_code, lambda folder: write_code(folder, helper=".round()"), source=MINE),
    "images": Stale(SMALL, write_images, lambda folder: write_images(folder, 128)),
}


def stamped(folder: Path) -> dict[Path, bytes]:
    """All files of a folder, which are from now on as old as each other."""
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in found:
        os.utime(path, ns=(10**18, 10**18))
    return found


@pytest.mark.parametrize("name", STALE)
def test_nothing_stale_is_reused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, given, file = STALE[name], tmp_path / "given", tmp_path / "listed.toml"
    given.mkdir()
    monkeypatch.syspath_prepend(given)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    save_toy_images(given / "data", 5)
    file.write_text(
        f'name = "listed"\nsources = ["{case.source}"]\ntargets = ["{case.target.format(given)}"]\nattacks = ["fgsm"]\n'
        f"poses = [{{ angles = [0, 30] }}]\n[data]\nfolder = {json.dumps(str(given / 'data'))}\n"
    )

    def results(out: str) -> Any:
        for module in ("listed_mine", "listed_helper"):
            sys.modules.pop(module, None)  # a new process would import them anew
        hold(["run", str(file), f"--out={tmp_path / out}", "--device=cpu", "--no-report"], "works")
        return made(tmp_path / out), table(tmp_path / out)

    case.write(given)
    old = stamped(given)
    before = results("run")
    case.again(given)
    new = stamped(given)
    assert [path.name for path in old if old[path] != new[path]], "nothing changed"
    assert "code" in name or all(len(old[path]) == len(new[path]) for path in old)
    fresh = results("fresh")
    assert fresh != before, "the case cannot fail"
    assert results("run") == fresh


# ---------------------------------------------------------------------------------------------------------------------
# Two at work in one folder


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("given"))


@pytest.fixture
def while_held(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command in a folder that another holds, who lets go when the command has said that it waits."""

    def run(out: Path, arguments: list[str], verdict: Verdict) -> Any:
        taken, waiting = Event(), Event()

        def notice(line: str) -> None:
            progress.notice(line)
            waiting.set()

        def holder() -> None:
            with files.held(out, "whorl attack first"):
                taken.set()
                waiting.wait()

        monkeypatch.setattr(files, "notice", notice)
        first = Thread(target=holder)
        first.start()
        try:
            taken.wait()
            result = hold(arguments, verdict)
            assert waiting.is_set(), "it did not wait"
        finally:
            waiting.set()
            first.join()
        assert f"waiting for process {os.getpid()} on " in result.stderr
        assert ": whorl attack first" in result.stderr
        return result

    return run


@pytest.mark.parametrize("name", ["attack", "query", "run"])
def test_the_second_in_a_folder_waits(name: str, given: Path, while_held: Callable[..., Any], tmp_path: Path) -> None:
    work = WORK[name]
    hold(work.typed(given, tmp_path / "alone"), "works")
    while_held(tmp_path / "out", work.typed(given, tmp_path / "out"), "works")
    assert work.result(tmp_path / "out") == work.result(tmp_path / "alone")
    assert not leftovers(tmp_path)


def test_the_second_with_other_settings_is_refused(given: Path, while_held: Callable[..., Any], tmp_path: Path) -> None:
    work, out = WORK["attack"], tmp_path / "out"
    hold(work.typed(given, out), "works")
    before = work.result(out)
    result = while_held(out, [*work.typed(given, out), "--eps=4/255"], "error")
    assert "already holds pgd/small, made with another eps" in " ".join(result.stderr.split())
    assert work.result(out) == before


# ---------------------------------------------------------------------------------------------------------------------
# Threads and batches


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_four_threads_on_one_network(training: bool) -> None:
    net, x = network().train(training), random_images(4)
    with held_in_eval(net), torch.no_grad():
        y = net(x).argmax(1)
    attacks = [whorl.attack(name, steps=3) for name in ("ai-best", "pgd", "ai-best", "pgd")]
    alone = [attack(net, x, y, seed=place) for place, attack in enumerate(attacks)]
    for expected, found in zip(alone, at_once(attacks, net, x, y), strict=True):
        assert all(torch.equal(adv, expected) for adv in found)


@pytest.mark.filterwarnings("ignore:.*no residual branch")
@pytest.mark.parametrize("name", ["ai-dim", "ai-best", "nes", "prediction"])
def test_a_batch_of_one(name: str) -> None:
    clf, ids = sensitive(), list("abc")
    x = torch.rand(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    y = clf(x).argmax(1)

    def results(part: slice) -> Tensor:
        if name == "prediction":
            return predictions({"net": clf}, x[part]).probabilities.movedim(-1, 0)
        attack = whorl.attack(name, **({"budget": 8, "samples": 4} if name == "nes" else {"steps": 2}))
        return attack(clf, x[part], y[part], seed=3, ids=ids[part])

    whole = results(slice(None))
    for size in (1, 2):
        assert torch.equal(torch.cat([results(part) for part in parts(len(x), size)]), whole), size


# ---------------------------------------------------------------------------------------------------------------------
# Ray: no more workers than there is room for

WORKERS: list[tuple[dict[str, float], str, int | None, int | None]] = [
    ({"CPU": 2.0}, "cpu", 64, 2),
    ({"CPU": 2.0}, "cpu", 2, 2),
    ({"CPU": 2.0}, "cpu", None, 2),
    ({"CPU": 2.0}, "cpu", 1, 1),
    ({"CPU": 64.0, "GPU": 1.0}, "cuda", 8, 1),
    ({"CPU": 64.0}, "cuda", 8, None),
    ({"CPU": 0.5}, "cpu", 3, None),
    ({}, "cpu", None, None),
]


@pytest.mark.parametrize(("resources", "device", "wanted", "started"), WORKERS, ids=str)
def test_more_workers_than_a_cluster_has_room_for(
    resources: dict[str, float],
    device: str,
    wanted: int | None,
    started: int | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = SimpleNamespace(cluster_resources=lambda: resources)
    found = judge(lambda: ray_cluster._affordable(cluster, device, wanted), "error" if started is None else "works")
    assert found == started
    capped = started is not None and wanted is not None and wanted > started
    assert (f"{wanted} workers were requested" in capsys.readouterr().err) == capped


# ---------------------------------------------------------------------------------------------------------------------
# Class spaces


@dataclass(frozen=True)
class ClassCase:
    """Images in folders of these names, and a network to attack them on; FILE is a list of the names as given here.

    The images of the folder at place i are of the small network's class i.
    """

    folders: tuple[str, ...]
    model: str
    verdict: Verdict
    says: str = ""


SMALL_NET = f"python:conftest:small_net?{INPUT}&name=mine"
SHIFTED = tuple(f"{letter} thing" for letter in "bcdefga")  # in sorted order each stands for another class
CLASS_CASES = {
    "names of the network": ClassCase(LABELS, "python:ui.ui_toys:toy", "works"),
    "names, otherwise written": ClassCase(
        tuple(name.upper().replace(" ", "_") for name in LABELS), "python:ui.ui_toys:toy", "works"
    ),
    "a thousand classes": ClassCase(
        NAMES, "python:ui.ui_toys:imagenet_toy", "error", "10 of 10 class folders name no class"
    ),
    "other names": ClassCase(SHIFTED, "python:ui.ui_toys:toy", "error", "7 of 7 class folders name no class"),
    "one other name": ClassCase(
        (*LABELS[:-1], "bolt"), "python:ui.ui_toys:toy", "error", "1 of 7 class folders name no class"
    ),
    "another order": ClassCase(SHIFTED, SMALL_NET, "error", "recognises none of the clean images"),
    "another order, listed": ClassCase(SHIFTED, f"{SMALL_NET}&labels=FILE", "works"),
    "none recognised": ClassCase(tuple("1234560"), SMALL, "error", "recognises none of the clean images"),
}


def of_each_class() -> list[Tensor]:
    """An image of each class of the small network."""
    x = random_images(200)
    found = small_net()(x).argmax(1).tolist()
    return [x[found.index(label)] for label in range(len(LABELS))]


@pytest.mark.parametrize("command", ["attack", "run", "evaluate"])
@pytest.mark.parametrize("case", CLASS_CASES.values(), ids=CLASS_CASES)
def test_classes(case: ClassCase, command: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for label, image in enumerate(of_each_class()):
        save_image(data / case.folders[label] / "image.png", image)
    for name in case.folders[len(LABELS) :]:
        save_image(data / name / "image.png", random_images(1)[0])
    (tmp_path / "names.txt").write_text("\n".join(case.folders) + "\n")
    model = case.model.replace("FILE", str(tmp_path / "names.txt"))
    file = tmp_path / "listed.toml"
    file.write_text(
        f'name = "listed"\nsources = ["{model}"]\ntargets = ["{model}"]\nattacks = ["fgsm"]\n'
        f"poses = [{{ angles = [0] }}]\n[data]\nfolder = {json.dumps(str(data))}\n"
    )
    words = {
        "attack": ["attack", "fgsm", f"--model={model}", f"--data={data}", f"--out={tmp_path / 'run'}"],
        "run": ["run", str(file), f"--out={tmp_path / 'run'}", "--no-report"],
        "evaluate": ["evaluate", str(data), str(data), f"--model={model}", "--angles=0", "--fail-above=100"],
    }
    result = hold([*words[command], "--device=cpu"], case.verdict)
    assert case.says in " ".join(result.stderr.split())
    assert case.verdict == "works" or not (tmp_path / "run" / "results.csv").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Cached weights, replaced together with their hash


@pytest.mark.parametrize("source", ["sound", "replaced too"])
def test_cached_weights_replaced_with_their_hash(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHORL_HOME", str(tmp_path))
    state = dict(small_net().state_dict())
    other = {name: tensor + 1 for name, tensor in state.items()}
    pinned = tensors_sha256(state)
    path, _ = converted("small", "ab" * 32, lambda: state, pinned)
    replace_with_hash(path, other)
    sound = source == "sound"
    kept = judge(
        lambda: converted("small", "ab" * 32, lambda: state if sound else other, pinned),
        "works" if sound else "error",
    )
    assert kept is None or same(read_state_dict(kept[0]), state)


# ---------------------------------------------------------------------------------------------------------------------
# Uploads to the playground


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    gradio_is_here()
    with running(playground()) as place:
        yield place


def test_an_upload_that_is_broken_off(address: str) -> None:
    with begin(address, b"somebody's photograph" * 9000):
        assert eventually(lambda: sum(path.stat().st_size for path in uploads()) > 0)  # it had begun to arrive
    assert eventually(lambda: uploads() == [])


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_an_upload_from_another_site(address: str, headers: dict[str, str]) -> None:
    assert post(address, multipart(b"theirs"), **headers)[0] == 403
    assert uploads() == []


def test_an_upload_of_79_megapixels(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(header(8900, 8900))
    with pytest.raises(whorl.WhorlError, match="too large; expected 32,000,000 pixels at most, got 8900 × 8900"):
        upload(path)
    assert not path.exists()
