"""What a switch of drafters costs on this machine, and whether the policy is as fast as modelled.

    python data/detector/live.py

Needs the captures of `build.py`; writes into out/detector/results.json, and the costs that
`measure.py` judges with into out/detector/cost.json. Everything that is
compared is measured side by side in this one run, and the modelled speeds use costs measured in
it. On a machine that does other work only the ratios say something.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from build import CLASSES, DRAFTERS, WORK
from measure import HOLD, POOLS, keep
from torch import nn

import specviz as sv
from specviz.analysis.levers.switching import fit_choices
from specviz.analysis.replays.oracle import best_fixed
from specviz.engine.protocols import Draft
from specviz.policies import DraftView, FixedK, History, Plan
from specviz.policies.adaptive import ContentAdaptive
from specviz.policies.detector import load_detector

#: Each prompt is answered this often by each policy.
REPEATS = 1


def plan_calls(target: Any) -> list[dict[str, Any]]:
    """Microseconds of one `plan`, against a plain step timed in between."""
    policy = ContentAdaptive(
        load_detector(target.fingerprint), dict.fromkeys(CLASSES, Plan(4)), HOLD
    )
    positions = sv.load_trace(WORK / "mixed").positions
    tokens, entropy = positions["token_id"].tolist(), positions["entropy"].tolist()
    target.prefill(tokens[:160], [])
    found = []
    for n in (32, 128, 1024, len(tokens)):
        past = History(n - 1, (), tokens[:n], entropy[:n], (), ())
        times: dict[str, list[float]] = {"plan": [], "step": []}
        for _ in range(12):
            began = time.perf_counter()
            target.verify(Draft(tokens[160]))
            times["step"].append(time.perf_counter() - began)
            for _ in range(10):
                began = time.perf_counter()
                policy.plan(past)
                times["plan"].append(time.perf_counter() - began)
        plan, step = (float(np.median(times[name])) for name in ("plan", "step"))
        found.append(
            {
                "output_tokens": n,
                "plan_microseconds": 1e6 * plan,
                "plain_step_milliseconds": 1e3 * step,
                "plan_over_step": plan / step,
            }
        )
    return found


@dataclass(frozen=True)
class Alternate:
    """Two drafters in turn, `every` rounds each: what a switch costs, without a detector."""

    names: tuple[str, str]
    every: int
    k: int
    name: str = "alternate"
    replayable: bool = True

    def plan(self, past: History) -> Plan:
        return Plan(self.k, self.names[len(past.rounds) // self.every % 2])

    def more(self, view: DraftView) -> bool:
        return True


def main() -> None:
    target = sv.load_target()
    prompts = sv.prompts(content_type="mixed")
    drafters = {name: sv.load_drafter(name, target) for name in DRAFTERS}
    keep("memory_mb", memory(target, drafters, prompts[0].messages))
    keep("plan_calls", plan_calls(target))
    switches = []
    for pair in (("eagle-code", "eagle-prose"), ("lm", "eagle-mixed")):
        for every in (4,):
            policy = Alternate(pair, every, k=4)
            two = {name: drafters[name] for name in pair}
            rounds = run_all(target, two, prompts[:3], policy, 64)
            switches += at_switches(rounds, pair, every)
    keep("switches", switches)
    live_speed(target, drafters, prompts)


def run_all(
    target: Any, drafters: dict[str, Any], prompts: Any, policy: Any, tokens: int
) -> pd.DataFrame:
    parts = []
    for prompt in prompts:
        run = sv.generate(target, drafters, prompt.messages, policy=policy, max_new_tokens=tokens)
        rounds = run.finish().rounds
        other = rounds["drafter"] != rounds["drafter"].shift()
        parts.append(rounds.assign(switched=other & (rounds["round"] > 0)))
    return pd.concat(parts)


def at_switches(rounds: pd.DataFrame, pair: tuple[str, str], every: int) -> list[dict[str, Any]]:
    """Draft and round seconds in the first round after a switch, over those of later rounds.

    Each drafter's first draft catches up with the whole prompt: it is given on its own, and its
    first turn is left out of the rest.
    """
    opening = rounds[rounds["round"].isin([0, every]) & rounds["switched"].eq(rounds["round"] > 0)]
    rounds = rounds[rounds["round"] >= 2 * every]
    rounds = rounds.assign(
        total=rounds[["draft_seconds", "verify_seconds", "other_seconds"]].sum(axis=1)
    )
    full = rounds[rounds["drafted"] == rounds["drafted"].max()]
    found = []
    for name in pair:
        mine = full[full["drafter"] == name]
        whole_prompt = opening[opening["drafter"] == name]["draft_seconds"]
        first, later = mine[mine["switched"]], mine[~mine["switched"]]
        found.append(
            {
                "drafter": name,
                "rounds_per_turn": every,
                "draft_ratio": first["draft_seconds"].median() / later["draft_seconds"].median(),
                "first_use_ratio": whole_prompt.median() / later["draft_seconds"].median(),
                "draft_ms_at_switch": 1e3 * first["draft_seconds"].median(),
                "draft_ms_steady": 1e3 * later["draft_seconds"].median(),
                "round_p50_ratio": first["total"].median() / later["total"].median(),
                "round_p95_ratio": first["total"].quantile(0.95) / later["total"].quantile(0.95),
                "round_ms_p50_at_switch": 1e3 * first["total"].median(),
                "round_ms_p95_at_switch": 1e3 * first["total"].quantile(0.95),
                "round_ms_p50_steady": 1e3 * later["total"].median(),
                "round_ms_p95_steady": 1e3 * later["total"].quantile(0.95),
                "switch_rounds": len(first),
                "steady_rounds": len(later),
            }
        )
    return found


def live_speed(target: Any, drafters: dict[str, Any], prompts: Any) -> None:
    """Tokens per second, policies in turn, beside the model's for the same rounds."""
    detector = load_detector(target.fingerprint)
    train = sv.load_trace(WORK / "train")
    cost = sv.measure_cost(target, list(drafters.values()), repeats=3, progress=False)
    (WORK / "cost.json").write_text(json.dumps(cost.to_dict()), "utf-8")
    few = prompts[2::6]
    policies: dict[str, Any] = {"plain": FixedK(0, "ngram")}
    for pool in ("specialists", "all"):
        some = train.select(drafter=list(POOLS[pool]))
        plans = fit_choices(some, detector, cost, hold=HOLD)
        policies[f"content, {pool}"] = ContentAdaptive(detector, plans, HOLD)
        policies[f"fixed, {pool}"] = best_fixed(some, cost)
    spent: dict[str, list[tuple[int, float, int, float]]] = {name: [] for name in policies}
    for _ in range(REPEATS):
        for prompt in few:
            for name, policy in policies.items():
                mine = {plan.drafter for plan in getattr(policy, "choices", {}).values()}
                mine = mine or {policy.drafter}
                run = sv.generate(
                    target,
                    {each: drafters[each] for each in drafters if each in mine},
                    prompt.messages,
                    policy=policy,
                    max_new_tokens=64,
                )
                began = time.perf_counter()
                run.finish()
                seconds = time.perf_counter() - began
                modelled = sum(cost.round_seconds(r.drafter, r.drafted) for r in run.log)
                spent[name].append((len(run.token_ids) - 1, seconds, len(run.log), modelled))
    table = []
    for name, policy in policies.items():
        tokens, seconds, rounds, modelled = np.array(spent[name]).sum(axis=0)
        table.append(
            {
                "policy": name,
                "plans": describe(policy),
                "live_tokens_per_second": tokens / seconds,
                "modelled_tokens_per_second": tokens / modelled,
                "tokens_per_round": tokens / rounds,
                "runs": len(spent[name]),
                "prompts": len(few),
            }
        )
    plain = table[0]
    for row in table:
        for kind in ("live", "modelled"):
            rate = f"{kind}_tokens_per_second"
            row[f"{kind}_speedup"] = row[rate] / plain[rate]
    keep("live_speed", table)


