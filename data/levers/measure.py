"""Measure what moves prose and code beyond a chain: trees, policies, costs.

    python data/levers/measure.py ranks     # how often each rank of a drafter is right
    python data/levers/measure.py capture   # the evaluation prompts, with trees at every anchor
    python data/levers/measure.py cost      # seconds of drafts, trees and verifications here
    python data/levers/measure.py ship      # the captures into data/traces

Work files lie in ./out/levers; capture goes on where it was stopped, on one core. Leave the
machine alone while `cost` runs. docs/levers.md and notebook 02 read what is made here.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import torch

import specviz as sv
from specviz.analysis.replays.tree_rounds import rank_acceptance
from specviz.engine.tree_drafts import Trie
from specviz.engine.tree_shapes import BestFirst, Dynamic, Sequoia
from specviz.trace.schema import table_schemas
from specviz.training.prompts import training_prompts

HERE = Path(__file__).resolve().parent
WORK = Path("out/levers")
DEPTH, NODES = 7, 64
DRAFTERS = ("lm", "eagle", "ngram")


def shapes() -> dict[str, list[BestFirst | Dynamic | Sequoia | Trie]]:
    """What each drafter grows; Sequoia's shares come from other prompts than are judged on."""
    shares = json.loads((WORK / "ranks.json").read_text("utf-8"))
    return {
        "lm": [BestFirst(NODES, DEPTH), Sequoia(tuple(shares["lm"]), NODES, DEPTH)],
        "eagle": [BestFirst(NODES, DEPTH), Dynamic(8, DEPTH, NODES)],
        "ngram": [Trie(NODES, DEPTH)],
    }


def ranks() -> None:
    target = sv.load_target()
    trace = sv.capture(
        training_prompts(32, seed=2, mix={"code": 1, "prose": 1}),
        target,
        [sv.load_drafter(name, target) for name in ("lm", "eagle")],
        k=DEPTH,
        max_new_tokens=48,
        out=WORK / "training",
    )
    found = {name: rank_acceptance(trace, name) for name in trace.drafters}
    (WORK / "ranks.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(found)


def capture() -> None:
    target = sv.load_target()
    sv.capture(
        sv.prompts(content_type=["code", "prose"]),
        target,
        [sv.load_drafter(name, target) for name in DRAFTERS],
        k=DEPTH,
        trees=shapes(),
        max_new_tokens=64,
        out=WORK / "trace",
    )


def cost() -> None:
    target = sv.load_target()
    trees = {
        name: [
            type(shape)(**{**vars(shape), "budget": nodes})
            for shape in asked
            for nodes in (8, 16, 32, 64)
        ]
        for name, asked in shapes().items()
    }
    measured = sv.measure_cost(
        target, [sv.load_drafter(name, target) for name in DRAFTERS], trees=trees, repeats=5
    )
    (WORK / "cost.json").write_text(json.dumps(measured.to_dict(), indent=1) + "\n", "utf-8")
    print(measured)


def ship() -> None:
    """The capture with the measured costs in its description."""
    trace = sv.load_trace(WORK / "trace").validate()
    raw = json.loads((WORK / "cost.json").read_text("utf-8"))
    raw["name"], raw["provenance"] = "capture's machine", "measured where it was captured"
    meta = dataclasses.replace(trace.meta, cost_models=(raw,))
    tables = {name: trace.table(name) for name in table_schemas(meta.k)}
    sv.Trace(meta, tables).save(HERE.parent / "traces" / "smollm2-trees")
    sv.load_trace(WORK / "training").save(HERE.parent / "traces" / "smollm2-fitting")


if __name__ == "__main__":
    WORK.mkdir(parents=True, exist_ok=True)
    for step in sys.argv[1:]:
        if step != "cost":
            torch.set_num_threads(1)
        {"ranks": ranks, "capture": capture, "cost": cost, "ship": ship}[step]()
