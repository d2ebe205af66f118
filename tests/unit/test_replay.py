"""Replay against a naive loop over the tokens themselves, and the traps it avoids."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.anchors import anchors_of, fixed_rounds
from specviz.analysis.replays.replay import replay
from specviz.policies import DraftView, FixedK, History, Plan
from specviz.trace.trace import Trace
from tests.synthetic import synthetic_trace, trace_of

K = 6
some = settings(max_examples=40, deadline=None)
SHOWN = ["seq", "anchor", "drafted", "accepted", "emitted", "stop"]


class SlowFixedK(FixedK):
    """FixedK without the fast path: replay does not know the subclass."""


@st.composite
def captures(draw: st.DrawFn, consistent: bool = False) -> Trace:
    """Captures of a few sequences with any match stream that their ends allow.

    `consistent`: M(a + 1) >= M(a) - 1 and full drafts, as token-only drafters have.
    """
    limit = draw(st.integers(2, 16))
    matches, drafted, finishes = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        finish = draw(st.sampled_from(["limit", "eos", "stopped"]))
        n = limit if finish == "limit" else draw(st.integers(2, limit))
        d, m = np.full(n - 1, K), np.zeros(n - 1, dtype=int)
        for a in reversed(range(n - 1)):
            reach = min(K, n - 1 - a) if finish == "eos" else K
            if consistent:
                reach = min(reach, m[a + 1] + 1) if a < n - 2 else reach
                m[a] = draw(st.integers(0, reach))
            else:
                d[a] = draw(st.integers(0, K))
                m[a] = draw(st.integers(0, min(int(d[a]), reach)))
        matches.append(m)
        drafted.append(d)
        finishes.append(finish)
    return trace_of(
        {"any": matches}, drafted={"any": drafted}, finish=finishes, k=K, max_new_tokens=limit
    ).validate()


def naive(trace: Trace, k: int) -> list[tuple[int, int, int, int, int, str]]:
    """Compare drafted tokens with the output, one by one; never looks at M."""
    rounds = []
    drafts = {(r.seq, r.anchor): r for r in trace.drafts.itertuples()}
    for s in trace.sequences.itertuples():
        y = trace.positions.query("seq == @s.seq")["token_id"].tolist()
        a = 0
        while a < len(y) - 1:
            offer = drafts[s.seq, a]
            draft = list(offer.token[: min(k, offer.drafted)])
            while draft and a + len(draft) > s.max_new_tokens - 2:
                draft.pop()
            accepted = 0
            for i, token in enumerate(draft):
                if a + 1 + i == len(y) - 1 or token != y[a + 1 + i]:
                    break
                accepted += 1
            stop = "full" if accepted == len(draft) else "reject"
            if a + accepted + 1 == len(y) - 1:
                stop = "eos" if s.finish == "eos" else "limit"
            rounds.append((s.seq, a, len(draft), accepted, accepted + 1, stop))
            a += accepted + 1
    return rounds


@some
@given(captures(), st.integers(0, K))
def test_replay_equals_the_naive_loop(trace: Trace, k: int) -> None:
    found = replay(trace, FixedK(k))
    assert list(found.rounds[SHOWN].itertuples(index=False, name=None)) == naive(trace, k)
    per_sequence = found.rounds.groupby("seq")["emitted"].sum()
    assert (per_sequence == trace.sequences.set_index("seq")["n_output"] - 1).all()
    assert 1 <= found.tokens_per_round <= k + 1
    assert (found.rounds.groupby("seq")["round"].diff().dropna() == 1).all()


@some
@given(captures(), st.integers(0, K))
def test_fast_path_equals_the_simulated_policy(trace: Trace, k: int) -> None:
    fast, slow = replay(trace, FixedK(k)), replay(trace, SlowFixedK(k))
    assert fast.rounds.equals(slow.rounds)


@some
@given(captures(), st.lists(st.integers(0, K), min_size=1, max_size=5))
def test_any_sequence_of_k_emits_every_token_once(trace: Trace, ks: list[int]) -> None:
    class Cycle(FixedK):
        def plan(self, past: History) -> Plan:
            return Plan(ks[len(past.rounds) % len(ks)])

    rounds = replay(trace, Cycle(0)).rounds
    assert rounds["emitted"].sum() == (trace.sequences["n_output"] - 1).sum()
    assert (rounds["accepted"] <= rounds["drafted"]).all()


@some
@given(captures(consistent=True))
def test_longer_drafts_never_need_more_rounds_when_a_draft_is_the_tail_of_the_last(
    trace: Trace,
) -> None:
    rounds = [replay(trace, FixedK(k)).n_rounds for k in range(K + 1)]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[0] == (trace.sequences["n_output"] - 1).sum()


def test_longer_drafts_can_need_more_rounds_otherwise() -> None:
    """Fresh drafts at every anchor: k = 3 jumps over the good anchor 3, k = 2 lands on it."""
    trace = trace_of([[3, 0, 0, 2, 0, 0, 2, 0, 0]], k=3)
    anchors = [replay(trace, FixedK(k)).rounds["anchor"].tolist() for k in (2, 3)]
    assert anchors == [[0, 3, 6], [0, 4, 5, 6]]


def test_toy_of_f7_5() -> None:
    """F7.5 counts t = tokens committed, and M(t) for the token about to come: t = a.

    Its 16 tokens are emitted by rounds alone, so our output has 17 (prefill gives y[0]), with
    anchors 0..15. Its last step ends exactly at 16, so no clipping shows.
    """
    m = [3, 2, 1, 0, 0, 2, 1, 0, 4, 3, 2, 1, 0, 0, 1, 0]
    trace = trace_of([m], k=4).validate()
    assert int(trace.sequences["n_output"][0]) == 17
    assert [replay(trace, FixedK(k)).n_rounds for k in (1, 2, 3, 4)] == [10, 8, 7, 6]
    assert replay(trace, FixedK(4)).tokens_per_round == pytest.approx(16 / 6)


def test_the_round_that_meets_the_end_is_censored() -> None:
    # n = 5, limit 5: at anchor 2 at most 5 - 2 - 2 = 1 token may be drafted.
    limit = replay(trace_of([[0, 0, 4, 4]], k=4), FixedK(4)).rounds
    assert limit[SHOWN].iloc[-1].tolist() == [0, 2, 1, 1, 2, "limit"]
    # The same output, ended by itself with room to spare: 2 tokens reach the end of text,
    # which the target emits itself.
    ended = replay(trace_of([[0, 0, 2, 1]], finish="eos", k=4, max_new_tokens=20), FixedK(4))
    assert ended.rounds[SHOWN].iloc[-1].tolist() == [0, 2, 4, 1, 2, "eos"]


def test_averaging_over_all_anchors_is_too_high_on_bursty_text() -> None:
    """F7.5: uniform anchors see more of the easy stretches than rounds do."""
    trace = synthetic_trace(
        3, content_types=["mixed"], prompts_per_type=12, max_new_tokens=96, shorter_drafts=False
    )
    for k in (3, 8, 15):
        matched = trace.drafts["matched"].to_numpy()
        everywhere = np.minimum(matched, k).mean() + 1
        assert everywhere > 1.1 * replay(trace, FixedK(k)).tokens_per_round
    visited = replay(trace, FixedK(15)).rounds[["seq", "anchor"]]
    at_15 = trace.drafts.merge(visited, on=["seq", "anchor"])["matched"]
    assert np.minimum(at_15, 3).mean() + 1 < replay(trace, FixedK(3)).tokens_per_round


@dataclasses.dataclass(frozen=True)
class Sure:
    """Drafts on while the drafter's own score is high; opens wide on certain text."""

    least: float = 0.5
    name: str = "sure"
    replayable: bool = True

    def plan(self, past: History) -> Plan:
        return Plan(12 if past.entropy[-1] < 1.0 else 5)

    def more(self, view: DraftView) -> bool:
        return view.confidence[-1] >= self.least


