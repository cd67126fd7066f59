"""The playground: ``whorl ui`` in a browser. What it shows is computed by plain functions; gradio only lays it out.

Needs the extra ``ui``. Gradio is imported when a page is made, not before.
"""

from whorl.ui.server import running, serve

__all__ = ["running", "serve"]
