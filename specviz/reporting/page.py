"""A report in the making: headings, pictures, tables and notes, in the order they are added."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from specviz.markup import escape, table_html

_CONFIG = {"displaylogo": False, "responsive": True}
#: Room the title took inside the figure: the page sets it as a heading instead.
_TITLE_LINE, _TITLE_ROOM = 21, 38
#: A picture keeps its 38rem and scrolls in its box; where that is wider than the window, a
#: sentence says so and the edge that hides something is shaded.
_NARROW = """<style>
.sv-sideways { display: none; }
@media screen and (max-width: 41rem) {
  .sv-sideways { display: block; color: var(--soft); font-size: .85rem; margin: .3rem 0 0; }
  .plot .sv-scroll {
    background:
      linear-gradient(to right, var(--paper) 30%, transparent) left / 2.5rem 100% local,
      linear-gradient(to left, var(--paper) 30%, transparent) right / 2.5rem 100% local,
      linear-gradient(to right, rgba(128,128,128,.45), transparent) left / .9rem 100% scroll,
      linear-gradient(to left, rgba(128,128,128,.45), transparent) right / .9rem 100% scroll;
    background-repeat: no-repeat;
  }
}
</style>
"""


class Page:
    """Collects HTML; text arguments are plain and escaped here, `html` ones are already safe."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.plots = 0

    def heading(self, text: str) -> None:
        self.parts.append(f"<h2>{escape(text)}</h2>")

    def note(self, text: str) -> None:
        self.parts.append(f'<p class="note">{escape(text)}</p>')

    def missing(self, sentence: str) -> None:
        """What this trace cannot say, and what to do about it."""
        self.parts.append(f'<p class="missing">{escape(sentence)}</p>')

    def html(self, html: str) -> None:
        self.parts.append(html)

    def details(self, summary: str, html: str) -> None:
        self.parts.append(f"<details><summary>{escape(summary)}</summary>{html}</details>")

    def plot(self, figure: go.Figure, caption: str, table: pd.DataFrame) -> None:
        """A picture under its finding, with its caption and the table behind it."""
        self.plots += 1
        lines = str(figure.layout.title.text).split("<br>")  # escaped by the figure
        bare = go.Figure(figure).update_layout(
            title_text="",
            margin_t=figure.layout.margin.t - _TITLE_ROOM - _TITLE_LINE * (len(lines) - 1),
        )
        html = bare.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=f"plot-{self.plots}",
            config=_CONFIG,
            default_height=f"{figure.layout.height}px",
        )
        self.parts.append(
            f'<figure class="plot"><h3>{" ".join(lines)}</h3>'
            '<p class="sv-sideways">The picture is wider than this window: scroll it sideways.</p>'
            f'<div class="sv-scroll" style="overflow-x:auto">{html}</div>'
            f'<figcaption class="note">{escape(caption)}</figcaption></figure>'
        )
        self.details("The numbers behind this picture", table_html(table))

    @property
    def head(self) -> str:
        """Plotly's code, once, when there is a picture."""
        return f"{_NARROW}<script>{get_plotlyjs()}</script>\n" if self.plots else ""


def write_whole(path: Path, text: str) -> None:
    """Write beside the target and rename: readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
