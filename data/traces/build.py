"""Capture the traces that come with specviz: evaluation prompts, every drafter family.

    python data/traces/build.py greedy    # and trees for the families that grow them
    python data/traces/build.py sampled   # temperature 1, with p and q along the samples
    python data/traces/build.py quant     # a drafter that can say every token, so that KL is finite
    python data/traces/build.py cost      # seconds of drafts, trees and verifications here
    python data/traces/build.py ship      # what is finished into data/traces

Work files lie in ./out/traces. The captures go on where they were stopped and use two processes
of one thread each; leave the machine alone while `cost` runs. `smollm2-trees` and
`smollm2-fitting` come from data/levers/measure.py.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

import specviz as sv
from specviz.prompt_set import Prompt
from specviz.trace.schema import table_schemas

HERE = Path(__file__).resolve().parent
WORK = Path("out/traces")
TARGET = "smollm2-135m"
K, NODES, DEPTH, TOKENS = 10, 16, 7, 64
#: Prompts of each content type that is neither code nor prose.
OTHERS = 8
#: One of each family, and the control.
DRAFTERS = ("ngram", "bigram", "lm", "eagle", "block", "mtp")
TREES = {
    "ngram": [sv.Trie(NODES, DEPTH)],
    **{name: [sv.BestFirst(NODES, DEPTH)] for name in ("lm", "eagle", "block", "mtp")},
}


def prompts() -> list[Prompt]:
    """All evaluation prompts of code and prose, and some of the other types."""
    every = sv.prompts()
    others = sorted({prompt.content_type for prompt in every} - {"code", "prose"})
    return sv.prompts(content_type=["code", "prose"]) + sv.prompts(
        content_type=others, limit=OTHERS
    )


def _capture(name: str, trees: dict[str, list], sampling: sv.Sampling) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        sv.capture(
            prompts(),
            TARGET,
            list(DRAFTERS),
            k=K,
            trees=trees,
            sampling=sampling,
            max_new_tokens=TOKENS,
            out=WORK / name,
            executor=pool,
        )


def greedy() -> None:
    _capture("greedy", TREES, sv.Sampling(temperature=0))


def sampled() -> None:
    _capture("sampled", {}, sv.Sampling())


def quant() -> None:
    few = sv.prompts(content_type=["code", "prose"], limit=10)
    target = sv.load_target(TARGET)
    drafter = sv.load_drafter("self-quant", target)
    settings = {"k": 7, "max_new_tokens": TOKENS, "sampling": sv.Sampling()}
    sv.capture(few, target, drafter, out=WORK / "self-quant", **settings)


def cost() -> None:
    target = sv.load_target(TARGET)
    trees = {
        name: [dataclasses.replace(shapes[0], budget=nodes) for nodes in (4, 8, 16)]
        for name, shapes in TREES.items()
    }
    drafters = [sv.load_drafter(name, target) for name in DRAFTERS]
    measured = sv.measure_cost(target, drafters, trees=trees, repeats=5)
    (WORK / "cost.json").write_text(json.dumps(measured.to_dict(), indent=1) + "\n", "utf-8")
    print(measured)


def ship() -> None:
    """The captures; those of the families with the measured costs in their description."""
    if (WORK / "self-quant" / "drafts.parquet").exists():
        sv.load_trace(WORK / "self-quant").validate().save(HERE / "smollm2-self-quant")
    raw = json.loads((WORK / "cost.json").read_text("utf-8"))
    raw["name"], raw["provenance"] = "capture's machine", "measured where it was captured"
    finished = [name for name in ("greedy", "sampled") if (WORK / name / "drafts.parquet").exists()]
    for name in finished:
        trace = sv.load_trace(WORK / name).validate()
        meta = dataclasses.replace(trace.meta, cost_models=(raw,))
        tables = {part: trace.table(part) for part in table_schemas(meta.k)}
        sv.Trace(meta, tables).save(HERE / f"smollm2-{name}")


if __name__ == "__main__":
    WORK.mkdir(parents=True, exist_ok=True)
    for step in sys.argv[1:]:
        steps = {"greedy": greedy, "sampled": sampled, "quant": quant, "cost": cost, "ship": ship}
        steps[step]()
