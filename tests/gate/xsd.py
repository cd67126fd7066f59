"""A literal reader of XML schemas, as far as that of JUnit goes: elements, order, attributes, types and patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

XS = "{http://www.w3.org/2001/XMLSchema}"


class Schema:
    """An XML schema without namespaces.

    Args:
        path: of the ``.xsd`` file.
    """

    def __init__(self, path: Path) -> None:
        root = ET.parse(path).getroot()  # noqa: S314 - a file of ours
        self.elements = {one.attrib["name"]: one for one in root.findall(f"{XS}element")}
        self.types = {
            one.attrib["name"]: one for kind in ("complexType", "simpleType") for one in root.findall(XS + kind)
        }

    def faults(self, text: bytes) -> list[str]:
        """What is wrong with a document; nothing if it is valid."""
        root = ET.fromstring(text)  # noqa: S314 - written by the test
        if root.tag not in self.elements:
            return [f"{root.tag}: no such root"]
        return list(self._element(root, self.elements[root.tag], root.tag))

    def _element(self, node: ET.Element, declared: ET.Element, at: str) -> Iterator[str]:
        kind = declared.attrib.get("type")
        complex_type = declared.find(f"{XS}complexType") if kind is None else self.types.get(kind)
        if complex_type is None:
            if kind != "xs:string":
                yield f"{at}: type {kind} is not known to this reader"
            yield from (f"{at}: {child.tag} in text" for child in node)
            yield from (f"{at}: attribute {name}" for name in node.attrib)
            return
        yield from self._attributes(node, complex_type, at)
        groups = [one for one in complex_type if one.tag in (f"{XS}sequence", f"{XS}choice")]
        allowed = {
            child.attrib.get("ref", child.attrib.get("name", "")): child
            for one in groups
            for child in one.iter(f"{XS}element")
        }
        unbounded = groups and (
            groups[0].attrib.get("maxOccurs") == "unbounded" or groups[0].find(f"{XS}choice") is not None
        )
        if not unbounded:
            yield from self._in_order([child.tag for child in node], list(allowed), allowed, at)
        if complex_type.attrib.get("mixed") != "true" and (node.text or "").strip():
            yield f"{at}: text {node.text!r}"
        for place, child in enumerate(node):
            here = f"{at}/{child.tag}[{place}]"
            if child.tag not in allowed:
                yield f"{here}: not allowed"
            else:
                yield from self._element(child, self.elements.get(child.tag, allowed[child.tag]), here)

    @staticmethod
    def _in_order(tags: list[str], names: list[str], allowed: dict[str, ET.Element], at: str) -> Iterator[str]:
        known = [names.index(tag) for tag in tags if tag in names]
        if known != sorted(known):
            yield f"{at}: out of order, {tags}"
        for name in names:
            most, least = allowed[name].attrib.get("maxOccurs", "1"), int(allowed[name].attrib.get("minOccurs", "1"))
            if tags.count(name) < least or (most != "unbounded" and tags.count(name) > int(most)):
                yield f"{at}: {name} {tags.count(name)} times"

    def _attributes(self, node: ET.Element, complex_type: ET.Element, at: str) -> Iterator[str]:
        declared = {one.attrib["name"]: one.attrib for one in complex_type.findall(f"{XS}attribute")}
        for name, one in declared.items():
            if one.get("use") == "required" and name not in node.attrib:
                yield f"{at}: lacks {name}"
        for name, value in node.attrib.items():
            if name not in declared:
                yield f"{at}: attribute {name} is not allowed"
            elif (kind := declared[name].get("type", "xs:string")) != "xs:string":
                pattern = self.types[kind].find(f".//{XS}pattern")
                assert pattern is not None
                if not re.fullmatch(pattern.attrib["value"], value):
                    yield f"{at}: {name}={value!r}"
