"""What no fixed draft can beat on a sampled target: the target's own likeliest paths (T5.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.anchors import read_anchors
from specviz.analysis.ceilings.first_tokens import Group, by_prompt, groups
from specviz.analysis.replays.renewal import RULES, Reaches
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, check_resampling
from specviz.refuse import listed, whole
from specviz.trace import Trace, need_trace
from specviz.trace.target_trees import TargetTrees, need_trees

#: Budgets shown unless others are asked for.
BUDGETS = (1, 2, 4, 7, 16, 32, 64, 128)


def tree_ceiling(
    trees: TargetTrees,
    budgets: Sequence[int] | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Most tokens per round that n fixed tokens can bring, as a tree and as a chain.

    Parameters
    ----------
    trees
        From `specviz.capture_tree_ceiling`.
    budgets
        Numbers of drafted tokens n; None takes those of `BUDGETS` that the trees hold.
    level, draws, seed
        Of the intervals, which resample prompts.

    Returns
    -------
    DataFrame
        One row per content type ("all" last), shape and n:

        - shape: "tree" (the n likeliest paths) or "chain" (one path of n tokens; only where n is
          at most the depth of the trees);
        - tokens_per_round: expected, bonus counted, mean over the anchors; low, high;
        - at_most: of a tree the same number, which is exact; of a chain, whose best path was
          found among the nodes only, what no other chain can pass;
        - realised: what that draft gave on the recorded outputs, a check of the expectation (NaN
          for chains); realised_low, realised_high;
        - exit_entropy: nats, mean entropy of the place at which the text leaves the tree: at most
          ln(n + 1) by T5.4, reached where all exits are equally likely (NaN for chains);
        - on_policy: True where the anchors are those that this very draft visits, so that the
          mean is tokens per round; else it is a mean over other anchors (F7.5);
        - n_anchors, n_prompts.

    Raises
    ------
    ValueError
        When the trees are empty or smaller than a budget.

    Examples
    --------
    >>> from specviz.bundled import bundled_target_trees
    >>> found = tree_ceiling(bundled_target_trees("anchors"), [7], draws=100)
    >>> found["shape"].unique().tolist()
    ['tree', 'chain']
    """
    check_resampling(level, draws, seed)
    wanted = _budgets(trees, budgets)
    frame, columns = _columns(trees, wanted)
    sums, kinds = by_prompt(frame, columns)
    rows = []
    for group in groups(sums, kinds, level, draws, seed):
        rows += [_tree_row(group, n, trees.meta["follow"] == n) for n in wanted]
        rows += [_chain_row(group, n) for n in wanted if f"chain_{n}" in columns]
    return pd.DataFrame(rows)


