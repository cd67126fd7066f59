"""The playground as people use it: in a browser, without a network."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import whorl
from browser import PHONE, Opened, launched, opened
from conftest import random_images
from page_checks import page_faults
from ui.ui_toys import LABELS, SIDE, Sleep, gradio_is_here, playground, toy
from whorl.data import save_image
from whorl.evaluation import Pose, to_8_bits
from whorl.ui.image import MAX_BYTES
from whorl.ui.playground import Playground
from whorl.ui.server import running

DESK = {"width": 1280, "height": 900}


class Played(Opened):
    """The playground's page, and its parts by name."""

    def text(self, name: str) -> str:
        shown: str = self.page.locator(f"#whorl-{name}").inner_text()
        return shown

    def answers(self) -> list[str]:
        said: list[str] = self.page.locator("#whorl-tiles .w-said").all_inner_texts()
        return said

    def craft(self) -> None:
        self.page.evaluate("document.querySelector('#whorl-maps .w-maps')?.setAttribute('data-before', '')")
        self.page.locator("#whorl-craft").click()
        self.page.locator("#whorl-maps .w-maps:not([data-before]) ~ p").get_by_text("Choose a cell").wait_for()

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_label(label, exact=True).click()
        self.page.get_by_role("option", name=option, exact=True).click()

    def slide(self, label: str, value: float) -> None:
        """Move a slider as a hand does, with the keys that it takes."""
        self.page.get_by_label(f"range slider for {label}").fill(str(value))


@pytest.fixture(scope="module")
def offered() -> Playground:
    return playground()


@pytest.fixture(scope="module")
def address(offered: Playground) -> Iterator[str]:
    gradio_is_here()
    with running(offered) as place:
        yield place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@contextmanager
def playing(browser: Any, address: str, viewport: dict[str, int], **options: Any) -> Iterator[Played]:
    with opened(browser, address, viewport, kind=Played, **options) as shown:
        shown.page.locator("#whorl-picked img").wait_for()
        shown.page.locator("#whorl-maps").get_by_text("Choose a cell").wait_for()  # the opening example
        yield shown


@pytest.fixture(scope="module")
def desk(browser: Any, address: str) -> Iterator[Played]:
    with playing(browser, address, DESK) as shown:
        yield shown


