"""``whorl evaluate``: two folders in, rates and an exit code out."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from cli.invoking import invoke, plain_environment
from cli.toy_networks import classifier, small
from conftest import CLASSES, random_images, small_net
from whorl import Classifier, WhorlError, runs
from whorl.data import load_image, save_image
from whorl.evaluation import PAPER_POSES, Pose, ssim, success_rates
from whorl.runs.kept_outcomes import forget_kept, kept_beside
from whorl.runs.networks import Target
from whorl.runs.pairs import PairedImages
from whorl.runs.results import COLUMNS
from whorl.runs.scores import Evaluated, evaluate_folders
from whorl.runs.store import Store

COUNT = 8


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """Eight small images with the labels that the network gives them."""
    x = random_images(COUNT)
    labels = small()(x).argmax(1).tolist()
    for i, (picture, label) in enumerate(zip(x, labels, strict=True)):
        save_image(tmp_path / "clean" / str(label) / f"{i}.png", picture)
    return tmp_path / "clean"


@pytest.fixture
def run(clean: Path, tmp_path: Path) -> Path:
    """A run folder of ``whorl attack``."""
    craft = ["attack", "pgd", "--model", "python:cli.toy_networks:small", "--eps", "32/255"]
    assert invoke(*craft, "--data", str(clean), "--out", str(tmp_path / "run")).exit_code == 0
    return tmp_path / "run"


@pytest.fixture
def strong(run: Path, tmp_path: Path) -> Path:
    """The same images as anyone's, without a manifest."""
    shutil.copytree(run / "adv" / "pgd" / "small", tmp_path / "strong")
    return tmp_path / "strong"


@pytest.fixture
def weak(clean: Path, tmp_path: Path) -> Path:
    """Images that nothing was done to."""
    shutil.copytree(clean, tmp_path / "weak")
    return tmp_path / "weak"


def evaluate(*arguments: str | Path, model: str = "small", **environment: str) -> Any:
    models = ",".join(f"python:cli.toy_networks:{part}" for part in model.split(","))
    return invoke("evaluate", *map(str, arguments), "--model", models, **environment)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_scores_what_whorl_attack_wrote(clean: Path, run: Path, tmp_path: Path) -> None:
    folder, out = run / "adv" / "pgd" / "small", tmp_path / "results.csv"
    result = evaluate(clean, folder, "--out", out, "--batch-size", str(COUNT), model="small,other")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines() == [f"evaluating: 0/{COUNT}", f"evaluating: {COUNT}/{COUNT}"]
    x, y, ids = whorl.load_images(clean)
    adv = torch.stack([load_image(folder / f"{name}.png") for name in ids])
    targets = {"small": small(), "other": classifier(small_net(seed=5), "other")}
    counts = success_rates(targets, x, {"pgd": adv}, y)
    written = rows(out)
    assert tuple(written[0]) == COLUMNS
    assert len(written) == len(counts) == 2 * len(PAPER_POSES)
    for row, ((_, target, pose), count) in zip(written, counts.items(), strict=True):
        assert (row["attack"], row["source"], row["target"], row["defense"]) == ("pgd", "small", target, "none")
        assert (float(row["angle"]), float(row["scale"])) == (pose.angle, pose.scale)
        assert (float(row["shift_x"]), float(row["shift_y"])) == pose.shift
        assert (int(row["n"]), int(row["n_clean_correct"]), int(row["n_success"])) == (
            count.n,
            count.n_clean_correct,
            count.n_success,
        )
        assert float(row["eps"]) == 32 / 255
        assert int(row["grad_evals"]) == 10 * COUNT


