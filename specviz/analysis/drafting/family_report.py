"""The drafter families of one capture, side by side: lengths, best k, survival, match, size."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from specviz._data_files import data_file
from specviz.analysis.anchors import require_capture
from specviz.analysis.ceilings.candidates import depth_match
from specviz.analysis.replays.optimal_k import optimal_k
from specviz.analysis.replays.replay import replay
from specviz.analysis.resampling import DRAWS, LEVEL, check_resampling
from specviz.analysis.survival.lengths import survival_by
from specviz.cards import drafter_card, drafter_names
from specviz.cost import CostModel, need_cost
from specviz.policies import FixedK
from specviz.refuse import whole
from specviz.trace import Trace

_BEST = ["drafter", "content_type", "cost", "provenance", "k", "speedup", "low", "high"]
_BEST += ["k_low", "k_high", "k_share", "tokens_per_round", "n_rounds", "n_prompts"]


@dataclass(frozen=True, eq=False)
class FamilyReport:
    """What `family_report` found. In every table "all" stands for all content types together.

    Attributes
    ----------
    drafters
        One row per drafter: drafter, family, longest (K of the capture), parameters (its own;
        embeddings and output head are the target's) and megabytes (of its file) where a shipped
        card knows them, simulated_cost (its seconds do not stand for what it imitates), and
        `draft_seconds (COST)`: of k tokens, under each cost model that is not a preset.
    lengths
        One row per drafter and content type: drafter, content_type, k, tokens_per_round (bonus
        counted) with low and high, n_rounds, n_prompts; the same names with `_unrepeated` leave
        out the rounds that stand before a token of repeated text.
    best_k
        One row per drafter, content type and cost model: the best k (0: do not draft), its
        speedup with low and high, and the other columns of `OptimalK.table`. No rows without a
        cost model.
    survival
        `survival_by` at k: one row per drafter, content type and depth 1..k.
    depth_match
        `depth_match` down to k: one row per drafter, content type and depth 1..k.
    k, level
        Tokens drafted a round, and the level of all intervals.
    notes
        Per cost model, whose it is.
    """

    drafters: pd.DataFrame
    lengths: pd.DataFrame
    best_k: pd.DataFrame
    survival: pd.DataFrame
    depth_match: pd.DataFrame
    k: int
    level: float
    notes: tuple[str, ...]

    def _repr_html_(self) -> str:
        from specviz.markup import table_html

        spread = f"{100 * self.level:g} % intervals resample prompts."
        parts = [
            table_html(
                self.lengths,
                f"Tokens per round at k = {self.k}, bonus counted, over all rounds and over those "
                f"that do not stand before repeated text (_unrepeated). {spread}",
            ),
            table_html(
                self.best_k.drop(columns="provenance"),
                " ".join(["Best k, 0 for not drafting.", *self.notes]),
            )
            if len(self.best_k)
            else "",
            table_html(
                _wide(self.survival, "survival", "n_rounds"),
                f"Survival at k = {self.k}: share of rounds that accept the first j tokens or "
                "more, for j = 1, 2, ...; no bonus in it, and rounds cut short by the end of the "
                "output are censored there.",
            ),
            table_html(
                _wide(self.depth_match, "match", "n_anchors"),
                "Match at depth j = 1, 2, ...: share of anchors at which the drafter's likeliest "
                "token, given the text's own tokens before it, is the text's; no bonus in it.",
            ),
            table_html(
                self.drafters,
                f"The drafters: parameters of their own, size of their file, and the seconds they "
                f"take for {self.k} tokens under a cost model that timed them.",
            ),
        ]
        return "".join(parts)


def family_report(
    trace: Trace,
    costs: CostModel | Sequence[CostModel] = (),
    k: int = 7,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> FamilyReport:
    """Every drafter of a capture on every kind of text: how far it gets, and what that is worth.

    Parameters
    ----------
    trace
        A greedy capture.
    costs
        Cost models, each of which prices every drafter; any number, with different names.
    k
        Tokens drafted in a round, from 1 to the smallest K.
    level, draws, seed
        Of the expanded percentile intervals, which resample prompts (F7.2).

    Returns
    -------
    FamilyReport
        Drafters in the order of the trace, "all" content types last.

    Raises
    ------
    ValueError
        As `replay` and `optimal_k`, and when two cost models have one name.

    Notes
    -----
    A card belongs to a drafter when both name and target are the same; weights are not compared.

    Examples
    --------
    >>> import specviz as sv
    >>> found = family_report(sv.bundled_trace("smollm2-trees"), sv.t4_like(), draws=100)
    >>> found.lengths.query("drafter == 'lm'")["content_type"].tolist()
    ['code', 'prose', 'all']
    """
    check_resampling(level, draws, seed)
    whole("k", k, 1)
    models = [need_cost(c) for c in ([costs] if isinstance(costs, CostModel) else costs)]
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise ValueError(f"Two cost models have one name: {', '.join(names)}. Rename one.")
    require_capture(trace)
    parts = (trace, _pooled(trace))
    lengths: list[pd.DataFrame] = []
    survival: list[pd.DataFrame] = []
    best: list[pd.DataFrame] = []
    for drafter in trace.drafters:
        for part in parts:
            run = replay(part, FixedK(k), drafter, level=level, draws=draws, seed=seed)
            length = run.by().merge(
                run.by(repeated=False),
                on="content_type",
                how="left",
                suffixes=("", "_unrepeated"),
            )
            length.insert(1, "k", k)
            alive = survival_by(run.rounds, level=level, draws=draws, seed=seed)
            for table, tables in ((length, lengths), (alive, survival)):
                table.insert(0, "drafter", drafter)
                tables.append(table)
    notes = []
    for model in models:
        found = [optimal_k(part, model, level=level, draws=draws, seed=seed) for part in parts]
        best += [each.table[_BEST] for each in found]
        notes.append(found[0].caption)
    length = pd.concat(lengths, ignore_index=True)
    for column in ("n_rounds_unrepeated", "n_prompts_unrepeated"):
        length[column] = length[column].fillna(0).astype(int)  # all its text is repeated
    return FamilyReport(
        drafters=pd.DataFrame([_drafter(trace, name, models, k) for name in trace.drafters]),
        lengths=length,
        best_k=_ordered(best, length, names),
        survival=pd.concat(survival, ignore_index=True),
        depth_match=depth_match(trace, k=k, level=level, draws=draws, seed=seed),
        k=k,
        level=level,
        notes=tuple(notes),
    )


def _pooled(trace: Trace) -> Trace:
    """The same capture as one content type, "all"."""
    tables = {name: trace.table(name) for name in ("sequences", "positions", "drafts")}
    sequences = tables["sequences"]
    at = sequences.column_names.index("content_type")
    same = pa.array(["all"] * len(sequences), pa.string())
    return Trace(
        trace.meta, {**tables, "sequences": sequences.set_column(at, "content_type", same)}
    )


def _ordered(best: list[pd.DataFrame], lengths: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Rows of best k in the order of `lengths`, then of the cost models."""
    if not best:
        return pd.DataFrame(columns=_BEST)
    cells = lengths[["drafter", "content_type"]]
    wanted = cells.merge(pd.DataFrame({"cost": names}), how="cross")
    return wanted.merge(pd.concat(best), on=["drafter", "content_type", "cost"])[_BEST]


def _drafter(trace: Trace, name: str, models: list[CostModel], k: int) -> dict[str, Any]:
    card: Mapping[str, Any] = drafter_card(name) if name in drafter_names() else {}
    if card.get("target") != trace.meta.target.get("name"):
        card = {}
    row = {
        "drafter": name,
        "family": card.get("family", ""),
        "longest": int(trace.meta.drafters[name]["k"]),
        "parameters": _parameters(name) if card else math.nan,
        "megabytes": card["bytes"] / 1e6 if card else math.nan,
        "simulated_cost": bool(trace.meta.drafters[name].get("simulated_cost")),
    }
    for model in models:
        if model.provenance not in ("preset", "free drafts"):
            row[f"draft_seconds ({model.name})"] = model.draft_seconds(name, k)
    return row


def _parameters(name: str) -> int:
    """Numbers a shipped drafter has learnt, from the head of its file (no tensor is read)."""
    with data_file(f"drafters/{name}.safetensors").open("rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    own = [
        part["shape"]
        for tensor, part in head.items()
        # Scales only undo the rounding to int8; the sample and the token ids are not learnt.
        if tensor not in ("__metadata__", "target.sample", "vocabulary")
        and not tensor.endswith(".scale")
    ]
    return sum(math.prod(shape) for shape in own)


def _wide(table: pd.DataFrame, value: str, count: str) -> pd.DataFrame:
    """Depths side by side, one row per drafter and content type, and what the first rests on."""
    keys = ["drafter", "content_type"]
    wide = table.pivot_table(index=keys, columns="depth", values=value, sort=False).reset_index()
    first = table[table["depth"] == 1]
    return wide.merge(first[[*keys, count, "n_prompts"]], on=keys)
