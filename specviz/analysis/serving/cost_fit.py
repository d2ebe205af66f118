"""A cost model fitted to the seconds of live rounds, and how well a straight line fits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.cost import CostModel
from specviz.markup import counted, escape, number, table_html
from specviz.trace import Trace, need_trace

VERIFY, OVERHEAD = "verify", "overhead"
_PARTS = ("draft_seconds", "verify_seconds", "other_seconds")


@dataclass(frozen=True, eq=False)
class CostFit:
    """Straight lines through the seconds of rounds.

    Attributes
    ----------
    cost
        The cost model of these lines, to replay with.
    table
        Per part ("draft NAME", "verify", "overhead"): fixed (seconds of every round that has
        the part) and slope (seconds for each drafted token, or verified row), each with `_low`
        and `_high`; per ("token", "row" or ""); r2, the share of the variance that the line
        explains; n_rounds, n_prompts. NaN where nothing varies, or with one prompt.
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts.
    """

    cost: CostModel
    table: pd.DataFrame
    level: float
    draws: int
    seed: int

    def _repr_html_(self) -> str:
        shown = [
            {
                "part": row["part"],
                "fixed (ms)": self._cell(row, "fixed"),
                "each further (ms)": self._cell(row, "slope"),
                "per": row["per"],
                "R2": number(row["r2"]),
                "rounds": f"{row['n_rounds']:,}",
                "prompts": f"{row['n_prompts']:,}",
            }
            for row in self.table.to_dict("records")
        ]
        caption = f"{self.cost.note} {100 * self.level:g} % intervals resample prompts."
        return f"<p><b>CostFit</b> {escape(self.cost.name)}</p>" + table_html(
            shown, caption=caption
        )

    def _cell(self, row: dict[Any, Any], name: str) -> str:
        value, low, high = (1e3 * row[name + end] for end in ("", "_low", "_high"))
        if np.isnan(value):
            return ""
        return number(value) + ("" if np.isnan(low) else f" ({number(low)} to {number(high)})")


def fit_cost(trace: Trace, *, level: float = LEVEL, draws: int = DRAWS, seed: int = 0) -> CostFit:
    """Fit draft, verification and overhead to the measured rounds of a run (F4.2).

    Least squares: seconds of drafting = fixed + slope x tokens, per drafter, over rounds that
    draft; of verifying = fixed + slope x rows; overhead, the mean of the rest.

    Parameters
    ----------
    trace
        A live run, or several in one trace, whose rounds were timed. Rounds of different lengths
        are needed: run two k, or a policy that varies it.
    level, draws, seed
        Of the intervals, which resample prompts.

    Returns
    -------
    CostFit
        Its cost model prices each drafter, and rows, as far as the run went.

    Raises
    ------
    ValueError
        When no round was timed, or all verified as many rows.

    Notes
    -----
    Rounds with a token tree tell of verification only. A drafter that always drafted as many
    tokens is priced in proportion to them (fixed is then 0, R2 NaN). A negative fixed part or
    slope is kept in the table, and is 0 in the cost model. One slow moment of the machine
    pulls least squares far: compare R2, and `measure_cost`, which takes medians.

    Examples
    --------
    >>> import specviz as sv                                                # doctest: +SKIP
    >>> fit_cost(sv.load_trace("out/run")).table                            # doctest: +SKIP
    """
    check_resampling(level, draws, seed)
    need_trace(trace).require("rounds")
    rounds = trace.rounds.merge(trace.sequences[["seq", "prompt_id"]], on="seq", how="left")
    timed = rounds[rounds[list(_PARTS)].notna().all(axis=1)]
    if timed.empty:
        raise ValueError("No round of this trace was timed: seconds come from live runs only.")
    rows = timed["nodes"] + 1
    if rows.nunique() < 2:
        raise ValueError(
            f"Every round verified {int(rows.iloc[0])} rows, so that no slope can be told from the "
            "fixed part: run another k as well."
        )
    lines = []
    chains = timed[(timed["nodes"] == timed["drafted"]) & (timed["drafted"] > 0)]
    for name, part in chains.groupby("drafter", sort=False):
        lines.append(_line(f"draft {name}", "token", part, part["drafted"], _PARTS[0]))
    lines.append(_line(VERIFY, "row", timed, rows, _PARTS[1]))
    lines.append(_line(OVERHEAD, "", timed, None, _PARTS[2]))
    table = pd.DataFrame([line.row(level, draws, seed) for line in lines])
    curves = {line.part: line.curve() for line in lines}
    cost = CostModel(
        "fitted to rounds",
        "measured here",
        verify=tuple(curves[VERIFY].tolist()),
        draft={
            line.part.removeprefix("draft "): (0.0, *curves[line.part].tolist())
            for line in lines
            if line.per == "token"
        },
        overhead=max(lines[-1].fixed, 0.0),
        simulated=tuple(
            name for name, each in trace.meta.drafters.items() if each.get("simulated_cost")
        ),
        note=f"Straight lines through {counted(len(timed), 'timed round')} of "
        f"{counted(timed['prompt_id'].nunique(), 'prompt')} with "
        f"{trace.meta.target.get('name', 'an unknown target')}.",
    )
    return CostFit(cost, table, level, draws, seed)


@dataclass(frozen=True, eq=False)
class _Line:
    """One part's least-squares line; sums per prompt of 1, x, y, xx, xy, yy: [prompts, 6]."""

    part: str
    per: str
    longest: int
    sums: Floats

    @property
    def fixed(self) -> float:
        return float(self._solved(self.sums.sum(axis=0)[None])[0, 0])

    def curve(self) -> Floats:
        """Seconds at 1..longest; never negative."""
        fixed, slope = self._solved(self.sums.sum(axis=0)[None])[0]
        x = np.arange(1, self.longest + 1)
        return np.asarray(np.maximum(fixed + np.maximum(slope, 0.0) * x, 0.0))

    def row(self, level: float, draws: int, seed: int) -> dict[str, object]:
        total = self.sums.sum(axis=0)
        fixed, slope = self._solved(total[None])[0]
        drawn = self._solved(resampled_sums(self.sums, draws, seed))
        drawn = drawn[~np.isnan(drawn).any(axis=1)] if self.per else drawn
        low, high = percentiles(drawn, level, len(self.sums))
        n, x, y, xx, xy, yy = total
        spread = yy - y**2 / n
        left = yy - 2 * fixed * y - 2 * slope * xy + fixed**2 * n
        left += 2 * fixed * slope * x + slope**2 * xx
        known = self.per and self._varies(total) and spread > 0
        return {
            "part": self.part,
            "per": self.per,
            "fixed": fixed,
            "fixed_low": low[0],
            "fixed_high": high[0],
            "slope": slope if self.per else np.nan,
            "slope_low": low[1] if self.per else np.nan,
            "slope_high": high[1] if self.per else np.nan,
            "r2": 1 - left / spread if known else np.nan,
            "n_rounds": int(n),
            "n_prompts": len(self.sums),
        }

    def _varies(self, sums: Floats) -> bool:
        return bool(sums[0] * sums[3] - sums[1] ** 2 > 0.5)  # whole numbers: 0, or 1 and more

    def _solved(self, sums: Floats) -> Floats:
        """Fixed part and slope of every row of sums; NaN in resamples of one x only."""
        n, x, y, xx, xy, _ = sums.T
        if not self.per:
            return np.column_stack([y / n, np.zeros(len(sums))])
        if not self._varies(self.sums.sum(axis=0)):  # in proportion
            return np.column_stack([np.zeros(len(sums)), y / x])
        below = n * xx - x**2
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(below > 0.5, (n * xy - x * y) / below, np.nan)
        return np.column_stack([(y - slope * x) / n, slope])


def _line(part: str, per: str, rounds: pd.DataFrame, x: pd.Series | None, seconds: str) -> _Line:
    values = np.zeros(len(rounds)) if x is None else x.to_numpy(dtype=float)
    y = rounds[seconds].to_numpy(dtype=float)
    terms = np.column_stack([np.ones(len(y)), values, y, values**2, values * y, y**2])
    prompt, names = pd.factorize(rounds["prompt_id"])
    sums = np.zeros((len(names), terms.shape[1]))
    np.add.at(sums, prompt, terms)
    return _Line(part, per, int(values.max()), sums)
