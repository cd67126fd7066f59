"""Recompute every measured figure of README and docs from ``benchmarks/results``, and fail where text and data differ.

    python benchmarks/verify_docs.py            # 0 differences, or a list of them and exit status 1
    python benchmarks/verify_docs.py --write    # set the figures to what the data says

A table below ``<!-- measured: NAME ARGUMENTS -->`` is recomputed cell by cell by the function of that name in one of
the modules ``doc_...``, which list figures in sentences as patterns. A number is compared at the precision at which it
is printed. What else looks measured must be a setting: below ``<!-- settings -->``, in code, or of one of the forms in
``doc_settings``. That is a decimal, a percentage, a number of points, seconds or megabytes; one of several
("seven of eight", in digits or words); a table's cell that is a number; a number of images or gradients that the data
does not have. And on a page that states figures a sentence that calls something significant, ahead or stronger must be
among those that they check. Words in place of images are checked likewise.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import doc_figures

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"(?<![\w.])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?![\d.]*\w)"
LOOKS_MEASURED = re.compile(
    r"(?<![\w.,/])[+-]?\d[\d,]*\.\d+(?![\w.])|(?<![\w./])\d+/\d{3}(?![\w/])|"
    r"\d%|\d (?:points?|ms|s|seconds?|minutes?|MB|MiB|kB|queries/s)\b|\d×(?!\d)"
)

_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty"
)
_COUNT = rf"(?:\d[\d,]*|{_WORDS})"
LOOKS_COUNTED = re.compile(
    rf"\b(?:{_COUNT}|all|none|neither|half|most) (?:[\w-]+ )?(?:out )?of (?:the |its |these |all )?{_COUNT}\b(?! of\b)",
    re.IGNORECASE,
)
LOOKS_CLAIMED = re.compile(
    r"\b(?:in)?significan(?:t|tly|ce)\b|\bahead\b|\b(?:strong|weak|bett)er than\b|\b(?:beats?|beaten|outperforms?)\b",
    re.IGNORECASE,
)
CELL_OF_NUMBERS = re.compile(
    r"(?<=\|)[\s\d.,;:%°×()<>±+–/→-]*\d[\s\d.,;:%°×()<>±+–/→-]*(?:to|ms|s|[kKMG]i?B)?\s*(?=\|)"
)
IMAGES = re.compile(r"(?<![\w.,/-])(\d[\d,]*) (?:NIPS17 |clean |sample )?(?:images|photographs)\b")
SAMPLE = re.compile(r"\bn = (\d[\d,]*\d)")
GRADIENTS = re.compile(r"(?<![\w.,/-])(\d[\d,]*) gradients\b")


@dataclass
class Page:
    """A page's text, and what is found in it.

    Attributes:
        path: below the root.
        text: as it is; with ``write``, set right on the way.
        covered: (start, end) of what was compared or is a setting.
        said: (start, end) of the sentences that were looked up.
        figures: how many numbers were compared.
        differences: one line each.
    """

    path: str
    text: str
    covered: list[tuple[int, int]] = field(default_factory=list)
    said: list[tuple[int, int]] = field(default_factory=list)
    figures: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(self, found: re.Match[str], value: float, where: str) -> str:
        """Compare a number that was found with what it should be; give it as it should be printed."""
        text = found.group()
        self.figures += 1
        self.covered.append(found.span())
        mantissa, e, exponent = text.replace(",", "").partition("e")
        decimals = len(mantissa.partition(".")[2])
        unit = 10.0 ** ((int(exponent) if e else 0) - decimals)
        right = f"{value:.{decimals}e}" if e else f"{value:{',' if ',' in text else ''}.{decimals}f}"
        right = f"+{right}" if text[0] in "+-" and value >= 0 else right
        if not abs(float(text.replace(",", "")) - value) <= 0.5 * unit * (1 + 1e-6) + 1e-12:
            self.differences.append(f"{self.path}: {where}: {text}, and the data says {right}")
        return right


def tables(page: Page) -> Iterator[tuple[list[str], list[tuple[int, str]], re.Match[str]]]:
    """Every measured table: its columns, its rows (place and text), and the comment above it."""
    for comment in re.finditer(r"<!-- measured: (?P<name>[\w-]+) ?(?P<arguments>.*?) -->\n+(?=\|)", page.text):
        place, lines = comment.end(), []
        for line in page.text[place:].splitlines(keepends=True):
            if not line.startswith("|"):
                break
            lines.append((place, line))
            place += len(line)
        page.covered.append((comment.end(), lines[1][0]))
        heading = lines[0][1].replace("<br>", "").strip().strip("|")  # a long name may go on in a second line
        yield [cell.strip() for cell in heading.split("|")], lines[2:], comment


def check_tables(page: Page) -> dict[tuple[int, int], str]:
    """Compare all measured tables; give what should stand where."""
    right: dict[tuple[int, int], str] = {}
    for columns, rows, comment in tables(page):
        name, arguments = comment["name"], comment["arguments"].split()
        if name not in doc_figures.TABLES:
            page.differences.append(f"{page.path}: no table {name!r} in benchmarks/doc_*.py")
            continue
        expected = doc_figures.TABLES[name](*arguments)
        for place, line in rows:
            starts = [place + 1 + bar for bar, mark in enumerate(line) if mark == "|"][: len(columns)]
            ends = [start + page.text[start:].index("|") for start in starts]
            cells = [page.text[a:b] for a, b in zip(starts, ends, strict=True)]
            row = {column: plain(cell) for column, cell in zip(columns, cells, strict=True)}
            for column, start, end in zip(columns, starts, ends, strict=True):
                where = f"{name} {' '.join(arguments)}, {next(iter(row.values()))}, {column}"
                try:
                    values = expected(row, column)
                except (LookupError, ValueError) as error:  # a label that the data does not have
                    page.differences.append(f"{page.path}: {where}: no data ({error!r})")
                    continue
                if values is None:  # a label or a setting
                    page.covered.append((start, end))
                    continue
                numbers = list(re.compile(NUMBER).finditer(page.text, start, end))
                if page.text[start:end].strip() in ("", "–"):
                    page.differences += [f"{page.path}: {where}: empty, and there is data"] if values else []
                    continue
                if isinstance(values, doc_figures.Printed):  # ours first, then the paper's
                    page.covered.append((start, end))
                    if values.few != ("†" in page.text[start:end]):
                        page.differences.append(
                            f"{page.path}: {where}: † is for fewer than ten images, and for all such"
                        )
                    shown = "".join(re.findall("[✓✗~?]", page.text[start:end]))
                    if values.marks not in (None, shown):
                        page.differences.append(f"{page.path}: {where}: {shown!r}, and the data says {values.marks!r}")
                    if values.marks is not None and (behind := re.compile(r"[ ✓✗~?]*$").search(page.text, start, end)):
                        right[behind.span()] = f" {values.marks} " if values.marks else " "
                    values = [*values, *values.printed]
                if len(numbers) != len(values):
                    text = page.text[start:end].strip()
                    page.differences.append(f"{page.path}: {where}: {text!r}, and the data says {list(values)}")
                    continue
                for found, value in zip(numbers, values, strict=True):
                    right[found.span()] = page.compare(found, value, where)
    return right


def check_sentences(page: Page) -> dict[tuple[int, int], str]:
    """Compare all listed sentences; give what should stand where."""
    right: dict[tuple[int, int], str] = {}
    for pattern, values in doc_figures.SENTENCES.get(page.path, ()):
        found = spelled(pattern).search(page.text)
        if found is None:
            page.differences.append(f"{page.path}: not found: {pattern}")
            continue
        page.said.append(found.span())
        for group, value in enumerate(values(), 1):
            number = re.compile(NUMBER).match(page.text, *found.span(group))
            assert number is not None
            right[number.span()] = page.compare(number, value, pattern)
    return right


def check_claims(page: Page) -> None:
    """Check all listed sentences that state no number, such as that a difference is significant."""
    for words, holds in doc_figures.CLAIMS.get(page.path, ()):
        found = list(spelled(words).finditer(page.text))
        page.said += [one.span() for one in found]
        if not found:
            page.differences.append(f"{page.path}: not found: {words}")
        elif not holds():
            page.differences.append(f"{page.path}: the data does not say so: {words}")


def spelled(words: str) -> re.Pattern[str]:
    """What finds a sentence, wherever its lines break; ``{}`` stands for a number."""
    pattern = re.escape(words).replace(r"\{\}", f"({NUMBER})")
    return re.compile(re.sub(r"(?:\\\s|\s)+", r"\\s+", pattern))


def plain(cell: str) -> str:
    """A cell's text without emphasis."""
    return cell.strip().replace("*", "").replace("`", "").strip()


