"""What a lossy rule gains and gives up: by hand, and against the toy model's own numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from specviz.analysis.levers.drift import drift_by_prompt, drift_table
from specviz.analysis.resampling import ratio_difference, ratio_interval
from specviz.engine.acceptance import Greedy, Rejection
from specviz.engine.lossy import Lenience, ProbabilityGap, ProbabilityRatio, TopM, Typical
from specviz.policies import FixedK
from specviz.prompt_set import Prompt
from specviz.trace import Trace, TraceMeta
from specviz.trace.schema import TOP_TARGET, table_schemas
from specviz.trials import run_prompts
from tests.models import toy_pair
from tests.synthetic import synthetic_trace

EOS = 0
DRAWS = 200


@dataclasses.dataclass(frozen=True)
class Answer:
    """One output by hand: tokens with rank and ln(p_max / p), and what its rounds emitted."""

    kind: str
    tokens: Sequence[int]
    emitted: Sequence[int]
    off: Mapping[int, tuple[int, float]] = dataclasses.field(default_factory=dict)
    text: str = "so"
    repeated: Sequence[int] = ()
    prompt: str = "Say something."


def live(rule: str, answers: Mapping[str, Answer], lossy: bool = True, **meta: Any) -> Trace:
    """A valid live trace of these answers."""
    rows: dict[str, list[dict[str, Any]]] = {"sequences": [], "positions": [], "rounds": []}
    for seq, (name, answer) in enumerate(answers.items()):
        eos = answer.tokens[-1] == EOS
        rows["sequences"].append(
            {
                "seq": seq,
                "prompt_id": name,
                "content_type": answer.kind,
                "prompt": answer.prompt,
                "output": answer.text + "<end>" * eos,
                "prompt_ids": [1],
                "lookahead": [],
                "n_prompt": 1,
                "n_output": len(answer.tokens),
                "max_new_tokens": 20,
                "finish": "eos" if eos else "limit",
                "decode_seconds": math.nan,
            }
        )
        for t, token in enumerate(answer.tokens):
            rank, ratio = answer.off.get(t, (0, 0.0))
            rows["positions"].append(
                {
                    "seq": seq,
                    "t": t,
                    "token_id": token,
                    "text": "<end>" if token == EOS else "x",
                    "entropy": math.log(2),
                    "ebf": 2.0,
                    "ebf2": 2.0,
                    "p_max": 0.5,
                    "log2_moment": 0.5,
                    "n90": 2,
                    "margin": 0.0,
                    "tie": False,
                    "top_ids": [token] * TOP_TARGET,
                    "top_logp": [math.log(0.5)] * TOP_TARGET,
                    "logp": math.log(0.5) - ratio,
                    "logp_sampled": 0.0,
                    "rank": rank,
                    "repeated": t in answer.repeated,
                }
            )
        anchor = 0
        for number, emitted in enumerate(answer.emitted):
            rows["rounds"].append(
                {
                    "seq": seq,
                    "round": number,
                    "anchor": anchor,
                    "policy": "fixed-7",
                    "drafter": "lm",
                    "drafted": 7,
                    "accepted": emitted - 1,
                    "emitted": emitted,
                    "stop": "reject",
                    "nodes": 7,
                    "draft_seconds": 0.0,
                    "verify_seconds": 0.0,
                    "other_seconds": 0.0,
                }
            )
            anchor += emitted
    described = TraceMeta(
        kind="run",
        exhaustive=False,
        target={"name": "by hand"},
        drafters={"lm": {"k": 7}},
        k=7,
        max_new_tokens=20,
        seed=0,
        acceptance=rule,
        lossy=lossy,
    )
    schemas = table_schemas(7)
    tables = {name: pa.Table.from_pylist(rows[name], schema=schemas[name]) for name in rows}
    return Trace(dataclasses.replace(described, **meta), tables).validate()


GREEDY = {
    "a": Answer("code", [1, 2, 3, 4, 5, 6, 7], [2, 2, 2]),
    "b": Answer("code", [1, 2, 3, 4, 5, 6, 7], [1, 2, 3]),
    "c": Answer("prose", [1, 2, 3, 4, 5], [1, 1, 1, 1]),
}
LOSSY = {
    # Two tokens off, the first where the texts part; the off token of prefill counts nowhere.
    "a": Answer("code", [1, 2, 9, 4, 9, 6, 7], [4, 2], {2: (1, 0.5), 4: (3, 1.5)}),
    "b": Answer("code", [1, 2, 3, 4, 5, 6, 7], [3, 3], {0: (2, 8.0)}),
    "c": Answer("prose", [1, 2, 3, 8, 5], [2, 2], {3: (1, 0.25)}, repeated=[0, 3, 4]),
}


def test_every_number_by_hand() -> None:
    baseline = live("greedy", GREEDY, lossy=False)
    table = drift_table(live("top-4", LOSSY), baseline, draws=DRAWS)
    assert table["rule"].tolist() == ["greedy"] * 3 + ["top-4"] * 3
    assert table["lossy"].tolist() == [False] * 3 + [True] * 3
    assert table["content_type"].tolist() == ["code", "prose", "all"] * 2
    own, found = table[:3], table[3:].set_index("content_type")
    assert own["tokens_per_round"].tolist() == [2.0, 1.0, 1.6]
    for column in ("gained", "gained_low", "drift", "drift_high", "log_ratio", "diverged"):
        assert (own[column].fillna(0) == 0).all(), column
    assert own["first_divergence"].isna().all()
    assert own["log_ratio_drifted"].isna().all()
    want = {
        "tokens_per_round": {"code": 12 / 4, "prose": 2.0, "all": 16 / 6},
        "gained": {"code": 1.0, "prose": 1.0, "all": 16 / 6 - 1.6},
        "drift": {"code": 2 / 12, "prose": 1 / 4, "all": 3 / 16},
        "log_ratio": {"code": 2 / 12, "prose": 0.25 / 4, "all": 2.25 / 16},
        "log_ratio_drifted": {"code": 1.0, "prose": 0.25, "all": 0.75},
        "repeated": {"code": 0.0, "prose": 0.5, "all": 2 / 16},
        "repeated_baseline": {"code": 0.0, "prose": 0.0, "all": 0.0},
        "diverged": {"code": 0.5, "prose": 1.0, "all": 2 / 3},
        "first_divergence": {"code": 2.0, "prose": 3.0, "all": 2.5},
        "tokens": {"code": 12, "prose": 4, "all": 16},
        "rounds": {"code": 4, "prose": 2, "all": 6},
        "prompts": {"code": 2, "prose": 1, "all": 3},
    }
    for column, values in want.items():
        assert found[column].to_dict() == pytest.approx(values, abs=1e-6), column


def test_intervals_resample_prompts_and_one_prompt_has_none() -> None:
    baseline = live("greedy", GREEDY, lossy=False)
    table = drift_table(live("top-4", LOSSY), baseline, level=0.9, draws=DRAWS, seed=5)
    found = table[3:].set_index("content_type")
    speed = ratio_interval([6, 6, 4], [2, 2, 2], 0.9, DRAWS, 5)
    gain = ratio_difference(
        [6, 6, 4], [2, 2, 2], [6, 6, 4], [3, 3, 4], paired=True, level=0.9, draws=DRAWS, seed=5
    )
    drift = ratio_interval([2, 0, 1], [6, 6, 4], 0.9, DRAWS, 5)
    for column, interval in (("", speed), ("gained_", gain), ("drift_", drift)):
        assert found.loc["all", column + "low"] == interval.low
        assert found.loc["all", column + "high"] == interval.high
        assert np.isnan(found.loc["prose", column + "low"])


PYTHON = "Write a Python function."
GOOD, BAD, CUT = "```python\nx = 1\n```", "```python\nx 1\n```", "```python\nx = (1,\n"


def _checked(name: str, lossy: bool, texts: Sequence[str], tokens: Sequence[int]) -> Trace:
    answers = {
        f"p{i}": Answer("code", tokens, [len(tokens) - 1], text=text, prompt=PYTHON)
        for i, text in enumerate(texts)
    }
    answers["q"] = Answer("prose", tokens, [len(tokens) - 1], text="x 1")
    return live(name, answers, lossy)


def test_the_task_check_is_made_on_both_sides() -> None:
    ended, limit = [1, 2, EOS], [1, 2, 3]
    baseline = _checked("greedy", False, [GOOD, GOOD, BAD, GOOD], ended)
    table = drift_table(
        _checked("top-2", True, [GOOD, BAD, BAD, CUT], ended), baseline, draws=DRAWS
    ).set_index(["rule", "content_type"])
    columns = ["task_pass", "task_pass_baseline", "checked"]
    assert table.loc[("top-2", "code"), columns].tolist() == [0.25, 0.75, 4]
    assert table.loc[("top-2", "all"), columns].tolist() == [0.25, 0.75, 4]
    assert table.loc[("greedy", "code"), columns].tolist() == [0.75, 0.75, 4]
    assert table.loc[("top-2", "prose"), "checked"] == 0
    assert np.isnan(table.loc[("top-2", "prose"), "task_pass"])
    # At the limit the open block is excused, and a text that says nothing yet is left out.
    cut = _checked("top-2", True, [GOOD, BAD, "```", CUT], limit)
    prompts = drift_by_prompt(cut, baseline).set_index("prompt_id")
    assert prompts["passed"].fillna("nothing").tolist() == [True, False, "nothing", True, "nothing"]
    assert prompts["check"].fillna("none").tolist() == ["python"] * 4 + ["none"]
    row = drift_table(cut, baseline, draws=DRAWS).iloc[-1]
    assert row[columns].tolist() == [2 / 3, 1.0, 3]


def test_outputs_that_end_earlier_diverge_where_they_end() -> None:
    baseline = live("greedy", {"a": Answer("code", [1, 2, 3, EOS], [3])}, lossy=False)
    longer = live("top-2", {"a": Answer("code", [1, 2, 3, 4, 5], [4], {3: (1, 0.1)})})
    assert drift_by_prompt(longer, baseline)["first_divergence"].tolist() == [3.0]
    same = live("top-2", {"a": Answer("code", [1, 2, 3, EOS], [3])})
    assert drift_by_prompt(same, baseline)["first_divergence"].isna().all()


def test_prompts_without_a_round_are_left_out() -> None:
    baseline = live("greedy", {**GREEDY, "d": Answer("prose", [EOS], [])}, lossy=False)
    run = live("top-4", {**LOSSY, "d": Answer("prose", [1, 2], [1])})
    assert drift_by_prompt(run, baseline)["prompt_id"].tolist() == ["a", "b", "c"]
    only = live("greedy", {"d": Answer("prose", [EOS], []), "a": GREEDY["a"]}, lossy=False)
    other = live("top-4", {"d": LOSSY["c"], "a": Answer("code", [EOS], [])})
    with pytest.raises(ValueError, match="No prompt has a round in both"):
        drift_by_prompt(other, only)


def test_names_of_runs() -> None:
    baseline = live("greedy", GREEDY, lossy=False)
    run = live("top-4", LOSSY)
    named = drift_table({"mild": run, "again": run}, baseline, draws=DRAWS)
    assert named["rule"].unique().tolist() == ["greedy", "mild", "again"]
    listed = drift_table([baseline, run], baseline, draws=DRAWS)  # the baseline is there once
    assert listed["rule"].unique().tolist() == ["greedy", "top-4"]
    for twice in ([run, run], {"greedy": run}):
        with pytest.raises(ValueError, match="Two runs are called"):
            drift_table(twice, baseline, draws=DRAWS)
    with pytest.raises(ValueError, match="runs are traces"):
        drift_table([run, "top-4"], baseline)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": {"name": "another"}}, "another target"),
        ({"drafters": {"lm": {"k": 6}}}, "another drafter"),
        ({"max_new_tokens": 19}, "another max_new_tokens"),
    ],
)
def test_only_the_rule_may_differ(change: dict[str, Any], said: str) -> None:
    baseline = live("greedy", GREEDY, lossy=False)
    with pytest.raises(ValueError, match=said):
        drift_table(live("top-4", LOSSY, **change), baseline)


def test_what_cannot_be_compared_is_refused() -> None:
    baseline, run = live("greedy", GREEDY, lossy=False), live("top-4", LOSSY)
    fewer = live("top-4", {name: LOSSY[name] for name in "ab"})
    with pytest.raises(ValueError, match="another set of prompts"):
        drift_table(fewer, baseline)
    asked = {**LOSSY, "a": dataclasses.replace(LOSSY["a"], prompt="Say something else.")}
    with pytest.raises(ValueError, match="another set of prompts"):
        drift_table(live("top-4", asked), baseline)
    with pytest.raises(ValueError, match="lossy: hold runs against a lossless one"):
        drift_table(baseline, run)
    with pytest.raises(ValueError, match="`rounds` table"):
        drift_table(run, synthetic_trace())
    with pytest.raises(ValueError, match="`rounds` table"):
        drift_by_prompt(synthetic_trace(), baseline)
    with pytest.raises(ValueError, match="this is none"):
        drift_by_prompt(run, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level is a share"):
        drift_table(run, baseline, level=2)
    with pytest.raises(ValueError, match="draws"):
        drift_table(run, baseline, draws=0)


TOY_PROMPTS = [
    Prompt(f"p{i}", ("code", "prose")[i % 2], ({"role": "user", "content": text},))
    for i, text in enumerate(["abcab", "hgfe", "acac", "fgh"])
]


@lru_cache
def toy_run(rule: Any, seed: int = 0, policy: Any = FixedK(4)) -> Trace:  # noqa: B008
    target, drafter = toy_pair()
    return run_prompts(
        TOY_PROMPTS,
        target,
        drafter,
        policy=policy,
        acceptance=rule,
        max_new_tokens=20,
        seed=seed,
        progress=False,
    )


RULES = [Typical(), ProbabilityGap(0.3), ProbabilityRatio(0.2), TopM(2), TopM(3), Lenience(0.3)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_drift_of_live_runs_is_what_the_toy_model_says(rule: Any) -> None:
    target, _ = toy_pair()
    lossless: Any = Rejection() if isinstance(rule, Lenience) else Greedy()
    baseline, run = toy_run(lossless), toy_run(rule)
    found = drift_by_prompt(run, baseline).set_index("prompt_id")
    for row in run.sequences.itertuples():
        tokens = run.positions[run.positions["seq"] == row.seq]["token_id"].tolist()
        other = baseline.positions[baseline.positions["seq"] == row.seq]["token_id"].tolist()
        ratios = []
        for t in range(1, len(tokens)):
            logits = target.model.logits([*row.prompt_ids, *tokens[:t]])
            ratios.append(float(logits.max() - logits[tokens[t]]))
        mine = found.loc[row.prompt_id]
        assert mine["drifted"] == sum(ratio > 0 for ratio in ratios)
        assert mine["log_ratio"] == pytest.approx(sum(ratios), abs=1e-4)
        assert mine["tokens"] == len(tokens) - 1
        parted = [t for t, (a, b) in enumerate(zip(tokens, other, strict=True)) if a != b]
        assert mine["first_divergence"] == (
            parted[0] if parted else pytest.approx(math.nan, nan_ok=True)
        )
        if isinstance(rule, ProbabilityRatio):
            assert max(ratios) <= -math.log(rule.rho) + 1e-6
        if isinstance(lossless, Greedy) and parted:
            assert ratios[parted[0] - 1] > 0  # the first token off is off the target's argmax
    assert found["drifted"].sum() > 0
    row = drift_table(run, baseline, draws=DRAWS).iloc[-1]
    assert row["drift"] == found["drifted"].sum() / run.rounds["emitted"].sum()
    assert row["tokens_per_round"] == run.rounds["emitted"].mean()
    assert row["lossy"]


def test_rules_that_relax_nothing_give_up_nothing() -> None:
    baseline = toy_run(Greedy())
    strict = {"m": toy_run(TopM(1)), "gap": toy_run(ProbabilityGap(0))}
    table = drift_table(strict, baseline, draws=DRAWS)
    assert (table[["gained", "drift", "log_ratio", "diverged"]] == 0).all(axis=None)
    assert table["lossy"].tolist() == [False] * 3 + [True] * 6
    with pytest.raises(ValueError, match="another policy"):
        drift_table(toy_run(TopM(2), policy=FixedK(3)), baseline)


def test_same_seed_same_table() -> None:
    again = toy_run.__wrapped__  # not the run that is kept
    rule, lossless = Lenience(0.3), Rejection()
    kept = drift_table(toy_run(rule), toy_run(lossless), draws=DRAWS)
    assert drift_table(again(rule), again(lossless), draws=DRAWS).equals(kept)
    assert not drift_table(again(rule), again(lossless), draws=DRAWS, seed=1).equals(kept)
