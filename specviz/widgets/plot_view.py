"""A living picture: plotly in the browser, its code sent once for all pictures of a page.

Measured with plotly 7.1 and anywidget 0.11: a FigureWidget carries 5 MB of code of its own, and
anywidget gives code two seconds to start. Four of them on a busy machine stayed empty for good.
"""

from __future__ import annotations

from typing import Any, ClassVar

import anywidget
import plotly.graph_objects as go
import traitlets
from plotly.offline import get_plotlyjs

from specviz.widgets.scripts import script


class PlotView(anywidget.AnyWidget):
    """Shows the figure given as plotly JSON, and says what was clicked and brushed.

    `clicked` is {trace, point, x, y} of the last point clicked; `brushed` the [trace, point]
    pairs inside the last box or lasso, [] when it was lifted.
    """

    _esm = script("plot_view.js")
    #: plotly's code, carried by the kernel's first picture; a page that lacks it asks.
    code = traitlets.Unicode("").tag(sync=True)
    figure = traitlets.Unicode("{}").tag(sync=True)
    clicked = traitlets.Dict().tag(sync=True)
    brushed: Any = traitlets.List().tag(sync=True)
    _carried: ClassVar[bool] = False

    def __init__(self, figure: go.Figure) -> None:
        first, PlotView._carried = not PlotView._carried, True
        super().__init__(figure=figure.to_json(), code=get_plotlyjs() if first else "")
        self.on_msg(self._answer)

    def show(self, figure: go.Figure) -> None:
        """Turn the picture into this one, with one message."""
        self.figure = figure.to_json()

    def _answer(self, widget: Any, message: Any, buffers: Any) -> None:
        if message.get("kind") == "code":
            self.send({"kind": "code"}, buffers=[get_plotlyjs().encode()])