def undeclared(page: Page) -> list[str]:
    """What looks measured or claimed, is compared with nothing and declared as nothing."""
    code = [r"```.*?```", r"`[^`\n]+(?:\n[^`\n]+)?`", r"\]\([^)\s]*\)", r"<(?!img)[a-z/][^>]*>"]
    declared = [r"<!-- settings -->\n(?:[^\n]+\n)*", r"<!--.*?-->", *doc_figures.settings(page.path)]
    prose = blanked(page.text, code, page.said)
    text = blanked(prose, declared, page.covered)
    left = [(found, "neither recomputed nor declared") for found in LOOKS_MEASURED.finditer(text)]
    if page.figures or doc_figures.CLAIMS.get(page.path):
        left += [(found, "counted, and neither recomputed nor declared") for found in LOOKS_COUNTED.finditer(text)]
        left += [(found, "a cell neither recomputed nor declared") for found in CELL_OF_NUMBERS.finditer(text)]
        own = doc_figures.images(page.path)
        for pattern, has in ((IMAGES, own), (SAMPLE, own), (GRADIENTS, doc_figures.GRADIENTS)):
            left += [
                (found, f"the data has {sorted(has)}")
                for found in pattern.finditer(text)
                if int(found[1].replace(",", "")) not in has
            ]
        claims = blanked(prose, [r"<!--.*?-->", *doc_figures.DEFINITIONS], ())
        left += [(found, "claimed, and nothing checks it") for found in LOOKS_CLAIMED.finditer(claims)]
    lines = []
    for found, why in sorted(left, key=lambda one: one[0].start()):
        line = page.text.count("\n", 0, found.start()) + 1
        around = " ".join(page.text[max(0, found.start() - 40) : found.end() + 30].split())
        lines.append(f"{page.path}:{line}: {why}: … {around} …")
    return lines


