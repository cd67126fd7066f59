"""Which figures of the pages come from which data; what looks measured and is a setting.

Each page is registered once, with the sentences that state figures (``{}`` stands for each) and those that claim
something without one: beside its tables where one module has all of it, here where several do.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import doc_behind_defences  # noqa: F401 - registers its pages
import doc_evidence
import doc_hardening  # noqa: F401 - registers its pages
import doc_paper_pages  # noqa: F401 - registers its pages
import doc_poses  # noqa: F401 - registers its pages
import doc_rivals  # noqa: F401 - registers its pages
import doc_sources  # noqa: F401 - registers its pages
import doc_strength  # noqa: F401 - registers its tables
import doc_visibility  # noqa: F401 - registers its pages
import doc_zoo
from doc_analysis import calibrated_over
from doc_counts import (
    PHOTOGRAPHED,
    coverage,
    hero_is_as_said,
    inception_recognises,
    interop_gain,
    loops_ratio,
    photographed_differs,
    photographed_prints,
    queried,
    queried_again,
    simulated,
    smallest_p,
)
from doc_data import percent, read
from doc_outcomes import (
    HARDENED,
    PLAIN,
    above_all_else,
    ahead,
    ahead_and_behind,
    below_as_they_are,
    beside_eot,
    enough_are_recognised,
    eot_beaten_and_ahead,
    frontier_eot,
    gain_range,
    photographs,
    success,
    weaker_than_before,
    wrapped_gains,
)
from doc_paper import (
    eot_is_above_the_paper,
    eot_is_unbeaten_white_box,
    far_means,
)
from doc_settings import DEFINITIONS, GRADIENTS, images, settings
from doc_tables import CLAIMS, SENTENCES, TABLES, Printed, page
from whorl.data.layouts import SAMPLE_FILES

__all__ = ["CLAIMS", "DEFINITIONS", "GRADIENTS", "PAGES", "SENTENCES", "TABLES", "Printed", "images", "settings"]

_ROOT = Path(__file__).resolve().parents[1]
# Every page: on one that is not here, anything could stand.
PAGES = ("README.md", *sorted(str(path.relative_to(_ROOT)) for path in (_ROOT / "docs").rglob("*.md")))


def _megabytes(part: str, name: str = "") -> float:
    """Of files whose names begin so, together."""
    sizes: dict[str, int] = read("sizes-cpu.json")["bytes"][part]
    return sum(size for file, size in sizes.items() if file.startswith(name)) / 1e6


def _gain_of(library: str) -> list[float]:
    return [*interop_gain(library), read("interop-cuda.json")["metadata"]["n"]]


_HERO = "dim and the paper's ai-dim each fool a hardened network in one pose of eight, ai-best in six poses of eight"

for _library in ("art", "foolbox", "pyautoattack", "torchattack", "torchattacks"):
    page(
        f"docs/interop/{_library}.md",
        sentences=(
            (
                "crafted on resnet18 and evaluated on efficientnet_lite0, fools it {}% of the time with the plain "
                "gradient and {}% with the wrapped network: {} points more, in the mean of the paper's twelve poses "
                "({} images",
                partial(_gain_of, _library),
            ),
        ),
    )
for _page, _source in (("efficientnet-lite0", "efficientnet_lite0"), ("inception-v3", "inception_v3")):
    page(
        f"docs/results/from-{_page}.md",
        sentences=(
            (
                "on the first {} of the held-out photographs",
                partial(lambda source: [min(photographs(eps, source) for eps in (16, 8))], _source),
            ),
        ),
    )

page(
    "docs/data.md",
    sentences=(("They are fetched once ({} MB)", lambda: [_megabytes("downloads", "foolbox")]),),
)


page(
    "docs/evaluation.md",
    sentences=(
        (
            "it held the truth in {} to {}% of cases with {} images, {} to {}% with {} and {} to {}% with {}; the "
            "percentile interval in {} to {}, {} to {} and {} to {}%.",
            lambda: [
                *(value for images in (200, 50, 20) for value in (*coverage(images, "BCa"), images)),
                *(end for images in (200, 50, 20) for end in coverage(images, "percentile")),
            ],
        ),
        ("with {} poses and rates from {} to {}%", simulated),
    ),
)


page(
    "docs/installing.md",
    sentences=(
        (
            "| the wheel | {} MB, nearly all of it the weights of five [hardened networks](hardening/weights.md), {} "
            "MB unpacked |",
            lambda: [_megabytes("wheel"), _megabytes("weights")],
        ),
        (
            "| what `whorl demo` fetches, once | {} MB: the weights of three networks and {} photographs |",
            lambda: [_megabytes("downloads"), len(SAMPLE_FILES.files)],
        ),
    ),
)


page(
    "docs/models.md",
    sentences=(("That of `inception_v3` is {} of {}, on a CPU", inception_recognises),),
)


page(
    "docs/interop/transferattack.md",  # the lists themselves
    sentences=(("On ResNet-18, {} of its {} names run", lambda: (doc_zoo.ran(), doc_zoo.listed())),),
    claims=tuple((line, lambda: True) for line in doc_zoo.lines()),
)


page(
    "README.md",
    sentences=(
        (
            "mean over four networks of other families, {} photographs that were not used to choose its settings",
            lambda: [read("frontier-resnet18.json")["late"]["asked"]["n"]],
        ),
        ("Crafted on resnet18, ε = 16/255, [{} held-out photographs]", lambda: [photographs(16)]),
        (
            "`ai-best` succeeds in **{}% and {}%** of the cases over twelve poses. `dim` succeeds in {}% and {}%, the "
            "paper's `ai-dim` in {}% and {}%, and EOT with 2,500 gradients per image in {}% and {}%.",
            lambda: [
                success(f"efficientnet_lite0.{recipe}", attack)[0]
                for attack in ("ai-best", "dim", "ai-dim", "eot")
                for recipe in ("alp", "ai-at")
            ],
        ),
        (
            "succeeds in {}% over the poses, against the original in {}% (`ai-best`, which was not in its training but "
            "was tuned on it: {}%; [{} held-out photographs]",
            lambda: [
                success("efficientnet_lite0.ai-at", "ai-dim")[0],
                success("efficientnet_lite0", "ai-dim")[0],
                success("efficientnet_lite0.ai-at", "ai-best")[0],
                photographs(16),
            ],
        ),
    ),
    claims=(
        (_HERO, hero_is_as_said),
        (
            "ai-best with 10 gradients is above every other attack with 10, and near EOT with 2,500",
            lambda: above_all_else("resnet18", "8"),
        ),
        (
            "EOT with 2,500 gradients is significantly ahead of `ai-best` with 10, and not of `ai-best` with 50",
            lambda: frontier_eot("resnet18", "8") == [-1, 0],
        ),
        (
            "and under rotation and scaling [the levels](docs/results/levels.md) of seven of its eight attacks; plain "
            "PGD's and EOT's are not.",
            lambda: [far_means(f"table{i}-inception") for i in (1, 2)] == [["pgd"], ["pgd"]],
        ),
        (
            "On inception_v3 `ai-best` with 10 gradients and EOT with 2,500 do not differ significantly here; at ε = "
            "8/255 EOT is ahead there",
            lambda: [beside_eot("inception_v3", eps, "poses") for eps in ("16", "8")] == [0, -1],
        ),
    ),
)


page(
    "docs/results/held-out.md",
    sentences=(
        ("on which no setting is ever chosen: {} photographs,", lambda: [min(photographs(16), photographs(8))]),
    ),
    claims=(
        ("no network recognises fewer than ten in any pose.", enough_are_recognised),
        (
            "`ai-best` is significantly ahead of `dim`, of `ti-dim` and of the paper's `ai-dim` on all ten networks at "
            "both ε.",
            lambda: all(
                ahead("ai-best", other, (*PLAIN, *HARDENED), eps)
                for other in ("dim", "ti-dim", "ai-dim")
                for eps in (16, 8)
            ),
        ),
        (
            "Most of what the paper's kernel gains is on hardened networks.",
            lambda: all(
                ahead_and_behind("ai-dim", "dim", PLAIN, eps)[0] < ahead_and_behind("ai-dim", "dim", HARDENED, eps)[0]
                for eps in (16, 8)
            ),
        ),
        (
            "**With 10 gradients `ai-best` loses to EOT on plain networks at ε = 8/255, and on more of them where no "
            "pose is applied.**",
            lambda: 0 < eot_beaten_and_ahead("10", "8", "poses")[2] < eot_beaten_and_ahead("10", "8", "as they are")[2],
        ),
        (
            "With 50, a fiftieth of EOT's, it is ahead on all five hardened networks at both ε, with poses and "
            "without, and **at ε = 8/255 without a pose it is behind on two plain ones**, and nowhere else. With 200 "
            "(`ai-max`) it is behind on none.",
            lambda: all(
                eot_beaten_and_ahead(gradients, eps, poses)[1:]
                == [5, 2 if (gradients, eps, poses) == ("50", "8", "as they are") else 0, 0]
                for gradients in ("50", "200")
                for eps in ("16", "8")
                for poses in ("poses", "as they are")
            ),
        ),
    ),
)


page(
    "docs/results/queries.md",
    sentences=(
        (
            "without a defence the first {}, of which the target recognises {}; {} behind `jpeg` ({}), `bitdepth` ({}) "
            "and `resize-pad` ({}); {} behind `randmix` ({}).",
            lambda: [n for i, n in enumerate(queried()) if i not in (4, 6)],  # as many as behind jpeg
        ),
        (
            "the first {} images behind `jpeg` ({} count) and `resize-pad` ({}), the first {} behind `bitdepth` ({})",
            lambda: [n for i, n in enumerate(queried_again()) if i != 2],  # likewise
        ),
    ),
)


page(
    "docs/results/photographed.md",
    sentences=(
        (
            "{} pages, each photographed once a setting at twelve megapixels, cut out as seen with an offset of up to "
            "20 pixels; in each setting all {} prints were identified.",
            photographed_prints,
        ),
        ("p = {}). EOT is the strongest", lambda: [smallest_p("ai-dim", "ti-dim", "efficientnet_lite0", "setting1")]),
        (
            "(efficientnet_lite0, setting 1, p = {})",
            lambda: [smallest_p("ai-dim", "eot", "efficientnet_lite0", "setting1")],
        ),
    ),
    claims=(
        (
            "In the white-box case, which is the paper's, every attack survives: no difference between them is "
            "significant.",
            lambda: not photographed_differs("resnet18"),
        ),
        (
            "Between networks `ai-dim` is nowhere significantly ahead of `dim` or `ti-dim`",
            lambda: all("eot" in names for names in photographed_differs(*PHOTOGRAPHED[1:])),
        ),
        (
            "EOT is the strongest, not the weakest as in the paper, at 250 times the gradients; against `ai-dim` that "
            "is significant in one case of nine without a correction for their number (efficientnet_lite0, setting 1,",
            lambda: photographed_differs(*PHOTOGRAPHED) == [("ai-dim", "eot", "setting1")],
        ),
    ),
)


page(
    "docs/speed.md",
    sentences=(
        (
            "{} MB over all 5,000, {} MB after the first 500. (Libraries and network take {} MB.)",
            lambda: [
                read("memory-cpu.json")["results"][name]
                for name in (
                    "above_networks_mb",
                    "above_networks_after_a_tenth_mb",
                    "networks_and_libraries_mb",
                )
            ],
        ),
        (
            "`dim` takes {} times as long as torchattacks' DIFGSM, and `ai-best` {} times as long as `dim`",
            lambda: [loops_ratio("dim", "torchattacks DIFGSM"), loops_ratio("ai-best", "dim")],
        ),
    ),
)


page(
    "docs/frontier.md",
    sentences=(
        (
            "it is {} points over `dim` on efficientnet_lite2, which its search did not see, and {} to {} on five "
            "hardened",
            lambda: [
                *gain_range("ai-best", "dim", ("efficientnet_lite2",))[:1],
                *gain_range("ai-best", "dim", HARDENED),
            ],
        ),
    ),
    claims=(
        (
            "The intervals are above 0 in every column for Admix, VMI-FGSM and SSA, and nowhere for BSR.",
            lambda: (
                all(low > 0 for name in ("Admix", "VMIFGSM", "SSA") for low in wrapped_gains(name))
                and not any(low > 0 for low in wrapped_gains("BSR"))
            ),
        ),
        (
            "From ResNet-18 at ε = 8 with 10 gradients EOT is ahead; from EfficientNet-Lite0 with 50 `ai-best` is, at "
            "both ε.** No other difference is significant.",
            lambda: (
                [frontier_eot("resnet18", eps) for eps in ("16", "8")] == [[0, 0], [-1, 0]]
                and [frontier_eot("efficientnet_lite0", eps) for eps in ("16", "8")] == [[0, 1], [0, 1]]
            ),
        ),
        (
            "At ε = 4 from ResNet-18 `ai-best` is behind the one before",
            lambda: weaker_than_before("resnet18", "4"),
        ),
    ),
)


page(
    "docs/analysis/calibration.md",
    sentences=(
        (
            "{} to {} points over `dim` on the four plain networks used in the choice, {} on inception_v3 and {} to {} "
            "on five hardened ones, which were not",
            lambda: [
                *gain_range("ri-dim", "dim", PLAIN[:-1]),
                gain_range("ri-dim", "dim", PLAIN[-1:])[0],
                *gain_range("ri-dim", "dim", HARDENED),
            ],
        ),
    ),
    claims=(
        (
            "the interval of the difference to the printed kernel excludes 0 on all six, and that to the authors' on "
            "one.",
            lambda: calibrated_over("printed") == (6, 6) and calibrated_over("reference") == (1, 6),
        ),
        (
            "the gain is significant on all ten. At 8/255 it is not on any plain network.",
            lambda: (
                ahead("ri-dim", "dim", (*PLAIN, *HARDENED)) and not any(ahead("ri-dim", "dim", [t], 8) for t in PLAIN)
            ),
        ),
    ),
)


page(
    "docs/hardening/weights.md",
    sentences=(
        (
            "succeeds in {}% against `efficientnet_lite0.ai-at`, in {}% against `efficientnet_lite0.ens-at` and in {}% "
            "against the original",
            lambda: [success(f"efficientnet_lite0{more}", "ai-dim")[0] for more in (".ai-at", ".ens-at", "")],
        ),
        (
            "`ri-dim` succeeds in {}% and `ai-best` in {}% against `efficientnet_lite0.ai-at`",
            lambda: [success("efficientnet_lite0.ai-at", attack)[0] for attack in ("ri-dim", "ai-best")],
        ),
        (
            "so it chose {} for `mobilenet_v2.alp`",
            lambda: [read("hardening-cuda.json")["training"]["mobilenet_v2.alp"]["blend"]],
        ),
        (
            "and on {}% and {}% for `alp`",
            lambda: [
                percent([read("hardening-cuda.json")["white-box PGD-20, eps 4/255"][f"{name}.alp"]])
                for name in ("efficientnet_lite0", "mobilenet_v2")
            ],
        ),
    ),
)


page(
    "docs/physical/python.md",
    sentences=(
        (
            "peaked at {} MiB in the first ten photographs and at {} MiB over all",
            lambda: [
                read("physical-speed-cpu.json")["results"][name]
                for name in ("peak_mib_after_10", "peak_mib_at_the_end")
            ],
        ),
    ),
)


page(
    "docs/index.md",
    claims=((_HERO, hero_is_as_said),),
)


page(
    "docs/results/evidence.md",
    claims=(
        *((line, lambda: True) for line in doc_evidence.lines()),  # the table itself
        ("pooled over poses EOT is ahead from ResNet-18", lambda: frontier_eot("resnet18", "8")[0] == -1),
    ),
)


page(
    "docs/gallery.md",
    claims=(
        (
            "ai-best with 10 gradients above other attacks with 10, near EOT with 2,500",
            lambda: above_all_else("resnet18", "8"),
        ),
    ),
)


page(
    "docs/choosing.md",
    claims=(
        ("white-box, no attack is significantly ahead of it in any table that has it", eot_is_unbeaten_white_box),
        (
            "ahead of `dim`, `ti-dim` and the paper's `ai-dim` on [held-out photographs]",
            lambda: all(
                ahead("ai-best", other, (*PLAIN, *HARDENED), eps)
                for other in ("dim", "ti-dim", "ai-dim")
                for eps in (16, 8)
            ),
        ),
        (
            "at ε = 8/255 with 10 gradients [EOT is ahead on plain networks](results/held-out.md#beside-eot); with "
            "50, over poses, it is not",
            lambda: (
                eot_beaten_and_ahead("10", "8", "poses")[2] > 0
                and eot_beaten_and_ahead("50", "8", "poses")[2:] == [0, 0]
            ),
        ),
    ),
)


page(
    "docs/explained.md",
    claims=(
        ("EOT is stronger than the paper found, at 250 times the gradients", eot_is_above_the_paper),
        (
            "`ri-dim`, which averages over rotations alone that narrow from step to step, and `ai-best` do better than "
            "the paper's kernel on the five networks that were not hardened.",
            lambda: all(ahead(ours, "ai-dim", PLAIN, eps) for ours in ("ri-dim", "ai-best") for eps in (16, 8)),
        ),
    ),
)


page(
    "docs/results/as-they-are.md",
    claims=(
        (
            "Without a pose the paper's `ai-dim` has a lower rate than `dim` on every plain network here, at both ε.",
            lambda: all(below_as_they_are("ai-dim", "dim", target, eps) for target in PLAIN for eps in (16, 8)),
        ),
    ),
)
