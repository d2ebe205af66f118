"""LiveRun: a prompt, a model behind it, and the text as its rounds arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

import ipywidgets
import plotly.graph_objects as go

from specviz.figures.nothing import plot_nothing
from specviz.figures.strip_heat import plot_strip_heat
from specviz.markup import counted, escape, number
from specviz.trace import Trace
from specviz.widgets.base import Widget, in_kernel
from specviz.widgets.controls import button, choice, text_box
from specviz.widgets.strip_data import Strips
from specviz.widgets.strip_view import StripView, strip_page_html

_ROLES = ("prefill", "accepted", "bonus", "own", "own")
_PAUSE = 0.01  # seconds in which the kernel may hear the stop button


class Stepping(Protocol):
    """What a run has that is watched: `specviz.generate` gives one."""

    max_new_tokens: int

    @property
    def finished(self) -> bool: ...
    @property
    def trace(self) -> Trace: ...
    def __iter__(self) -> Iterator[Any]: ...


Start = Callable[[str], Stepping]


class LiveRun(Widget):
    """Type a prompt and watch the rounds: what was accepted, what the target said itself.

    Parameters
    ----------
    start
        Called with the prompt, gives the run: `lambda prompt: sv.generate(target, drafter,
        prompt)`. Several, by the name of target and drafter, give a choice.
    prompt
        What stands in the box at first.

    Raises
    ------
    ValueError
        When `start` cannot be called, or names nothing.

    Examples
    --------
    >>> import specviz as sv                                                   # doctest: +SKIP
    >>> target = sv.load_target()                                              # doctest: +SKIP
    >>> drafter = sv.load_drafter("lm", target)                                # doctest: +SKIP
    >>> LiveRun(lambda prompt: sv.generate(target, drafter, prompt))           # doctest: +SKIP
    """

    title = "A run, live"

    def __init__(self, start: Start | Mapping[str, Start], *, prompt: str = "") -> None:
        starts = dict(start) if isinstance(start, Mapping) else {"": start}
        if not starts or not all(callable(each) for each in starts.values()):
            raise ValueError(
                "start must be a function from a prompt to a run, such as lambda prompt: "
                "sv.generate(target, drafter, prompt), or a mapping of such functions by name."
            )
        controls = {"prompt": text_box("prompt", prompt, "What shall the model write?")}
        if len(starts) > 1:
            controls["models"] = choice("target and drafter", starts)
        self._start = next(iter(starts.values()))
        super().__init__(controls)
        self.run: Stepping | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    # -- running --------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The run so far: rounds and positions at visited anchors (`exhaustive` is False).

        Raises
        ------
        ValueError
            When nothing has run yet.
        """
        if self.run is None:
            raise ValueError("Nothing has run yet: press start, or call start().")
        return self.run.trace

    def start(self) -> LiveRun:
        """Start, as the button does. In a notebook it returns at once and rounds follow."""
        prompt = str(self["prompt"])
        if not prompt.strip():
            raise ValueError("Type a prompt first.")
        if self._task is not None and not self._task.done():
            raise ValueError("A run is under way: stop it first.")
        begin = self["models"] if "models" in self.controls else self._start
        self._stopping = False
        self.run = begin(prompt)
        self.alert.value = ""
        self.refresh()
        if in_kernel():
            self._task = asyncio.get_running_loop().create_task(self._follow_run())
        else:
            for _ in self._steps():
                pass
        return self

    def stop(self) -> None:
        """End the run after the round that is under way."""
        self._stopping = True

    def _steps(self) -> Iterator[None]:
        """Round after round, shown as it comes."""
        assert self.run is not None
        for _ in self.run:
            self.refresh()
            yield
            if self._stopping:
                break
        self.refresh()

    async def _follow_run(self) -> None:
        self.start_button.disabled, self.stop_button.disabled = True, False
        try:
            for _ in self._steps():
                await asyncio.sleep(_PAUSE)
        except Exception as error:  # no one else would see it
            self.complain(error)
        finally:
            self.start_button.disabled, self.stop_button.disabled = False, True

    def _changed(self, name: str) -> None:
        """Typing draws nothing."""

    # -- what is shown --------------------------------------------------------------------

    @cached_property
    def start_button(self) -> ipywidgets.Button:
        made = button("start", "generate from this prompt", "play")
        made.on_click(lambda _: self.guarded(self.start)())
        return made

    @cached_property
    def stop_button(self) -> ipywidgets.Button:
        made = button("stop", "end after this round", "stop")
        made.disabled = True
        made.on_click(lambda _: self.guarded(self.stop)())
        return made

    @cached_property
    def progress(self) -> ipywidgets.IntProgress:
        """Tokens so far, of at most `max_new_tokens`."""
        return ipywidgets.IntProgress(
            description="no tokens yet",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="360px"),
        )

    @cached_property
    def panel(self) -> ipywidgets.Widget:
        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center", width="100%")
        models = [self.controls["models"]] if "models" in self.controls else []
        buttons = [*models, self.start_button, self.stop_button, self.progress]
        return ipywidgets.VBox(
            [self.controls["prompt"], ipywidgets.HBox(buttons, layout=row)],
            layout=ipywidgets.Layout(width="100%"),
        )

    @cached_property
    def strip(self) -> StripView:
        """The text as it grows."""
        return StripView(**self._shown(), at=1)

    def parts(self) -> list[ipywidgets.Widget]:
        return [self.panel, self.alert, self.strip, self.text]

    def _shown(self) -> dict[str, Any]:
        """The strip's tokens and paint."""
        if self.run is None:
            empty: dict[str, Any] = {"text": [], "entropy": [], "p": [], "rank": [], "best": []}
            paint = {"steps": [], "roles": [], "starts": [], "key": [], "by_role": True}
            more: dict[str, Any] = {"round_of": [], "rounds": [], "q": [], "names": []}
            return {"tokens": {**empty, "name": "No text yet"}, "paint": {**paint, **more}}
        trace = self.run.trace
        strips = Strips(trace)
        rounds = trace.rounds if len(trace.rounds) else None
        return {"tokens": strips.tokens(0), "paint": strips.paint(0, "role", rounds, None)}

    def refresh(self) -> None:
        super().refresh()
        if "strip" in self.__dict__:
            shown = self._shown()
            with self.strip.hold_sync():
                self.strip.tokens, self.strip.paint = shown["tokens"], shown["paint"]
        if self.run is not None:
            done, most = len(self.run.trace.positions), self.run.max_new_tokens
            self.progress.max, self.progress.value = most, done
            self.progress.description = f"{done} of {most} tokens"

    def draw(self) -> go.Figure:
        if self.run is None:
            return plot_nothing("Nothing has run yet.")
        rows, roles = self.run.trace.positions, self._shown()["paint"]["roles"]
        return plot_strip_heat(
            rows["text"].tolist(),
            rows["entropy"].tolist(),
            roles=[_ROLES[role] for role in roles],
            colour="role",
        )

    def words(self) -> list[str]:
        if self.run is None:
            return ["", "Type a prompt and press start: tokens appear as rounds accept them."]
        trace = self.run.trace
        rounds, tokens = trace.rounds, len(trace.positions)
        if rounds.empty:
            return [f"{counted(tokens, 'token')}, from prefill"]
        kept, n = float(rounds["accepted"].sum()), len(rounds)
        said = [
            f"{number((kept + n) / n)} tokens per round, {counted(tokens, 'token')}",
            "Emitted tokens over rounds, the target's own token (bonus) counted, prefill's not: "
            f"{counted(n, 'round')}, 1 prompt, {rounds['policy'].iloc[-1]} with "
            f"{rounds['drafter'].iloc[-1]}" + (", a lossy rule." if trace.meta.lossy else "."),
        ]
        if self.run.finished or self._stopping:
            said.append(
                "This run drafted only where it went, so other k cannot be replayed from its "
                "trace: sv.capture(prompts, target, drafters) drafts at every anchor, and then "
                "KExplorer and PolicyRace show them all."
            )
        return said

    def _body(self) -> str:
        shown = self._shown()
        strip = strip_page_html(shown["tokens"], shown["paint"], 1)
        return f"<h1>{escape(self.title)}</h1>{strip}{self._prose()}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget; where no widget manager is, what has run so far."""
        return {
            **self.view._repr_mimebundle_(),
            "text/html": self._prose() or "<p>Nothing has run yet.</p>",
            "text/plain": repr(self),
        }