def test_a_stopping_policy_equals_its_own_arithmetic() -> None:
    trace = synthetic_trace(5)
    rounds = replay(trace, Sure()).rounds
    entropy = trace.positions.set_index(["seq", "t"])["entropy"]
    drafts = trace.drafts.set_index(["seq", "anchor"])
    sequences = trace.sequences.set_index("seq")
    assert rounds["drafted"].nunique() > 4
    for r in rounds.itertuples():
        offer = drafts.loc[(r.seq, r.anchor)]
        k = 12 if entropy[r.seq, r.anchor] < 1.0 else 5
        most = min(k, offer["drafted"], sequences["max_new_tokens"][r.seq] - 2 - r.anchor)
        below = np.flatnonzero(offer["confidence"][:most].astype(float) < 0.5)
        assert r.drafted == (min(most, below[0] + 1) if len(below) else most)


def test_a_policy_sees_only_what_is_committed_and_is_not_asked_after_the_last_token() -> None:
    trace = trace_of([[2, 1, 0, 3, 2, 1, 0]], k=4)
    planned: list[History] = []
    asked: list[int] = []

    class Watching(FixedK):
        def plan(self, past: History) -> Plan:
            planned.append(past)
            return super().plan(past)

        def more(self, view: DraftView) -> bool:
            assert len(view.logq) == len(view.entropy) == len(view.confidence)
            assert all(type(value) is float for value in view.logq)
            asked.append(len(view.logq))
            return True

    rounds = replay(trace, Watching(3)).rounds
    assert [past.anchor for past in planned] == rounds["anchor"].tolist() == [0, 3]
    assert asked == [1, 2, 1, 2]
    for i, past in enumerate(planned):
        assert len(past.rounds) == i
        for values in (past.tokens, past.entropy, past.p_max, past.margin):
            assert len(values) == past.anchor + 1
    y = trace.positions["token_id"].tolist()
    assert list(planned[1].tokens) == y[:4]
    assert planned[1].entropy[-1] == float(trace.positions["entropy"][3])
    assert planned[1].rounds[0].accepted == 2


