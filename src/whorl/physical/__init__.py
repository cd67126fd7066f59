"""The physical test: print images, photograph them, score the photographs; or rehearse it with a simulated camera.

from whorl.physical import Layout, arrange, collect, read_sheets, score, write_pdf

Needs the extra ``physical`` (OpenCV, reportlab, pypdfium2), which is imported when it is first used.
"""

from whorl.physical.camera import PRESETS, Camera, photograph, preset, printed
from whorl.physical.captures import Capture, Scored, Settings
from whorl.physical.contents import collect
from whorl.physical.extraction import as_seen, measure, rectified, unit
from whorl.physical.finding import Findings, Found, find_cells
from whorl.physical.layout import Layout, page_size
from whorl.physical.pdf import render_pdf, write_pdf
from whorl.physical.printing import Printed, print_sheet
from whorl.physical.scoring import Scorer, score
from whorl.physical.sheet import Print, Sheet, arrange, read_sheets, write_sheets
from whorl.physical.simulating import simulate, sweep
from whorl.physical.table5 import Table5, table5

__all__ = [
    "PRESETS",
    "Camera",
    "Capture",
    "Findings",
    "Found",
    "Layout",
    "Print",
    "Printed",
    "Scored",
    "Scorer",
    "Settings",
    "Sheet",
    "Table5",
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
