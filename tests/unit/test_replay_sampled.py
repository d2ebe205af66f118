"""Replay of sampled outputs: exact laws by enumeration, and live runs of toys (F7.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.ebf.steps import EBFSteps
from specviz.analysis.replays.renewal import reach, round_starts
from specviz.analysis.replays.sampled import SampledReplay, replay_sampled
from specviz.campaign import capture
from specviz.cost import CostModel
from specviz.drafters.markov import MarkovDrafter
from specviz.drafters.ngram import NGram
from specviz.engine.acceptance import Rejection, SampleMatch
from specviz.engine.loop import generate
from specviz.engine.picking import Drawn, Pick
from specviz.engine.sampling import RAW, Sampling
from specviz.engine.tree_shapes import BestFirst
from specviz.policies import (
    AdaEDL,
    Bandit,
    ConfidenceStop,
    DraftView,
    EMAWindow,
    FixedK,
    FixedTree,
    History,
    Plan,
)
from specviz.prompt_set import Prompt, prompt_seed
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.trace import Trace
from tests.models import toy_pair
from tests.synthetic import trace_of

SHAPED = Sampling(temperature=0.7, top_p=0.8)
TOKENS, K = 16, 4
#: Every prompt is a state of the toy chain of order 2.
PROMPTS = [
    Prompt(a + b, "low" if a < "e" else "high", ({"role": "user", "content": a + b},))
    for a, b in product("abcdefgh", "aceg")
]


@cache
def captured(sampling: Sampling = RAW, eos: bool = False, ngram: bool = False) -> Trace:
    target, drafter = toy_pair(eos)
    return capture(
        PROMPTS,
        target,
        NGram(max_k=K) if ngram else drafter,
        sampling=sampling,
        k=K,
        seed=1,
        max_new_tokens=TOKENS,
        progress=False,
    )


def live_rounds(policy: Any, rule: Any, eos: bool = False, seed: int = 7) -> np.ndarray:
    """Rounds that each prompt took live, with noise of its own."""
    target, drafter = toy_pair(eos)
    runs = (
        generate(
            target,
            drafter,
            prompt.messages,
            policy=policy,
            acceptance=rule,
            max_new_tokens=TOKENS,
            seed=prompt_seed(seed, prompt.id),
            instrument=policy.name.startswith("ebf"),
        ).finish()
        for prompt in PROMPTS
    )
    return np.array([len(run.log) for run in runs], dtype=float)


def per_prompt(found: SampledReplay) -> np.ndarray:
    """Expected rounds of every prompt; an output of one token has none."""
    sums = found.rounds.groupby("prompt_id")["weight"].sum()
    return np.array([sums.get(prompt.id, 0.0) for prompt in PROMPTS])


def assert_alike(expected: np.ndarray, live: np.ndarray) -> None:
    """Means within four standard errors of each other (the prompts are the same)."""
    gap = live - expected
    assert abs(gap.mean()) < 4 * gap.std(ddof=1) / np.sqrt(len(gap))


# -- the renewal chain ------------------------------------------------------------------------


@dataclass
class Chains:
    """Target and drafter of two Markov chains, and what speculation with k tokens does."""

    p: np.ndarray
    q: np.ndarray
    k: int

    @classmethod
    def random(cls, size: int, k: int, seed: int) -> Chains:
        rng = np.random.default_rng(seed)
        return cls(*(rng.dirichlet(np.full(size, 0.7), size) for _ in range(2)), k)

    def keeps(self) -> np.ndarray:
        """Chance to draft and keep token y after x: min(p, q)."""
        return np.minimum(self.p, self.q)

    def walk(self, n: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        bars, u = np.cumsum(self.p, axis=1), rng.random(n)
        path = [0]
        for each in u:
            path.append(min(int(np.searchsorted(bars[path[-1]], each)), len(bars) - 1))
        return np.array(path)

    def factors(self, path: np.ndarray) -> np.ndarray:
        """min(1, q / p) of token t + j along the path, for every anchor with j = 1..k known."""
        ratio = np.minimum(1, self.q[path[:-1], path[1:]] / self.p[path[:-1], path[1:]])
        anchors = len(path) - 1
        where = np.minimum(np.arange(anchors)[:, None] + np.arange(self.k), anchors - 1)
        return ratio[where]

    def tokens_per_round(self) -> float:
        """In the long run: over the states that rounds start in."""
        keep, left = self.keeps(), np.maximum(self.p - self.q, 0)
        powers = [np.linalg.matrix_power(keep, i) for i in range(self.k + 1)]
        lead = sum(powers[i] @ left for i in range(self.k)) + powers[self.k] @ self.p
        values, vectors = np.linalg.eig(lead.T)
        start = np.real(vectors[:, np.argmin(np.abs(values - 1))])
        start = start / start.sum()
        return float(sum(start @ power.sum(axis=1) for power in powers))

    def rounds(self, last: int, room: int) -> float:
        """Expected rounds for `room` more tokens after `last`, by following live rounds."""
        if room == 0:
            return 0.0
        keep, left = self.keeps(), np.maximum(self.p - self.q, 0)
        here, total = np.eye(len(keep))[last], 1.0
        depth = min(self.k, room - 1)
        for i in range(depth + 1):
            owed = here @ (left if i < depth else self.p)
            total += sum(w * self.rounds(y, room - i - 1) for y, w in enumerate(owed) if w > 0)
            here = here @ keep
        return total


def test_f7_6_four_states_in_the_long_run() -> None:
    """In kind: 4 states, k = 3, a path of 60,000. The DP on the target's own sample is the rate
    of speculation, and so is speculation itself (the sheet: 2.8516, 2.8559 and 2.8605)."""
    chains = Chains.random(4, 3, seed=5)
    truth = chains.tokens_per_round()
    assert 1.5 < truth < 3.5
    n = 60_000
    path = chains.walk(n, seed=0)
    w = reach(chains.factors(path))
    depth = np.minimum(chains.k, n - 1 - np.arange(n))
    assert n / round_starts(w, depth).sum() == pytest.approx(truth, rel=0.006)
    # The same renewal chain, drawn instead of averaged.
    rng, at, rounds = np.random.default_rng(1), 0, 0
    while at < n:
        at += 1 + int((w[at, : depth[at]] > rng.random()).sum())
        rounds += 1
    assert n / rounds == pytest.approx(truth, rel=0.015)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_output_weighed_is_the_law_of_live_rounds(k: int) -> None:
    """Sum over all outputs of P(output) E[rounds | output] is E[rounds], to rounding."""
    chains, n = Chains.random(3, k, seed=k), 5
    total = 0.0
    for tail in product(range(3), repeat=n):
        path = np.array([0, *tail])
        chance = chains.p[path[:-1], path[1:]].prod()
        depth = np.minimum(k, n - 1 - np.arange(n))
        total += chance * round_starts(reach(chains.factors(path)), depth).sum()
    assert total == pytest.approx(chains.rounds(0, n), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(0, 99))
def test_forwards_is_backwards(k: int, sizes: list[int], seed: int) -> None:
    """Summed starts are S(t) = 1 + sum P(advance) S(t + advance), sequence by sequence."""
    rng = np.random.default_rng(seed)
    anchors = sum(sizes)
    start = np.cumsum([0, *sizes])
    room = np.concatenate([np.arange(size)[::-1] for size in sizes])
    depth = np.minimum(rng.integers(0, k + 1, anchors), room)
    w = reach(rng.random((anchors, k)))
    starts = round_starts(w, depth, start[:-1])
    for low, high in pairwise(start):
        ahead = np.zeros(high - low + 1)
        for t in range(high - low - 1, -1, -1):
            kept = [1.0, *w[low + t, : depth[low + t]], 0.0]
            ahead[t] = 1 + sum(
                (kept[i] - kept[i + 1]) * ahead[t + i + 1] for i in range(len(kept) - 1)
            )
        assert starts[low:high].sum() == pytest.approx(ahead[0])


# -- captures against their models, and against live runs -------------------------------------


@pytest.mark.parametrize("rule", ["rejection", "drawn-match", "argmax-match"])
def test_w_is_made_of_the_shaped_p_and_q_of_the_output(rule: str) -> None:
    trace = captured(SHAPED)
    target, drafter = toy_pair()

    def law(model: MarkovModel, text: list[int]) -> np.ndarray:
        return SHAPED.probs(model.logits(text)[None])[0].numpy()

    rounds = replay_sampled(trace, K, rule=rule).rounds.set_index(["seq", "anchor"])
    tokens = trace.positions.groupby("seq")["token_id"].apply(list)
    for (seq, anchor), row in rounds.iloc[::7].iterrows():
        text = [*trace.sequences["prompt_ids"][seq], *tokens[seq][: anchor + 1]]
        w, kept = 1.0, 0.0
        for x in tokens[seq][anchor + 1 : -1][:K]:
            p, q = law(target.model, text), law(drafter.model, text)
            w *= {
                "rejection": min(1, q[x] / p[x]),
                "drawn-match": q[x],
                "argmax-match": float(q.argmax() == x),
            }[rule]
            kept += w
            text.append(x)
        assert row["accepted"] == pytest.approx(kept, abs=4e-3)
        assert row["drafted"] == min(K, TOKENS - 2 - anchor)


@dataclass(frozen=True)
class Alternating:
    """A schedule by position."""

    name: str = "alternating"
    replayable: ClassVar[bool] = True

    def plan(self, past: History) -> Plan:
        return Plan(3 if past.anchor % 2 else 1)

    def more(self, view: DraftView) -> bool:
        return len(view.logq) < 2  # how long it is, is no secret


def test_rejection_live_with_p_and_q_shaped_alike() -> None:
    found = replay_sampled(captured(SHAPED), K)
    assert found.exact
    assert_alike(per_prompt(found), live_rounds(FixedK(K), Rejection(SHAPED)))


@pytest.mark.parametrize("policy", [Alternating(), EBFSteps((1.5, 3.0), (4, 2, 1), window=4)])
def test_policies_that_read_committed_text_are_exact(policy: Any) -> None:
    found = replay_sampled(captured(), policy)
    assert found.exact
    assert len(set(found.rounds["drafted"])) > 1
    assert_alike(per_prompt(found), live_rounds(policy, Rejection()))


def test_an_end_of_text_cuts_the_last_round() -> None:
    trace = captured(eos=True)
    assert set(trace.sequences["finish"]) == {"eos", "limit"}
    found = replay_sampled(trace, K)
    assert_alike(per_prompt(found), live_rounds(FixedK(K), Rejection(), eos=True))


@dataclass(frozen=True)
class DrawnMatch(SampleMatch):
    """Draw the draft, too, and keep it where the target draws the same."""

    def pick(self, seed: int, anchor: int) -> Pick:
        return Drawn(self.sampling, seed, anchor)


def test_drawn_drafts_that_must_match() -> None:
    found = replay_sampled(captured(), K, rule="drawn-match")
    live = live_rounds(FixedK(K), DrawnMatch())
    assert_alike(per_prompt(found), live)
    # Rejection keeps min(p, q) where this keeps p q.
    assert replay_sampled(captured(), K).tokens_per_round > found.tokens_per_round + 0.1


def test_likeliest_drafts_that_must_match_are_live_round_for_round() -> None:
    """The capture's outputs are those of live SampleMatch with the same seed."""
    found = replay_sampled(captured(), K, rule="argmax-match")
    assert set(found.rounds["weight"]) == {1.0}
    assert per_prompt(found).tolist() == live_rounds(FixedK(K), SampleMatch(), seed=1).tolist()


