"""What a trace holds, in one small table: for `Trace.summary` and its notebook form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from specviz.markup import escape, table_html
from specviz.trace.schema import TraceMeta
from specviz.trace.stored import Stored


def summary_table(tables: Mapping[str, pa.Table | Stored], by: str | None) -> pd.DataFrame:
    """One row per value of `by`; see `Trace.summary` for the columns."""
    sequences = tables["sequences"]
    names = sequences.column_names
    if by is not None and by not in names:
        raise ValueError(f"No column {by!r} in `sequences` to group by; it has {names}.")
    groups = sequences.select(["seq", *([by] if by and by != "seq" else [])]).to_pandas()
    key = by or "all"
    if by is None:
        groups[key] = "all"
    out = groups.groupby(key, sort=False).size().rename("prompts").to_frame()
    if tables["positions"].num_rows:
        names = ["entropy", "ebf", "p_max", "repeated"]
        columns = tables["positions"].select(["seq", *names])
        sums = sums_by_sequence(*(columns[name].to_numpy() for name in ("seq", *names)))
        frame = sums.set_axis(["seq", "tokens", *names], axis=1).merge(groups, on="seq")
        total = frame.groupby(key, sort=False)[["tokens", *names]].sum()
        out["tokens"] = total["tokens"]
        mean = total[names].div(total["tokens"], axis=0)
        out["mean_entropy"] = mean["entropy"]
        out["ebf_geometric"] = np.exp(out["mean_entropy"])
        out["ebf_arithmetic"] = mean["ebf"]
        out["mean_p_max"] = mean["p_max"]
        out["repeated_share"] = mean["repeated"]
    if tables["rounds"].num_rows:
        columns = ["seq", "drafted", "accepted", "emitted"]
        frame = tables["rounds"].select(columns).to_pandas().merge(groups, on="seq")
        grouped = frame.groupby(key, sort=False)
        total = grouped[["drafted", "accepted", "emitted"]].sum()
        out["rounds"] = grouped.size()
        out["tokens_per_round"] = total["emitted"] / out["rounds"]
        out["draft_yield"] = total["accepted"] / total["drafted"].where(total["drafted"] > 0)
    table: pd.DataFrame = out.reset_index()
    return table


def sums_by_sequence(seq: NDArray[Any], *columns: NDArray[Any]) -> pd.DataFrame:
    """Per sequence, in order of appearance: seq, how many rows it has, and the columns' sums.

    Added up before anything is merged: a table of a hundred million positions would not fit.
    """
    code, found = pd.factorize(seq)
    sums = [np.bincount(code, values, len(found)) for values in columns]
    return pd.DataFrame(dict(enumerate([found, np.bincount(code, minlength=len(found)), *sums])))


def summary_html(meta: TraceMeta, tables: Mapping[str, pa.Table | Stored]) -> str:
    """The notebook form of a trace: one line of provenance and the summary table."""
    target = meta.target.get("caption") or meta.target.get("name", "unknown target")
    decoding = "greedy" if meta.greedy else f"temperature {meta.sampling['temperature']:g}"
    drafters = ", ".join(meta.drafters) or "no drafter"
    state = "" if meta.complete else " · incomplete"
    lossy = " · lossy acceptance" if meta.lossy else ""
    line = f"{meta.kind} · {target} · {decoding} · {drafters}{lossy}{state}"
    return (
        f"<div class='specviz-trace'><p><b>Trace</b> {escape(line)}</p>"
        + table_html(summary_table(tables, "content_type"))
        + "</div>"
    )
