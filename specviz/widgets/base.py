"""What every widget is: state, controls, one picture and the sentences under it.

A widget holds state and calls figures; it computes nothing but what `specviz.analysis` gives it
and draws nothing but what `specviz.figures` gives it. The contract, for writing one:

    class Yield(Widget):
        '''Tokens per round at one k.'''

        title = "Tokens per round"

        def __init__(self, trace: Trace, *, k: int = 7) -> None:
            self.trace = trace
            super().__init__({
                "k": slider("k, drafted tokens", k, 0, 15),
                "kind": choice("text", {"all": None, **{t: t for t in trace.content_types}}),
            })

        def draw(self) -> go.Figure:
            return plot_something(table(self.trace, self["k"], self["kind"]))

        def words(self) -> list[str]:
            found = replay(self.trace, FixedK(self["k"])).interval
            return [f"{found.estimate:.2f} tokens per round", "Bonus counted. Interval over ..."]

1. `__init__` takes explicit keywords (Python refuses unknown ones), checks them with a clear
   sentence, stores what it reads from, and ends with `super().__init__(controls)`: a mapping from
   a name to a control of `specviz.widgets.controls`, in reading order. Every control has a label.
2. `self["k"]` is a control's value and `self.state` all of them: all state lives in controls.
3. `draw()` returns a fresh figure for the state; it uses `theme.titled` or `theme.panelled`, so
   that height and margins are set. Keep traces under 50; join segments with NaN.
4. `words()` returns plain sentences, escaped here: the first is set large and holds the number a
   reader came for, the others its definition, whether the bonus counts, and n (rounds, prompts).
5. Optional: `react(name)` is called after control `name` changed and before drawing, to adjust
   other controls (their changes then cause no second drawing). `extra()` gives HTML that is
   already safe (`table_html`, `token_strip_html`) to stand under the sentences. `clicked(point)`
   gets {trace, point, x, y} of a point that was clicked, `brushed(points)` the (trace, point)
   pairs inside a box or lasso. `parts()` gives the rows of the view, in place of the usual order.
   Callbacks of further buttons go through `self.guarded(callback)`.

What comes for free: `.figure`, `.to_html()`, display in JupyterLab and Notebook with a fallback
where no widget manager is, `.set(k=3)`, one redraw per event, and errors shown in the widget.
Whatever is slow (a capture's tables by content type, say) belongs in `functools.cached_property`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
from plotly.offline import get_plotlyjs

from specviz.markup import escape, page_html
from specviz.widgets.plot_view import PlotView

_ROW = {"flex_flow": "row wrap", "align_items": "center", "width": "100%"}
_WORDS = "margin:.15em 0;line-height:1.5;max-width:62em;white-space:normal"
_FIRST = "font-size:1.2em;font-weight:600"
_ALERT = (
    "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.5;margin:.3em 0;padding:.5em .8em;"
    "border:1px solid #d55e00;border-left-width:5px;border-radius:4px"
)


T = TypeVar("T")


class Widget:
    """Base of all widgets; see the module's docstring for how to write one.

    Parameters
    ----------
    controls
        The controls by name, in the order in which they are shown.
    """

    #: What the widget is called, on its page and for screen readers.
    title = "specviz"

    def __init__(self, controls: Mapping[str, Any]) -> None:
        self.controls = dict(controls)
        self._drawn: go.Figure | None = None
        self._held = False
        for name, control in self.controls.items():
            if hasattr(control, "value"):
                control.observe(lambda change, name=name: self._changed(name), "value")

    # -- what a widget says of itself -----------------------------------------------------

    def draw(self) -> go.Figure:
        """A fresh figure for the present state."""
        raise NotImplementedError(f"{type(self).__name__} has no draw().")

    def words(self) -> list[str]:
        """Plain sentences under the picture: the number first, then what it means and its n."""
        return []

    def extra(self) -> str:
        """HTML that is already safe, under the sentences."""
        return ""

    def react(self, name: str) -> None:
        """Adjust other controls after `name` changed, before anything is drawn."""

    def clicked(self, point: Mapping[str, Any]) -> None:
        """A point of the picture was clicked: its trace, point (indices), x and y."""

    def brushed(self, points: list[tuple[int, int]]) -> None:
        """A box or lasso was drawn around these (trace, point) pairs, or lifted: []."""

    def parts(self) -> list[ipywidgets.Widget]:
        """The view from top to bottom."""
        return [self.panel, self.alert, self.plot, self.text]

    # -- state ----------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self.controls[name].value

    @property
    def state(self) -> dict[str, Any]:
        """The value of every control."""
        return {n: c.value for n, c in self.controls.items() if hasattr(c, "value")}

    def kept(self, what: str, make: Callable[[], T]) -> T:
        """What `make` gives for the present state, remembered until the state changes."""
        state = self.state
        if what not in self._kept or self._kept[what][0] != state:
            self._kept[what] = state, make()
        found: T = self._kept[what][1]
        return found

    @cached_property
    def _kept(self) -> dict[str, tuple[dict[str, Any], Any]]:
        return {}

    def set(self, **values: Any) -> Widget:
        """Change some of the state, with one redraw; returns the widget.

        Raises
        ------
        ValueError
            When there is no such control; the sentence lists those there are.
        """
        known = self.state
        for name in values:
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no {name!r} to set; it has {', '.join(known)}."
                )
        with self.held():
            for name, value in values.items():
                control = self.controls[name]
                try:
                    if value is None and isinstance(control, ipywidgets.Dropdown):
                        control.index = [each for _, each in control.options].index(None)
                    else:
                        control.value = value
                except Exception as error:  # a trait error says little to a reader
                    raise ValueError(f"{name} cannot be {value!r:.60}: {error}.") from None
                self.react(name)
        self.refresh()
        return self

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, changed controls cause no redraw."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def refresh(self) -> None:
        """Draw the present state, where it is shown."""
        self._drawn = None
        if "plot" in self.__dict__:
            self.plot.show(self.figure)
        if "text" in self.__dict__:
            self.text.value = self._prose()

    def guarded(self, callback: Callable[..., Any]) -> Callable[..., None]:
        """A callback whose errors the user sees, in the widget.

        Outside a kernel there is no one to show them to, and they are raised.
        """

        def call(*args: Any) -> None:
            try:
                callback(*args)
            except Exception as error:
                if not in_kernel():
                    raise
                self.complain(error)
            else:
                self.alert.value = ""

        return call

    def complain(self, error: BaseException) -> None:
        """Show an error in the widget; the picture stays as it was."""
        said = escape(str(error) or "no message")
        kind = "" if isinstance(error, ValueError) else f"<b>{escape(type(error).__name__)}</b>: "
        self.alert.value = f'<div role="alert" style="{_ALERT}">{kind}{said}</div>'

    def _changed(self, name: str) -> None:
        if not self._held:
            self.guarded(self._follow)(name)

    def _follow(self, name: str) -> None:
        with self.held():
            self.react(name)
        self.refresh()

    # -- what is shown --------------------------------------------------------------------

    @property
    def figure(self) -> go.Figure:
        """The picture of the present state, static: it needs no kernel and no widget manager."""
        if self._drawn is None:
            self._drawn = self.draw()
        return self._drawn

    @cached_property
    def panel(self) -> ipywidgets.Widget:
        """The controls in a row that wraps."""
        return ipywidgets.HBox([*self.controls.values()], layout=ipywidgets.Layout(**_ROW))

    @cached_property
    def alert(self) -> ipywidgets.HTML:
        """Where errors are shown."""
        return ipywidgets.HTML()

    @cached_property
    def plot(self) -> PlotView:
        """The living picture; a widget has at most one, made when first shown."""
        view = PlotView(self.figure)
        click, brush = self.guarded(self.clicked), self.guarded(self.brushed)
        view.observe(lambda change: click(change["new"]), "clicked")
        view.observe(lambda change: brush([(t, p) for t, p in change["new"]]), "brushed")
        return view

    @cached_property
    def text(self) -> ipywidgets.HTML:
        """The sentences under the picture."""
        return ipywidgets.HTML(self._prose(), layout=ipywidgets.Layout(width="100%"))

    @cached_property
    def view(self) -> ipywidgets.VBox:
        """The whole, as an ipywidget to put into boxes and tabs; made when first asked for."""
        # Room at the right: the margins of what is inside would else push its border out of sight.
        layout = ipywidgets.Layout(width="100%", padding="0 10px 0 0")
        box = ipywidgets.VBox(self.parts(), layout=layout)
        box.add_class("specviz-widget")
        return box

    def _prose(self) -> str:
        first, *rest = self.words() or [""]
        lines = [f'<p style="{_WORDS};{_FIRST}">{escape(first)}</p>'] if first else []
        lines += [f'<p style="{_WORDS}">{escape(line)}</p>' for line in rest]
        return "".join(lines) + self.extra()

    def to_html(self, path: str | Path | None = None) -> str:
        """The present state as one page: self-contained, offline, every text escaped.

        Parameters
        ----------
        path
            Where to write it, too.

        Returns
        -------
        str
            The page; where it has a plot, plotly's code is in it once (about 5 MB).
        """
        body = self._body()
        head = f"<script>{get_plotlyjs()}</script>\n" if "plotly-graph-div" in body else ""
        page = page_html(self.title, body, head)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _body(self) -> str:
        return f"<h1>{escape(self.title)}</h1>{self._still()}{self._prose()}"

    def _still(self) -> str:
        """The picture on a page; few buttons, so that they leave the title free."""
        figure = self.figure
        buttons = ["toImage", "resetScale2d"]
        if figure.layout.dragmode == "select":
            buttons += ["pan2d", "select2d"]
        drawn = figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            config={"displaylogo": False, "responsive": True, "modeBarButtons": [buttons]},
            default_height=f"{figure.layout.height}px",
        )
        return f'<div class="plot">{drawn}</div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget; where no widget manager is, the picture, else its sentences."""
        return {
            **self.view._repr_mimebundle_(),
            **pio.renderers["plotly_mimetype"].to_mimebundle(self.figure.to_plotly_json()),
            "text/html": self._prose(),
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        state = ", ".join(f"{name}={value!r:.40}" for name, value in self.state.items())
        return f"{type(self).__name__}({state})"


def in_kernel() -> bool:
    """Whether a notebook's kernel runs this code."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