def test_stopping_at_once_still_drafts_one_token() -> None:
    class Never(FixedK):
        def more(self, view: DraftView) -> bool:
            return False

    trace = synthetic_trace(1, shorter_drafts=False)
    assert replay(trace, Never(9)).rounds[SHOWN].equals(replay(trace, FixedK(1)).rounds[SHOWN])


def test_switching_drafters_between_rounds() -> None:
    class Turns(FixedK):
        def plan(self, past: History) -> Plan:
            return Plan(5, "block" if len(past.rounds) % 2 else "steady")

    trace = synthetic_trace(2, drafters=("steady", "block"))
    found = replay(trace, Turns(5))
    assert found.drafters == ("steady", "block")
    assert (found.rounds["drafter"] == np.where(found.rounds["round"] % 2, "block", "steady")).all()
    matched = trace.drafts.set_index(["seq", "anchor", "drafter"])["matched"]
    for r in found.rounds.itertuples():
        assert r.accepted <= matched[r.seq, r.anchor, r.drafter]


def test_by_with_and_without_repeats() -> None:
    trace = synthetic_trace(0, max_new_tokens=60)
    found = replay(trace, FixedK(3))
    table = found.by("content_type")
    assert list(table["content_type"]) == ["code", "prose", "mixed"]
    assert table["n_rounds"].sum() == found.n_rounds
    assert ((table["low"] <= table["tokens_per_round"]) & (table["high"] > table["low"])).all()
    again, fresh = found.by(repeated=True), found.by(repeated=False)
    assert 0 < again["n_rounds"].sum() < found.n_rounds
    assert again["n_rounds"].sum() + fresh["n_rounds"].sum() == found.n_rounds
    flags = trace.positions.set_index(["seq", "t"])["repeated"]
    flagged = [flags[r.seq, r.anchor + 1] for r in found.rounds.itertuples()]
    assert again["n_rounds"].sum() == sum(flagged)
    with pytest.raises(ValueError, match="No column 'language'"):
        found.by("language")


def test_interval_and_notebook_form() -> None:
    found = replay(synthetic_trace(0), FixedK(7), draws=500, seed=4)
    assert found.interval.low < found.tokens_per_round < found.interval.high
    assert found.interval.estimate == pytest.approx(found.tokens_per_round)
    assert found.interval.n_prompts == 12
    assert "count the bonus token" in found._repr_html_()
    alone = replay(trace_of([[1, 0, 0]], k=2), FixedK(1))
    assert np.isnan(alone.interval.low)


def test_order_of_rows_does_not_matter() -> None:
    trace = synthetic_trace(2, drafters=("steady", "block"))
    rng = np.random.default_rng(0)
    mixed = Trace(
        trace.meta,
        {
            name: trace.table(name).take(pa.array(rng.permutation(trace.table(name).num_rows)))
            for name in ("sequences", "positions", "drafts")
        },
    )
    for policy in (FixedK(4, "block"), SlowFixedK(4, "steady"), Sure()):
        name = "steady" if isinstance(policy, Sure) else None
        a, b = replay(trace, policy, name), replay(mixed, policy, name)
        assert a.rounds[SHOWN].equals(b.rounds[SHOWN])
        assert a.by(repeated=False).equals(b.by(repeated=False))


