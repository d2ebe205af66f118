"""What trees would have held of the output, at every anchor: the `trees` table of a capture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import torch

from specviz.engine.protocols import Draft, Drafter, Reference, Rows
from specviz.engine.tree import follow
from specviz.engine.tree_drafts import Trie, enter_budget
from specviz.engine.tree_shapes import Shape
from specviz.policies import Plan
from specviz.trace.schema import trees_schema

#: What `capture` grows trees of: shapes for every drafter, or for each by name.
Shapes = Sequence[Shape | Trie]


def shapes_of(
    trees: Shapes | Mapping[str, Shapes], drafters: Mapping[str, Drafter], k: int
) -> dict[str, tuple[Shape | Trie, ...]]:
    """The shapes each drafter is asked to grow.

    Raises
    ------
    ValueError
        When something is no shape, two have one builder, a name is no drafter's, or a tree is
        deeper than the drafts.
    """
    if isinstance(trees, Shape | Trie):
        raise ValueError(f"trees is a list of shapes: put {trees.builder} in brackets.")
    if isinstance(trees, Mapping):
        unknown = next((name for name in trees if name not in drafters), None)
        if unknown is not None:
            raise ValueError(f"Trees for {unknown!r}, which is not among the drafters given.")
        asked = {name: tuple(trees.get(name, ())) for name in drafters}
    else:
        asked = dict.fromkeys(drafters, tuple(trees))
    for name, shapes in asked.items():
        builders = []
        for shape in shapes:
            if not isinstance(shape, Shape | Trie):
                raise ValueError(
                    f"{shape!r:.60} is no tree shape whose tokens are chosen: pass shapes such as "
                    "BestFirst(64, depth=7)."
                )
            limit = min(k, drafters[name].max_k)
            if shape.depth > limit:
                raise ValueError(
                    f"{shape.builder} is {shape.depth} tokens deep, and {name} is captured to "
                    f"{limit}: ask for a depth of at most {limit}."
                )
            builders.append(shape.builder)
        twice = next((b for b in builders if builders.count(b) > 1), None)
        if twice is not None:
            raise ValueError(
                f"Two trees are called {twice!r}: one capture of the larger budget holds both."
            )
    return asked


def trees_meta(
    shapes: Mapping[str, Sequence[Shape | Trie]],
) -> dict[str, dict[str, dict[str, int | bool]]]:
    """How `trace.json` describes them: per drafter and builder."""
    return {
        name: {
            shape.builder: {"nodes": shape.nodes, "depth": shape.depth, "nested": shape.nested}
            for shape in asked
        }
        for name, asked in shapes.items()
        if asked
    }


def trees_table(
    seq: int, name: str, drafter: Drafter, reference: Reference, shapes: Shapes, k: int
) -> pa.Table:
    """The `trees` rows of one sequence and drafter, [anchors x shapes].

    The drafter goes through the output one token a round, as it would live.
    """
    n_prompt, realised = len(reference.prompt), reference.realised
    no_logits = torch.empty(0)

    def seen(low: int, high: int) -> Rows:
        return Rows(no_logits, {tap: reference.taps[tap][low:high] for tap in drafter.taps})

    drafter.start(reference.prompt, seen(0, n_prompt))
    rows = []
    for anchor in range(reference.anchors):
        context = reference.prompt + reference.output[: anchor + 1]
        ahead = realised[anchor + 1 : anchor + 1 + k]
        for shape in shapes:
            plan = Plan(shape.depth, name, tree=shape)
            draft = drafter.propose(context, plan, lambda view: True)
            enter = np.full(k, -1, np.int16)
            path = follow(draft, ahead)
            enter[: len(path)] = np.array(enter_budget(shape, draft))[list(path)]
            rows.append(
                {
                    "seq": seq,
                    "anchor": anchor,
                    "drafter": name,
                    "builder": shape.builder,
                    "node_depth": draft.depths(),
                    "node_parent": draft.parents,
                    "node_token": draft.tokens,
                    "node_logq": _logq(shape, draft),
                    "enter_budget": enter,
                }
            )
        drafter.observe(seen(n_prompt + anchor, n_prompt + anchor + 1), ())
    return pa.Table.from_pylist(rows, schema=trees_schema(k))


def _logq(shape: Shape | Trie, draft: Draft) -> np.ndarray:
    """The drafter's ln q of every node; NaN of copies, which have none."""
    logq = [math.nan] * len(draft) if isinstance(shape, Trie) else draft.logq
    return np.array(logq, np.float16)