def describe(policy: Any) -> str:
    if isinstance(policy, FixedK):
        return f"{policy.drafter}, k = {policy.k}"
    return "; ".join(f"{n}: {p.drafter}, k = {p.k}" for n, p in policy.choices.items())


def memory(target: Any, drafters: dict[str, Any], prompt: Any) -> list[dict[str, Any]]:
    """Megabytes of each drafter beyond the target: weights, and what the text adds."""
    theirs = {key for key, _ in tensors(target.model)}
    found = []
    for name, drafter in drafters.items():
        drafter.attach(target)
        before = dict(tensors(drafter))
        run = sv.generate(target, drafter, prompt, policy=FixedK(4), max_new_tokens=24)
        run.finish()
        after = dict(tensors(drafter))
        own = sum(size for key, size in before.items() if key not in theirs)
        all_ = sum(size for key, size in after.items() if key not in theirs)
        n = len(run.prompt_ids) + len(run.token_ids)
        found.append(
            {
                "drafter": name,
                "weights": own / 1e6,
                "state": (all_ - own) / 1e6,
                "tokens": n,
            }
        )
    weights = sum(dict(tensors(target.model)).values()) / 1e6
    return [*found, {"drafter": "(the target)", "weights": weights}]


def tensors(thing: Any, seen: set[int] | None = None) -> Iterator[tuple[int, int]]:
    """Address and bytes of every tensor that an object holds."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type)):
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        store = thing.untyped_storage()
        yield store.data_ptr(), store.nbytes()
    elif isinstance(thing, nn.Module):
        for part in (*thing.parameters(), *thing.buffers()):
            yield from tensors(part, seen)
    elif isinstance(thing, dict):
        for part in thing.values():
            yield from tensors(part, seen)
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from tensors(part, seen)
    elif hasattr(thing, "__dict__") and type(thing).__module__.startswith("specviz"):
        yield from tensors(vars(thing), seen)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
