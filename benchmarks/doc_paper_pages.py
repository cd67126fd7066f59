"""What the pages on the paper's tables say, beside the tables themselves, which are in ``doc_paper``."""

from __future__ import annotations

from doc_counts import ai_over_ti, eligible, printed_ai_over_ti
from doc_data import read
from doc_paper import (
    ADAM,
    BASES,
    agreements_on_no_difference,
    crossed,
    eot_is_above_the_paper,
    far_means,
    gaps_held,
    levels,
    no_gain,
    only_differs,
    orderings,
    pgd_differs,
    printed_range,
    row_is_ahead,
)
from doc_tables import page


def kernels_are_as_said() -> bool:
    """Whether each kernel of table 8 is ahead where docs/results/kernels.md says so, and nowhere else."""
    targets = read("paper/table8-inception-outcomes.json")["targets"]
    hardened = [target for target in targets if "." in target]
    uniform = row_is_ahead("table8-inception", "ai-dim-uniform", "ai-dim")
    gaussian = row_is_ahead("table8-inception", "ai-dim", "ai-dim-uniform")
    return uniform == [target for target in hardened if target != "efficientnet_lite0.ens-at"] and gaussian == [
        target for target in targets if target not in (*hardened, "resnet18")
    ]


_FROM_ONE = {(f"s={scale}", "ai-dim", "eot") for scale in ("1.0", "1.3", "1.5")}

page(
    "docs/results.md",
    sentences=(
        (
            "AI is {} points over TI, where the paper has {}: {} on the hardened networks, {} behind input defences.",
            lambda: [ai_over_ti(), printed_ai_over_ti(), ai_over_ti(hardened=True), ai_over_ti(hardened=False)],
        ),
    ),
    claims=(
        (
            "With 2,500 gradients an image, 250 times those of AI-DIM, it is [far stronger than printed]",
            eot_is_above_the_paper,
        ),
        (
            "All ten of its means on the attacked network, as it is and behind four input defences, are within 5 "
            "points of the paper's, and none of its orderings is significantly the other way round.",
            lambda: not far_means("table8-inception") and not crossed("table8-inception"),
        ),
        (
            "From Inception-v3 AI-DIM is still ahead of it on hardened networks.",
            lambda: (
                row_is_ahead("table4-inception", "ai-dim", "eot")
                == ["efficientnet_lite0.ens-at", "mobilenet_v2.ens-at"]
            ),
        ),
        (
            "AI is significantly ahead of the plain attack for each of the four attacks on each of the eight networks",
            lambda: not any(no_gain("inception", base) for base in BASES),
        ),
        (
            "From resnet18 the same holds for `fgsm`, `pgd` and `mim`; for `dim` on the hardened networks alone",
            lambda: (
                not any(no_gain("resnet18", base) for base in ("fgsm", "pgd", "mim"))
                and no_gain("resnet18", "dim") == ["resnet18", "mobilenet_v2", "efficientnet_lite0"]
            ),
        ),
    ),
)


page(
    "docs/results/resnet18-rotation.md",
    sentences=(
        (
            "{} of {} orderings agree, {} are the other way round, {} are not significant:",
            lambda: orderings("table1-resnet18"),
        ),
    ),
    claims=(
        (
            "All that are the other way round are AI-DIM below EOT.",
            lambda: {one[1:] for one in crossed("table1-resnet18")} == {("ai-dim", "eot")},
        ),
    ),
)


page(
    "docs/results/resnet18-scaling.md",
    sentences=(
        (
            "{} of {} orderings agree, {} are the other way round, {} are not significant.",
            lambda: orderings("table2-resnet18"),
        ),
    ),
    claims=(
        (
            "All that are the other way round are AI-DIM below EOT, at scales from 1.0.",
            lambda: crossed("table2-resnet18") == _FROM_ONE,
        ),
    ),
)


page(
    "docs/results/resnet18-translation.md",
    sentences=(
        (
            "{} of {} orderings agree, {} are the other way round, {} are not significant.",
            lambda: orderings("table3-resnet18"),
        ),
    ),
)


page(
    "docs/results/rotation.md",
    sentences=(
        (
            "{} of {} orderings agree with the paper, {} are the other way round, {} are not significant.",
            lambda: orderings("table1-inception"),
        ),
        (
            "Of the {} white-box figures of the eight attacks {} are within 5 points",
            lambda: levels("table1-inception", without="eot")[::-1],
        ),
    ),
    claims=(
        (
            "All that are the other way round are AI-DIM's: below EOT, or, on images as they are, above DIM",
            lambda: (
                {
                    (row, other, *([heading] if other == "dim" else []))
                    for heading, row, other in crossed("table1-inception")
                }
                == {("ai-dim", "eot"), ("ai-dim", "dim", "θ=0°")}
            ),
        ),
    ),
)