def _with(trace: Trace, **changes: object) -> Trace:
    meta = dataclasses.replace(trace.meta, **changes)  # type: ignore[arg-type]
    return Trace(meta, {n: trace.table(n) for n in ("sequences", "positions", "drafts")})


def test_refusals() -> None:
    trace = synthetic_trace(0, prompts_per_type=1)
    with pytest.raises(ValueError, match=r"at most K = 15 by 'steady'"):
        replay(trace, FixedK(16))
    with pytest.raises(ValueError, match=r"at most K = 15 by 'steady'"):
        replay(trace, SlowFixedK(16))
    with pytest.raises(ValueError, match="make a capture"):
        replay(_with(trace, kind="run", exhaustive=False), FixedK(3))
    with pytest.raises(ValueError, match=r"temperature 0\.7"):
        replay(_with(trace, sampling={"temperature": 0.7}), FixedK(3))
    with pytest.raises(ValueError, match="needs the `drafts` table"):
        replay(Trace(trace.meta, {"sequences": trace.table("sequences")}), FixedK(3))
    gap = {"sequences": trace.table("sequences"), "drafts": trace.table("drafts").slice(1)}
    with pytest.raises(ValueError, match="does not have one draft at every anchor"):
        replay(Trace(trace.meta, gap), FixedK(3))
    with pytest.raises(ValueError, match="learns from measured seconds"):
        replay(trace, Sure(replayable=False))
    with pytest.raises(ValueError, match="No drafter 'eagle'"):
        replay(trace, FixedK(3), "eagle")
    with pytest.raises(ValueError, match="leave `drafter` out"):
        replay(trace, FixedK(3, "eagle"), "steady")
    with pytest.raises(ValueError, match="Say which drafter"):
        replay(synthetic_trace(0, prompts_per_type=1, drafters=("steady", "block")), FixedK(3))


class _Half:
    """Plans, but says of no draft whether to go on."""

    name, replayable = "half", True

    def plan(self, past: History) -> Plan:
        return Plan(1)


@pytest.mark.parametrize("policy", [None, 3, "fixed-7", object(), _Half(), FixedK])
def test_what_is_no_policy_is_told_what_a_policy_has(policy: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a policy: .*name, replayable, plan and more"):
        replay(synthetic_trace(0, prompts_per_type=1), policy)


def _edited(trace: Trace, table: str, column: str, values: list[int]) -> Trace:
    tables = {n: trace.table(n) for n in ("sequences", "positions", "drafts")}
    at = tables[table].column_names.index(column)
    tables[table] = tables[table].set_column(at, column, pa.array(values))
    return Trace(trace.meta, tables)


@pytest.mark.parametrize("policy", [FixedK(2), SlowFixedK(2)])
def test_a_trace_whose_chains_would_stall_is_refused(policy: FixedK) -> None:
    trace = trace_of([[1, 0, 0], [2, 1, 0]], k=2)  # four tokens each
    for limits in ([4, 2], [4, 3], [4, 0]):
        with pytest.raises(ValueError, match=r"Sequence 1 has 4 .*trace\.validate\(\)"):
            replay(_edited(trace, "sequences", "max_new_tokens", limits), policy)
    with pytest.raises(ValueError, match=r"Sequence 0 has 0 .*trace\.validate\(\)"):
        replay(_edited(trace, "sequences", "n_output", [0, 4]), policy)
    for column in ("matched", "drafted"):
        with pytest.raises(ValueError, match=r"anchor 1 of sequence 0 .*trace\.validate\(\)"):
            replay(_edited(trace, "drafts", column, [1, -1, 0, 2, 1, 0]), policy)


def test_the_chain_loop_cannot_stall() -> None:
    anchors = anchors_of(trace_of([[1, 0, 0]], k=2))
    broken = dataclasses.replace(anchors, acceptable=np.array([-1, -1, -5]))
    where, _, _ = fixed_rounds(broken, 2)
    assert where.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_the_rounds_of_one_text_are_its_rows(seed: int) -> None:
    trace = synthetic_trace(seed)
    found = replay(trace, FixedK(3), trace.drafters[0])
    for seq in [*trace.sequences["seq"], 10_000]:
        mine = found.rounds[found.rounds["seq"] == seq].reset_index(drop=True)
        pd.testing.assert_frame_equal(found.rounds_of(int(seq)), mine, check_dtype=len(mine) > 0)
