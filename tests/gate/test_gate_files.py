"""What a gate writes for machines is valid by the schemas that these machines go by, and says what was decided."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from gate.xsd import Schema
from whorl.evaluation import Rate, Rule, Verdict
from whorl.gate.junit import junit
from whorl.gate.sarif import MOST_IMAGES, sarif

SCHEMAS = Path(__file__).parent / "schemas"
RATE = Rate(value=0.5, interval=(0.4, 0.6), images=90, n=900, successes=450, poses=25)
GOOD = Rule(
    name="min-accuracy",
    subject="clean images",
    limit=0.9,
    rate=0.95,
    interval=(0.9, 0.97),
    n=100,
    passed=True,
    sentence="fine",
)
BAD = Rule(
    name="fail-drop",
    subject="ai-best, white-box",
    limit=0.02,
    rate=0.1,
    interval=(0.05, 0.15),
    n=100,
    passed=False,
    sentence="lost <10> points & \x00more",
)
VERDICT = Verdict(
    model='shop "v3" \x1b',
    images=100,
    poses=25,
    accuracy=RATE,
    posed_accuracy=RATE,
    rules=(GOOD, BAD),
    changed={BAD.subject: {"bolt/1": 3, "bolt/2": -1}},
    notes=("a note",),
)
VERDICTS = {
    "failed": VERDICT,
    "passed": replace(VERDICT, rules=(GOOD,), changed={}),
    "no rule": replace(VERDICT, rules=(), changed={}),
    "many images": replace(VERDICT, changed={BAD.subject: {f"bolt/{i}": 1 for i in range(300)}}),
}


def sarif_of(verdict: Verdict, artifact: str = "net.pth") -> Any:
    images = {f"bolt/{i}": Path(f"my data/bolt/{i}.png") for i in range(300)}
    return json.loads(sarif(verdict, artifact=artifact, images=images, properties={"note": None}))


@pytest.mark.parametrize("name", VERDICTS)
def test_junit_is_valid(name: str) -> None:
    schema = Schema(SCHEMAS / "junit-10.xsd")
    assert schema.faults(junit(VERDICTS[name], {"model": "net & more", "images": "30"})) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (b"<testsuites><testsuite name='a' tests='1' failures='0'/></testsuites>", "lacks errors"),
        (b"<testsuites><testcase name='a'/></testsuites>", "not allowed"),
        (b"<testsuites time='soon'/>", "time='soon'"),
        (
            b"<testsuite name='a' tests='1' failures='0' errors='0'>"
            b"<testcase name='a'><failure colour='red'/></testcase></testsuite>",
            "colour",
        ),
        (b"<testsuite name='a' tests='1' failures='0' errors='0'>text</testsuite>", "text"),
        (b"<suite/>", "no such root"),
    ],
)
def test_the_reader_of_that_schema_finds_faults(given: bytes, fault: str) -> None:
    assert any(fault in one for one in Schema(SCHEMAS / "junit-10.xsd").faults(given))


def test_junit_says_what_was_decided() -> None:
    root = ET.fromstring(junit(VERDICT, {"images": "100"}))  # noqa: S314 - written here
    assert (root.attrib["tests"], root.attrib["failures"]) == ("2", "1")
    good, bad = root.iter("testcase")
    assert good.find("failure") is None
    failure = bad.find("failure")
    assert failure is not None
    assert (failure.attrib["type"], failure.attrib["message"]) == ("fail-drop", "lost <10> points & %00more")
    assert "bolt/1: 3 poses lost" in (failure.text or "")
    assert "bolt/2" not in (failure.text or "")


@pytest.mark.parametrize("artifact", ["net.pth", "/models/net.pth", "gate.json", "a folder/ä.onnx"])
@pytest.mark.parametrize("name", VERDICTS)
def test_sarif_is_valid(name: str, artifact: str) -> None:
    schema = json.loads((SCHEMAS / "sarif-2.1.0-rtm.4.json").read_text(encoding="utf-8"))
    checker = jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())
    assert list(checker.iter_errors(sarif_of(VERDICTS[name], artifact))) == []
    broken = sarif_of(VERDICTS["failed"])
    broken["runs"][0]["results"][0]["level"] = "loud"
    assert list(checker.iter_errors(broken))


def test_sarif_shows_rule_level_and_message() -> None:
    """What a viewer shows: the rule that a result names is there, and its level, message and place."""
    [run] = sarif_of(VERDICT)["runs"]
    rules = run["tool"]["driver"]["rules"]
    [failed] = run["results"]  # what passed is no alert
    assert rules[failed["ruleIndex"]]["id"] == failed["ruleId"] == "fail-drop"
    assert failed["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "net.pth"
    assert failed["level"] == rules[failed["ruleIndex"]]["defaultConfiguration"]["level"] == "error"
    for rule in rules:  # what is text is shown as it is, and only markdown is rendered
        assert "`" not in rule["help"]["text"] + rule["fullDescription"]["text"] + failed["message"]["text"]
        assert "`whorl gate --help`" in rule["help"]["markdown"]
        assert "/" not in rule["id"]  # a slash would make it a part of another rule (SARIF 2.1.0, 3.49.3)
    assert "lost <10> points" in failed["message"]["text"]
    assert failed["message"]["text"].endswith("Fooled in more poses than before: 'bolt/1'")
    [changed] = failed["relatedLocations"]
    assert changed["physicalLocation"]["artifactLocation"]["uri"] == "my%20data/bolt/1.png"
    assert len(sarif_of(VERDICTS["many images"])["runs"][0]["results"][0]["relatedLocations"]) == MOST_IMAGES
    assert sarif_of(VERDICTS["passed"])["runs"][0]["results"] == []