def test_points_know_no_difference_between_the_rules() -> None:
    found = [
        per_prompt(replay_sampled(captured(ngram=True), K, rule=rule))
        for rule in ("rejection", "drawn-match", "argmax-match")
    ]
    np.testing.assert_allclose(found[0], found[2])
    np.testing.assert_allclose(found[1], found[2])


def test_a_policy_that_looks_at_past_rounds_is_simulated() -> None:
    policy = EMAWindow(most=K)
    found = replay_sampled(captured(), policy, runs=6, seed=3)
    assert not found.exact
    assert found.runs == 6
    assert 0 < found.simulation_error < 0.1
    assert_alike(per_prompt(found), live_rounds(policy, Rejection()))
    again = replay_sampled(captured(), policy, runs=6, seed=3)
    assert again.rounds.equals(found.rounds)
    assert not replay_sampled(captured(), policy, runs=6, seed=4).rounds.equals(found.rounds)


@dataclass(frozen=True)
class Nosy(FixedK):
    """Looks at past rounds and does nothing with them."""

    def plan(self, past: History) -> Plan:
        return Plan(self.k + 0 * len(past.rounds))


def test_what_is_simulated_agrees_with_what_is_exact() -> None:
    exact, drawn = replay_sampled(captured(), K), replay_sampled(captured(), Nosy(K), runs=20)
    assert (exact.exact, drawn.exact) == (True, False)
    assert exact.simulation_error == 0
    gap = drawn.tokens_per_round - exact.tokens_per_round
    assert abs(gap) < 4 * drawn.simulation_error
    for column in ("drafted", "accepted"):
        sums = [(f.rounds["weight"] * f.rounds[column]).sum() for f in (exact, drawn)]
        assert sums[0] == pytest.approx(sums[1], rel=0.05)


