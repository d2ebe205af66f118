"""Measure what lossy acceptance rules gain and what they give up, on the evaluation prompts.

    python data/lossy/measure.py run      # an answer to every prompt with every rule
    python data/lossy/measure.py table    # results.parquet, results.json and results.md of these

`run` goes on where it was stopped, and uses one core. A second word names the group of rules:
"greedy" (the default) or "sampled". Work files lie in ./out/lossy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import specviz as sv
from specviz.analysis.levers.drift import drift_table
from specviz.analysis.levers.task_checks import asks_for
from specviz.engine.acceptance import Greedy, Rejection
from specviz.engine.lossy import Lenience, ProbabilityGap, ProbabilityRatio, TopM, Typical
from specviz.policies import FixedK
from specviz.prompt_set import Prompt
from specviz.trace import Trace
from specviz.trials import run_prompts

WORK = Path("out/lossy")
DRAFTER, K, NEW_TOKENS, SEED = "lm", 7, 64, 0

#: The first rule of a group is the lossless one that the others are held against.
GROUPS: dict[str, tuple[Any, ...]] = {
    "greedy": (
        Greedy(),
        Typical(),
        ProbabilityRatio(0.5),
        ProbabilityGap(0.3),
        TopM(2),
        ProbabilityGap(0.1),
        ProbabilityRatio(0.2),
        TopM(3),
    ),
    "sampled": (Rejection(), Lenience(0.5), Lenience(0.2)),
}
#: Prompts of a type that has no task check, at most.
PROSE, OTHERS = 6, 2


def chosen() -> list[Prompt]:
    """Every prompt whose answer can be checked, and some of the types that have no check."""
    prompts, checked = sv.prompts(), []
    for prompt in prompts:
        text = "\n".join(message["content"] for message in prompt.messages)
        if asks_for(prompt.content_type, text):
            checked.append(prompt)
    kinds = {prompt.content_type for prompt in checked}
    others = [
        prompt
        for kind in dict.fromkeys(p.content_type for p in prompts if p.content_type not in kinds)
        for prompt in sv.prompts(content_type=kind, limit=PROSE if kind == "prose" else OTHERS)
    ]
    return [*checked, *others]


def run(group: str) -> None:
    """Generate with every rule of a group."""
    torch.set_num_threads(1)
    target = sv.load_target()
    drafter = sv.load_drafter(DRAFTER, target)
    for rule in GROUPS[group]:
        run_prompts(
            chosen(),
            target,
            drafter,
            policy=FixedK(K),
            acceptance=rule,
            max_new_tokens=NEW_TOKENS,
            seed=SEED,
            out=WORK / rule.name,
        )


def table(group: str) -> None:
    """The drift table of a group, over the prompts that every rule has answered so far."""
    names = [rule.name for rule in GROUPS[group]]
    traces = {name: sv.load_trace(WORK / name) for name in names if (WORK / name).exists()}
    answered = [set(trace.sequences["prompt_id"]) for trace in traces.values()]
    both = [prompt.id for prompt in chosen() if all(prompt.id in ids for ids in answered)]
    held = {name: trace.select(prompt_id=both) for name, trace in traces.items()}
    baseline = held.pop(names[0])
    results = drift_table(held, baseline, seed=SEED)
    stem = WORK / ("results" if group == "greedy" else f"results-{group}")
    results.to_parquet(stem.with_suffix(".parquet"))
    settings = {
        "target": baseline.meta.target,
        "drafter": DRAFTER,
        "k": K,
        "max_new_tokens": NEW_TOKENS,
        "seed": SEED,
        "software": baseline.meta.software,
        "prompts": both,
    }
    rows = json.loads(results.to_json(orient="records"))
    stem.with_suffix(".json").write_text(json.dumps({**settings, "rows": rows}, indent=1) + "\n")
    stem.with_suffix(".md").write_text(_markdown(results, baseline), encoding="utf-8")
    print(stem.with_suffix(".md").read_text(encoding="utf-8"))


def _markdown(results: pd.DataFrame, baseline: Trace) -> str:
    """The results as the table of a page, with what every number is."""
    lossless = baseline.meta.acceptance
    lines = [
        f"Target {baseline.meta.target['caption']}; drafter {DRAFTER}, k = {K}, at most "
        f"{NEW_TOKENS} new tokens. Tokens per round count the bonus token; 95 % intervals resample "
        f"prompts. Gained: above {lossless}, on the same prompts but on texts that part. Drift: "
        "share of the tokens emitted by rounds that are not the target's argmax. Given up: mean "
        "ln(p_max / p(token)) in nats, over all these tokens and over the drifted ones. Repeated: "
        f"share of them that end a 12-gram said before, and with {lossless}. Parted: "
        f"prompts whose output differs from that of {lossless}, and the median first position "
        f"that does. Task check: texts that pass, of the checked, with this rule and with "
        f"{lossless}. n: prompts and rounds.",
        "",
        "| rule | text | tokens per round | gained | drift | given up (all / drifted) | repeated "
        "| parted (share / at) | task check | n |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results.to_dict("records"):
        lines.append(
            f"| {row['rule']}{' (lossy)' if row['lossy'] else ''} | {row['content_type']} "
            f"| {_with(row, 'tokens_per_round', '')} | {_with(row, 'gained', 'gained_')} "
            f"| {100 * row['drift']:.1f} % "
            f"| {row['log_ratio']:.3f} / {_or_dash(row['log_ratio_drifted'], '.2f')} "
            f"| {100 * row['repeated']:.0f} % ({100 * row['repeated_baseline']:.0f} %) "
            f"| {100 * row['diverged']:.0f} % / {_or_dash(row['first_divergence'], 'g')} "
            f"| {_passed(row)} | {row['prompts']}, {row['rounds']} |"
        )
    return "\n".join(lines) + "\n"


def _with(row: Mapping[Any, Any], name: str, ends: str) -> str:
    value, low, high = row[name], row[ends + "low"], row[ends + "high"]
    return f"{value:.2f} ({low:.2f} to {high:.2f})" if low == low else f"{value:.2f}"


def _or_dash(value: float, form: str) -> str:
    return format(value, form) if value == value else "-"


def _passed(row: Mapping[Any, Any]) -> str:
    n = row["checked"]
    if not n:
        return "-"
    own, other = (round(row[name] * n) for name in ("task_pass", "task_pass_baseline"))
    return f"{own} of {n} ({other})"


if __name__ == "__main__":
    steps = {"run": run, "table": table}
    step, group = (*sys.argv[1:], "greedy")[:2] if len(sys.argv) > 1 else ("", "")
    if step not in steps or group not in GROUPS or len(sys.argv) > 3:
        sys.exit(__doc__)
    steps[step](group)
