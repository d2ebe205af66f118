"""Judge the detector and the policy that switches on it: detection, and modelled speed.

    python data/detector/measure.py

Needs the captures of `build.py` and those of data/drafters/build.py, and out/detector/cost.json,
which `live.py` measures; writes into out/detector/results.json.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from build import CLASSES, DRAFTERS, HELD_OUT, HERE, SEED, WORK, fitted

import specviz as sv
from specviz.analysis.levers.switching import content_of, detection, fit_choices, speed_ratio
from specviz.analysis.replays.oracle import best_fixed, regret
from specviz.analysis.replays.replay import replay
from specviz.policies import DraftView, FixedK, History, Plan
from specviz.policies.adaptive import ContentAdaptive
from specviz.policies.detector import Detector, load_detector
from specviz.presets import free_drafts, t4_like
from specviz.trace import Trace

HOLD = 4
SPECIAL = ("eagle-mixed", "eagle-code", "eagle-prose")
#: Who may draft: a policy, its oracle and the best fixed k are held to the same drafters.
POOLS = {"all": DRAFTERS, "specialists": SPECIAL, "lm": ("lm",)}


# --- results, kept from step to step


def keep(name: str, found: Any) -> None:
    file = WORK / "results.json"
    results = json.loads(file.read_text("utf-8")) if file.exists() else {}
    results[name] = _plain(found)
    file.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", "utf-8")


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def records(table: pd.DataFrame) -> Any:
    return json.loads(table.to_json(orient="records", double_precision=6))


# --- detection


def labels_of(trace: Trace) -> dict[str, list[str]]:
    """The labels of every token of the mixed outputs; refused where an output is another."""
    card = json.loads((HERE / "mixed_spans.json").read_text("utf-8"))
    known = {each["prompt_id"]: each for each in card["outputs"]}
    found = {}
    for row in trace.sequences.sort_values("seq").itertuples():
        mine = known[row.prompt_id]
        if hashlib.sha256(row.output.encode()).hexdigest() != mine["output_sha256"]:
            raise SystemExit(f"{row.prompt_id} has another output here: its labels do not hold.")
        spans = mine["spans"]
        found[row.prompt_id] = [s["label"] for s in spans for _ in range(s["end"] - s["start"])]
    return found


def judge_detection(detector: Detector, traces: dict[str, Trace]) -> None:
    mixed = traces["mixed"]
    labels = labels_of(mixed)
    rows = pq.read_table(WORK / "texts.parquet").to_pylist()
    held = np.random.default_rng(SEED).random(len(rows)) < HELD_OUT
    learned = [row for row, out in zip(rows, held, strict=True) if not out]
    versions = {"shipped": detector, "without fences": fitted(detector, learned, "fence")}
    table, confusions = [], {}
    for name, version in versions.items():
        for hold in (1, 2, 4, 8):
            policy = ContentAdaptive(version, dict.fromkeys(CLASSES, Plan(0)), hold)
            found = detection(
                content_of(mixed, policy), list(labels.values()), CLASSES, list(labels)
            )
            delays = found.delays["delay"]
            ends = {
                f"delay_to_{kind}_median": part["delay"].median()
                for kind, part in found.delays.groupby("label")
            }
            table.append(
                {
                    "detector": name,
                    "hold": hold,
                    "right": found.right,
                    "spans_begun": len(delays),
                    "missed": int(delays.isna().sum()),
                    "delay_median": delays.median(),
                    "delay_mean": delays.mean(),
                    "delay_p90": delays.quantile(0.9),
                    **ends,
                    "false_switches_per_100": found.false_per_100,
                    "tokens": found.tokens,
                    "prompts": len(labels),
                }
            )
            confusions[f"{name}, hold {hold}"] = found.confusion.to_dict("split")
    keep("detection_mixed", table)
    keep("confusion_mixed", {key: value for key, value in confusions.items() if "4" in key})
    policy = ContentAdaptive(detector, dict.fromkeys(CLASSES, Plan(0)), HOLD)
    shares = []
    for trace in (traces["families"], traces["structured"], mixed):
        kinds = trace.sequences.sort_values("seq")["content_type"]
        for kind, said in zip(kinds, content_of(trace, policy), strict=True):
            shares += [(kind, name) for name in said]
    taken = pd.DataFrame(shares, columns=["content_type", "taken_for"])
    counts = pd.crosstab(taken["content_type"], taken["taken_for"], normalize="index")
    keep("taken_for_by_type", counts.round(4).to_dict("index"))


# --- modelled speed


@dataclass(frozen=True)
class Labelled:
    """The plans of a detector that is never wrong and never late; it knows the outputs.

    Outputs are told apart by their first eight tokens: among fewer, the first that fits counts.
    """

    plans: Any
    known: Any
    name: str = "perfect-detector"
    replayable: bool = True

    def plan(self, past: History) -> Plan:
        begins = list(past.tokens[:8])
        labels = next(mine for tokens, mine in self.known if tokens[: len(begins)] == begins)
        return self.plans[labels[min(past.anchor, len(labels) - 1)]]

    def more(self, view: DraftView) -> bool:
        return True


def judge_speed(detector: Detector, cost: Any, train: Trace, traces: dict[str, Trace]) -> None:
    tables, ratios, chosen = [], [], []
    known = []
    labels = labels_of(traces["mixed"])
    for row in traces["mixed"].sequences.itertuples():
        tokens = traces["mixed"].positions.query("seq == @row.seq").sort_values("t")["token_id"]
        known.append((tokens.tolist(), labels[row.prompt_id]))
    for model in (cost, t4_like(), free_drafts(cost)):
        for pool, names in POOLS.items():
            some = train.select(drafter=list(names))
            plans = fit_choices(some, detector, model, hold=HOLD)
            policies: dict[str, Any] = {
                "content": ContentAdaptive(detector, plans, HOLD),
                "fixed from training": best_fixed(some, model),
            }
            for name in names if len(names) > 1 else ():
                policies[f"{name} alone"] = best_fixed(some, model, name)
            chosen.append(
                {
                    "cost": model.name,
                    "pool": pool,
                    **{name: f"{plan.drafter}, k = {plan.k}" for name, plan in plans.items()},
                    **{
                        label: f"{p.drafter}, k = {p.k}"
                        for label, p in policies.items()
                        if isinstance(p, FixedK)
                    },
                }
            )
            for which, trace in traces.items():
                if not set(names) <= set(trace.drafters):
                    continue
                part = trace.select(drafter=list(names))
                more = {"perfect detector": Labelled(plans, known)} if which == "mixed" else {}
                named = policies | more
                found = regret(part, named, model)
                tables.append(found.assign(pool=pool, capture=which))
                runs = {label: replay(part, policy) for label, policy in named.items()}
                runs["best fixed, hindsight"] = replay(part, best_fixed(part, model))
                for label in [name for name in runs if name != "content"]:
                    ratio = speed_ratio(runs["content"], runs[label], model)
                    ratios.append(
                        {
                            "cost": model.name,
                            "pool": pool,
                            "capture": which,
                            "content_over": label,
                            "speed_ratio": ratio.estimate,
                            "low": ratio.low,
                            "high": ratio.high,
                            "prompts": ratio.n_prompts,
                        }
                    )
                said = runs["content"].rounds
                switched = (said["drafter"] != said["drafter"].shift()) & (said["round"] > 0)
                ratios[-1]["drafter_switches_per_100_rounds"] = 100 * float(switched.mean())
    keep("choices", chosen)
    keep("modelled", records(pd.concat(tables)))
    keep("speed_ratios", ratios)


def judge() -> None:
    traces = {name: sv.load_trace(WORK / name) for name in ("mixed", "structured")}
    for group in ("specialists", "families"):
        traces[group] = sv.load_trace(Path("out/drafters") / f"measured-{group}")
    train = sv.load_trace(WORK / "train")
    detector = load_detector(train.meta.target["fingerprint"])
    asked = set(train.sequences["prompt"])
    assert not asked & {p for trace in traces.values() for p in trace.sequences["prompt"]}
    judge_detection(detector, traces)
    cost = sv.CostModel.from_dict(json.loads((WORK / "cost.json").read_text("utf-8")))
    judge_speed(detector, cost, train, traces)


if __name__ == "__main__":
    torch.set_num_threads(1)
    judge()
