"""The first drafted token at every anchor of a capture, beside the distribution it has to meet.

And statistics of means over such anchors, with intervals that resample prompts (F7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.anchors import need_every_anchor
from specviz.analysis.resampling import Floats, percentiles, resampled_sums
from specviz.trace import Trace

#: Relative error of a number kept in half precision, and the absolute one of tiny ones.
_HALF, _LEAST = 2.0**-11, 2.0**-24

#: A statistic of the means of columns: of floats, or of arrays of them.
Statistic = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, eq=False)
class Group:
    """Column sums of the prompts of one content type (or of all), and resamples of them.

    Attributes
    ----------
    name
        The content type, or "all".
    sums
        One row per prompt; the column `count` holds its anchors.
    """

    name: str
    sums: pd.DataFrame
    _drawn: Floats
    _level: float

    @property
    def n(self) -> int:
        return int(self.sums["count"].sum())

    def interval(self, statistic: Statistic) -> tuple[float, float, float]:
        """Estimate and percentile interval (NaN with one prompt) of a statistic of means."""
        value = float(statistic(self._means))
        if len(self.sums) < 2:
            return value, np.nan, np.nan
        drawn = np.asarray(statistic(self._drawn_means))
        low, high = percentiles(drawn, self._level, len(self.sums))
        return value, float(low), float(high)

    @cached_property
    def _means(self) -> dict[str, Any]:
        return self._of(self.sums.sum().to_numpy())

    @cached_property
    def _drawn_means(self) -> dict[str, Any]:
        return self._of(self._drawn)

    def _of(self, sums: Floats) -> dict[str, Any]:
        count = sums[..., self.sums.columns.get_loc("count")]
        return {name: sums[..., i] / count for i, name in enumerate(self.sums.columns)}


def groups(
    sums: pd.DataFrame,
    content_type: pd.Series[str],
    level: float,
    draws: int,
    seed: int,
    only: str | None = None,
) -> Iterator[Group]:
    """Every content type, and "all" last where there are several; or only one of these.

    Parameters
    ----------
    sums
        One row per prompt with at least one anchor, with a column `count`.
    content_type
        Of the same prompts.
    level, draws, seed
        Of the intervals.
    """
    kinds = [*dict.fromkeys(content_type)]
    for kind in [only] if only is not None else [*kinds, "all"] if len(kinds) > 1 else kinds:
        mine = sums if kind == "all" else sums[content_type == kind]
        yield Group(kind, mine, resampled_sums(mine.to_numpy(), draws, seed), level)


def first_tokens(trace: Trace, drafter: str) -> pd.DataFrame:
    """One row per anchor: the first drafted token, and p at the position it is meant for.

    Parameters
    ----------
    trace
        A capture, greedy or sampled.
    drafter
        One of its drafters.

    Returns
    -------
    DataFrame
        - content_type, prompt_id, anchor;
        - drafted (whether there is a draft), matched (leading tokens of it that are realised);
        - rank of the realised token among the drafter's candidates (-1: not among them);
        - overlap and kl (nats) of p and q as they are shaped for decoding. Both were kept in half
          precision, so overlap is lowered and kl raised by what rounding may have done: a bound
          stays one. Without a draft they are 0 and infinity;
        - entropy, log2_moment, p_max, second (the second largest), of the raw p.

    Raises
    ------
    ValueError
        When the trace does not have a draft at every anchor, or no positions.
    """
    need_every_anchor(
        trace,
        ", and those are no fair sample of positions: make a capture of the same prompts first.",
    )
    trace.require("drafts", "positions")
    table = trace.draft_table(drafter)
    frame: pd.DataFrame = table.select(["seq", "anchor", "drafted", "matched"]).to_pandas()
    overlap, kl, rank = (
        trace.matrix(name, drafter)[:, 0].astype(float) for name in ("overlap", "kl", "path_rank")
    )
    frame["drafted"] = frame["drafted"] > 0
    frame["rank"] = rank.astype(int)
    frame["overlap"] = np.nan_to_num(np.maximum(overlap * (1 - _HALF) - _LEAST, 0.0))
    with np.errstate(invalid="ignore"):
        raised = np.maximum(kl, 0.0) * (1 + _HALF) + _LEAST
    frame["kl"] = np.where(np.isnan(kl), np.inf, raised)
    columns = ["seq", "t", "entropy", "log2_moment", "p_max", "margin"]
    positions = trace.table("positions").select(columns).to_pandas().astype({"seq": "int64"})
    positions["anchor"] = positions.pop("t") - 1
    keys = trace.table("sequences").select(["seq", "prompt_id", "content_type"]).to_pandas()
    frame = frame.merge(positions, on=["seq", "anchor"], how="inner", validate="one_to_one")
    if len(frame) != table.num_rows or not len(frame):
        raise ValueError("Some drafts have no position after their anchor: see trace.validate().")
    frame = frame.merge(keys, on="seq", how="left", validate="many_to_one")
    for name in ("entropy", "log2_moment", "p_max", "margin"):
        frame[name] = frame[name].astype(float)
    frame["entropy"] = frame["entropy"].clip(lower=0.0)  # fp32 leaves -1e-8
    frame["p_max"] = frame["p_max"].clip(upper=1.0)
    frame["second"] = frame["p_max"] * np.exp(-frame.pop("margin"))
    return frame


def by_prompt(
    frame: pd.DataFrame, columns: Mapping[str, Any]
) -> tuple[pd.DataFrame, pd.Series[str]]:
    """Sums of `columns` (one entry per row of `frame`) for each prompt, and its content type."""
    prompts = frame["prompt_id"]
    table = pd.DataFrame({"count": 1.0, **columns}, index=frame.index)
    sums = table.groupby(prompts, sort=False).sum()
    return sums, frame.groupby(prompts, sort=False)["content_type"].first()
