"""What a notebook shows of results and attacks: the figures of the methods, and names that stay text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

import pytest
import torch

import whorl
from whorl.evaluation import Outcomes, Pose
from whorl.evaluation.rate_table import whole_percent
from whorl.records import Record, html_table

EVIL = "<script>alert('1')</script>\"'"


def cells(html: str) -> list[list[str]]:
    """The rows of a table's body."""
    body = html.partition("<tbody>")[2]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]
    return [[unescape(cell) for cell in row] for row in rows]


def made(images: int = 12, attack: str = "dim") -> Outcomes:
    clean = torch.ones(1, 2, images, dtype=torch.bool)
    clean[0, 1, :2] = False
    fooled = torch.arange(images) < 6
    return Outcomes(
        ids=tuple(map(str, range(images))),
        attacks=(attack,),
        targets=("net",),
        poses=(Pose(), Pose(angle=30)),
        clean=clean,
        adversarial=~fooled.expand(1, 1, 2, images),
    )


def test_a_table_of_outcomes_has_the_figures_of_its_methods() -> None:
    found = made()
    rate, worst = found.headline("dim", "net"), found.worst_case("dim", "net")
    [row] = cells(found._repr_html_())
    low, high = rate.interval
    assert row == [
        *("dim", "net", "22 in 2 poses", f"{10 / 22:.1%}", f"{low:.1%} to {high:.1%}"),
        *(f"{(6 / 12 + 4 / 10) / 2:.1%}", f"{worst.rate:.1%}"),
    ]
    assert "12 images, 2 poses" in found._repr_html_()


def test_too_few_images_are_marked_and_none_is_no_rate() -> None:
    assert cells(made(images=8)._repr_html_())[0][3].endswith("% (few)")
    nothing = made()
    nothing.clean[:] = False
    assert cells(nothing._repr_html_())[0][2:] == ["0 in 0 poses", "– (few)", "–", "–", "–"]


def test_an_attack_lists_all_settings_and_those_that_were_changed_are_bold() -> None:
    attack = whorl.attack("ai-dim", eps=8 / 255)
    shown = attack._repr_html_()
    rows = dict(cells(shown))
    assert rows["<b>eps</b>"] == "<b>8/255</b>"
    assert rows["<b>estimator</b>"] == "<b>AffineInvariant(sigma='reference')</b>"
    assert "loss" in rows
    bold = [name[3:-4] for name in rows if name.startswith("<b>")]
    assert all(f"{name}=" in repr(attack) for name in bold)
    assert len(bold) < len(rows)


@dataclass(frozen=True, kw_only=True, repr=False)
class Named(Record):
    name: str = ""


@pytest.mark.parametrize(
    "html", [html_table(EVIL, [EVIL], [[EVIL]]), Named(name=EVIL)._repr_html_(), made(attack=EVIL)._repr_html_()]
)
def test_names_stay_text(html: str) -> None:
    assert "<script" not in html
    assert "alert('1')" not in html  # the quotes would end an attribute
    assert "&lt;script&gt;" in html


def test_colours_are_the_pages() -> None:
    """What sets none reads as well in a dark notebook as in a light one."""
    colours = set(re.findall(r"color:(\w+)", whorl.attack("pgd")._repr_html_() + made()._repr_html_()))
    assert colours == {"inherit"}


@pytest.mark.parametrize(("share", "text"), [(1.0, "100%"), (0.996, ">99%"), (0.5, "50%"), (1e-9, "<1%"), (0.0, "0%")])
def test_certainty_is_not_rounded_up_to(share: float, text: str) -> None:
    assert whole_percent(share) == text
