"""Entropy and branching factors of every kind of text, with intervals over prompts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specviz.analysis.resampling import DRAWS, LEVEL, check_resampling, percentiles, resampled_sums
from specviz.trace import Trace


def entropy_by(
    trace: Trace,
    by: str = "content_type",
    repeated: bool | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """The target's entropy and effective branching factors per kind of text (F1.1, F1.6).

    Parameters
    ----------
    trace
        Anything with `positions`: the raw distribution (temperature 1) at every output token.
    by
        A column of `sequences`, such as "content_type".
    repeated
        None takes all positions; False leaves out those that repeat earlier text; True takes
        only those.
    level, draws, seed
        Of the percentile intervals, which resample prompts.

    Returns
    -------
    DataFrame
        The group; entropy (mean H, nats); ebf_geometric (exp of the mean H) and
        ebf_arithmetic (mean of exp H): very different numbers, since a few wide-open
        positions dominate the second; ebf2_geometric (order 2); p_max (mean);
        ebf_inf_geometric (order infinity, exp of the mean of -ln p_max); each also with
        `_low` and `_high` (NaN with one prompt); n_positions, n_prompts.

    Raises
    ------
    ValueError
        When the trace has no positions, `by` is no column, no position is left, or no interval
        can be made of `level`, `draws` and `seed`.
    """
    check_resampling(level, draws, seed)
    trace.require("positions")
    names = trace.table("sequences").column_names
    if by not in names or by == "seq":
        raise ValueError(f"by must be a column of `sequences`, not {by!r}; it has {names[1:]}.")
    columns = ["seq", "entropy", "ebf2", "p_max", "repeated"]
    positions = trace.table("positions").select(columns).to_pandas()
    keys = trace.table("sequences").select(list(dict.fromkeys(["seq", by, "prompt_id"])))
    frame = positions.merge(keys.to_pandas(), on="seq", how="left")
    if repeated is not None:
        frame = frame[frame["repeated"] == repeated]
    if frame.empty:
        raise ValueError(f"No position is left with repeated={repeated}.")
    h = frame["entropy"].astype(float)
    p_max = frame["p_max"].astype(float)
    frame = frame.assign(
        count=1.0,
        entropy=h,
        ebf=np.exp(h),
        log_ebf2=np.log(frame["ebf2"].astype(float)),
        p_max=p_max,
        log_ebf_inf=-np.log(p_max),
    )
    summed = ["count", "entropy", "ebf", "log_ebf2", "p_max", "log_ebf_inf"]
    rows = []
    for value, group in frame.groupby(by, sort=False):
        sums = group.groupby("prompt_id", sort=False)[summed].sum().to_numpy()
        means = sums[:, 1:].sum(axis=0) / sums[:, 0].sum()
        low = high = np.full(len(means), np.nan)
        if len(sums) > 1:
            resampled = resampled_sums(sums, draws, seed)
            low, high = percentiles(resampled[:, 1:] / resampled[:, :1], level)
        row = {by: value}
        for end, (entropy, ebf, log_ebf2, mean_p_max, log_ebf_inf) in (
            ("", means),
            ("_low", low),
            ("_high", high),
        ):
            row["entropy" + end] = entropy
            row["ebf_geometric" + end] = np.exp(entropy)
            row["ebf_arithmetic" + end] = ebf
            row["ebf2_geometric" + end] = np.exp(log_ebf2)
            row["p_max" + end] = mean_p_max
            row["ebf_inf_geometric" + end] = np.exp(log_ebf_inf)
        rows.append({**row, "n_positions": len(group), "n_prompts": len(sums)})
    return pd.DataFrame(rows)
