"""Capture: complete, resumable, and the same whoever computes it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specviz.campaign import capture
from specviz.cost import CostModel
from specviz.drafters.markov import MarkovDrafter
from specviz.drafters.ngram import NGram
from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.record import repeated
from specviz.prompt_set import Prompt
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.trace import Trace, TraceError, load_trace
from specviz.trace.schema import table_schemas
from tests.models import tiny_target, toy_pair

PROMPTS = [
    Prompt(f"p{i}", "letters" if i % 2 else "words", ({"role": "user", "content": text},))
    for i, text in enumerate(["abca", "hgfe", "aabb", "cdef"])
]


def toy_target():
    return toy_pair()[0]


def toy_drafter():
    return toy_pair()[1]


def same(left: Trace, right: Trace) -> bool:
    """Equal tables, apart from the measured seconds."""
    for name in table_schemas(1):
        mine, theirs = left.table(name), right.table(name)
        if "decode_seconds" in mine.column_names:
            mine, theirs = (t.drop_columns(["decode_seconds"]) for t in (mine, theirs))
        # Not Table.equals: a missing value is NaN, and NaN differs from itself.
        if repr(mine.to_pylist()) != repr(theirs.to_pylist()):
            return False
    return True


def test_a_draft_at_every_anchor_and_a_row_for_every_token() -> None:
    target, drafter = toy_pair()
    trace = capture(PROMPTS, target, [drafter, NGram()], max_new_tokens=20, progress=False)
    assert len(trace.positions) == 4 * 20
    assert len(trace.drafts) == 4 * 19 * 2
    assert trace.meta.exhaustive
    assert trace.sequences.lookahead.str.len().tolist() == [15] * 4
    assert trace.content_types == ["words", "letters"]
    assert trace.sequences.finish.unique().tolist() == ["limit"]
    # Every token that was named has its text.
    named = {token for row in trace.positions.top_ids for token in row}
    named |= {token for row in trace.drafts.token for token in row if token >= 0}
    assert named | set(trace.positions.token_id) == set(trace.texts)
    assert all(target.codec.token_text(token) == text for token, text in trace.texts.items())
    # The recorded distribution is the target's own.
    first = trace.sequences.iloc[0]
    tokens = trace.positions[trace.positions.seq == 0]
    text = list(first.prompt_ids)
    for _, row in tokens.iterrows():
        p = target.model.logits(text).exp().numpy()
        p = p[p > 0]
        assert row.entropy == pytest.approx(-(p * np.log(p)).sum(), abs=1e-5)
        assert row.p_max == pytest.approx(p.max(), abs=1e-6)
        assert row.logp == pytest.approx(np.log(p.max()), abs=1e-5)
        assert row["rank"] == 0
        text.append(int(row.token_id))


def test_an_end_of_text_ends_the_sequence() -> None:
    target, drafter = toy_pair(eos=True)
    trace = capture(["abcab"], target, [drafter], max_new_tokens=60, progress=False)
    sequence = trace.sequences.iloc[0]
    assert sequence.finish == "eos"
    assert len(sequence.lookahead) == 0
    assert trace.positions.token_id.iloc[-1] == 5
    assert trace.positions.token_id.tolist() == plain_decode(
        target, target.codec.encode("abcab"), 60
    )


def test_one_token_has_no_anchor() -> None:
    target, drafter = toy_pair()
    trace = capture(["abc"], target, [drafter, NGram(), Oracle()], max_new_tokens=1, progress=False)
    assert len(trace.positions) == 1
    assert len(trace.drafts) == 0


def test_each_drafter_is_asked_for_no_more_than_it_can() -> None:
    target, drafter = toy_pair()
    short = NGram(max_k=3, name="short")
    trace = capture(PROMPTS, target, [drafter, short], k=6, max_new_tokens=20, progress=False)
    assert trace.meta.drafters["short"]["k"] == 3
    assert trace.meta.k == 6
    assert (trace.matrix("token", "short")[:, 3:] == -1).all()
    assert trace.matrix("token", "markov").shape == (4 * 19, 6)


def test_saved_loaded_and_resumed(tmp_path: Path) -> None:
    target, drafter = toy_pair()
    memory = capture(PROMPTS, target, drafter, max_new_tokens=20, progress=False)
    capture(PROMPTS[:2], target, drafter, max_new_tokens=20, out=tmp_path / "t", progress=False)
    calls = target.session
    whole = capture(PROMPTS, target, drafter, max_new_tokens=20, out=tmp_path / "t", progress=False)
    assert target.session == calls + 2  # two prompts were done already
    assert same(whole, memory)
    assert same(load_trace(tmp_path / "t"), memory)
    assert whole.meta.complete
    assert not (tmp_path / "t" / "parts").exists()
    again = capture(PROMPTS, target, drafter, max_new_tokens=20, out=tmp_path / "t", progress=False)
    assert same(again, memory)


def test_an_interrupted_capture_keeps_what_is_finished(tmp_path: Path) -> None:
    target, _ = toy_pair()

    class Tired(NGram):
        def __init__(self, sequences: int) -> None:
            super().__init__(name="ngram")
            self.left = sequences

        def propose_all(self, reference, k):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return super().propose_all(reference, k)

    out = tmp_path / "t"
    with pytest.raises(KeyboardInterrupt):
        capture(PROMPTS, target, Tired(2), max_new_tokens=20, out=out, progress=False)
    partial = load_trace(out)
    assert len(partial.sequences) == 2
    assert not partial.meta.complete
    partial.validate()
    whole = capture(PROMPTS, target, NGram(), max_new_tokens=20, out=out, progress=False)
    assert same(whole, capture(PROMPTS, target, NGram(), max_new_tokens=20, progress=False))


SLOW_CAPTURE = """
import sys, time
from tests.unit.test_capture import PROMPTS, toy_pair, NGram, capture
class Slow(NGram):
    def propose_all(self, reference, k):
        time.sleep(0.3)
        return super().propose_all(reference, k)
