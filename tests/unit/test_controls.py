"""Comparisons on the same prompts, and a drafter's own drafts on the wrong text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.drafting.controls import compare_drafters, rounds_by_prompt, shuffled_control
from specviz.analysis.replays.replay import replay
from specviz.policies import FixedK
from specviz.trace import Trace
from tests.synthetic import synthetic_trace, trace_of

K = 4
SHOWN = ["tokens", "rounds"]


def outputs_of(trace: Trace) -> dict[int, list[int]]:
    positions = trace.positions.sort_values("t")
    return {s: positions[positions["seq"] == s]["token_id"].tolist() for s in positions["seq"]}


def with_drafts(trace: Trace, texts: dict[int, list[int]]) -> Trace:
    """The same capture, but the drafts of sequence s are the continuations in texts[s]."""
    tables = {name: trace.table(name) for name in ("sequences", "positions", "drafts")}
    drafts = tables["drafts"].to_pylist()
    for row in drafts:
        tail = texts[row["seq"]][row["anchor"] + 1 : row["anchor"] + 1 + trace.meta.k]
        row["token"] = [*tail, *[-1] * (trace.meta.k - len(tail))]
        row["drafted"] = len(tail)
        row["matched"] = 0
    tables["drafts"] = pa.Table.from_pylist(drafts, schema=tables["drafts"].schema)
    return Trace(trace.meta, tables)


def naive_control(trace: Trace, control: pd.DataFrame, drafter: str, k: int) -> list[list[int]]:
    """Walk every prompt's drafts over the text that the control says it used."""
    y, seq_of = outputs_of(trace), trace.sequences.set_index("prompt_id")["seq"]
    drafts = trace.drafts[trace.drafts["drafter"] == drafter].set_index(["seq", "anchor"])
    found = []
    for row in control.itertuples():
        mine, other = int(seq_of[row.prompt_id]), int(seq_of[row.text_of])
        text = y[other][: min(len(y[mine]), len(y[other]))]
        a = rounds = 0
        while a < len(text) - 1:
            offer = drafts.loc[(mine, a)]
            a += 1
            for token in offer["token"][: min(k, offer["drafted"])]:
                if a >= len(text) - 1 or token != text[a]:
                    break
                a += 1
            rounds += 1
        found.append([len(text) - 1, rounds])
    return found


def test_rounds_by_prompt_is_the_replay() -> None:
    trace = synthetic_trace(4)
    found = rounds_by_prompt(trace, k=7)
    rounds = replay(trace, FixedK(7)).rounds.groupby("prompt_id", sort=False)["emitted"]
    assert found["prompt_id"].tolist() == trace.sequences["prompt_id"].tolist()
    assert found["tokens"].tolist() == rounds.sum().tolist()
    assert found["rounds"].tolist() == rounds.size().tolist()
    assert found[["drafter", "k"]].drop_duplicates().values.tolist() == [["steady", 7]]


def test_drafts_that_know_the_other_text_are_perfect_in_the_control_only() -> None:
    trace = trace_of([[0] * 8, [0] * 8], k=K)
    y = outputs_of(trace)
    swapped = with_drafts(trace, {0: y[1], 1: y[0]})
    assert rounds_by_prompt(swapped, k=3)["rounds"].tolist() == [8, 8]
    control = shuffled_control(swapped, k=3)
    assert control["text_of"].tolist() == ["code-01", "code-00"]
    assert control[SHOWN].values.tolist() == [[8, 2], [8, 2]]
    assert set(control["drafter"]) == {"steady, other text"}


def test_outputs_of_different_length_are_walked_where_both_have_anchors() -> None:
    trace = trace_of([[0] * 8, [0] * 3], finish=["limit", "eos"], k=K, max_new_tokens=9)
    y = outputs_of(trace)
    swapped = with_drafts(trace, {0: y[1], 1: y[0]})
    # Four tokens each: three are left after prefill, and the last is the target's own.
    assert shuffled_control(swapped, k=1)[SHOWN].values.tolist() == [[3, 2], [3, 2]]
    assert shuffled_control(swapped, k=4)[SHOWN].values.tolist() == [[3, 1], [3, 1]]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 15))
