"""Policies and trees side by side on one capture: how far each moves tokens per round and speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from specviz.analysis.levers.tree_sweep import CHAIN, TreeSweep
from specviz.analysis.replays.replay import Replay, replay
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.cost import CostModel, need_cost
from specviz.policies import Policy
from specviz.refuse import listed, whole
from specviz.trace import Trace


def compare_policies(
    trace: Trace,
    policies: Mapping[str, Policy],
    costs: CostModel | Sequence[CostModel] = (),
    drafter: str | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Replay several policies, chains or trees, on the same prompts.

    Parameters
    ----------
    trace
        A greedy capture, with trees where a policy asks for them.
    policies
        By label; the first one is what the others are held against.
    costs
        Cost models for the modelled speed-up over plain decoding; any number.
    drafter
        For every policy; None leaves it to the policies.
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts, the same for every policy
        (F7.2).

    Returns
    -------
    DataFrame
        One row per content type (and "all" when there are several) and policy: content_type,
        policy, drafter; tokens_per_round (bonus counted) with low and high; gain, its difference
        from the first policy on the same prompts, with gain_low and gain_high; rows_per_round
        (rows the target verifies); per cost model a column `speedup (NAME)`, with `_low` and
        `_high` after it; n_rounds, n_prompts. Intervals are NaN with one prompt.

    Raises
    ------
    ValueError
        When there is no policy, two cost models have one name, or as `replay` and the cost
        models do.

    Examples
    --------
    >>> compare_policies(trace, {"chain": sv.FixedK(7), "tree": sv.FixedTree(sv.BestFirst(32, 7))},
    ...                  sv.t4_like())                                     # doctest: +SKIP
    """
    check_resampling(level, draws, seed)
    if not isinstance(policies, Mapping) or not policies:
        raise ValueError(
            'policies must map labels to policies, such as {"chain": FixedK(7)}, the one to '
            "compare with first."
        )
    models = [need_cost(costs)] if isinstance(costs, CostModel) else [need_cost(c) for c in costs]
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise ValueError(f"Two cost models have one name: {', '.join(names)}. Rename one.")
    runs = {label: replay(trace, policy, drafter) for label, policy in policies.items()}
    parts = {}
    for label, run in runs.items():
        rounds = run.rounds
        rounds = rounds.assign(count=1, rows=rounds["nodes"] + 1)
        for model in models:
            rounds[model.name] = run.seconds(model)
        keys = ["content_type", "prompt_id"]
        sums = ["emitted", "count", "rows", *names]
        parts[label] = rounds.groupby(keys, sort=False)[sums].sum()
    cells = next(iter(parts.values())).index  # every run has the same prompts: those with rounds
    kinds = cells.get_level_values("content_type")
    groups = [(str(name), kinds == name) for name in dict.fromkeys(kinds)]
    if len(groups) > 1:
        groups.append(("all", np.ones(len(cells), dtype=bool)))
    table = np.stack([part.loc[cells].to_numpy(dtype=float) for part in parts.values()], axis=1)
    rows: list[dict[str, object]] = []
    for kind, mine in groups:
        own = table[mine]
        rows += _rows(kind, own, runs, models, level, draws, seed)
    return pd.DataFrame(rows)


def length_by_nodes(
    trace: Trace,
    drafter: str | None = None,
    budgets: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128),
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens per round of every captured tree at several budgets, and of the chain beside them.

    Parameters
    ----------
    trace
        A greedy capture with trees.
    drafter
        None takes the trace's only one.
    budgets
        Numbers of nodes; those above what a shape was captured with are left out, and a shape
        that is not nested comes at its own size only.
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts.

    Returns
    -------
    DataFrame
        content_type, builder ("chain" for chains of as many tokens), nodes, drafter,
        tokens_per_round (bonus counted), low, high, rows_per_round, n_rounds, n_prompts.

    Raises
    ------
    ValueError
        When the capture has no trees by this drafter.

    Examples
    --------
    >>> length_by_nodes(trace, "lm").query("nodes == 32")                  # doctest: +SKIP
    """
    sweep = TreeSweep(trace, drafter, level=level, draws=draws, seed=seed)
    budgets = [whole("A budget", n, least=1) for n in listed("budgets", budgets)]
    chains = sorted({*sweep.budgets(CHAIN, budgets), sweep.k})  # the longest, too
    shapes = [(CHAIN, k) for k in chains] + [
        (builder, nodes)
        for builder in sweep.builders
        if builder != CHAIN
        for nodes in sweep.budgets(builder, budgets)
    ]
    kinds: list[str | None] = [*sweep.kinds]
    tables = [
        sweep.table(shapes, kind).assign(content_type=kind or "all", drafter=sweep.drafter)
        for kind in ([*kinds, None] if len(kinds) > 1 else kinds)
    ]
    found = pd.concat(tables, ignore_index=True)
    first = ["content_type", "builder", "nodes", "drafter"]
    return found[[*first, *(column for column in found if column not in first)]]


def _rows(
    kind: str,
    own: Floats,
    runs: Mapping[str, Replay],
    models: Sequence[CostModel],
    level: float,
    draws: int,
    seed: int,
) -> list[dict[str, object]]:
    """Rows of one content type from sums [prompts, policies, tokens / rounds / rows / seconds]."""
    n, many, width = own.shape
    total = own.sum(axis=0)
    resampled = resampled_sums(own.reshape(n, -1), draws, seed).reshape(-1, many, width)

    def ends(values: Floats) -> tuple[Floats, Floats]:
        if n < 2:
            return np.full(many, np.nan), np.full(many, np.nan)
        return percentiles(values, level, n)

    length, again = total[:, 0] / total[:, 1], resampled[..., 0] / resampled[..., 1]
    low, high = ends(again)
    gain_low, gain_high = ends(again - again[:, [0]])
    speed = {}
    for i, model in enumerate(models, start=3):
        step = model.plain_seconds
        speed[model.name] = (
            total[:, 0] * step / total[:, i],
            *ends(resampled[..., 0] * step / resampled[..., i]),
        )
    rows = []
    for j, (label, run) in enumerate(runs.items()):
        row: dict[str, object] = {
            "content_type": kind,
            "policy": label,
            "drafter": ", ".join(run.drafters),
            "tokens_per_round": length[j],
            "low": low[j],
            "high": high[j],
            "gain": length[j] - length[0],
            "gain_low": gain_low[j],
            "gain_high": gain_high[j],
            "rows_per_round": total[j, 2] / total[j, 1],
        }
        for name, (at, under, over) in speed.items():
            column = f"speedup ({name})"
            row |= {column: at[j], f"{column}_low": under[j], f"{column}_high": over[j]}
        row |= {"n_rounds": int(total[j, 1]), "n_prompts": n}
        rows.append(row)
    return rows
