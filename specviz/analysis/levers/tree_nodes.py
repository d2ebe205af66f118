"""The nodes of one token tree, from a capture or from the target's own trees, ready to draw."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from specviz.trace import Trace
from specviz.trace.target_trees import TargetTrees

#: Parent of a node whose place in the tree the trace does not hold.
UNKNOWN = -2


def captured_nodes(
    trace: Trace, drafter: str, builder: str, seq: int, anchor: int, nodes: int
) -> pd.DataFrame:
    """The first `nodes` nodes of a captured tree.

    A capture keeps, of every node, its depth and the order of entry, and where the text's own next
    tokens are; not what hangs below what, nor what the other nodes are.

    Returns
    -------
    DataFrame
        In order of entry: depth, parent (`UNKNOWN`), on_path (one of the text's own next tokens,
        with all before it in the tree), chance (of the path to it under the drafter, from
        `path_logq`; NaN off the path, and for drafters without probabilities), text ("" off the
        path).

    Raises
    ------
    ValueError
        When there is no such tree.
    """
    table = trace.table("trees")
    chosen = pc.and_(
        pc.and_(pc.equal(table["seq"], seq), pc.equal(table["anchor"], anchor)),
        pc.and_(pc.equal(table["drafter"], drafter), pc.equal(table["builder"], builder)),
    )
    rows = table.filter(chosen).to_pylist()
    if not rows:
        raise ValueError(
            f"This capture has no {builder} tree by {drafter!r} at anchor {anchor} of sequence "
            f"{seq}."
        )
    depth = np.array(rows[0]["node_depth"], dtype=int)[:nodes]
    frame = pd.DataFrame({"depth": depth})
    frame["parent"], frame["on_path"], frame["chance"] = UNKNOWN, False, np.nan
    frame["text"] = ""
    drafts = trace.draft_table(drafter)
    mine = drafts.filter(pc.and_(pc.equal(drafts["seq"], seq), pc.equal(drafts["anchor"], anchor)))
    logq = mine["path_logq"].to_pylist()[0] if len(mine) else []
    chance = np.exp(np.cumsum(np.array(logq, dtype=float)))
    texts = _texts(trace, seq)
    for j, enter in enumerate(rows[0]["enter_budget"]):
        if not 0 < enter <= len(frame):
            break  # the path leaves the tree
        at = enter - 1
        frame.loc[at, "on_path"] = True
        frame.loc[at, "chance"] = chance[j] if j < len(chance) else np.nan
        place = anchor + 1 + j
        frame.loc[at, "text"] = texts[place] if place < len(texts) else ""
    return frame


def target_nodes(trees: TargetTrees, row: int, nodes: int) -> pd.DataFrame:
    """The target's own `nodes` likeliest nodes at one of its anchors.

    Parameters
    ----------
    trees, row
        The trees, and which of their rows.
    nodes
        How many; the first n are the best tree of n nodes.

    Returns
    -------
    DataFrame
        As `captured_nodes`, with parents (-1: the anchor) and chances of every node.
    """
    found = trees.anchors.iloc[row]
    parent = np.asarray(found["parent"], dtype=int)[:nodes]
    depth = np.ones(len(parent), dtype=int)
    for node, above in enumerate(parent):  # parents come before their children
        depth[node] = 1 + (depth[above] if above >= 0 else 0)
    realised = set(np.asarray(found["realised"], dtype=int).tolist())
    return pd.DataFrame(
        {
            "depth": depth,
            "parent": parent,
            "on_path": [node in realised for node in range(len(parent))],
            "chance": np.asarray(found["chance"], dtype=float)[:nodes],
            "text": list(found["text"][:nodes]),
        }
    )


def text_before(trace: Trace, seq: int, anchor: int, tokens: int = 12) -> str:
    """The last few tokens up to the anchor, as text."""
    return "".join(_texts(trace, seq)[max(0, anchor + 1 - tokens) : anchor + 1])


@lru_cache(maxsize=32)
def _texts(trace: Trace, seq: int) -> list[str]:
    table = trace.table("positions")
    mine = table.filter(pc.equal(table["seq"], seq)).sort_by("t")
    texts: list[str] = mine["text"].to_pylist()
    return texts
