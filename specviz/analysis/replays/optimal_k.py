"""The best k of every kind of text, under a cost model, in a table and in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.anchors import anchors_of, require_capture
from specviz.analysis.replays.by_k import length_by_k, lengths, speedup_by_k, speedups, sweeps_of
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, check_resampling, percentiles
from specviz.cost import CostModel, need_cost
from specviz.markup import counted
from specviz.trace import Trace

__all__ = ["OptimalK", "length_by_k", "optimal_k", "speedup_by_k"]


@dataclass(frozen=True, eq=False)
class OptimalK:
    """The best k of every group, and how sure it is.

    Attributes
    ----------
    table
        One row per group and drafter: the group, drafter, k (0: do not draft), speedup, low,
        high, second_k and second_speedup (the next best, k = 0 included), k_low, k_high and
        k_share (range of the best k over resamples, and the share that agree), tokens_per_round
        (bonus counted), cost, provenance, n_rounds, n_prompts.
    curve
        `speedup_by_k` of every drafter, with a column `drafter`.
    sentences
        Per group, what to do, in plain words.
    caption
        What the numbers are and whose cost they use.
    """

    table: pd.DataFrame
    curve: pd.DataFrame
    sentences: Mapping[Any, str]
    caption: str

    def __str__(self) -> str:
        return "\n".join(self.sentences.values())

    def _repr_html_(self) -> str:
        from specviz.markup import escape, table_html

        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences.values())
        return f"<ul>{items}</ul>" + table_html(self.table, caption=self.caption)


def optimal_k(
    trace: Trace,
    cost: CostModel,
    by: str = "content_type",
    drafter: str | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> OptimalK:
    """The best k of every group under a cost model; "do not draft" is a valid answer.

    The rule: among the k whose speed-up interval lies wholly above 1, the one with the
    largest speed-up; k = 0 when there is none. With a single prompt there is no interval, and
    the estimate alone decides, which the sentence says. The intervals are those of each k on
    its own; the best of several looks a little better than it is, and `k_low` to `k_high`
    shows how far the choice itself depends on the prompts.

    All intervals cover the choice of prompts only, not the noise of the timings: the seconds
    of the cost model are taken as exact, so measure again before trusting a small gain.

    Parameters
    ----------
    trace
        A greedy capture.
    cost
        Seconds of drafting and verifying.
    by
        "content_type" or "prompt_id".
    drafter
        None compares all drafters of the trace; the sentences then name the fastest.
    level, draws, seed
        Of the expanded percentile interval over resampled prompts.

    Returns
    -------
    OptimalK

    Raises
    ------
    ValueError
        As `speedup_by_k`.
    """
    check_resampling(level, draws, seed)
    need_cost(cost)
    require_capture(trace)
    names = [drafter] if drafter is not None else trace.drafters
    rows: list[dict[str, Any]] = []
    curves = []
    longest = 0
    for name in names:
        anchors = anchors_of(trace, name)
        longest = max(longest, anchors.k)
        for sweep in sweeps_of(anchors, cost, by, lengths(None, anchors, 0)):
            resampled = sweep.draws(sweep.seconds, draws, seed)
            curve = speedups(sweep, by, cost, resampled, level)
            curves.append(curve.assign(drafter=anchors.drafter))
            best = best_of_curve(curve, resampled, level)
            rows.append({by: sweep.group, "drafter": anchors.drafter, **best})
    table = pd.DataFrame(rows)
    table["cost"], table["provenance"] = cost.name, cost.provenance
    order = [c for c in table.columns if c not in ("n_rounds", "n_prompts")]
    table = table[[*order, "n_rounds", "n_prompts"]]
    grouped: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(row[by], []).append(row)
    sentences = {
        group: _sentence(group, part, cost, level, longest) for group, part in grouped.items()
    }
    simulated = [name for name in table["drafter"].unique() if name in cost.simulated]
    caption = (
        f"Modelled speed-up over plain decoding with the cost model {_whose(cost)}. "
        f"{cost.note} Tokens per round count the bonus token; "
        f"{100 * level:g} % intervals resample prompts; they do not cover the noise of the timings."
        + (f" The cost of {', '.join(simulated)} is simulated." if simulated else "")
    )
    return OptimalK(table, pd.concat(curves, ignore_index=True), sentences, caption)


def best_of_curve(curve: pd.DataFrame, resampled: Floats, level: float) -> dict[str, Any]:
    """The row of `OptimalK.table` from a curve over k = 0..K and its resamples [draws, K + 1].

    The resamples may be in any unit: only which k is largest in each of them counts.
    """
    speedup, low = curve["speedup"].to_numpy(), curve["low"].to_numpy()
    sure = low > 1 if not np.isnan(low[0]) else speedup > 1
    sure[0] = False
    k = int(np.argmax(np.where(sure, speedup, -np.inf))) if sure.any() else 0
    second = int(np.argmax(np.where(np.arange(len(speedup)) == k, -np.inf, speedup)))
    winners = np.argmax(resampled, axis=1)
    prompts = int(curve["n_prompts"].iloc[0])
    k_low = k_high = winners[0]  # every resample of one prompt is that prompt
    if prompts > 1:
        k_low, k_high = percentiles(winners.astype(float), level, prompts)
    return {
        "k": k,
        "speedup": float(speedup[k]),
        "low": float(low[k]),
        "high": float(curve["high"].to_numpy()[k]),
        "second_k": second,
        "second_speedup": float(speedup[second]),
        "k_low": int(np.floor(k_low)),
        "k_high": int(np.ceil(k_high)),
        "k_share": float((winners == k).mean()),
        "tokens_per_round": float(curve["tokens_per_round"].to_numpy()[k]),
        "n_rounds": int(curve["n_rounds"].to_numpy()[k]),
        "n_prompts": int(curve["n_prompts"].to_numpy()[k]),
    }


def _sentence(
    group: Any, part: list[dict[str, Any]], cost: CostModel, level: float, longest: int
) -> str:
    """What to do with one group, in plain words."""
    prompts = part[0]["n_prompts"]
    count = counted(prompts, "prompt")
    whose = f"Cost: {_whose(cost)}."
    drafting = [row for row in part if row["k"] > 0]
    if not drafting:
        near = max(part, key=lambda row: float(row["second_speedup"]))
        reason = (
            f"no length up to {longest} is surely faster than plain decoding at the "
            f"{100 * level:g} % level"
            if prompts > 1
            else f"no length up to {longest} was faster than plain decoding"
        )
        return (
            f"On {group}, do not draft: {reason} (closest: k = {near['second_k']} with "
            f"{near['drafter']}, {near['second_speedup']:.2f}x; {count})."
            f"{_simulated(near['drafter'], cost)} {whose}"
        )
    best = max(drafting, key=lambda row: float(row["speedup"]))
    sure = (
        f"{100 * level:g} % interval {best['low']:.2f} to {best['high']:.2f}, {count}"
        if prompts > 1
        else "one prompt, so no interval: capture more prompts before relying on it"
    )
    spread = (
        f" Over resampled prompts the best k ranges from {best['k_low']} to {best['k_high']}."
        if prompts > 1 and best["k_low"] < best["k_high"]
        else ""
    )
    return (
        f"On {group}, draft {best['k']} token{'s' if best['k'] > 1 else ''} with "
        f"{best['drafter']}: {best['speedup']:.2f}x plain decoding ({sure}).{spread}"
        f"{_simulated(best['drafter'], cost)} {whose}"
    )


def _simulated(drafter: str, cost: CostModel) -> str:
    return f" The drafting cost of {drafter} is simulated." if drafter in cost.simulated else ""


def _whose(cost: CostModel) -> str:
    same = cost.name == cost.provenance
    return cost.name if same else f"{cost.name} ({cost.provenance})"
