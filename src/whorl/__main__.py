"""``python -m whorl``, the same as ``whorl``."""

from whorl.cli import app

app(prog_name="whorl")
