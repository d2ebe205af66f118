"""How far text is from positions that are independent and alike, as F2.2, T5.5 and T5.7 take it.

Easy and hard stretches follow one another, so that long matches are commoner than the share of
single matches says. A bound that rests on independence is then no bound, and this shows by how
much on a trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.ceilings.first_tokens import Group, Statistic, by_prompt, first_tokens, groups
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, check_resampling
from specviz.analysis.theory.bounds import chain_tau
from specviz.refuse import whole
from specviz.trace import Trace, need_trace


def iid_check(
    trace: Trace,
    drafter: str | None = None,
    *,
    k: int | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """What a trace shows beside what independent, equal positions would (F2.2, F2.3, T5.7).

    Parameters
    ----------
    trace
        A capture.
    drafter
        None takes the only one.
    k
        Tokens of the chain; None is the drafter's K.
    level, draws, seed
        Of the percentile intervals of the gap, which resample prompts.

    Returns
    -------
    DataFrame
        One row per content type ("all" last) and quantity:

        - "entropy, lag 1": correlation of the target's entropies at neighbouring positions of
          one output; the model has 0;
        - "matched tokens": 1 + the mean of min(M(a), k) over all anchors (not those of a policy),
          against the sum of S_1^j, S_1 being the share of anchors with M(a) >= 1;
        - "argmax chain", of a greedy capture: 1 + the mean over anchors of p_max(1) + p_max(1)
          p_max(2) + ..., along the greedy text. This is what the target's own argmax chain would
          win if the target *sampled* from there at temperature 1, so that no number under a
          greedy target is to be set beside it; against the sum of (mean p_max)^j, which T5.7
          calls the most that any chain can win. Where the first is larger, that ceiling is
          broken by a chain which exists.

        Columns: content_type, setting, quantity, measured, model, gap (measured less model), low,
        high (of the gap), fails (the interval leaves 0 out), n, unit, n_prompts.

    Raises
    ------
    ValueError
        As `measured_bounds`.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> table = iid_check(bundled_trace("smollm2-trees"), "ngram", draws=1000)
    >>> table.query("quantity == 'matched tokens' and content_type == 'all'")["fails"].item()
    True
    """
    check_resampling(level, draws, seed)
    name = need_trace(trace).drafter_name(drafter)
    longest = int(trace.meta.drafters[name]["k"])
    k = longest if k is None else whole("k", k, least=1)
    if k > longest:
        raise ValueError(f"{name!r} drafted {longest} tokens here: k = {k} cannot be measured.")
    frame = first_tokens(trace, name).sort_values(["seq", "anchor"], kind="stable")
    setting = "greedy" if trace.meta.greedy else "sampled"
    rows = []
    for quantity, where, columns, measured, model in _quantities(frame, k, trace.meta.greedy):
        chosen = frame[where]
        if chosen.empty:
            continue
        sums, kinds = by_prompt(chosen, {name: column[where] for name, column in columns.items()})
        whose = setting if quantity != _CHAIN else "sampled target on greedy text"
        for group in groups(sums, kinds, level, draws, seed):
            rows.append(
                {"content_type": group.name, "setting": whose, "quantity": quantity}
                | _line(group, measured, model)
            )
    return pd.DataFrame(rows)


_CHAIN = "argmax chain"
_Columns = dict[str, Floats]
_Quantity = tuple[str, Floats, _Columns, Statistic, Statistic]


def _quantities(frame: pd.DataFrame, k: int, greedy: bool) -> list[_Quantity]:
    """Name, anchors that count, columns, what is measured and what the model says of each."""
    h, p_max = frame["entropy"].to_numpy(), frame["p_max"].to_numpy()
    next_h, has_next = _ahead(frame, h, 1)
    matched = np.minimum(frame["matched"].to_numpy(), k).astype(float)
    pairs = {"x": h, "y": next_h, "xx": h * h, "yy": next_h**2, "xy": h * next_h}
    first = (matched >= 1).astype(float)
    found: list[_Quantity] = [
        ("entropy, lag 1", has_next, pairs, _correlation, lambda m: 0 * m["x"]),
        (
            "matched tokens",
            np.ones(len(frame), dtype=bool),
            {"matched": matched, "first": first},
            lambda m: 1 + m["matched"],
            lambda m: chain_tau(m["first"], k),
        ),
    ]
    if greedy:
        reached = won = np.ones(len(frame))
        whole_chain = np.ones(len(frame), dtype=bool)
        for depth in range(k):
            chance, there = _ahead(frame, p_max, depth)
            reached = reached * chance
            won, whole_chain = won + reached, whole_chain & there
        found.append(
            (
                _CHAIN,
                whole_chain,
                {"won": won, "p_max": p_max},
                lambda m: m["won"],
                lambda m: chain_tau(m["p_max"], k),
            )
        )
    return found


def _ahead(frame: pd.DataFrame, values: Floats, steps: int) -> tuple[Floats, Any]:
    """Values `steps` anchors later in the same sequence (0 where there is none), and a mask."""
    seq = frame["seq"].to_numpy()
    there = np.zeros(len(seq), dtype=bool)
    there[: len(seq) - steps] = seq[steps:] == seq[: len(seq) - steps]
    moved = np.zeros(len(seq))
    moved[: len(seq) - steps] = values[steps:]
    return np.where(there, moved, 0.0), there


def _correlation(m: Any) -> Any:
    spread = (m["xx"] - m["x"] ** 2) * (m["yy"] - m["y"] ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (m["xy"] - m["x"] * m["y"]) / np.sqrt(np.maximum(spread, 0.0))
    return np.where(spread > 0, found, 0.0)


def _line(group: Group, measured: Statistic, model: Statistic) -> dict[str, Any]:
    gap, low, high = group.interval(lambda m: measured(m) - model(m))
    return {
        "measured": group.interval(measured)[0],
        "model": group.interval(model)[0],
        "gap": gap,
        "low": low,
        "high": high,
        "fails": bool(low > 0 or high < 0),
        "n": group.n,
        "unit": "anchors",
        "n_prompts": len(group.sums),
    }
