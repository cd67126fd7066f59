"""A verdict as SARIF 2.1.0, which code scanning shows: one result for each rule that failed."""

from __future__ import annotations

from pathlib import Path, PurePath
from urllib.parse import quote

import whorl
from whorl.errors import some_of
from whorl.evaluation import Rule, Verdict
from whorl.evaluation.verdict import RuleName
from whorl.files import json_text
from whorl.runs.folder import Json

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_IMAGES = 100
"""Images that a result names, at most."""
_ABOUT: dict[RuleName, tuple[str, str]] = {
    "fail-above": (
        "AttackSuccessRate",
        "The success rate of an attack, pooled over rotated and scaled images, must not be above its limit.",
    ),
    "worst-case": (
        "WorstCase",
        "The share of images that an attack fools in at least one pose must not be above its limit.",
    ),
    "min-accuracy": ("CleanAccuracy", "The share of clean images that are recognised must not be below its limit."),
    "fail-drop": (
        "RobustnessRegression",
        "Against an earlier network, on the same images, the share recognised under attack must not drop significantly "
        "by more than its limit.",
    ),
}
_MORE = (
    "`report.html` beside the run's `gate.json` shows the worst poses, the most fragile classes and images. "
    "`whorl gate --help` says how the rule is measured and decided."
)


def sarif(verdict: Verdict, *, artifact: str, images: dict[str, Path], properties: Json) -> str:
    """Write a verdict as SARIF.

    A rule that failed is a result of level "error"; one that passed is none, for results are shown as alerts.

    Args:
        verdict: what was decided.
        artifact: file that was judged, or what stands for it.
        images: path of each image, by id, for those that a regression names.
        properties: what else to state of the run, as JSON.
    """
    rules = [
        {
            "id": name,
            "name": title,
            "shortDescription": {"text": about},
            "fullDescription": {"text": about},
            "defaultConfiguration": {"level": "error"},
            "help": {"text": f"{about} {_MORE.replace('`', '')}", "markdown": f"{about} {_MORE}"},
        }
        for name, (title, about) in _ABOUT.items()
    ]
    driver = {
        "name": "whorl",
        "fullName": f"whorl gate {whorl.__version__}",
        "version": whorl.__version__,
        "fullDescription": {"text": "Robustness of an image classifier to rotated and scaled adversarial images."},
        "rules": rules,
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"whorl-gate/{quote(verdict.model)}/"},
        "invocations": [{"executionSuccessful": True, "exitCode": int(not verdict.passed)}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(rule, verdict, artifact, images) for rule in verdict.failed],
        "properties": properties,
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(rule: Rule, verdict: Verdict, artifact: str, images: dict[str, Path]) -> Json:
    result: Json = {
        "ruleId": rule.name,
        "ruleIndex": list(_ABOUT).index(rule.name),
        "level": "error",
        "message": {"text": f"{verdict.model}: {rule.sentence}"},
        "locations": [_location(artifact)],
        "partialFingerprints": {"whorlRule/v1": f"{verdict.model}/{rule.title}"},
    }
    lost = list(verdict.lost(rule.subject))
    if rule.name == "fail-drop" and lost:
        # Viewers show the message; related locations, only some of them.
        result["message"]["text"] += f". Fooled in more poses than before: {some_of(lost)}"
        result["relatedLocations"] = [
            {**_location(str(images[name])), "message": {"text": f"{name}: recognised in fewer poses than before"}}
            for name in lost[:MOST_IMAGES]
        ]
    return result


def _location(path: str) -> Json:
    place = PurePath(path)
    uri = place.as_uri() if place.is_absolute() else quote(place.as_posix())
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}
