"""A report in the making: headings, pictures, tables and notes, in the order they are added."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from specviz.markup import escape, table_html

_CONFIG = {"displaylogo": False, "responsive": True}
#: Room the title took inside the figure: the page sets it as a heading instead.
_TITLE_LINE, _TITLE_ROOM = 21, 38


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
            f'<figure class="plot"><h3>{" ".join(lines)}</h3><div class="sv-scroll">{html}</div>'
            f'<figcaption class="note">{escape(caption)}</figcaption></figure>'
        )
        self.details("The numbers behind this picture", table_html(table))

    @property
    def head(self) -> str:
        """Plotly's code, once, when there is a picture."""
        return f"<script>{get_plotlyjs()}</script>\n" if self.plots else ""
