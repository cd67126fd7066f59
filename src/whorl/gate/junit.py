"""A verdict as JUnit XML, which CI systems list as tests: one test a rule."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from whorl.errors import printable
from whorl.evaluation import Verdict


def junit(verdict: Verdict, facts: dict[str, str]) -> bytes:
    """Write a verdict as JUnit XML (the schema of Jenkins' xUnit plugin, ``junit-10.xsd``).

    Without a rule there is one test, skipped: some systems take a file without tests for a fault.

    Args:
        verdict: what was decided.
        facts: what else to state, by name.
    """
    count, failed = max(1, len(verdict.rules)), len(verdict.failed)
    totals = {"tests": str(count), "failures": str(failed), "errors": "0"}
    root = ET.Element("testsuites", {"name": "whorl gate", **totals})
    skipped = "0" if verdict.rules else "1"
    suite = ET.SubElement(root, "testsuite", {"name": printable(verdict.model), **totals, "skipped": skipped})
    properties = ET.SubElement(suite, "properties")
    for name, value in facts.items():
        ET.SubElement(properties, "property", {"name": printable(name), "value": printable(value)})
    group = f"whorl.gate.{printable(verdict.model)}"
    for rule in verdict.rules:
        case = ET.SubElement(suite, "testcase", {"classname": group, "name": printable(rule.title)})
        if not rule.passed:
            failure = ET.SubElement(case, "failure", {"type": rule.name, "message": printable(rule.sentence)})
            lost = (f"{name}: {count} poses lost" for name, count in verdict.lost(rule.subject).items())
            failure.text = printable("\n".join((rule.sentence, *lost)))
        ET.SubElement(case, "system-out").text = printable(rule.sentence)
    if not verdict.rules:
        case = ET.SubElement(suite, "testcase", {"classname": group, "name": "no rule"})
        ET.SubElement(case, "skipped", {"message": printable(verdict.sentence)})
    ET.SubElement(suite, "system-out").text = printable("\n".join((verdict.sentence, *verdict.notes)))
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