def blanked(text: str, patterns: Sequence[str], spans: Sequence[tuple[int, int]]) -> str:
    """Put spaces in place of what matches and of some spans; lines stay where they are."""
    for pattern in patterns:
        text = re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.DOTALL)
    for start, end in spans:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text


def verify(path: str, *, write: bool = False) -> Page:
    """Check one page, and with ``write`` set it right."""
    page = Page(path, (ROOT / path).read_text(encoding="utf-8"))
    right = {**check_tables(page), **check_sentences(page)}
    check_claims(page)
    page.differences += undeclared(page)
    if write:
        text = page.text
        for (start, end), number in sorted(right.items(), reverse=True):
            text = text[:start] + number + text[end:]
        (ROOT / path).write_text(text, encoding="utf-8")
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Check all pages; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="set the figures to what the data says")
    parser.add_argument("pages", nargs="*", default=doc_figures.PAGES, help="below the repository's root")
    options = parser.parse_args(argv)
    pages = [verify(path, write=options.write) for path in options.pages]
    differences = [line for page in pages for line in page.differences]
    print("\n".join(differences), file=sys.stderr) if differences else None
    counted = ", ".join(f"{page.path} {page.figures}" for page in pages if page.figures)
    print(f"{sum(page.figures for page in pages)} figures recomputed ({counted}); {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
