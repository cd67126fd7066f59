"""The physical test: print images, photograph them, score the photographs; or rehearse it with a simulated camera.

from whorl.physical import PageLayout, arrange, collect, read_sheets, score, write_pdf

Needs the extra ``physical`` (OpenCV, reportlab, pypdfium2), which is imported when it is first used.
"""

from whorl.physical.camera import PRESETS, Camera, preset, printed, sweep
from whorl.physical.captures import Capture, Scored, ViewSettings
from whorl.physical.contents import collect
from whorl.physical.detection import Findings, Found, find_cells
from whorl.physical.extraction import as_seen, measure, rectified, unit
from whorl.physical.layout import PageLayout, page_size
from whorl.physical.pdf import Printed, print_sheet, render_pdf, write_pdf
from whorl.physical.rehearsal import Rehearsal, Table5, table5
from whorl.physical.scorer import Scorer, score
from whorl.physical.sheet import Print, PrintedSheet, arrange, read_sheets, write_sheets
from whorl.physical.simulation import photograph, simulate

__all__ = [
    "PRESETS",
    "Camera",
    "Capture",
    "Findings",
    "Found",
    "PageLayout",
    "Print",
    "Printed",
    "PrintedSheet",
    "Rehearsal",
    "Scored",
    "Scorer",
    "Table5",
    "ViewSettings",
    "arrange",
    "as_seen",
    "collect",
    "find_cells",
    "measure",
    "page_size",
    "photograph",
    "preset",
    "print_sheet",
    "printed",
    "read_sheets",
    "rectified",
    "render_pdf",
    "score",
    "simulate",
    "sweep",
    "table5",
    "unit",
    "write_pdf",
    "write_sheets",
]
