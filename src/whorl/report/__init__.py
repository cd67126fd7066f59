"""The report that people open: one HTML file with words, tables, figures and examples; figures for papers.

from whorl import report

report.write_report("report.html", report.Content(title="Mine", cells=cells))
"""

from whorl.report.content import Content, CutOut, Encoded, Example, Gallery, Grouped, Photographs, Shot, Table, Version
from whorl.report.drawings import Drawing, drawings
from whorl.report.examples import gallery
from whorl.report.experiment import experiment_content, report_experiment
from whorl.report.headline import Headline, headline
from whorl.report.page import write_report
from whorl.report.saving import save_figures

__all__ = [
    "Content",
    "CutOut",
    "Drawing",
    "Encoded",
    "Example",
    "Gallery",
    "Grouped",
    "Headline",
    "Photographs",
    "Shot",
    "Table",
    "Version",
    "drawings",
    "experiment_content",
    "gallery",
    "headline",
    "report_experiment",
    "save_figures",
    "write_report",
]
