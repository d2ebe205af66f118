"""DrafterRace: families by kind of text, and how far their drafts survive."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.levers.drafters import length_of, survival_of
from specviz.analysis.resampling import Interval, ratio_interval
from specviz.analysis.survival.lengths import survival_by
from specviz.figures.drafter_race import plot_drafter_race
from specviz.markup import counted, number
from specviz.refuse import whole
from specviz.trace import Trace, need_trace
from specviz.widgets.controls import choice, slider
from specviz.widgets.explorer import DRAWS, EVERY, Explorer, ends, kinds_of, one_of
from specviz.widgets.replayed import Replayed


class DrafterRace(Explorer):
    """Every drafter of a trace on every kind of text: tokens per round and survival.

    Of a greedy capture k is chosen and replayed exactly; of any other trace the rounds are those
    that ran.

    Parameters
    ----------
    trace
        Any trace with drafts at every anchor, or with rounds.
    kind
        Content type; None takes all prompts together.
    k
        Tokens drafted per round; by default 7, or what every drafter can draft.
    draws
        Resamples of prompts behind every interval.

    Raises
    ------
    ValueError
        When there is no such content type or k is out of range.

    Examples
    --------
    >>> import specviz as sv
    >>> race = DrafterRace(sv.bundled_trace("smollm2-trees"), kind="code", draws=100)
    >>> race.lengths.query("content_type == 'code'")["drafter"].tolist()
    ['eagle', 'lm', 'ngram']
    """

    title = "Where drafts come from"

    def __init__(
        self, trace: Trace, *, kind: str | None = None, k: int | None = None, draws: int = DRAWS
    ) -> None:
        self.trace, self.draws = need_trace(trace), whole("draws", draws, least=1)
        self.replayed = Replayed(trace)
        self._tables = lru_cache(maxsize=None)(self._raced)
        self._survived = lru_cache(maxsize=None)(self._survive)
        missing = ""
        if not self.replayed.can and not trace.table("rounds").num_rows:
            missing = (
                f"This {trace.meta.kind} trace has neither a greedy draft at every anchor nor "
                "rounds that ran, so no drafter can be followed: capture with temperature 0."
            )
        super().__init__(lambda: self._controls(kind, k), missing)

    def _controls(self, kind: str | None, k: int | None) -> dict[str, Any]:
        kinds = kinds_of(self.trace)
        one_of("kind", kind or EVERY, [EVERY, *kinds.values()])
        made: dict[str, Any] = {"kind": choice("text", kinds, kind)}
        if self.replayed.can:
            most = min(self.replayed.most(name) for name in self.trace.drafters)
            start = min(7, most) if k is None else whole("k", k, least=1)
            if start > most:
                raise ValueError(f"Every drafter drafts {most} tokens here, not {start}.")
            made["k"] = slider("k, drafted tokens", start, 1, most)
            made["k"].continuous_update = False  # every drafter is replayed anew
        elif k is not None:
            raise ValueError("These rounds ran already, and k cannot be chosen: leave it out.")
        return made

    # -- state ----------------------------------------------------------------------------

    @property
    def k(self) -> int | None:
        return int(self["k"]) if "k" in self.controls else None

    @property
    def lengths(self) -> pd.DataFrame:
        """By drafter and kind: tokens_per_round (bonus counted), low, high, n_rounds, n_prompts."""
        return self._tables(self.k)

    @property
    def survival(self) -> pd.DataFrame:
        """`survival_by` of every drafter on the chosen text."""
        return self._survived(self.k, self.kind)

    def _survive(self, k: int | None, kind: str | None) -> pd.DataFrame:
        parts = []
        for name in self._drafters(k):
            if k is not None:
                known = survival_of(self.replayed.at(name, k), kind, self.draws)
                parts += [] if known is None else [known.assign(drafter=name)]
                continue
            rounds = self._rounds(name)
            mine = rounds if kind is None else rounds[rounds["content_type"] == kind]
            if len(mine):
                found = survival_by(mine, None, draws=self.draws)
                parts.append(found.assign(drafter=name))
        return pd.concat(parts, ignore_index=True)

    def _drafters(self, k: int | None) -> list[str]:
        if k is not None:
            return self.trace.drafters
        return list(dict.fromkeys(self.trace.rounds["drafter"].astype(str)))

    def _rounds(self, drafter: str) -> pd.DataFrame:
        rounds = self.trace.rounds
        keys = self.trace.sequences[["seq", "prompt_id", "content_type"]]
        return rounds[rounds["drafter"].astype(str) == drafter].merge(keys, on="seq", how="left")

    def _raced(self, k: int | None) -> pd.DataFrame:
        rows = []
        for name in self._drafters(k):
            for kind in kinds_of(self.trace).values():
                known = self._length(name, k, kind or None)
                if known is None:
                    continue
                found, n_rounds = known
                rows.append(
                    {
                        "drafter": name,
                        "content_type": kind or "all",
                        "tokens_per_round": found.estimate,
                        "low": found.low,
                        "high": found.high,
                        "n_rounds": n_rounds,
                        "n_prompts": found.n_prompts,
                    }
                )
        return pd.DataFrame(rows)

    def _length(self, name: str, k: int | None, kind: str | None) -> tuple[Interval, int] | None:
        if k is not None:
            return length_of(self.replayed.at(name, k), kind, self.draws)
        rounds = self._rounds(name)
        mine = rounds if kind is None else rounds[rounds["content_type"] == kind]
        if mine.empty:
            return None
        sums = mine.groupby("prompt_id", sort=False)["emitted"].agg(["sum", "count"])
        return ratio_interval(sums["sum"], sums["count"], draws=self.draws), len(mine)

    # -- what is shown --------------------------------------------------------------------

    def picture(self) -> go.Figure:
        kind = self.kind or "all"
        return plot_drafter_race(self.lengths, self.survival, kind=kind, k=self.k)

    def sentences(self) -> list[str]:
        kind = self.kind or "all"
        mine = self.lengths[self.lengths["content_type"] == kind]
        best = mine.iloc[int(mine["tokens_per_round"].to_numpy().argmax())]
        length = number(float(best["tokens_per_round"])) + ends(best["low"], best["high"])
        how = "as they ran" if self.k is None else f"k = {self.k}, replayed exactly"
        text = "all text" if kind == "all" else f"{kind} text"
        return [
            f"{best['drafter']} gets furthest on {text}: {length} tokens per round",
            f"Emitted tokens over rounds, bonus counted; {how}; "
            f"{counted(best['n_rounds'], 'round')} of {counted(best['n_prompts'], 'prompt')}; 95 % "
            "intervals resample prompts. Survival leaves the bonus out, and takes rounds cut short "
            "by the end of draft or text as censored.",
            "How far a draft gets is not yet speed: no cost is in this picture.",
        ]
