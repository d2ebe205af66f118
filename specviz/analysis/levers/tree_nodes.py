"""The nodes of one token tree, from a capture or from the target's own trees, ready to draw."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from specviz.trace import Trace
from specviz.trace.remembered import per_trace
from specviz.trace.target_trees import TargetTrees


def captured_nodes(
    trace: Trace,
    drafter: str,
    builder: str,
    seq: int,
    anchor: int,
    nodes: int,
    deepest: int | None = None,
) -> pd.DataFrame:
    """The first `nodes` nodes of a captured tree, those below depth `deepest` left out.

    Returns
    -------
    DataFrame
        In order of entry, parents before children: depth, parent (-1: the anchor), on_path (one of
        the text's own next tokens, with all before it in the tree), chance (of the path to it
        under the drafter; NaN for drafters without probabilities), text.

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
    row, ahead = rows[0], _tokens(trace, seq)[anchor + 1 :]
    place: dict[int, int] = {-1: -1}  # of nodes that are kept, among them
    on_path: dict[int, bool] = {-1: True}
    chance: dict[int, float] = {-1: 1.0}
    kept: list[tuple[int, int, bool, float, str]] = []
    for node, (depth, parent, token, logq) in enumerate(
        zip(
            *(row[f"node_{name}"][:nodes] for name in ("depth", "parent", "token", "logq")),
            strict=True,
        )
    ):
        if deepest is not None and depth > deepest:
            continue
        place[node] = len(kept)
        on_path[node] = on_path[parent] and ahead[depth - 1 : depth] == [token]
        chance[node] = chance[parent] * math.exp(logq)
        text = trace.texts.get(token, f"#{token}")
        kept.append((depth, place[parent], on_path[node], chance[node], text))
    return pd.DataFrame(kept, columns=["depth", "parent", "on_path", "chance", "text"])


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


@per_trace
def _tokens(trace: Trace, seq: int) -> list[int]:
    """The output, and what was decoded past its limit."""
    table, rows = trace.table("positions"), trace.table("sequences")
    mine = table.filter(pc.equal(table["seq"], seq)).sort_by("t")
    row = rows.filter(pc.equal(rows["seq"], seq)).select(["lookahead"]).to_pylist()[0]
    return [*mine["token_id"].to_pylist(), *row["lookahead"]]


@per_trace
def _texts(trace: Trace, seq: int) -> list[str]:
    table = trace.table("positions")
    mine = table.filter(pc.equal(table["seq"], seq)).sort_by("t")
    texts: list[str] = mine["text"].to_pylist()
    return texts