def test_a_perfect_drafter_is_kept_whole() -> None:
    target, _ = toy_pair()
    trace = capture(
        PROMPTS[:4],
        target,
        MarkovDrafter(target.model),
        sampling=SHAPED,
        k=K,
        max_new_tokens=TOKENS,
        progress=False,
    )
    # 15 tokens after the first, 5 a round.
    assert per_prompt(replay_sampled(trace, K))[:4] == pytest.approx(3.0, abs=0.02)


# -- what is reported -------------------------------------------------------------------------


def test_by_content_type_adds_up() -> None:
    found = replay_sampled(captured(), 3, draws=500)
    table = found.by("content_type").set_index("content_type")
    assert set(table.index) == {"low", "high"}
    assert table["n_tokens"].sum() == len(PROMPTS) * (TOKENS - 1)
    assert table["n_prompts"].tolist() == [16, 16]
    assert table["expected_rounds"].sum() == pytest.approx(found.expected_rounds)
    assert (table["low"] < table["tokens_per_round"]).all()
    assert (table["tokens_per_round"] < table["high"]).all()
    total = len(PROMPTS) * (TOKENS - 1) / found.expected_rounds
    assert found.tokens_per_round == pytest.approx(total)
    assert found.interval.n_prompts == len(PROMPTS)
    assert "bonus counted" in found._repr_html_()
    assert np.isnan(replay_sampled(captured(), 0).by()["draft_yield"]).all()


