"""The report that people open: one HTML file with words, tables, figures and examples; figures for papers.

from whorl import report

report.write_report("report.html", report.Content(title="Mine", cells=cells))
"""

from whorl.report.charts import bars, query_curve
from whorl.report.content import Content, CutOut, DefenderView, Drawing, Grouped, Photographs, Table
from whorl.report.experiment import experiment_content, report_experiment, write_tables
from whorl.report.export import save_charts, save_figures, save_gallery
from whorl.report.figures import drawings
from whorl.report.gallery import Example, Gallery, Tile, TileRow, gallery
from whorl.report.headline import Headline, headline
from whorl.report.page import write_chart, write_report

__all__ = [
    "Content",
    "CutOut",
    "DefenderView",
    "Drawing",
    "Example",
    "Gallery",
    "Grouped",
    "Headline",
    "Photographs",
    "Table",
    "Tile",
    "TileRow",
    "bars",
    "drawings",
    "experiment_content",
    "gallery",
    "headline",
    "query_curve",
    "report_experiment",
    "save_charts",
    "save_figures",
    "save_gallery",
    "write_chart",
    "write_report",
    "write_tables",
]