def test_the_control_equals_the_naive_walk(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    made = synthetic_trace(
        seed, prompts_per_type=3, content_types=("code", "prose"), max_new_tokens=12
    )
    # Few different tokens, so that wrong text often agrees by chance.
    tables = {name: made.table(name) for name in ("sequences", "positions", "drafts")}
    few = rng.integers(0, 2, tables["positions"].num_rows).tolist()
    at = tables["positions"].column_names.index("token_id")
    tables["positions"] = tables["positions"].set_column(at, "token_id", pa.array(few, pa.int32()))
    rows = tables["drafts"].to_pylist()
    for row in rows:
        row["token"] = [
            int(t) if i < row["drafted"] else -1 for i, t in enumerate(rng.integers(0, 2, 15))
        ]
    tables["drafts"] = pa.Table.from_pylist(rows, schema=tables["drafts"].schema)
    # The order of the rows means nothing.
    tables = {n: t.take(pa.array(rng.permutation(t.num_rows))) for n, t in tables.items()}
    trace = Trace(made.meta, tables)
    control = shuffled_control(trace, k=k, seed=seed)
    assert control[SHOWN].values.tolist() == naive_control(trace, control, "steady", k)


@pytest.mark.parametrize("seed", range(5))
def test_every_output_is_used_once_by_another_prompt_of_its_type(seed: int) -> None:
    trace = synthetic_trace(1, prompts_per_type=5)
    control = shuffled_control(trace, seed=seed)
    assert (control["prompt_id"] != control["text_of"]).all()
    assert sorted(control["text_of"]) == sorted(control["prompt_id"])
    types = trace.sequences.set_index("prompt_id")["content_type"]
    assert (types[control["text_of"]].to_numpy() == control["content_type"]).all()


def test_the_exchange_follows_its_seed_and_not_the_other_types() -> None:
    trace = synthetic_trace(1, prompts_per_type=6)
    first = shuffled_control(trace, seed=3)
    assert first.equals(shuffled_control(trace, seed=3))
    assert not first["text_of"].equals(shuffled_control(trace, seed=4)["text_of"])
    alone = shuffled_control(trace.select(content_type="prose"), seed=3)
    assert alone.equals(first[first["content_type"] == "prose"].reset_index(drop=True))


def test_a_comparison_by_hand() -> None:
    """Five tokens a prompt; full drafts of 1 (two rounds and a token's own) against none."""
    trace = trace_of(
        {"right": [[4, 3, 2, 1], [0] * 4, [4, 3, 2, 1]], "wrong": [[0] * 4] * 3},
        content_types=["code", "code", "prose"],
        k=K,
    )
    found = compare_drafters(trace, "right", "wrong", k=1)
    assert found["content_type"].tolist() == ["code", "prose", "all"]
    assert found["tokens_per_round_better"].tolist() == [8 / 6, 2.0, 12 / 8]
    assert found["tokens_per_round_worse"].tolist() == [1.0, 1.0, 1.0]
    assert found["difference"].tolist() == pytest.approx([1 / 3, 1.0, 0.5])
    assert found["n_prompts"].tolist() == [2, 1, 3]
    assert found["n_rounds_better"].tolist() == [6, 2, 8]
    assert found["n_rounds_worse"].tolist() == [8, 4, 12]
    # Resamples of two code prompts: both good, one of each, both bad.
    assert found[["low", "high"]].iloc[0].tolist() == [0.0, 1.0]
    assert found[["low", "high"]].iloc[1].isna().all()
    assert found[["better", "worse", "k"]].iloc[2].tolist() == ["right", "wrong", 1]


def test_a_drafter_equals_itself_exactly() -> None:
    found = compare_drafters(synthetic_trace(6), "steady", "steady", draws=500)
    assert (found[["difference", "low", "high"]] == 0).all(axis=None)


def test_a_perfect_drafter_beats_its_control_and_one_that_knows_nothing_does_not() -> None:
    matches = {"perfect": [[15] * 40] * 10, "nothing": [[0] * 40] * 10}
    trace = trace_of(matches, content_types=["code"] * 5 + ["prose"] * 5)
    for name in matches:
        control = shuffled_control(trace, name)
        found = compare_drafters(trace, name, control, draws=500)
        assert found["content_type"].tolist() == ["code", "prose", "all"]
        assert set(found["worse"]) == {f"{name}, other text"}
        if name == "perfect":
            assert found["tokens_per_round_better"].tolist() == [8.0, 8.0, 8.0]
            assert (found["low"] > 6).all()
            assert (found["tokens_per_round_worse"] < 1.2).all()
        else:
            assert (found["high"] <= 0).all()
            assert (found["difference"] > -0.2).all()


def test_pairing_takes_the_prompts_difficulty_out() -> None:
    """The same prompts for both: a small but steady lead shows in spite of a wide spread."""
    rng = np.random.default_rng(0)
    good, less = [], []
    for prompt in range(12):
        run = rng.geometric(0.9 - 0.07 * prompt, 120) - 1
        good.append(np.minimum(run + (rng.random(120) < 0.3), 15))
        less.append(np.minimum(run, 15))
    trace = trace_of({"good": good, "less": less})
    paired = compare_drafters(trace, "good", "less").iloc[-1]
    alone = [replay(trace, FixedK(7), name).interval for name in ("good", "less")]
    assert paired["low"] > 0
    assert alone[0].low < alone[1].high


def test_by_prompt_has_no_intervals() -> None:
    trace = synthetic_trace(2)
    found = compare_drafters(trace, "steady", shuffled_control(trace), by="prompt_id")
    assert len(found) == 13
    assert found["low"].isna().tolist() == [True] * 12 + [False]


def test_rows_of_another_capture_of_the_same_prompts() -> None:
    both = synthetic_trace(2, drafters=("steady", "block"))
    rows = rounds_by_prompt(both, "block")
    shuffled = rows.sample(frac=1, random_state=0)
    assert compare_drafters(both, "steady", shuffled).equals(
        compare_drafters(both, "steady", "block")
    )


def test_a_one_token_output_has_no_round_and_is_left_out() -> None:
    trace = trace_of([[3, 2, 1], [], [3, 2, 1]], finish=["limit", "eos", "limit"], k=3)
    assert rounds_by_prompt(trace, k=3)[SHOWN].values.tolist() == [[3, 1], [0, 0], [3, 1]]
    control = shuffled_control(trace, k=3)
    assert sorted(control["tokens"]) == [0, 0, 3]
    found = compare_drafters(trace, "steady", control, k=3)
    assert found["n_prompts"].tolist() == [1, 1]
    nothing = trace_of([[], []], finish="eos", k=3, max_new_tokens=4)
    with pytest.raises(ValueError, match="needs the `drafts` table"):
        compare_drafters(nothing, "steady", "steady", k=3)


def test_refusals() -> None:
    trace = synthetic_trace(0)
    control = shuffled_control(trace)
    with pytest.raises(ValueError, match="walked with k = 7, not 5"):
        compare_drafters(trace, "steady", control, k=5)
    with pytest.raises(ValueError, match="12, the other 4, and 4 are in both"):
        compare_drafters(trace, "steady", control[:4])
    with pytest.raises(ValueError, match="12, the other 12, and 6 are in both"):
        compare_drafters(trace, "steady", pd.concat([control[:6]] * 2))
    with pytest.raises(ValueError, match="rows that shuffled_control"):
        compare_drafters(trace, "steady", control.drop(columns="rounds"))
    with pytest.raises(ValueError, match="rows that shuffled_control"):
        compare_drafters(trace, "steady", None)
    with pytest.raises(ValueError, match="by must be"):
        compare_drafters(trace, "steady", control, by="language")
    with pytest.raises(ValueError, match="level is a share"):
        compare_drafters(trace, "steady", control, level=95)
    with pytest.raises(ValueError, match="No drafter 'eagle'"):
        compare_drafters(trace, "eagle", control)
    with pytest.raises(ValueError, match="'code' has one prompt only"):
        shuffled_control(synthetic_trace(0, prompts_per_type=1))
    with pytest.raises(ValueError, match="seed must be"):
        shuffled_control(trace, seed=-1)
    for call in (shuffled_control, rounds_by_prompt):
        with pytest.raises(ValueError, match="k must be a whole number, at least 1"):
            call(trace, k=0)
        with pytest.raises(ValueError, match="at most K = 15"):
            call(trace, k=16)
