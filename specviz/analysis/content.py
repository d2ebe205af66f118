"""Entropy and branching factors of every kind of text, with intervals over prompts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from specviz.analysis.resampling import DRAWS, LEVEL, check_resampling, percentiles, resampled_sums
from specviz.trace import Trace
from specviz.trace.summary import sums_by_sequence


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
        Of the expanded percentile intervals, which resample prompts.

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
    sequences = trace.table("sequences")
    names = sequences.column_names
    if by not in names or by == "seq":
        raise ValueError(f"by must be a column of `sequences`, not {by!r}; it has {names[1:]}.")
    columns = ["seq", "entropy", "ebf2", "p_max"]
    positions = trace.table("positions", [*columns, "repeated"])
    if repeated is not None:
        positions = positions.filter(pc.equal(positions["repeated"], bool(repeated)))
    if not positions.num_rows:
        raise ValueError(f"No position is left with repeated={repeated}.")
    seq, *values = (positions[name].to_numpy() for name in columns)
    h, ebf2, p_max = (each.astype(float) for each in values)
    added = sums_by_sequence(seq, h, np.exp(h), np.log(ebf2), p_max, -np.log(p_max))
    summed = ["count", "entropy", "ebf", "log_ebf2", "p_max", "log_ebf_inf"]
    keys = sequences.select(list(dict.fromkeys(["seq", by, "prompt_id"]))).to_pandas()
    frame = added.set_axis(["seq", *summed], axis=1).merge(keys, on="seq", how="left")
    rows = []
    for value, group in frame.groupby(by, sort=False):
        sums = group.groupby("prompt_id", sort=False)[summed].sum().to_numpy()
        means = sums[:, 1:].sum(axis=0) / sums[:, 0].sum()
        low = high = np.full(len(means), np.nan)
        if len(sums) > 1:
            resampled = resampled_sums(sums, draws, seed)
            low, high = percentiles(resampled[:, 1:] / resampled[:, :1], level, len(sums))
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
        rows.append({**row, "n_positions": int(sums[:, 0].sum()), "n_prompts": len(sums)})
    return pd.DataFrame(rows)