def test_a_separate_script_reproduces_the_table(clean: Path, strong: Path, weak: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.csv"
    grid = ["--angles", "-30,0,30", "--scales", "0.7,1", "--shifts", "0,20"]
    assert evaluate(clean, strong, weak, *grid, "--out", out).exit_code == 0
    here = Path(__file__).parent
    recounted = subprocess.run(
        [sys.executable, here / "recount.py", clean, strong, weak],
        env=plain_environment(PYTHONPATH=str(here.parent)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert recounted.stdout == out.read_text()
    assert any(float(row["asr"]) not in (0, 1) for row in rows(out))


def test_the_table_says_which_differences_are_real(clean: Path, strong: Path, weak: Path) -> None:
    result = evaluate(clean, weak, strong, "--angles", "0")
    rates, differences, sizes, legend = (part.splitlines() for part in result.stdout.split("\n\n"))
    heading, _, first, second = rates
    assert heading == "Success rates of 8 images, 1 pose"
    assert first.split()[:4] == ["weak", "small", "100.0%", "8"]
    assert second.split()[:8] == ["strong", "small", "100.0%", "8", "100.0%", "(few)", "67.6%", "to"]
    assert differences[-1].split()[:2] == ["strong", "small"]
    assert differences[-1].rstrip().endswith("+100.0 (+67.6% to +100.0%), better (p = 0.0078)")
    assert sizes[0] == "Size of the perturbation, L∞ in levels of 255"
    assert sizes[2].split() == ["weak", "0.0", "0.0", "1.000", "1.000"]
    assert "pooled over the poses" in legend[0]
    few = evaluate(clean, weak, strong, "--angles", "0", "--limit", "2", "--skip-bad").stdout
    assert "not significant (p = 0.5)" in few


def test_json_holds_everything_and_nothing_else(clean: Path, strong: Path, weak: Path) -> None:
    result = evaluate(clean, strong, weak, "--json", "--defense", "none,jpeg+bitdepth", "--angles", "0,30")
    content = json.loads(result.stdout)
    assert content["n"] == COUNT
    assert [(row["attack"], row["target"]) for row in content["summary"]] == [
        (attack, target) for attack in ("strong", "weak") for target in ("small", "small+jpeg+bitdepth")
    ]
    first = content["summary"][0]
    right = [cell["n_clean_correct"] for cell in content["cells"][:2]]
    assert first["clean_accuracy"] == sum(right) / (2 * COUNT)
    assert first["mean"] == (first["lowest"]["asr"] + first["highest"]["asr"]) / 2
    assert first["linf"]["max"] == pytest.approx(32 / 255)
    assert 0 < first["l2"]["mean"] <= first["l2"]["max"]
    folders = (sorted(folder.rglob("*.png"), key=lambda path: path.stem) for folder in (clean, strong))
    alike = ssim(*(torch.stack(list(map(load_image, paths))) for paths in folders))
    assert first["ssim"] == pytest.approx({"mean": alike.mean().item(), "min": alike.min().item()})
    assert len(content["cells"]) == 2 * 2 * 2
    assert content["cells"][2]["defense"] == "jpeg+bitdepth"
    assert content["cells"][0]["grad_evals"] is None
    compared = content["comparisons"][0]
    assert (compared["first"], compared["second"], compared["target"]) == ("strong", "weak", "small")
    assert compared["b"] + compared["c"] <= compared["n"] <= COUNT
    assert compared["differs"] == (compared["p_value"] < 0.05)
    assert content["left_out"] == []


@pytest.mark.parametrize(("limit", "code"), [("99", 1), ("100", 0)])
def test_fails_above_a_limit(limit: str, code: int, clean: Path, strong: Path, weak: Path) -> None:
    result = evaluate(clean, strong, weak, "--angles", "0", "--fail-above", limit)
    assert result.exit_code == code
    failed = [line for line in result.stderr.splitlines() if line.startswith("failed: ")]
    assert failed == ["failed: strong, evaluated on small: 100.0% is above 99%"] * code


def test_a_rate_that_is_undefined_never_passes(clean: Path, strong: Path) -> None:
    for folder in sorted(path for path in clean.iterdir()):
        folder.rename(clean / str(int(folder.name) + 100))
    shutil.rmtree(strong)
    shutil.copytree(clean, strong)
    result = evaluate(clean, strong, "--fail-above", "60", model="wide")
    assert result.exit_code == 2
    assert "recognises none of the clean images" in result.stderr
    assert json.loads(evaluate(clean, strong, "--json", model="wide").stdout)["summary"][0]["mean"] is None
    assert "–" in evaluate(clean, strong, model="wide").stdout
    # Labels that are no classes at all are an error, whatever is asked for.
    result = evaluate(clean, strong)
    assert result.exit_code == 2
    assert "labels must lie in [0, 6], the classes of 'small'; got 10" in result.stderr


def test_the_nips17_layout(tmp_path: Path) -> None:
    x = random_images(3)
    labels = small()(x).argmax(1).tolist()
    for folder in ("clean", "adv"):
        for i, picture in enumerate(x):
            save_image(tmp_path / folder / "images" / f"{i}.png", picture if folder == "clean" else 1 - picture)
        table = "".join(f"{i},{label + 1}\n" for i, label in enumerate(labels))
        (tmp_path / folder / "images.csv").write_text(f"ImageId,TrueLabel\n{table}")
    whole = evaluate(tmp_path / "clean", tmp_path / "adv", "--json")
    pictures_only = evaluate(tmp_path / "clean", tmp_path / "adv" / "images", "--json")
    assert whole.exit_code == pictures_only.exit_code == 0
    counts = [[row["n_success"] for row in json.loads(result.stdout)["cells"]] for result in (whole, pictures_only)]
    assert counts[0] == counts[1]


def test_folders_of_one_name_are_told_apart(clean: Path, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "again")
    folders = [place / "adv" / "pgd" / "small" for place in (run, tmp_path / "again")]
    content = json.loads(evaluate(clean, *folders, "--json", "--angles", "0").stdout)
    assert [cell["attack"] for cell in content["cells"]] == [str(folder) for folder in folders]
    assert "is given more than once" in evaluate(clean, run, run).stderr


def test_somebody_else_s_manifest_is_not_read(clean: Path, run: Path) -> None:
    (run / "manifest.json").write_text('{"format": 99}')
    [row] = json.loads(evaluate(clean, run / "adv" / "pgd" / "small", "--json", "--angles", "0").stdout)["cells"]
    assert (row["attack"], row["source"], row["eps"], row["seconds"]) == ("small", None, None, None)


def test_names_that_differ_in_suffix_only(tmp_path: Path) -> None:
    x = random_images(2)
    for folder in ("clean", "same", "crafted"):
        save_image(tmp_path / folder / "0" / "a.png", x[0])
        save_image(tmp_path / folder / "0" / "b.png", x[1])
    for folder in ("clean", "same"):
        (tmp_path / folder / "0" / "b.png").rename(tmp_path / folder / "0" / "a.bmp")
    for old, new in (("a.png", "a.png.png"), ("b.png", "a.bmp.png")):  # as whorl attack names them
        (tmp_path / "crafted" / "0" / old).rename(tmp_path / "crafted" / "0" / new)
    result = evaluate(tmp_path / "clean", tmp_path / "same", tmp_path / "crafted", "--json", "--angles", "0")
    assert [row["linf"]["max"] for row in json.loads(result.stdout)["summary"]] == [0, 0]


def test_images_too_small_for_a_similarity_have_none(tmp_path: Path) -> None:
    label = small()(torch.zeros(1, 3, 10, 10)).argmax().item()
    for folder, value in (("clean", 0.0), ("other", 1.0)):
        save_image(tmp_path / folder / str(label) / "a.png", torch.full((3, 10, 10), value))
    folders = tmp_path / "clean", tmp_path / "other"
    sizes = evaluate(*folders, "--angles", "0").stdout.split("\n\n")[1]
    assert sizes.splitlines()[2].split() == ["other", "255.0", "255.0", "–", "–"]
    content = json.loads(evaluate(*folders, "--angles", "0", "--json").stdout)
    assert content["summary"][0]["ssim"] == {"mean": None, "min": None}


def test_missing_and_extra_images_are_named_or_left_out(clean: Path, strong: Path, weak: Path) -> None:
    gone = sorted(strong.rglob("*.png"))[0]
    name = gone.relative_to(strong).with_suffix("").as_posix()
    gone.unlink()
    save_image(weak / "more.png", random_images(1)[0])
    result = evaluate(clean, strong, weak)
    assert result.exit_code == 2
    assert f"lacks 1 of {COUNT} clean images: {name!r}." in result.stderr
    assert f"{weak} holds what {clean} does not: 'more'." in evaluate(clean, weak).stderr
    result = evaluate(clean, strong, weak, "--skip-bad", "--json", "--angles", "0")
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert {bad["id"] for bad in content["left_out"]} == {name, "more"}
    assert [cell["n"] for cell in content["cells"]] == [COUNT - 1] * 2
    assert f"left out: {strong}: there is no image {name!r}" in result.stderr


def test_unreadable_images_and_other_sizes(clean: Path, strong: Path) -> None:
    bad, other, *_ = sorted(strong.rglob("*.png"))
    bad.write_bytes(b"not an image")
    save_image(other, random_images(1, 3, 20, 20)[0])
    assert f"error: {bad}: cannot be read as an image" in evaluate(clean, strong).stderr
    result = evaluate(clean, strong, "--skip-bad", "--angles", "0")
    assert f"left out: {other}: expected (height, width) (18, 18), as the clean image; got (20, 20)." in result.stderr
    assert "Success rates of 6 images" in result.stdout
    bad.unlink()
    assert "Success rates of 7 images" in evaluate(clean, strong, "--skip-bad", "--size", "16").stdout


def test_nothing_left_is_an_error(clean: Path, tmp_path: Path) -> None:
    save_image(tmp_path / "adv" / "else.png", random_images(1)[0])
    result = evaluate(clean, tmp_path / "adv", "--skip-bad")
    assert result.exit_code == 2
    assert f"none of the {COUNT} images can be used" in result.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--poses", "mine"], "expected --poses paper, or --angles, --scales and --shifts instead"),
        (["--poses", "paper", "--angles", "0"], "expected --poses paper, or"),
        (["--angles", "0;30"], "--angles must be numbers joined by commas, such as 0,30; got '0;30'"),
        (["--angles", "nan"], "must be finite numbers"),
        (["--scales", "0"], "scales must be above 0; got 0"),
        (["--shifts", ","], "shifts must hold at least one value"),
        (["--fail-above", "101"], "--fail-above must lie in [0, 100]"),
        (["--defense", "jpg"], "unknown defense 'jpg'. Did you mean 'jpeg'?"),
        (["--defense", "none,none"], "two targets are called 'small'"),
        (["--defense", ","], "expected a model and a defence at least"),
        (["--limit", "0"], "limit must be a whole number >= 1"),
        (["--batch-size", "0"], "batch_size must be a whole number >= 1"),
        (["--device", "abacus"], "device must be auto, cpu, cuda or cuda:N"),
        (["--out", "."], "expected the path of a CSV file to write, got the folder ."),
        (["nowhere"], "nowhere: no such folder. Expected a folder of adversarial images."),
    ],
)
def test_bad_input_is_one_clear_line(more: list[str], message: str, clean: Path, weak: Path) -> None:
    result = evaluate(clean, weak, *more)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


def test_an_empty_folder(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path / 'empty'} holds no images" in evaluate(clean, tmp_path / "empty").stderr


def test_the_bundled_photographs_stand_in_for_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whorl import load_samples

    x, _, ids = load_samples(2)
    for name, picture in zip(ids, x, strict=True):
        save_image(tmp_path / "adv" / f"{name}.png", picture)
    monkeypatch.chdir(tmp_path)
    result = evaluate("samples", tmp_path / "adv", "--angles", "0", "--limit", "2", "--json", model="wide")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["summary"][0]["linf"]["max"] == 0
    # A folder of that name comes first.
    save_image(tmp_path / "samples" / "3" / "mine.png", random_images(1)[0])
    assert "lacks 1 of 1 clean images: '3/mine'" in evaluate("samples", tmp_path / "adv").stderr


@pytest.mark.skipif(sys.platform == "win32", reason="it has no FIFOs")
@pytest.mark.parametrize("what", ["fifo", "file/below.csv", "folder", "x" * 256])
def test_where_nothing_can_be_written_is_said_before_the_work(
    what: str, clean: Path, weak: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    result = evaluate(clean, weak, "--angles", "0", "--out", tmp_path / what)
    assert result.exit_code == 2
    assert "evaluating" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_table_is_shown_whatever_becomes_of_the_file(
    clean: Path, weak: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise WhorlError("cannot write: no space left")

    out = tmp_path / "results.csv"
    arguments = (clean, weak, "--angles", "0", "--out", out)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["whorl.cli.evaluate"], "write_results", full)
        for more, shown in (((), "Success rates of 8 images"), (("--json",), '"summary"')):
            result = evaluate(*arguments, *more)
            assert result.exit_code == 2
            assert shown in result.stdout
            assert "no space left" in result.stderr
        searched = [evaluate(*arguments, "--worst-case", "--json").stdout for _ in range(2)]
    assert not out.exists()
    assert searched[0] == searched[1]  # found anew, and then kept
    # What had been evaluated is kept until it is written, and then goes.
    kept = tmp_path / ".results.csv.unfinished"
    assert kept.is_dir()
    assert evaluate(*arguments).exit_code == 0
    assert out.exists()
    assert not kept.exists()


class Calls:
    """A count that all copies of a network share."""

    number = 0

    def __deepcopy__(self, _: object) -> Calls:
        return self


class Stops(torch.nn.Module):
    """A network during which somebody presses Ctrl-C, once."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.net, self.calls, self.after = small_net(), Calls(), after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.number += 1
        if self.calls.number == self.after:
            raise KeyboardInterrupt
        answer: torch.Tensor = self.net(x)
        return answer


def test_an_interrupted_evaluation_goes_on(clean: Path, weak: Path, tmp_path: Path) -> None:
    net, keep = Stops(after=20), kept_beside(tmp_path / "results.csv")
    clf = Classifier(net, size=18, mean=(0.5,) * 3, std=(0.5,) * 3, num_classes=CLASSES, name="small")

    def run() -> tuple[Evaluated, int]:
        before = net.calls.number
        images = PairedImages(clean, [weak], batch_size=1)
        found = evaluate_folders(images, [Target(model="small", net=clf)], poses=[Pose(), Pose(angle=30)], keep=keep)
        return found, net.calls.number - before

    with pytest.raises(runs.Interrupted, match="Run the same command again to go on"):
        run()
    resumed, rest = run()
    again, none = run()
    forget_kept(keep)
    whole, everything = run()
    assert resumed.cells == again.cells == whole.cells
    assert (none, everything) == (0, 4 * COUNT)  # clean and attacked, two poses
    assert rest == everything - 4 * (19 // 4)  # batches that were finished are not evaluated again
    # Other weights are another evaluation, and so are other images: nothing that was kept is taken for theirs.
    with torch.no_grad():
        next(net.parameters()).add_(1)
    assert run()[1] == everything
    save_image(sorted(weak.rglob("*.png"))[0], random_images(1, seed=8)[0])
    assert run()[1] == 4


def test_shards_are_data_sets_too(clean: Path, tmp_path: Path) -> None:
    """The same images in a tar file: the same adversarial images, and the same rates."""
    _, y, ids = whorl.load_images(clean)
    with tarfile.open(tmp_path / "a-0.tar", "w") as archive:
        for label, name in zip(y.tolist(), ids, strict=True):
            archive.add(clean / f"{name}.png", f"{name}.png")
            text = tarfile.TarInfo(f"{name}.cls")
            text.size = len(str(label))
            archive.addfile(text, io.BytesIO(str(label).encode()))
    craft = ["attack", "pgd", "--model", "python:cli.toy_networks:small", "--eps", "32/255"]
    rates = []
    for name, data in {"folder": str(clean), "shards": f"wds:{tmp_path}/a-{{0..0}}.tar"}.items():
        assert invoke(*craft, "--data", data, "--out", str(tmp_path / name)).exit_code == 0
        adversarial = tmp_path / name / "adv" / "pgd" / "small"
        result = evaluate(data, adversarial, "--angles", "0,30", "--json")
        assert result.exit_code == 0, result.stderr
        rates.append([cell["asr"] for cell in json.loads(result.stdout)["cells"]])
        first = tmp_path / "folder" / "adv" / "pgd" / "small" / f"{ids[0]}.png"
        assert (adversarial / f"{ids[0]}.png").read_bytes() == first.read_bytes()
    assert rates[0] == rates[1]


def test_the_worst_case_is_searched_for_in_clean_and_attacked_images(clean: Path, strong: Path) -> None:
    result = evaluate(clean, strong, "--angles", "0", "--worst-case", "--batch-size", "3", "--json")
    assert result.exit_code == 0, result.stderr
    cases = json.loads(result.stdout)["worst_cases"]
    assert [case["attack"] for case in cases] == [None, "strong"]
    x, y, ids = whorl.load_images(clean)
    attacked = torch.stack([load_image(strong / f"{name}.png") for name in ids])
    for case, images in zip(cases, (x, attacked), strict=True):
        found = whorl.worst_pose(small(), images, y, ids=ids)
        assert case["queries"] == int(found.queries.sum())
        assert [one["fooled"] for one in case["poses"]] == found.fooled.tolist()
        assert case["n_clean_correct"] == COUNT
        assert case["n_success"] == int(found.fooled.sum())
    shown = evaluate(clean, strong, "--angles", "0", "--worst-case").stdout
    assert "Worst pose of each image" in shown
    assert "clean images" in shown
    assert "worst_cases" not in json.loads(evaluate(clean, strong, "--angles", "0", "--json").stdout)


def test_every_family_of_poses_can_be_asked_for(clean: Path, strong: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.csv"
    grid = ["--tilts", "20:0,10", "--shears", "5", "--blurs", "0,1", "--contrasts", "0.8", "--brightnesses", "0.1"]
    assert evaluate(clean, strong, *grid, "--stretches", "1.1:0.9", "--shifts", "3:4", "--out", out).exit_code == 0
    found = rows(out)
    assert [(row["tilt_x"], row["tilt_y"], row["blur"]) for row in found] == [
        ("20.0", "0.0", "0.0"),
        ("20.0", "0.0", "1.0"),
        ("10.0", "10.0", "0.0"),
        ("10.0", "10.0", "1.0"),
    ]
    assert (found[0]["shift_x"], found[0]["shift_y"]) == ("3.0", "4.0")
    refused = evaluate(clean, strong, "--tilts", "1:2:3")
    assert refused.exit_code == 2
    assert "--tilts must be numbers or pairs" in refused.stderr


def test_whoever_comes_while_the_kept_goes_meets_nothing_half_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, place, real = kept_beside(tmp_path / "out.csv"), Path("_evaluated"), shutil.rmtree
    (tmp_path / f"{keep.name}.1").mkdir()  # of one that was killed there
    with Store.open(keep) as store:
        store.put_record(place, "old", 1)

    def another_comes(gone: Path, **options: Any) -> None:
        assert not keep.exists() or Store(keep).record(place, "old") is None
        with Store.open(keep) as newcomer:
            newcomer.put_record(place, "new", 2)
        real(gone, **options)

    monkeypatch.setattr(shutil, "rmtree", another_comes)
    forget_kept(keep)
    assert Store(keep).record(place, "new") == 2
    assert [path.name for path in tmp_path.iterdir()] == [keep.name]