def drafters_at_anchors(
    trees: TargetTrees,
    trace: Trace,
    k: int = 7,
    *,
    rule: str = "argmax-match",
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """How near the drafters of a capture come to the best fixed draft, at the same anchors.

    Parameters
    ----------
    trees
        The target's own trees at anchors of `trace`.
    trace
        The sampled capture that they were made from.
    k
        Tokens of every drafter's chain, and of the best chain and the best tree beside it.
    rule
        How the chains are kept, one of `specviz.analysis.replays.renewal.RULES`. Only
        "argmax-match" is bound by the tree: "rejection" draws its drafts from q, which may win
        more (T5.6).
    level, draws, seed
        Of the intervals, which resample prompts.

    Returns
    -------
    DataFrame
        One row per content type ("all" last) and drafter: tokens (given the recorded output, bonus
        counted, mean over the anchors), low, high; share: what is accepted over what the best
        tree of k tokens expects to have accepted, share_low, share_high; rule, k, n_anchors,
        n_prompts. Anchors with fewer than k recorded tokens after them are left out.

    Raises
    ------
    ValueError
        When the trees belong to another trace, k exceeds a drafter's K or the trees' nodes, or
        there is no such rule.
    """
    check_resampling(level, draws, seed)
    k = whole("k", k, least=1)
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, not {rule!r}.")
    need_trace(trace)
    shortest = min(
        [int(need_trees(trees).meta["nodes"]), *(int(d["k"]) for d in trace.meta.drafters.values())]
    )
    if k > shortest:
        raise ValueError(f"k is {k}: these trees and drafts go to {shortest} together.")
    if trees.meta["target"] != dict(trace.meta.target):
        raise ValueError("These trees are of another target than the trace.")
    frame, columns = _columns(trees, [k])
    anchors = read_anchors(trace, trace.drafters[0])
    place = {
        key: at
        for at, key in enumerate(
            zip(anchors.seq[anchors.owner].tolist(), anchors.anchor.tolist(), strict=True)
        )
    }
    keys = zip(frame["seq"], frame["anchor"], strict=True)
    where = np.array([place.get(key, -1) for key in keys])
    if np.any(where < 0):
        raise ValueError("Some of these trees are at anchors that the trace does not have.")
    room = anchors.n[anchors.owner[where]] - 1 - anchors.anchor[where] >= k
    frame, where = frame[room], where[room]
    columns = {name: values[room] for name, values in columns.items()}
    reaches = Reaches(trace, rule)
    for name in trace.drafters:
        kept = reaches.of(read_anchors(trace, name))[where, :k].sum(axis=1)
        columns[f"drafter {name}"] = kept
    sums, kinds = by_prompt(frame, columns)
    rows = []
    for group in groups(sums, kinds, level, draws, seed):
        for name in trace.drafters:
            rows.append(_drafter_row(group, name, k, rule))
    return pd.DataFrame(rows)


# ---- one row per anchor ------------------------------------------------------------------


def ceiling_by_anchor(trees: TargetTrees, budgets: Sequence[int]) -> pd.DataFrame:
    """What `tree_ceiling` averages: one row per anchor.

    Parameters
    ----------
    trees
        From `specviz.capture_tree_ceiling`.
    budgets
        Numbers of drafted tokens n.

    Returns
    -------
    DataFrame
        seq, prompt_id, content_type, anchor, entropy (nats, after the anchor) and, for every n,
        tree_n, realised_n, chain_n and chain_at_most_n (accepted tokens, the bonus not counted)
        and exit_n (nats).

    Examples
    --------
    >>> from specviz.bundled import bundled_target_trees
    >>> found = ceiling_by_anchor(bundled_target_trees("anchors"), [7])
    >>> bool((found["tree_7"] >= found["chain_7"]).all())
    True
    """
    frame, columns = _columns(trees, _budgets(trees, budgets))
    return frame[["seq", "prompt_id", "content_type", "anchor", "entropy"]].assign(**columns)


def _budgets(trees: TargetTrees, budgets: Sequence[int] | None) -> list[int]:
    """The budgets asked for, each once; by default those of `BUDGETS` that the trees hold."""
    most = int(need_trees(trees).meta["nodes"])
    if budgets is None:
        return [n for n in BUDGETS if n <= most]
    wanted = [whole("A budget", n, least=1) for n in listed("budgets", budgets)]
    if max(wanted) > most:
        raise ValueError(f"These trees have {most} nodes, and {max(wanted)} were asked for.")
    return list(dict.fromkeys(wanted))


def _columns(trees: TargetTrees, budgets: list[int]) -> tuple[pd.DataFrame, dict[str, Floats]]:
    frame = trees.anchors
    if not len(frame):
        raise ValueError("There are no trees in it: capture some anchors first.")
    depth = int(trees.meta["depth"])
    columns: dict[str, list[float]] = {}
    for row in frame.itertuples():
        for name, value in _of_anchor(row, budgets, depth):
            columns.setdefault(name, []).append(value)
    return frame, {name: np.array(values) for name, values in columns.items()}


def _of_anchor(row: Any, budgets: list[int], limit: int) -> Iterator[tuple[str, float]]:
    """Accepted tokens, the bonus not counted, of the best drafts of every budget."""
    chance = np.asarray(row.chance, dtype=float)
    parent = np.asarray(row.parent, dtype=int)
    along, level = np.zeros(len(chance)), np.zeros(len(chance), dtype=int)
    for node, above in enumerate(parent):
        along[node] = chance[node] + (along[above] if above >= 0 else 0.0)
        level[node] = 1 + (level[above] if above >= 0 else 0)
    for n in budgets:
        yield f"tree_{n}", float(chance[:n].sum())
        yield f"realised_{n}", float((np.asarray(row.realised) < n).sum())
        yield f"exit_{n}", _exit_entropy(chance[:n], parent[:n])
        if n <= limit:
            inside = level <= n
            yield f"chain_{n}", float(along[inside].max(initial=0.0))
            yield f"chain_at_most_{n}", _chain_limit(chance, along, level, n)


def _exit_entropy(chance: Floats, parent: np.ndarray[Any, Any]) -> float:
    """Entropy of the last node that the text goes through, the anchor (first) among them."""
    leaves = np.concatenate([[1.0], chance])
    np.subtract.at(leaves, parent + 1, chance)
    inside = leaves[leaves > 0]
    return float(-(inside * np.log(inside)).sum())


def _chain_limit(chance: Floats, along: Floats, level: np.ndarray[Any, Any], n: int) -> float:
    """What no chain of n tokens can pass: a path outside is no likelier than the last node."""
    least = chance[-1] if len(chance) else 0.0
    best = n * min(1.0, least)
    inside = level < n
    if inside.any():
        best = max(best, float((along + (n - level) * np.minimum(chance, least))[inside].max()))
    return max(best, float(along[level <= n].max(initial=0.0)))


# ---- one row per group -------------------------------------------------------------------


def _with_bonus(group: Group, name: str) -> tuple[float, float, float]:
    return group.interval(lambda means: 1.0 + means[name])


def _tree_row(group: Group, n: int, on_policy: bool) -> dict[str, Any]:
    value, low, high = _with_bonus(group, f"tree_{n}")
    realised, realised_low, realised_high = _with_bonus(group, f"realised_{n}")
    return {
        "content_type": group.name,
        "shape": "tree",
        "n": n,
        "tokens_per_round": value,
        "low": low,
        "high": high,
        "at_most": value,
        "realised": realised,
        "realised_low": realised_low,
        "realised_high": realised_high,
        "exit_entropy": group.interval(lambda means: means[f"exit_{n}"])[0],
        "on_policy": on_policy,
        "n_anchors": group.n,
        "n_prompts": len(group.sums),
    }


def _chain_row(group: Group, n: int) -> dict[str, Any]:
    value, low, high = _with_bonus(group, f"chain_{n}")
    row = _tree_row(group, n, False)
    unknown = dict.fromkeys(("realised", "realised_low", "realised_high", "exit_entropy"), np.nan)
    return (
        row
        | unknown
        | {
            "shape": "chain",
            "tokens_per_round": value,
            "low": low,
            "high": high,
            "at_most": _with_bonus(group, f"chain_at_most_{n}")[0],
        }
    )


def _drafter_row(group: Group, name: str, k: int, rule: str) -> dict[str, Any]:
    value, low, high = _with_bonus(group, f"drafter {name}")
    share, share_low, share_high = group.interval(
        lambda means: means[f"drafter {name}"] / means[f"tree_{k}"]
    )
    return {
        "content_type": group.name,
        "drafter": name,
        "tokens": value,
        "low": low,
        "high": high,
        "share": share,
        "share_low": share_low,
        "share_high": share_high,
        "rule": rule,
        "k": k,
        "n_anchors": group.n,
        "n_prompts": len(group.sums),
    }
