"""Live runs of many prompts: each is what `generate` gives, and the same seed gives it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specviz.campaign import capture
from specviz.drafters.ngram import NGram
from specviz.engine.acceptance import Greedy, Rejection, SampleMatch, SharedNoise
from specviz.engine.block_verify import BlockVerify
from specviz.engine.loop import generate
from specviz.engine.lossy import Lenience, ProbabilityGap, ProbabilityRatio, TopM, Typical
from specviz.policies import FixedK
from specviz.prompt_set import Prompt, prompt_seed
from specviz.trace import Trace, TraceError, load_trace
from specviz.trials import run_prompts
from tests.models import tiny_target, toy_pair

RELAXED = [Greedy(), Typical(), ProbabilityGap(0.3), ProbabilityRatio(0.2), TopM(2)]
SAMPLED = [Lenience(0.5), Rejection(), SampleMatch(), SharedNoise(), BlockVerify()]
LIMIT = 14
SECONDS = ["draft_seconds", "verify_seconds", "other_seconds"]


def prompt(name: str, text: str, kind: str = "code") -> Prompt:
    return Prompt(name, kind, ({"role": "user", "content": text},))


PROMPTS = [prompt("one", "abcab"), prompt("two", "hgfe", "prose"), prompt("three", "acac")]


def run(prompts: Any = PROMPTS, **settings: Any) -> Trace:
    target, drafter = toy_pair()
    given = {"max_new_tokens": LIMIT, "progress": False, "policy": FixedK(4), **settings}
    return run_prompts(prompts, target, drafter, **given)


def frames(trace: Trace) -> dict[str, pd.DataFrame]:
    """Every table, less the seconds that no two runs share."""
    tables = {name: getattr(trace, name) for name in ("sequences", "positions", "rounds", "rows")}
    tables["rounds"] = tables["rounds"].drop(columns=SECONDS)
    return tables


def assert_same(a: Trace, b: Trace) -> None:
    for name, frame in frames(a).items():
        pd.testing.assert_frame_equal(frame, frames(b)[name], obj=name)


def tokens(trace: Trace) -> dict[str, list[int]]:
    """Output tokens by prompt id."""
    ids = trace.sequences.set_index("seq")["prompt_id"]
    by_seq = trace.positions.groupby("seq")["token_id"]
    return {ids[seq]: part.tolist() for seq, part in by_seq}


@pytest.mark.parametrize("rule", [*RELAXED, *SAMPLED], ids=lambda rule: rule.name)
def test_same_seed_same_output(rule: Any) -> None:
    first, again = run(acceptance=rule, seed=3), run(acceptance=rule, seed=3)
    assert_same(first, again)
    other = run(acceptance=rule, seed=4)
    assert (tokens(other) == tokens(first)) is (rule in RELAXED)
    assert first.meta.seed == 3
    assert first.meta.acceptance == rule.name
    assert first.meta.lossy is not rule.lossless
    assert (first.meta.kind, first.meta.exhaustive, first.meta.complete) == ("run", False, True)


@pytest.mark.parametrize("rule", [Typical(), SampleMatch()], ids=lambda rule: rule.name)
def test_every_sequence_is_what_generate_gives(rule: Any) -> None:
    trace = run(acceptance=rule, seed=7)
    assert trace.sequences["prompt_id"].tolist() == ["one", "two", "three"]
    assert trace.sequences["content_type"].tolist() == ["code", "prose", "code"]
    assert trace.content_types == ["code", "prose"]
    target, drafter = toy_pair()
    for seq, task in enumerate(PROMPTS):
        alone = generate(
            target,
            drafter,
            task.messages,
            policy=FixedK(4),
            acceptance=rule,
            max_new_tokens=LIMIT,
            seed=prompt_seed(7, task.id),
        ).finish()
        mine, theirs = frames(trace.select(prompt_id=task.id)), frames(alone.trace)
        for name, frame in mine.items():
            assert (frame["seq"] == seq).all()
            apart = ["seq", "prompt_id", "content_type"] if name == "sequences" else ["seq"]
            pd.testing.assert_frame_equal(
                frame.drop(columns=apart), theirs[name].drop(columns=apart), obj=name
            )


@pytest.mark.parametrize("rule", [TopM(2), SampleMatch()], ids=lambda rule: rule.name)
def test_neither_order_nor_company_changes_an_answer(rule: Any) -> None:
    together = tokens(run(acceptance=rule))
    assert tokens(run(PROMPTS[::-1], acceptance=rule)) == together
    for task in PROMPTS:
        assert tokens(run([task], acceptance=rule)) == {task.id: together[task.id]}
    assert len({prompt_seed(0, task.id) for task in PROMPTS}) == len(PROMPTS)


class Counting:
    """A target that counts the prompts it starts, and is interrupted at one of them."""

    def __init__(self, inner: Any, stop_at: int = 10**9) -> None:
        self._inner, self._left, self.prefills = inner, stop_at, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prefill(self, *args: Any) -> Any:
        self.prefills += 1
        if self.prefills == self._left:
            raise KeyboardInterrupt
        return self._inner.prefill(*args)


@pytest.mark.parametrize("rule", [Typical(), Rejection()], ids=lambda rule: rule.name)
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, rule: Any) -> None:
    inner, drafter = toy_pair()
    settings: dict[str, Any] = {
        "acceptance": rule,
        "policy": FixedK(4),
        "max_new_tokens": LIMIT,
        "progress": False,
    }
    stopped = Counting(inner, stop_at=3)  # one start to describe the settings, then one a prompt
    with pytest.raises(KeyboardInterrupt):
        run_prompts(PROMPTS, stopped, drafter, out=tmp_path, **settings)
    half = load_trace(tmp_path)
    assert half.sequences["prompt_id"].tolist() == ["one"]
    assert not half.meta.complete
    target = Counting(inner)
    trace = run_prompts(PROMPTS, target, drafter, out=tmp_path, **settings)
    assert target.prefills == 3
    assert trace.meta.complete
    assert_same(trace, run(acceptance=rule))
    assert not [file for file in tmp_path.iterdir() if file.suffix not in (".json", ".parquet")]
    more = run_prompts([*PROMPTS, prompt("four", "ddd")], target, drafter, out=tmp_path, **settings)
    assert more.sequences["prompt_id"].tolist() == ["one", "two", "three", "four"]
    assert_same(more.select(prompt_id=["one", "two", "three"]), trace)


def test_a_folder_of_other_runs_is_refused(tmp_path: Path) -> None:
    run(acceptance=TopM(2), out=tmp_path / "runs")
    for change, said in (
        ({"acceptance": TopM(3)}, "another acceptance rule .top-2., not top-3"),
        ({"policy": FixedK(3)}, "another policy .fixed-4., not fixed-3"),
        ({"seed": 1}, "another seed"),
        ({"max_new_tokens": LIMIT + 1}, "another max_new_tokens"),
        ({"prompts": [prompt("one", "ccc")]}, "another prompt under the id 'one'"),
        ({"resume": False}, "already holds a trace"),
    ):
        with pytest.raises(TraceError, match=said):
            run(**{"acceptance": TopM(2), "out": tmp_path / "runs", **change})
    target, drafter = toy_pair()
    capture(
        ["abc"], target, drafter, out=tmp_path / "capture", max_new_tokens=LIMIT, progress=False
    )
    with pytest.raises(TraceError, match="holds a capture, not live runs"):
        run(out=tmp_path / "capture")


def test_outputs_of_one_token_have_no_rounds() -> None:
    trace = run(max_new_tokens=1)
    assert trace.sequences["n_output"].tolist() == [1, 1, 1]
    assert trace.rounds.empty
    assert trace.rows.empty
    target, drafter = toy_pair(eos=True)  # some of the answers end at once, others do not
    texts = [prompt(f"p{i}", text) for i, text in enumerate(["hgfe", "abcab", "dddd", "acac"])]
    ended = run_prompts(texts, target, drafter, max_new_tokens=LIMIT, progress=False)
    without = set(ended.sequences["seq"]) - set(ended.rounds["seq"])
    assert 0 < len(without) < 4
    assert (ended.sequences.set_index("seq").loc[list(without), "finish"] == "eos").all()


def test_several_drafters_and_a_real_network() -> None:
    """Drafters come as a mapping, prompts as text; a loop of the tiny model is no surprise."""
    target = tiny_target()
    trace = run_prompts(
        ["the quick brown the quick", "one two one two"],
        target,
        {"ngram": NGram()},
        policy=FixedK(3, "ngram"),
        acceptance=TopM(3),
        max_new_tokens=12,
        progress=False,
    )
    assert trace.meta.lossy
    assert trace.content_types == ["user"]
    assert set(trace.rounds["drafter"]) == {"ngram"}
    assert (trace.rounds.groupby("seq")["emitted"].sum() == 11).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompts": []}, "No prompts"),
        ({"prompts": "abc"}, "put a single one in brackets"),
        ({"prompts": [PROMPTS[0], PROMPTS[0]]}, "Two prompts have the id 'one'"),
        ({"acceptance": None}, "None is not an acceptance rule"),
        ({"acceptance": Greedy}, "is not an acceptance rule"),
        ({"acceptance": "greedy"}, "is not an acceptance rule"),
        ({"policy": 7}, "A policy has name"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"seed": 1.5}, "seed must be a whole number"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run(**change)
