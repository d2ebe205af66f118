"""Whose trees: whether a target's own likeliest paths are of a trace, and where they stand."""

from __future__ import annotations

import numpy as np

from specviz.trace import Trace
from specviz.trace.target_trees import TargetTrees

_WANTED = "pass the sampled capture that they were made from."


def misfit(trees: TargetTrees, trace: Trace) -> str:
    """Why the trees are not of this trace, in a sentence; "" where they are.

    A trace may hold fewer prompts than the trees; where both hold a text, it must be the same.
    """
    if trace.meta.greedy:
        return f"These trees are of a sampled target's texts, and this trace is greedy: {_WANTED}"
    mine, theirs = (m.get("fingerprint") for m in (trace.meta.target, trees.meta["target"]))
    if mine != theirs:
        return f"These trees are of another target than this trace: {_WANTED}"
    both = trees.anchors.merge(trace.sequences[["seq", "prompt_id"]], on=["seq", "prompt_id"])
    if both.empty:
        return f"These trees are of other prompts than this trace: {_WANTED}"
    positions = trace.positions.sort_values(["seq", "t"])
    tokens = {
        int(str(seq)): part["token_id"].to_numpy()
        for seq, part in positions.groupby("seq", sort=False)
    }
    for row in both.to_dict("records"):
        path = np.asarray(row["token"])[np.asarray(row["realised"], dtype=int)]
        text = tokens.get(row["seq"], np.array([], int))
        own = text[row["anchor"] + 1 :][: len(path)]
        if not np.array_equal(own, path[: len(own)]):
            return (
                f"These trees are of another text of {row['prompt_id']!r:.60} than this trace "
                f"holds: {_WANTED}"
            )
    return ""


def place(trees: TargetTrees, shape: str, n: int) -> str:
    """Over which anchors a mean over the trees is taken, in words."""
    follow = trees.meta["follow"]
    if not follow:
        return "at random places"
    if shape == "tree" and n == follow:
        return "over its own rounds"
    return f"at the places that rounds of the best tree of {follow} visit"