def test_speedup_weighs_every_round() -> None:
    found = replay_sampled(captured(), 3, draws=200)
    free = CostModel.from_array([1.0, 1.0], [0.0] * 16)
    assert found.speedup(free).estimate == pytest.approx(found.tokens_per_round)
    charged = CostModel.from_array([1.0, 1.0], np.arange(16) / 10)
    seconds = (found.rounds["weight"] * (1 + found.rounds["drafted"] / 10)).sum()
    tokens = len(PROMPTS) * (TOKENS - 1)
    assert found.speedup(charged).estimate == pytest.approx(tokens / seconds)
    with pytest.raises(ValueError, match="not a cost model"):
        found.seconds(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: replay_sampled(captured(), ConfidenceStop(0.4, K)), "looks inside the draft"),
        (lambda: replay_sampled(captured(), AdaEDL(K)), "looks inside the draft"),
        (lambda: replay_sampled(captured(), FixedTree(BestFirst(4, depth=2))), "token trees"),
        (lambda: replay_sampled(captured(), Bandit((1, 2))), "measured seconds"),
        (lambda: replay_sampled(captured(), K + 1), "at most K = 4"),
        (lambda: replay_sampled(captured(), "fixed"), "no policy and no number"),
        (lambda: replay_sampled(captured(), 2, rule="typical"), "rule must be one of"),
        (lambda: replay_sampled(captured(), 2, runs=0), "runs must be a whole number"),
        (lambda: replay_sampled(captured(), 2, "other"), "No drafter 'other'"),
        (lambda: replay_sampled(captured(), 2).by("policy"), "grouped by one of"),
        (lambda: replay_sampled(trace_of([[1, 0, 0]]), 2), "greedy"),
        (lambda: replay_sampled(run_trace(), 2), "visited anchors only"),
        (lambda: reach([[1.5]]), "chances between 0 and 1"),
        (lambda: round_starts([[0.5]], [2]), "between 0 and K = 1"),
        (lambda: round_starts([[0.5]], [1, 1]), "one whole depth per anchor"),
    ],
)
def test_refusals(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def run_trace() -> Trace:
    chain = MarkovModel.random(8, seed=1)
    run = generate(ToyTarget(chain), MarkovDrafter(chain), "abc", max_new_tokens=4)
    return run.finish().trace
