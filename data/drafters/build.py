"""Make the drafters that come with specviz, from nothing: corpora, training, measuring, cards.

    python data/drafters/build.py corpus general-a   # any name in CORPORA: the target's answers
    python data/drafters/build.py train eagle        # any name in RUNS
    python data/drafters/build.py measure objectives # any name in GROUPS: the evaluation prompts
    python data/drafters/build.py table objectives   # what a group reached, beside its first
    python data/drafters/build.py ship               # weights and cards into data/drafters

Every step goes on where it was stopped, and uses one core. Work files lie in ./out/drafters.
The families are measured by data/traces/build.py, which captures what has been shipped: ship once
before it and once after it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import specviz as sv
from specviz.analysis.ceilings.candidates import depth_match, recall_lengths
from specviz.analysis.drafting.controls import compare_drafters
from specviz.analysis.drafting.families import family_table
from specviz.drafters.trained import CARD, WEIGHTS
from specviz.prompt_set import Prompt
from specviz.training.corpus import build_corpus, default_taps, load_corpus
from specviz.training.loop import Schedule
from specviz.training.objectives import OBJECTIVES
from specviz.training.prompts import training_prompts
from specviz.training.run import train_drafter

HERE = Path(__file__).resolve().parent
WORK = Path("out/drafters")
#: All families on all evaluation prompts.
CAPTURED = Path("out/traces/greedy")

#: Prompts of each corpus: all types alike, and more of the two that the puzzle is about.
CORPORA: dict[str, Callable[[], list[Prompt]]] = {
    "general-a": lambda: training_prompts(6144, seed=0)[:768],
    "general-b": lambda: training_prompts(6144, seed=0)[3072:3840],
    "code": lambda: training_prompts(2304, seed=0, mix={"code": 1})[768:1536],
    "prose": lambda: training_prompts(2304, seed=0, mix={"prose": 1})[768:1536],
}
_OTHERS = ("structured", "explanation", "maths", "dialogue", "copy_edit", "mixed")


def _weighted(code: float, prose: float) -> dict[str, float]:
    """Shares of code and prose; the other types share what is left."""
    rest = (1 - code - prose) / len(_OTHERS)
    return {"code": code, "prose": prose, **dict.fromkeys(_OTHERS, rest)}


#: What drafters may be trained for: three that go on from one, on the same batches.
_AIMED = {"family": "eagle", "start": WORK / "eagle", "steps": 240, "rate": 3e-4}
#: Arguments of `train_drafter`, and of its schedule. The three specialised ones differ in their
#: mix alone.
_SPECIAL = {"family": "eagle", "max_tokens": 90_000, "steps": 140}
RUNS: dict[str, dict[str, Any]] = {
    "bigram": {"family": "bigram"},
    "lm": {"family": "lm", "layers": (0, 1, 2, 10, 20, 29), "steps": 750},
    "eagle": {"family": "eagle", "steps": 600},
    "block": {"family": "block", "steps": 2600, "rate": 2e-3},
    "mtp": {"family": "mtp", "steps": 900},
    "eagle-code": {**_SPECIAL, "mix": _weighted(0.8, 0.05)},
    "eagle-prose": {**_SPECIAL, "mix": _weighted(0.05, 0.8)},
    "eagle-mixed": {**_SPECIAL, "mix": _weighted(0.425, 0.425)},
    **{f"eagle-{objective}": {**_AIMED, "objective": objective} for objective in OBJECTIVES},
}
#: Captured together, so that they are compared on the same outputs.
FAMILIES = ("bigram", "lm", "eagle", "block", "mtp")
GROUPS = {
    "specialists": ("bigram", "eagle-code", "eagle-prose", "eagle-mixed"),
    "objectives": (*(f"eagle-{objective}" for objective in OBJECTIVES), "eagle"),
}
#: Evaluation prompts of each type, at most.
PROMPTS = {"specialists": 12, "objectives": 12}


def corpus(name: str) -> None:
    target = sv.load_target()
    build_corpus(
        target, CORPORA[name](), WORK / f"corpus-{name}", taps=default_taps(target), batch_size=96
    )


def train(name: str) -> None:
    settings = dict(RUNS[name])
    steps, rate = settings.pop("steps", 1), settings.pop("rate", 1e-3)
    train_drafter(
        settings.pop("family"),
        sv.load_target(),
        load_corpus(*(WORK / f"corpus-{part}" for part in CORPORA)),
        WORK / name,
        schedule=Schedule(steps=steps, rate=rate, evaluate_every=max(steps // 7, 1)),
        **settings,
    )


def measure(group: str) -> None:
    """Code and prose of the evaluation prompts, greedy, with a group's drafters at every anchor."""
    target = sv.load_target()
    sv.capture(
        sv.prompts(content_type=["code", "prose"], limit=PROMPTS[group]),
        target,
        [sv.load_drafter(WORK / name, target) for name in GROUPS[group]],
        k=7,
        max_new_tokens=64,
        out=WORK / f"measured-{group}",
    )


def table(group: str) -> None:
    """Tokens per round of a group (k = 7, bonus counted), over its first, and within its first
    four candidates; how often its likeliest token is right at depths 1 and 3."""
    trace, (first, *names) = sv.load_trace(WORK / f"measured-{group}"), GROUPS[group]
    print("| drafter | text | chain | over " + first + " | first four | depth 1 | depth 3 |")
    print("|---|---|---|---|---|---|---|")
    for name in (first, *names):
        recall = recall_lengths(trace, name, (4,)).set_index("content_type")
        match = depth_match(trace, name).set_index(["content_type", "depth"])["match"]
        over = compare_drafters(trace, name, first).set_index("content_type")
        for kind, row in recall.iterrows():
            more = over.loc[kind]
            print(
                f"| `{name}` | {kind} | {row['tokens_per_round']:.2f} "
                f"[{row['low']:.2f}, {row['high']:.2f}] | {more['difference']:+.2f} "
                f"[{more['low']:+.2f}, {more['high']:+.2f}] | {row['recall']:.2f} "
                f"[{row['recall_low']:.2f}, {row['recall_high']:.2f}] | {match[kind, 1]:.3f} "
                f"| {match[kind, 3]:.3f} |"
            )


def ship() -> None:
    """Copy weights and cards; each card gets what was measured, beside its controls."""
    special = [name for name in GROUPS["specialists"] if name not in FAMILIES]
    for names, folder in ((special, WORK / "measured-specialists"), (FAMILIES, CAPTURED)):
        table = None
        if (folder / "trace.json").exists():
            table = family_table(sv.load_trace(folder), bigram="bigram")
        for name in names:
            card = json.loads((WORK / name / CARD).read_text("utf-8"))
            card |= {
                "name": name,
                "licence": "Apache-2.0, as the target's",
                "mix": RUNS[name].get("mix"),
                "measured": [] if table is None else _rows(table, name),
            }
            shutil.copyfile(WORK / name / WEIGHTS, HERE / f"{name}.safetensors")
            (HERE / f"{name}.safetensors").chmod(0o644)
            (HERE / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")


def _rows(table: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    mine = table[table["drafter"] == name].drop(columns="drafter")
    rows: list[dict[str, Any]] = json.loads(mine.to_json(orient="records"))
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    step, *names = sys.argv[1:]
    {"corpus": corpus, "train": train, "measure": measure, "table": table, "ship": ship}[step](
        *names
    )
