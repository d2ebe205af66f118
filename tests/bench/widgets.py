"""What a widget takes in the kernel when a slider moves, at 100,000 anchors.

`python -m tests.bench.widgets` prints medians in milliseconds of CPU time, which a busy machine
does not stretch; the picture is drawn, and turned into what is sent to the browser.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import specviz as sv
from specviz.trace import Trace
from specviz.trace.schema import table_schemas
from specviz.widgets.bounds_lab import BoundsLab
from specviz.widgets.capacity_planner import CapacityPlanner
from specviz.widgets.drafter_race import DrafterRace
from specviz.widgets.entropy_lens import EntropyLens
from specviz.widgets.k_explorer import KExplorer
from specviz.widgets.policy_race import PolicyRace
from specviz.widgets.round_stepper import RoundStepper
from specviz.widgets.token_strip import TokenStrip
from specviz.widgets.tree_lab import TreeLab
from tests.synthetic import trace_of

ANCHORS, LENGTH, K, KINDS = 100_000, 500, 15, ("code", "prose", "json", "mixed")
NODES, BUILDER = 64, "pairs"
AIM = 50


def main() -> None:
    trace = large()
    cost = sv.t4_like()
    explorer = KExplorer(trace, kind="code", cost=cost).set(cost="own sliders")
    report("KExplorer, k", explorer, [{"k": k} for k in range(1, K)])
    report("KExplorer, own cost", explorer, [{"per_token": 0.02 * i} for i in range(1, 15)])
    report("KExplorer, all text", explorer.set(kind=""), [{"k": k} for k in range(1, K)])
    some: list[dict[str, Any]] = [{"k": k} for k in (2, 4, 6, 8, 10)]
    report("TokenStrip, k", TokenStrip(trace), some)
    report("RoundStepper, k", RoundStepper(trace), some)
    report("EntropyLens, k", EntropyLens(trace), some)
    report("BoundsLab, k", BoundsLab(trace), some)
    report("TreeLab, nodes", TreeLab(trace), [{"nodes": n} for n in (12, 20, 28, 40)])
    report("TreeLab, anchor", TreeLab(trace), [{"place": n} for n in (12, 20, 28, 40)])
    races: list[tuple[str, Any, list[dict[str, Any]]]] = [
        ("DrafterRace, k", DrafterRace(trace), [{"k": k} for k in (2, 4, 6)]),
        (
            "CapacityPlanner, mix",
            CapacityPlanner(trace, cost=cost),
            [{"mix 0": weight} for weight in (2, 4, 6)],
        ),
        (
            "PolicyRace, k",
            PolicyRace(trace, cost=cost).set(kind="code"),
            [{"k": k} for k in (2, 3, 5)],
        ),
    ]
    for what, widget, changes in races:
        report(what, widget, changes)


def large() -> Trace:
    """A capture with `ANCHORS` drafts of up to K tokens, and a tree at every anchor."""
    rng = np.random.default_rng(0)
    many = ANCHORS // LENGTH
    trace = trace_of(
        [np.minimum(rng.geometric(0.4, LENGTH) - 1, K) for _ in range(many)],
        content_types=[KINDS[i % len(KINDS)] for i in range(many)],
    )
    return with_trees(trace, rng)


def with_trees(trace: Trace, rng: np.random.Generator) -> Trace:
    """The capture with one tree of `NODES` nodes at every anchor: two children below each node."""
    drafts, schema = trace.draft_table(), table_schemas(trace.meta.k)["trees"]
    anchors = len(drafts)
    parent = (np.arange(NODES) + 1) // 2 - 1
    parent[:2] = -1
    depth = np.ones(NODES, int)
    for node in range(2, NODES):
        depth[node] = depth[parent[node]] + 1
    first = [int(np.argmax(depth == d)) + 1 for d in range(1, depth.max() + 1)]  # the path's nodes
    enter = np.full((anchors, trace.meta.k), -1)
    enter[:, : len(first)] = first
    enter[np.arange(trace.meta.k) >= drafts["matched"].to_numpy()[:, None]] = -1
    # Tokens of the path are the draft's as far as that is right; no text has the others.
    token = rng.integers(10_000, 20_000, (anchors, NODES))
    said = drafts["token"].combine_chunks().flatten().to_numpy().reshape(anchors, -1)
    for level, place in enumerate(first, start=1):
        right = drafts["matched"].to_numpy() >= level
        token[right, place - 1] = said[right, level - 1]
    lists = {
        "node_depth": np.tile(depth, anchors),
        "node_parent": np.tile(parent, anchors),
        "node_token": token.ravel(),
        "node_logq": np.full(anchors * NODES, -0.7, np.float16),
    }
    ends = pa.array(np.arange(anchors + 1) * NODES, pa.int32())
    columns = {
        "seq": drafts["seq"],
        "anchor": drafts["anchor"],
        "drafter": drafts["drafter"],
        "builder": pa.array([BUILDER] * anchors),
        "enter_budget": pa.FixedSizeListArray.from_arrays(
            pa.array(enter.ravel(), pa.int16()), trace.meta.k
        ),
        **{
            name: pa.ListArray.from_arrays(ends, pa.array(each, schema.field(name).type.value_type))
            for name, each in lists.items()
        },
    }
    trees = pa.table({field.name: columns[field.name] for field in schema}).cast(schema)
    shape = {"nodes": NODES, "depth": int(depth.max()), "nested": True}
    meta = dataclasses.replace(trace.meta, trees={trace.drafters[0]: {BUILDER: shape}})
    tables = {name: trace.table(name) for name in ("sequences", "positions", "drafts")}
    return Trace(meta, {**tables, "trees": trees}).validate()


def report(what: str, widget: Any, changes: list[dict[str, Any]]) -> None:
    """Print the median milliseconds of these changes, the first one left out."""
    widget.view  # noqa: B018  what is shown is redrawn
    took = [1e3 * seconds(lambda change=change: widget.set(**change)) for change in changes]
    print(f"{what:<28} {statistics.median(took[1:]):7.1f} ms   (aim: {AIM} ms)", flush=True)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
