"""Tables as pandas has them; pandas is an extra, imported where somebody asks for one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from whorl.errors import imported
from whorl.geometry.pose import numbers_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from whorl.evaluation.outcomes import Outcomes


def data_frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> DataFrame:
    """Make a data frame; None is what pandas takes for missing.

    Raises:
        WhorlError: pandas is not installed.
    """
    return _pandas().DataFrame.from_records(list(rows), columns=list(columns))


def frame_of_cells(outcomes: Outcomes) -> DataFrame:
    """A row for each attack, target and pose, in the words of ``results.csv``."""
    shown = numbers_of(outcomes.poses)
    columns = ("attack", "target", *(number.name for number in shown))
    counted = ("n", "n_clean_correct", "n_success", "asr", "accuracy")
    rows = (
        (
            attack,
            target,
            *pose.values(shown),
            one.n,
            one.n_clean_correct,
            one.n_success,
            *_known(one.rate, one.accuracy),
        )
        for (attack, target, pose), one in outcomes.counts.items()
    )
    return data_frame((*columns, *counted), rows)


def frame_of_images(outcomes: Outcomes) -> DataFrame:
    """A row for each attack, target, pose and image: whether it is recognised, clean and attacked."""
    pandas, shown = _pandas(), numbers_of(outcomes.poses)
    axes = {"attack": outcomes.attacks, "target": outcomes.targets, "pose": outcomes.poses, "id": outcomes.ids}
    places = pandas.MultiIndex.from_product([range(len(axis)) for axis in axes.values()], names=list(axes))
    columns: dict[str, Any] = {}
    for name, axis in axes.items():
        place = places.get_level_values(name)
        if name != "pose":
            columns[name] = pandas.Index(axis).take(place)
            continue
        for number, values in zip(
            shown, zip(*(pose.values(shown) for pose in outcomes.poses), strict=True), strict=True
        ):
            columns[number.name] = pandas.Index(values).take(place)
    columns["clean_correct"] = outcomes.clean.expand_as(outcomes.adversarial).flatten().numpy()
    columns["adversarial_correct"] = outcomes.adversarial.flatten().numpy()
    columns["success"] = outcomes.success.flatten().numpy()
    if outcomes.reached is not None:
        columns["reached"] = outcomes.reached.flatten().numpy()
    return pandas.DataFrame(columns)


def _known(*shares: float) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(share) else share for share in shares)


def _pandas() -> Any:
    return imported("pandas", "a table as a DataFrame", extra="pandas")