page(
    "docs/results/scaling.md",
    sentences=(
        (
            "{} of {} orderings agree with the paper, {} are the other way round, {} are not significant:",
            lambda: orderings("table2-inception"),
        ),
        (
            "Of the {} white-box figures of the eight attacks {} are within 5 points",
            lambda: levels("table2-inception", without="eot")[::-1],
        ),
    ),
    claims=(
        (
            "All that are the other way round are AI-DIM below EOT, at scales from 1.0.",
            lambda: crossed("table2-inception") == _FROM_ONE,
        ),
    ),
)


page(
    "docs/results/translation.md",
    sentences=(
        (
            "{} of {} orderings agree with the paper, {} is the other way round (AI-DIM below EOT on Inception-v3), "
            "{} are not significant. Of the {} white-box figures of the eight attacks {} are within 5 points",
            lambda: [*orderings("table3-inception"), *levels("table3-inception", without="eot")[::-1]],
        ),
    ),
    claims=(
        (
            "is the other way round (AI-DIM below EOT on Inception-v3)",
            lambda: crossed("table3-inception") == {("m=n=5", "ai-dim", "eot")},
        ),
    ),
)


page(
    "docs/results/eot.md",
    sentences=(("The paper prints {} to {} for every rotation", lambda: printed_range("table1-inception", "eot")),),
    claims=(
        (
            "with Adam EOT is nowhere significantly weaker, and significantly stronger on both hardened networks from "
            "resnet18 and on one of them from Inception-v3.",
            lambda: (
                only_differs(["table4-resnet18"], ["efficientnet_lite0.ens-at", "mobilenet_v2.ens-at"])
                and only_differs(ADAM, ["efficientnet_lite0.ens-at"])
            ),
        ),
        (
            "is ahead of AI-DIM there and on four of five networks that were not attacked.",
            lambda: orderings("table4-inception") == [2, 8, 5, 1],
        ),
        (
            "on hardened networks, AI-DIM is ahead of EOT with a 250th of the gradients, as in the paper",
            lambda: (
                row_is_ahead("table4-inception", "ai-dim", "eot")
                == ["efficientnet_lite0.ens-at", "mobilenet_v2.ens-at"]
            ),
        ),
        ("EOT is ahead everywhere.", lambda: orderings("table4-resnet18") == [0, 5, 5, 0]),
    ),
)


page(
    "docs/results/resnet18-kernels.md",
    sentences=(
        (
            "At -20° ×0.5 few clean images are recognised ({} to {} of 500)",
            lambda: eligible("table8", angle=-20.0, scale=0.5),
        ),
    ),
)


page(
    "docs/results/kernels.md",
    sentences=(
        (
            "At -20° ×0.5 few clean images are recognised ({} to {} of 500)",
            lambda: eligible("table8-inception", angle=-20.0, scale=0.5),
        ),
        (
            "{} of {} orderings agree with the paper, {} are the other way round, {} are not significant. In three of "
            "the {} the paper has the same figure for both kernels, and ours do not differ significantly.",
            lambda: [*orderings("table8-inception"), orderings("table8-inception")[0]],
        ),
        (
            "Our interval holds the paper's difference on {} of the {}.",
            lambda: gaps_held("table8-inception", "ai-dim", "ai-dim-uniform"),
        ),
        (
            "Of the {} figures of single poses {} are within 5 points",
            lambda: levels("table8-inception")[::-1],
        ),
        (
            "Behind RandMix at ×0.7 and ×0.5 the target recognises no more than {} and {} clean images.",
            lambda: [
                eligible("table8-inception", target="inception_v3+randmix", scale=scale)[1] for scale in (0.7, 0.5)
            ],
        ),
        (
            "(logits differ by at most {})",
            lambda: [read("about.json")["files"]["paper/table8-inception-outcomes.json"]["logits"]["value"]],
        ),
        (
            "In the pose at ×0.5 a target recognises {} to {} of the 128 clean images.",
            lambda: eligible("figure7", scale=0.5),
        ),
    ),
    claims=(
        ("In three of the", lambda: agreements_on_no_difference("table8-inception") == 3),
        (
            "As in the paper, the Gaussian kernel does better where nothing was hardened, and the uniform one on "
            "hardened networks.** `ai-dim` is significantly ahead on the attacked network, as it is and behind each "
            "input defence, and on all networks that were not attacked but resnet18; `ai-dim-uniform` on all hardened "
            "ones but efficientnet_lite0.ens-at.",
            kernels_are_as_said,
        ),
        ("and so are all ten means.", lambda: not far_means("table8-inception")),
    ),
)


page(
    "docs/results/levels.md",
    claims=(
        (
            "Seven of the eight attacks are within 5 points of the paper under rotation and under scaling, and six "
            "under translation.",
            lambda: [far_means(f"table{i}-inception") for i in (1, 2, 3)] == [["pgd"], ["pgd"], ["pgd", "dim"]],
        ),
        (
            "The start makes no significant difference; the step does, with the start and without.",
            lambda: all(
                not pgd_differs(f"random start, {step}ε/T", f"no start, {step}ε/T")
                and pgd_differs(f"{start}, 5ε/T", f"{start}, 1ε/T")
                for step in (5, 1)
                for start in ("random start", "no start")
            ),
        ),
    ),
)