@pytest.fixture(scope="module")
def phone(browser: Any, address: str) -> Iterator[Played]:
    with playing(browser, address, PHONE, has_touch=True, is_mobile=True) as shown:
        yield shown


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image to upload."""
    path = tmp_path_factory.mktemp("sent") / "noise.png"
    save_image(path, random_images(1, height=SIDE, width=SIDE)[0])
    return path


def expected(steps: int, eps: float, sent: Path) -> list[torch.Tensor]:
    """The three versions of the uploaded image, made without the playground."""
    x = whorl.data.load_image(sent)[None]
    clf = toy()
    y = clf(x).argmax(1)
    attacks = [whorl.attack(name, eps=eps, steps=steps) for name in ("pgd", "ai-pgd")]
    ids = [f"upload-{hashlib.sha256(sent.read_bytes()).hexdigest()[:12]}"]
    return [x, *(to_8_bits(attack(clf, x, y, ids=ids)) for attack in attacks)]


def said(versions: list[torch.Tensor], pose: Pose, *, seed: int = 0) -> list[str]:
    clf = toy(seed=seed)
    return [LABELS[int(clf(pose.apply(version)).argmax())] for version in versions]


def test_it_opens_with_an_image_chosen(desk: Played) -> None:
    assert desk.page.title() == "whorl playground"
    assert "leafhopper" in desk.text("picked")
    assert desk.page.locator("#whorl-samples button").count() == 20
    assert "An example to begin with" in desk.text("progress")
    assert len(desk.answers()) == 3
    assert desk.page.locator("#whorl-tiles .w-other").count() == 3
    assert desk.page.locator("#whorl-maps .here").count() == 4
    desk.page.get_by_title("buckeye").click()
    desk.page.locator("#whorl-picked").get_by_text("buckeye").wait_for()
    assert desk.trouble == []


def test_answers_and_maps_are_those_of_the_library(desk: Played, sent: Path) -> None:
    page = desk.page
    page.locator("#whorl-upload input[type=file]").set_input_files(sent)
    page.locator("#whorl-picked").get_by_text("noise.png").wait_for()
    assert "Its prediction on the clean image counts as the label." in desk.text("picked")
    desk.slide("Steps", 3)
    desk.craft()
    assert "3 / 3" in desk.text("progress")
    assert page.locator("#whorl-progress [role=progressbar]").count() == 2
    versions = expected(3, 16 / 255, sent)
    upright = said(versions, Pose())
    assert desk.answers() == upright

    angle = next(a for a in range(5, 180) if said(versions, Pose(angle=a)) != upright)
    desk.slide("Angle", angle)
    page.get_by_text(f"Pose: {angle}°").wait_for()
    assert desk.answers() == said(versions, Pose(angle=angle)) != upright
    desk.slide("Scale", 0.7)
    desk.slide("Right", -20)
    desk.slide("Down", 9)
    pose = Pose(angle=angle, scale=0.7, shift=(-20, 9))
    page.get_by_text(f"Pose: {pose}").wait_for()
    assert desk.answers() == said(versions, pose)

    tiles = page.locator("#whorl-tiles .w-tile")
    truth = said(versions, Pose())[0]
    for place, answer in enumerate(desk.answers()):
        classes = tiles.nth(place).get_attribute("class") or ""
        assert ("right" in classes) == (answer == truth)
        assert ("wrong" in classes) == (answer != truth)

    assert page.locator("#whorl-added img").count() == 2
    assert page.locator("#whorl-added img").first.evaluate("one => one.naturalWidth") == SIDE
    assert page.locator("#whorl-maps .w-map").count() == 2 * 2
    assert page.locator("#whorl-maps button").count() == 2 * 2 * 35
    assert desk.trouble == []


def test_the_second_network_answers_beside_the_first(desk: Played, sent: Path) -> None:
    others = [text.split(chr(10))[0].strip() for text in desk.page.locator("#whorl-tiles .w-other").all_inner_texts()]
    pose = Pose(angle=float(desk.page.get_by_label("range slider for Angle").input_value()), scale=0.7, shift=(-20, 9))
    assert others == said(expected(3, 16 / 255, sent), pose, seed=1)
    assert "toy, attacked" in desk.text("maps")
    assert "toy, not attacked" in desk.text("maps")


def test_the_map_marks_the_nearest_pose_and_the_path_counts(desk: Played) -> None:
    page = desk.page
    page.locator("#whorl-upright").click()
    page.get_by_text("Pose: 0°.").wait_for()
    for angle in (8, 20, 26):
        desk.slide("Angle", angle)
        page.get_by_text(f"Pose: {angle}°").wait_for()
    page.locator("#whorl-path").get_by_text("4 poses so far").wait_for()
    assert page.locator("#whorl-path li").count() == 2 * 2
    ringed = page.locator("#whorl-maps .here")
    assert ringed.count() == 4
    assert {ringed.nth(i).get_attribute("data-angle") for i in range(4)} == {"30"}
    assert "nearest to 26°" in desk.text("maps")
    desk.slide("Angle", 120)
    page.locator("#whorl-maps").get_by_text("lies outside the map").wait_for()
    assert desk.trouble == []


def test_it_says_what_an_attack_costs_before_it_starts(desk: Played) -> None:
    desk.choose("Two attacks", "AI-BEST and EOT")
    desk.page.locator("#whorl-cost").get_by_text("EOT 150, 50 times as many").wait_for()
    assert "here, by the last attack" in desk.text("cost")
    desk.choose("Two attacks", "DIM and AI-BEST")
    desk.page.locator("#whorl-cost").get_by_text("DIM 3, AI-BEST 3").wait_for()
    desk.choose("Two attacks", "PGD and AI-PGD")


def test_what_was_crafted_can_be_taken_home(desk: Played, sent: Path, tmp_path: Path) -> None:
    page = desk.page
    with page.expect_download() as caught:
        page.locator("#whorl-files").get_by_text("Images, settings and commands, ZIP").click()
    caught.value.save_as(tmp_path / "it.zip")
    with zipfile.ZipFile(tmp_path / "it.zip") as packed:
        packed.extractall(tmp_path)
    for name, version in zip(("pgd", "ai-pgd"), expected(3, 16 / 255, sent)[1:], strict=True):
        assert torch.equal(whorl.data.load_image(tmp_path / "whorl-example" / f"{name}.png"), version[0])
    commands = desk.text("files")
    assert "whorl attack ai-pgd --model toy --data whorl-example/data --eps 16/255 --seed 0 --steps 3" in commands
    assert desk.trouble == []


def test_a_cell_of_the_map_goes_to_its_pose_and_back(desk: Played, sent: Path) -> None:
    page = desk.page
    page.locator(".w-map[data-attack='ai-pgd'] button[data-angle='-30'][data-scale='1.3']").first.click()
    page.get_by_text("Pose: -30° ×1.3").wait_for()
    assert page.get_by_label("range slider for Angle").input_value() == "-30"
    assert desk.answers() == said(expected(3, 16 / 255, sent), Pose(angle=-30, scale=1.3))
    page.locator("#whorl-upright").click()
    page.get_by_text("Pose: 0°").wait_for()
    assert desk.answers() == said(expected(3, 16 / 255, sent), Pose())
    assert desk.trouble == []


DROPPED = """([data, name]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, {type: "image/png"}));
  return carried;
}"""


def test_a_photograph_is_dropped_and_turned_by_hand(browser: Any, address: str, sent: Path) -> None:
    with playing(browser, address, DESK) as shown:
        page = shown.page
        data = base64.b64encode(sent.read_bytes()).decode()
        carried = page.evaluate_handle(DROPPED, [data, "dropped.png"])
        page.locator("#whorl-upload button").first.dispatch_event("drop", {"dataTransfer": carried})
        page.locator("#whorl-picked").get_by_text("dropped.png").wait_for()
        shown.slide("Steps", 1)
        shown.craft()
        slider = page.get_by_label("range slider for Angle")
        place = slider.bounding_box()
        middle, height = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        page.mouse.move(middle, height)
        page.mouse.down()
        for share in (0.1, 0.2):
            page.mouse.move(middle + share * place["width"], height, steps=3)
            angle = int(slider.input_value())
            assert angle > 300 * share
            # Asked again while the button is still held.
            page.get_by_text(f"Pose: {angle}°").wait_for()
            assert shown.answers() == said(expected(1, 16 / 255, sent), Pose(angle=angle))
        page.mouse.up()
        assert shown.trouble == []


def test_uploads_are_not_kept(desk: Played) -> None:
    folder = Path(os.environ["GRADIO_TEMP_DIR"])
    assert [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size] == []
    assert not [path for name in ("noise*", "dropped*") for path in folder.rglob(name)]


def test_what_is_no_image_is_refused_politely(desk: Played, tmp_path: Path) -> None:
    fake = tmp_path / "holiday.png"
    fake.write_text("not an image at all")
    desk.page.locator("#whorl-upload input[type=file]").set_input_files(fake)
    alert = desk.page.locator("#whorl-picked [role=alert]")
    alert.wait_for()
    assert alert.inner_text().startswith("Sorry, holiday.png: cannot be read as an image")
    assert "/" not in alert.inner_text()  # nobody's folders
    assert "noise.png" in desk.text("picked")  # what was chosen before still is
    assert desk.trouble == []


def test_a_huge_file_is_refused_politely(browser: Any, address: str, tmp_path: Path) -> None:
    huge = tmp_path / "huge.png"
    with huge.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with playing(browser, address, DESK) as shown:
        shown.page.locator("#whorl-upload input[type=file]").set_input_files(huge)
        shown.page.get_by_text("exceed the maximum allowed size of 25").first.wait_for()
        assert "leafhopper" in shown.text("picked")


def test_too_many_pixels_are_refused_by_the_header(desk: Played, tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    Image.new("1", (8900, 8900)).save(large)
    desk.page.locator("#whorl-upload input[type=file]").set_input_files(large)
    refusal = "Sorry, large.png: too large; expected 32,000,000 pixels at most, got 8900 × 8900."
    desk.page.locator("#whorl-picked [role=alert]").get_by_text(refusal).wait_for()
    assert desk.trouble == []


ELSEWHERE = """async (address) => {
  const form = new FormData();
  form.append("files", new File(["theirs"], "theirs.png"));
  const sent = {method: "POST", body: form, mode: "no-cors"};
  return await fetch(address + "/gradio_api/upload", sent).then(() => "sent", () => "not sent");
}"""


class Elsewhere(BaseHTTPRequestHandler):
    """Another site, whose page is empty."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