capture(PROMPTS, toy_pair()[0], Slow(name="ngram"), max_new_tokens=20, out=sys.argv[1])
"""


def test_kill_9_loses_at_most_the_sequence_in_flight(tmp_path: Path) -> None:
    out = tmp_path / "t"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_CAPTURE, str(out)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list((out / "parts").glob("[0-9]*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = len(load_trace(out).validate().sequences)
    assert 1 <= finished < len(PROMPTS)
    target, _ = toy_pair()
    whole = capture(PROMPTS, target, NGram(), max_new_tokens=20, out=out, progress=False)
    assert target.session == len(PROMPTS) - finished
    assert same(whole, capture(PROMPTS, target, NGram(), max_new_tokens=20, progress=False))


def test_other_settings_are_refused_on_resume(tmp_path: Path) -> None:
    target, drafter = toy_pair()
    out = tmp_path / "t"
    capture(PROMPTS[:1], target, drafter, max_new_tokens=20, out=out, progress=False)
    with pytest.raises(TraceError, match="max_new_tokens"):
        capture(PROMPTS, target, drafter, max_new_tokens=21, out=out, progress=False)
    with pytest.raises(TraceError, match="drafters"):
        capture(PROMPTS, target, NGram(), max_new_tokens=20, out=out, progress=False)
    with pytest.raises(TraceError, match="resume"):
        capture(PROMPTS, target, drafter, max_new_tokens=20, out=out, resume=False, progress=False)
    assert len(load_trace(out).sequences) == 1


def interrupted(out: Path, after: int = 2) -> None:
    """A capture of the toy that stops after some sequences."""

    class Tired(NGram):
        left = after

        def propose_all(self, reference: Any, k: int) -> Any:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return super().propose_all(reference, k)

    with pytest.raises(KeyboardInterrupt):
        capture(PROMPTS, toy_target(), Tired(), max_new_tokens=20, out=out, progress=False)


@pytest.mark.parametrize("damage", ["truncate", "remove"])
@pytest.mark.parametrize("name", ["sequences", "positions", "drafts"])
def test_a_damaged_sequence_is_made_again(tmp_path: Path, name: str, damage: str) -> None:
    out = tmp_path / "t"
    interrupted(out)
    file = out / "parts" / "000001" / f"{name}.parquet"
    if damage == "truncate":
        file.write_bytes(file.read_bytes()[:100])
        with pytest.raises(TraceError, match="resume the capture"):
            load_trace(out)
    else:
        file.unlink()
    target = toy_target()
    whole = capture(PROMPTS, target, NGram(), max_new_tokens=20, out=out, progress=False)
    assert target.session == 3  # the damaged one and the two that were missing
    assert same(whole, capture(PROMPTS, toy_target(), NGram(), max_new_tokens=20, progress=False))


@pytest.mark.parametrize("name", ["sequences", "positions", "drafts"])
def test_a_finished_trace_that_lost_a_table_is_not_built_upon(tmp_path: Path, name: str) -> None:
    out = tmp_path / "t"
    capture(PROMPTS[:2], *toy_pair(), max_new_tokens=20, out=out, progress=False)
    (out / f"{name}.parquet").unlink()
    target, drafter = toy_pair()
    for attempt in (
        lambda: load_trace(out),
        lambda: capture(PROMPTS, target, drafter, max_new_tokens=20, out=out, progress=False),
    ):
        with pytest.raises(TraceError, match=rf"lost {name}\.parquet: restore it"):
            attempt()
    assert target.session == 0  # nothing was decoded in vain


def test_resuming_keeps_and_adds_cost_models(tmp_path: Path) -> None:
    out = tmp_path / "t"
    slow = CostModel.from_array([0.05, 0.06], [0.0, 0.01], name="slow")
    fast = CostModel.from_array([0.01, 0.02], [0.0, 0.01], name="fast")

    def names(*costs: CostModel) -> list[str]:
        trace = capture(
            PROMPTS[:1], *toy_pair(), max_new_tokens=10, out=out, cost_models=costs, progress=False
        )
        return [cost["name"] for cost in trace.meta.cost_models]

    assert names(slow) == ["slow"]
    assert names() == ["slow"]
    assert names(fast) == ["slow", "fast"]
    assert names(slow) == ["slow", "fast"]


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "t"
    target, drafter = toy_pair()
    capture(PROMPTS[:1], target, drafter, max_new_tokens=20, out=out, progress=False)
    other = MarkovModel.random(8, order=2, seed=77)
    with pytest.raises(TraceError, match="another drafters"):
        capture(PROMPTS, target, MarkovDrafter(other), max_new_tokens=20, out=out, progress=False)
    with pytest.raises(TraceError, match="another target"):
        capture(PROMPTS, ToyTarget(other), drafter, max_new_tokens=20, out=out, progress=False)


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    out = tmp_path / "t"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_CAPTURE, str(out)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"},
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list((out / "parts").glob("[0-9]*")):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(TraceError, match=f"process {process.pid}"):
            capture(PROMPTS, toy_target(), NGram(), max_new_tokens=20, out=out, progress=False)
    finally:
        process.kill()
        process.wait()
    # The writer is gone: its lock does not outlive it.
    capture(PROMPTS, toy_target(), NGram(), max_new_tokens=20, out=out, progress=False)


def test_another_prompt_under_the_same_id_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "t"
    capture(PROMPTS[:1], *toy_pair(), max_new_tokens=20, out=out, progress=False)
    other = Prompt("p0", "words", ({"role": "user", "content": "hhhh"},))
    with pytest.raises(TraceError, match="another prompt under the id 'p0'"):
        capture([other], *toy_pair(), max_new_tokens=20, out=out, progress=False)
    # Plain prompts are named after what they say, not after their place in the list.
    texts = capture(["abc", "cba"], *toy_pair(), max_new_tokens=9, progress=False)
    swapped = capture(["cba", "abc"], *toy_pair(), max_new_tokens=9, progress=False)
    assert texts.sequences.prompt_id.tolist() == swapped.sequences.prompt_id.tolist()[::-1]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    target, drafter = toy_pair()
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(TraceError, match="not empty"):
        capture(PROMPTS, target, drafter, out=tmp_path, progress=False)
    with pytest.raises(TraceError, match="is a file"):
        capture(PROMPTS, target, drafter, out=tmp_path / "thesis.tex", progress=False)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def spawning(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


# Threads share a process and so its models: one worker.
@pytest.mark.parametrize(("pool", "workers"), [(ThreadPoolExecutor, 1), (spawning, 2)])
def test_an_executor_gives_the_same_trace(pool: Any, workers: int, tmp_path: Path) -> None:
    alone = capture(PROMPTS, *toy_pair(), max_new_tokens=20, progress=False)
    with pool(workers) as executor:
        spread = capture(
            PROMPTS,
            toy_target,
            [toy_drafter],
            max_new_tokens=20,
            executor=executor,
            out=tmp_path / "t",
            progress=False,
        )
    assert same(alone, spread)


def test_a_forking_pool_is_refused_before_it_hangs() -> None:
    context = multiprocessing.get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=context) as executor,
        pytest.raises(ValueError, match="spawn"),
    ):
        capture(PROMPTS, toy_target, [toy_drafter], executor=executor, progress=False)


def test_cost_models_travel_with_the_trace(tmp_path: Path) -> None:
    cost = CostModel.from_array([0.05, 0.06], [0.0, 0.01])
    trace = capture(
        PROMPTS[:1],
        *toy_pair(),
        out=tmp_path / "t",
        cost_models=[cost],
        max_new_tokens=10,
        progress=False,
    )
    assert CostModel.from_dict(trace.meta.cost_models[0]) == cost


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": []}, "No prompts"),
        ({"prompts": "abc"}, "brackets"),
        ({"prompts": [PROMPTS[0], PROMPTS[0]]}, "p0"),
        ({"prompts": [3]}, "prompt"),
        ({"drafters": []}, "at least one drafter"),
        ({"drafters": [NGram(), NGram()]}, "Two drafters"),
        ({"k": 0}, "at least 1"),
        ({"k": 1.5}, "whole number"),
        ({"k": float("nan")}, "whole number"),
        ({"max_new_tokens": 0}, "at least 1"),
        ({"max_new_tokens": 1.5}, "whole number"),
        ({"prompts": None}, "list of prompts"),
        ({"drafters": None}, "not a drafter"),
        ({"target": 3}, "not a target"),
        ({"executor": ThreadPoolExecutor(1)}, "executor"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(change: dict, message: str) -> None:
    target, drafter = toy_pair()
    given = {"prompts": PROMPTS, "target": target, "drafters": drafter, "progress": False, **change}
    with pytest.raises(ValueError, match=message):
        capture(**given)


def test_a_drafter_with_other_tokens_is_refused() -> None:
    target, _ = toy_pair()
    with pytest.raises(ValueError, match="same"):
        capture(PROMPTS, target, MarkovDrafter(MarkovModel.random(9)), progress=False)


def test_repeated_marks_the_end_of_a_12_gram_seen_before() -> None:
    loop = [1, 2, 3] * 8
    flags = repeated(loop)
    assert not flags[:14].any()
    assert flags[14:].all()
    assert not repeated(list(range(40))).any()


def test_text_of_half_a_character_is_shown_as_bytes() -> None:
    target = tiny_target()
    ids = target.codec.encode("é")
    assert len(ids) == 2
    assert [target.codec.token_text(token) for token in ids] == ["\\xc3", "\\xa9"]
    assert target.codec.token_text(target.codec.encode(" ")[0]) == " "
    assert target.codec.decode(ids) == "é"
