"""``whorl doctor``: what is here, what is missing, and the line that puts it right."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from whorl.cli.app import app
from whorl.cli.console import messages, output, show_json, table
from whorl.installation import Finding, examine, healthy

BROKEN = 2  # 1 is a gate that failed
_STYLES = {"ok": "green", "missing": "yellow", "note": "cyan", "broken": "red"}
_EXAMPLES = """
Example: whorl doctor

Example: whorl doctor --json
"""


@app.command(epilog=_EXAMPLES)
def doctor(
    # Not the option that other commands share: its module needs torch, and this must work where torch does not.
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what is installed and cached, what is missing, and how to fix it.

    Nothing is changed. The exit code is 2 if something is broken that whorl cannot do without, else 0.
    """
    findings = examine()
    well = healthy(findings)
    if as_json:
        show_json({"healthy": well, "findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    if not well:
        messages().print(Text("something that whorl cannot do without is broken; see above", style="red"))
        raise typer.Exit(BROKEN)


def _show(findings: list[Finding]) -> None:
    console = output()
    for section in dict.fromkeys(finding.section for finding in findings):
        console.print(Text(section, style="bold"))
        listing: Table = table("", "", "")
        listing.show_header = False
        for finding in (finding for finding in findings if finding.section == section):
            state = Text(finding.state, style=_STYLES[finding.state])
            listing.add_row(Text(f"  {finding.name}"), state, Text(finding.detail))
            if finding.fix:
                listing.add_row("", "", Text(f"-> {finding.fix}", style="bold"))
        console.print(listing)