def test_a_page_elsewhere_cannot_upload(browser: Any, address: str) -> None:
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://localhost:{site.server_port}/")
        with page.expect_response(f"{address}/gradio_api/upload") as refused:
            page.evaluate(ELSEWHERE, address)
        assert refused.value.status == 403
        context.close()
        site.shutdown()
    assert not list(Path(os.environ["GRADIO_TEMP_DIR"]).rglob("theirs*"))


def test_a_full_queue_is_told(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl.ui.page.MOST_WAITING", 0)
    with running(playground()) as full, opened(browser, full, DESK, kind=Played) as shown:
        shown.page.get_by_text("This application is currently busy.").first.wait_for()


def test_a_new_attack_ends_the_one_that_runs(desk: Played) -> None:
    page = desk.page
    desk.choose("Network", "slow")
    desk.slide("Steps", 50)
    page.locator("#whorl-craft").click()
    page.locator("#whorl-progress").get_by_text(re.compile(r"step \d+ of 50")).wait_for()
    desk.slide("Steps", 2)
    before = Sleep.calls
    page.locator("#whorl-craft").click()
    page.locator("#whorl-progress").get_by_text("2 / 2").first.wait_for()
    assert Sleep.calls - before < 40  # the rest of the first would have been 97
    desk.slide("Steps", 50)
    page.locator("#whorl-craft").click()
    page.locator("#whorl-progress").get_by_text(re.compile(r"step \d+ of 50")).wait_for()
    page.locator("#whorl-stop").click()
    page.locator("#whorl-progress .w-progress").get_by_text("Stopped.").wait_for()
    assert desk.trouble == []


def test_a_network_that_cannot_be_had_is_told(desk: Played) -> None:
    page = desk.page
    desk.choose("Network", "lost (weights are fetched first)")
    page.locator("#whorl-craft").click()
    alert = page.locator("#whorl-progress [role=alert]")
    alert.wait_for()
    page.wait_for_timeout(500)  # and it stays: nothing is crafted after it
    assert alert.inner_text() == "Sorry, the weights of lost are on the moon."
    assert desk.trouble == []


def test_the_browser_would_refuse_to_call_anybody(browser: Any, address: str) -> None:
    with playing(browser, address, DESK) as shown:
        assert shown.trouble == []
        reached = "fetch('http://192.0.2.1/').then(() => 'reached', () => 'refused')"
        assert shown.page.evaluate(reached) == "refused"
        assert any("Content Security Policy" in line for line in shown.trouble)


def test_it_fits_a_phone(phone: Played) -> None:
    page = phone.page
    phone.slide("Steps", 2)
    phone.craft()
    phone.slide("Angle", 30)
    page.get_by_text("Pose: 30°").wait_for()
    for element in ("document.documentElement", "document.body"):
        assert page.evaluate(f"{element}.scrollWidth") <= PHONE["width"]
    for part in ("tiles", "pose", "added", "maps", "progress", "upload"):
        box = page.locator(f"#whorl-{part}").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    # The images and the sliders that move them are on the screen together.
    top, bottom = page.locator("#whorl-tiles").bounding_box(), page.locator("#whorl-pose").bounding_box()
    assert bottom["y"] + bottom["height"] - top["y"] <= PHONE["height"]
    assert phone.trouble == []


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_it_is_well_on_a_desk_and_on_a_phone_by_day_and_by_night(browser: Any, address: str, viewport: Any) -> None:
    for scheme in ("light", "dark"):
        with playing(browser, address, viewport, color_scheme=scheme) as shown:
            shown.slide("Angle", 10)
            shown.page.get_by_text("Pose: 10°").wait_for()
            assert page_faults(shown, keyboard=scheme == "light") == []


def test_it_can_be_read_by_ear(desk: Played) -> None:
    page = desk.page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert page.locator("#whorl img:not([alt]), #whorl img[alt='']").count() == 0
    buttons = page.locator("#whorl button:visible")
    name = "(b.textContent.trim() || b.ariaLabel || b.title || b.querySelector('img')?.alt)"
    assert buttons.evaluate_all(f"all => all.filter((b) => !{name}).map((b) => b.outerHTML.slice(0, 200))") == []


def test_a_closed_page_is_forgotten(browser: Any, address: str, offered: Playground, desk: Played) -> None:
    before = set(offered.visits)  # pages of other tests may still be leaving
    with playing(browser, address, DESK):
        [mine] = set(offered.visits) - before
    for _ in range(100):
        if mine not in set(offered.visits):
            break
        desk.page.wait_for_timeout(100)
    assert mine not in set(offered.visits)
