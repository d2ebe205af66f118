"""Every policy against its own rule written out with running variables, and the contract."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.replays.replay import replay
from specviz.analysis.theory.speedup import best_k
from specviz.cost import CostModel
from specviz.policies import (
    SVIP,
    AdaEDL,
    Bandit,
    ConfidenceStop,
    CostOptimal,
    DraftView,
    EBFMatched,
    EMAWindow,
    EntropyGate,
    FixedK,
    Heuristic,
    History,
    PastRound,
    Plan,
    Policy,
    entropy_score,
)
from specviz.presets import free_drafts, t4_like
from specviz.trace.trace import Trace
from tests.synthetic import synthetic_trace

K = 6
ALPHA = 0.6
GEOMETRIC = tuple(ALPHA**j for j in range(1, 11))
some = settings(max_examples=80, deadline=None)

#: Verification of n rows takes 1 + 0.02 (n - 1) plain steps (F4.2's example).
ROWS = [1 + 0.02 * n for n in range(11)]
BLOCK = CostModel.from_array(ROWS, [0.0] + [0.25] * 10, name="block")
STEPS = CostModel.from_array(ROWS, [0.08 * k for k in range(11)], name="token by token")
COSTS = (t4_like(), free_drafts(), BLOCK, STEPS)


def shares(draw: st.DrawFn) -> float:
    return draw(st.floats(0, 1))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy with parameters of its range, for drafts of at most K tokens."""
    k, window = draw(st.integers(0, K)), draw(st.integers(1, 12))
    most = draw(st.integers(1, K))
    low, high = sorted((draw(st.floats(0, 3)), draw(st.floats(0, 3))))
    survival = np.cumprod([shares(draw) for _ in range(most)])
    ks = draw(st.lists(st.integers(0, K), min_size=1, max_size=4, unique=True))
    cost = draw(st.sampled_from(COSTS))
    made: list[Callable[[], Policy]] = [
        lambda: FixedK(k),
        lambda: Heuristic(draw(st.integers(1, most)), draw(st.integers(0, 3)), 1, most),
        lambda: ConfidenceStop(shares(draw), k),
        lambda: SVIP(draw(st.floats(0, 1)), k),
        lambda: EMAWindow(
            draw(st.floats(0, most)),
            draw(st.floats(0.01, 1)),
            draw(st.floats(0.01, 1)),
            draw(st.floats(0, 2).map(lambda skip: min(skip, float(most)))),
            draw(st.integers(1, 4)),
            most,
        ),
        lambda: EntropyGate(low, high, k, window),
        lambda: EBFMatched(window, most, draw(st.sampled_from(["run", "equal"]))),
        lambda: CostOptimal(cost, tuple(survival), dynamic=draw(st.booleans())),
        lambda: CostOptimal(cost, tuple(survival), calibration=((0.2, 0.1), (0.9, 0.95))),
        lambda: Bandit(tuple(ks), cost, None, draw(st.floats(0, 2)), draw(st.integers(0, 9))),
        lambda: AdaEDL(k, shares(draw), shares(draw)),
    ]
    return draw(st.sampled_from(made))()


@cache
def some_trace(seed: int) -> Trace:
    return synthetic_trace(
        seed,
        content_types=("code", "mixed")[seed % 2 :][:1],
        prompts_per_type=2,
        k=K,
        max_new_tokens=4 + 3 * seed,
    )


def traces() -> st.SearchStrategy[Trace]:
    return st.integers(0, 9).map(some_trace)


class Hand:
    """A policy as its source writes it: variables that change as rounds go by."""

    def __init__(self, p: Any) -> None:
        self.p = p
        self.seen = 0
        if isinstance(p, Heuristic):
            self.length = p.start
        elif isinstance(p, EMAWindow):
            self.average, self.rests = p.start, 0
        elif isinstance(p, AdaEDL):
            self.share, self.threshold = p.goal, p.start
        elif isinstance(p, EntropyGate):
            self.open = True
        elif isinstance(p, Bandit):
            order = np.random.default_rng(p.seed).permutation(len(p.ks))
            self.arms = [p.ks[i] for i in order]
            self.log: dict[int, list[tuple[int, float]]] = {arm: [] for arm in self.arms}
        elif isinstance(p, CostOptimal):
            name = next(iter(p.cost.draft))
            depths = np.arange(len(p.survival) + 1)
            self.time = np.asarray(p.cost.round_seconds(name, depths))
            self.tokens = 1 + np.concatenate([[0], np.cumsum(p.survival)])

    def k(self, entropy: list[float]) -> int:
        p = self.p
        if isinstance(p, Heuristic):
            return self.length
        if isinstance(p, EMAWindow):
            if self.average < p.skip:
                return 1 if self.rests >= p.probe else 0
            return min(max(1, math.ceil(self.average)), p.most)
        if isinstance(p, EntropyGate):
            for t in range(self.seen, len(entropy)):  # tokens that came since the last round
                mean = np.mean(entropy[max(0, t + 1 - p.window) : t + 1])
                self.open = mean <= p.low or (mean < p.high and self.open)
            self.seen = len(entropy)
            return p.k if self.open else 0
        if isinstance(p, EBFMatched):
            ebf = np.exp(np.mean(entropy[-p.window :]))
            wanted = ebf if p.reading == "equal" else 1 / max(ebf - 1, 1e-9)
            return int(min(np.floor(wanted + 0.5), p.most))
        if isinstance(p, Bandit):
            return self._arm()
        if isinstance(p, CostOptimal):
            best = int(np.argmax(self.tokens / self.time))
            return len(p.survival) if best and p.dynamic else best
        return int(p.k)

    def goes_on(self, confidence: list[float], entropy: float, k: int) -> bool:
        p = self.p
        if isinstance(p, ConfidenceStop):
            return not confidence[-1] < p.threshold
        if isinstance(p, SVIP):
            return not (p.c * entropy) ** 0.5 > p.h
        if isinstance(p, AdaEDL):
            return not 1 - (p.c * entropy) ** 0.5 < self.threshold
        if isinstance(p, CostOptimal) and p.dynamic:
            j = len(confidence)
            chances = [self._chance(c) for c in confidence]
            if p.survival[j - 1] == 0:
                return False
            best = max(self.tokens / self.time)
            value = 0.0
            for m in range(k, j, -1):  # what going on from depth m - 1 is worth, at best
                gain = math.prod(chances) * p.survival[m - 1] / p.survival[j - 1]
                value = max(0.0, gain - best * (self.time[m] - self.time[m - 1]) + value)
            return value > 0
        return True

    def saw(self, k: int, drafted: int, accepted: int) -> None:
        p = self.p
        if isinstance(p, Heuristic) and drafted:
            step = p.up if accepted == drafted else -p.down
            self.length = max(1, min(self.length + step, p.most))
        elif isinstance(p, EMAWindow):
            self.rests = 0 if drafted else self.rests + 1
            if drafted:
                x = accepted + 1 if accepted == drafted else accepted
                weight = p.up if x > self.average else p.down
                self.average = self.average + weight * (x - self.average)
        elif isinstance(p, AdaEDL) and drafted:
            self.share = p.keep * self.share + (1 - p.keep) * accepted / drafted
            sign = 1 if self.share < p.goal else -1
            moved = self.threshold + sign * p.step
            self.threshold = p.inertia * self.threshold + (1 - p.inertia) * moved
        elif isinstance(p, Bandit):
            name = next(iter(p.cost.draft))
            self.log[k].append((accepted + 1, p.cost.round_seconds(name, drafted)))

    def _chance(self, confidence: float) -> float:
        if self.p.calibration is None:
            return confidence
        (x0, y0), (x1, y1) = self.p.calibration
        along = min(max((confidence - x0) / (x1 - x0), 0.0), 1.0)
        return y0 + along * (y1 - y0)

    def _arm(self) -> int:
        p = self.p
        new = [arm for arm in self.arms if not self.log[arm]]
        if new:
            return new[0]
        name = next(iter(p.cost.draft))
        n = sum(map(len, self.log.values()))
        top = max((arm + 1) / p.cost.round_seconds(name, arm) for arm in self.arms)
        scores = []
        for arm in self.arms:
            tokens, seconds = map(sum, zip(*self.log[arm], strict=True))
            unknown = p.explore * math.sqrt(math.log(n) / len(self.log[arm]))
            scores.append(tokens / seconds / top + unknown)
        return self.arms[scores.index(max(scores))]


def by_hand(trace: Trace, policy: Policy) -> list[tuple[int, int, int, int]]:
    """seq, anchor, drafted, accepted of every round, from the drafted tokens themselves."""
    rounds = []
    drafts = {(r.seq, r.anchor): r for r in trace.drafts.itertuples()}
    for s in trace.sequences.itertuples():
        positions = trace.positions.query("seq == @s.seq")
        y, entropy = positions["token_id"].tolist(), positions["entropy"].tolist()
        hand, a = Hand(policy), 0
        while a < len(y) - 1:
            offer = drafts[s.seq, a]
            k = hand.k(entropy[: a + 1])
            draft = list(offer.token[: min(k, s.max_new_tokens - 2 - a, offer.drafted)])
            upto = min(k, s.max_new_tokens - 2 - a)
            scores = [float(c) for c in offer.confidence]
            for depth in range(1, len(draft)):
                if not hand.goes_on(scores[:depth], float(offer.entropy[depth - 1]), upto):
                    draft = draft[:depth]
                    break
            accepted = 0
            while (
                accepted < len(draft)
                and a + 1 + accepted < len(y) - 1
                and draft[accepted] == y[a + 1 + accepted]
            ):
                accepted += 1
            hand.saw(k, len(draft), accepted)
            rounds.append((s.seq, a, len(draft), accepted))
            a += accepted + 1
    return rounds


def asked(trace: Trace, policy: Policy) -> list[tuple[int, int, int, int]]:
    """The same rounds, asking the policy itself and passing its plan on whole."""
    rounds = []
    drafts = {(r.seq, r.anchor): r for r in trace.drafts.itertuples()}
    for s in trace.sequences.itertuples():
        p = trace.positions.query("seq == @s.seq")
        columns = [p[c].tolist() for c in ("token_id", "entropy", "p_max", "margin")]
        past: list[PastRound] = []
        a = 0
        while a < len(p) - 1:
            offer = drafts[s.seq, a]
            plan = policy.plan(History(a, past, *(c[: a + 1] for c in columns)))
            plan = dataclasses.replace(plan, k=min(plan.k, s.max_new_tokens - 2 - a))
            shown = [c.tolist() for c in (offer.logq, offer.entropy, offer.confidence)]
            drafted = min(1, plan.k, offer.drafted)
            while 0 < drafted < min(plan.k, offer.drafted) and policy.more(
                DraftView(plan, *(c[:drafted] for c in shown))
            ):
                drafted += 1
            accepted = max(0, min(drafted, offer.matched, len(p) - 2 - a))
            rounds.append((s.seq, a, drafted, accepted))
            past.append(PastRound(a, "steady", drafted, accepted))
            a += accepted + 1
    return rounds


@some
@given(traces(), policies())
def test_a_policy_equals_its_rule_with_running_variables(trace: Trace, policy: Policy) -> None:
    assert asked(trace, policy) == by_hand(trace, policy)


@some
@given(traces(), policies())
def test_replay_equals_the_rule_with_running_variables(trace: Trace, policy: Policy) -> None:
    rounds = replay(trace, policy).rounds[["seq", "anchor", "drafted", "accepted"]]
    assert list(rounds.itertuples(index=False, name=None)) == by_hand(trace, policy)


def test_replay_of_adaedl_equals_the_rule() -> None:
    trace, policy = synthetic_trace(3, k=K), AdaEDL(K, goal=0.7, start=0.4, step=0.2)
    rounds = replay(trace, policy).rounds[["seq", "anchor", "drafted", "accepted"]]
    assert list(rounds.itertuples(index=False, name=None)) == by_hand(trace, policy)


class Watched:
    """Asks twice and keeps what was said."""

    def __init__(self, policy: Policy, most: int) -> None:
        self.policy, self.most, self.name, self.replayable = policy, most, policy.name, True

    def plan(self, past: History) -> Plan:
        plan = self.policy.plan(past)
        assert plan == self.policy.plan(past)
        assert 0 <= plan.k <= self.most
        self.last = plan
        return plan

    def more(self, view: DraftView) -> bool:
        depth = len(view.confidence)
        assert 1 <= depth < view.plan.k <= self.last.k
        assert view.plan.threshold == self.last.threshold
        answer = self.policy.more(view)
        assert isinstance(answer, bool | np.bool_)
        assert answer == self.policy.more(view)
        return answer


def test_a_bandit_without_a_cost_model_learns_from_measured_seconds() -> None:
    bandit = Bandit((1, 4), explore=0.0)
    past: list[PastRound] = []
    for _ in range(6):  # 4 tokens cost ten times as long and bring twice as many tokens
        k = bandit.plan(History(0, past, [1], [], [], [])).k
        past.append(PastRound(0, "any", k, k, {1: 0.1, 4: 1.0}[k]))
    assert sorted(each.drafted for each in past) == [1, 1, 1, 1, 1, 4]
    assert not bandit.replayable
    with pytest.raises(ValueError, match="learns from measured seconds"):
        replay(synthetic_trace(1, k=K), bandit)
    with pytest.raises(ValueError, match="these rounds have none"):
        bandit.plan(History(0, [PastRound(0, "any", 1, 1)], [1], [], [], []))


@some
@given(traces(), policies())
def test_the_contract_of_a_policy(trace: Trace, policy: Policy) -> None:
    """0 <= k <= most, no question beyond the plan, no memory, and a name."""
    assert isinstance(policy, Policy)
    assert policy.replayable
    assert 0 < len(policy.name) <= 40
    before = repr(policy)
    fields: Any = policy
    most = fields.most if hasattr(fields, "most") else K
    most = getattr(fields, "k", most)
    watched = Watched(policy, most)
    first = replay(trace, watched).rounds
    assert first.equals(replay(trace, watched).rounds)
    assert (first["drafted"] <= most).all()
    assert repr(policy) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        fields.drafter = "other"


def history(rounds: list[tuple[int, int]], entropy: list[float] | None = None) -> History:
    """A past of (drafted, accepted) rounds over constant text, or of these entropies."""
    past = [PastRound(i, "any", drafted, accepted) for i, (drafted, accepted) in enumerate(rounds)]
    values = [1.0] * (len(rounds) + 1) if entropy is None else entropy
    n = len(values)
    return History(n - 1, past, [1] * n, values, [0.5] * n, [1.0] * n)


def view(confidence: list[float], entropy: float = 1.0, k: int = 10) -> DraftView:
    n = len(confidence)
    return DraftView(Plan(k), [-1.0] * n, [entropy] * n, confidence)


def test_the_heuristic_schedule() -> None:
    rounds = [(5, 5), (7, 7), (9, 3), (8, 8), (10, 0), (0, 0), (9, 9)]
    policy = Heuristic(most=11)
    lengths = [policy.plan(history(rounds[:i])).k for i in range(len(rounds) + 1)]
    assert lengths == [5, 7, 9, 8, 10, 9, 9, 11]
    assert policy.plan(history([(5, 0)] * 9)).k == 1
    assert policy.plan(history([(5, 5)] * 9)).k == 11


def test_the_moving_average_rests_probes_and_recovers() -> None:
    policy = EMAWindow(start=2, up=0.5, down=0.5, skip=0.6, probe=3)
    assert policy.plan(history([])).k == 2
    assert policy.plan(history([(2, 0)])).k == 1  # 1.0
    down = [(2, 0), (1, 0)]  # 0.5 < 0.6
    assert [policy.plan(history(down + [(0, 0)] * n)).k for n in range(4)] == [0, 0, 0, 1]
    assert policy.plan(history([*down, (0, 0), (0, 0), (0, 0), (1, 0)])).k == 0
    # The probe was accepted: it counts 2 of its window of 1, so 0.5 + 0.5 (2 - 0.5) = 1.25.
    assert policy.plan(history([*down, (0, 0), (0, 0), (0, 0), (1, 1)])).k == 2


def test_the_unsure_token_stays_in_the_draft() -> None:
    policy = ConfidenceStop(0.4, 7)
    assert policy.more(view([0.9, 0.4]))
    assert not policy.more(view([0.9, 0.39]))
    rounds = replay(synthetic_trace(1), ConfidenceStop(0.9, 15)).rounds
    drafts = synthetic_trace(1).drafts.set_index(["seq", "anchor"])["confidence"]
    cut = [r for r in rounds.itertuples() if 1 < r.drafted < 15]
    assert cut
    stopped = [float(drafts[r.seq, r.anchor][r.drafted - 1]) for r in cut]
    assert min(stopped) < 0.9  # the last token of a draft may be the one that ended it


def test_entropy_scores_of_f4_6() -> None:
    """The claims of both pairs, one below the truth and one far above it."""
    for q, p, claim, valid in (
        ((0.2, 0.3, 0.5), (0.5, 0.3, 0.2), 0.5462, True),
        ((0.98, 0.02), (0.3, 0.7), 0.860, False),
    ):
        entropy = -sum(x * math.log(x) for x in q)
        score = entropy_score(entropy, 0.2)
        assert score == pytest.approx(claim, abs=5e-4 if not valid else 5e-5)
        truth = sum(map(min, q, p))
        assert (score <= truth) is valid
        cross = -sum(x * math.log(y) for x, y in zip(q, p, strict=True))
        assert (cross / entropy <= 2 * 0.2 + 1) is valid
        if valid:
            assert cross / entropy == pytest.approx(1.26697, abs=5e-6)
    assert entropy_score(5.0, 0.2) == pytest.approx(0)
    assert entropy_score(5.1, 0.2) < 0


def test_svip_stops_above_six_tenths_of_a_nat() -> None:
    assert SVIP().more(view([0.5], entropy=0.599))
    assert not SVIP().more(view([0.5], entropy=0.601))
    assert not SVIP(h=0.7, c=1).more(view([0.5], entropy=0.5))


def test_the_threshold_of_adaedl_moves_a_thousandth_a_round() -> None:
    policy = AdaEDL(7)
    least = [policy.plan(history([(7, a)] * 50)).threshold for a in (0, 7)]
    assert least == pytest.approx([0.65, 0.55])
    assert policy.plan(history([(0, 0)] * 50)).threshold == 0.6
    # 0.6 on the score is 0.8 nats.
    plan = policy.plan(history([]))
    for entropy, on in ((0.79, True), (0.81, False)):
        assert policy.more(DraftView(plan, [-1.0], [entropy], [0.5])) is on
    with pytest.raises(ValueError, match="pass on the plan"):
        policy.more(view([0.5]))


def test_the_gate_has_hysteresis() -> None:
    policy = EntropyGate(low=1, high=2, k=5, window=1)
    values = [1.5, 1.9, 2.0, 1.5, 1.1, 1.0, 1.5, 1.9]
    lengths = [policy.plan(history([], values[: n + 1])).k for n in range(len(values))]
    assert lengths == [5, 5, 0, 0, 0, 5, 5, 5]
    wide = EntropyGate(low=1, high=2, k=5, window=4)
    assert wide.plan(history([], [4, 0, 0, 0])).k == 5  # mean 1
    assert wide.plan(history([], [4, 4, 0, 0])).k == 0  # mean 2


@pytest.mark.parametrize(
    ("ebf", "run", "equal"),
    [(1.0, 15, 1), (1.05, 15, 1), (1.2, 5, 1), (1.6, 2, 2), (2.0, 1, 2), (3.1, 0, 3), (40, 0, 15)],
)
def test_k_from_the_branching_factor(ebf: float, run: int, equal: int) -> None:
    """The geometric mean of the last four: ones before them do not count."""
    spread = [math.log(ebf) * x for x in (0.5, 1.5, 1.0, 1.0)]
    past = history([], [9.0, *spread])
    assert EBFMatched(4).plan(past).k == run
    assert EBFMatched(4, reading="equal").plan(past).k == equal
    assert EBFMatched(4, most=3).plan(past).k == min(run, 3)


@pytest.mark.parametrize("policy", [EBFMatched(), EntropyGate(1, 2)])
def test_a_run_without_entropies_is_refused(policy: Policy) -> None:
    with pytest.raises(ValueError, match="instrument=True"):
        policy.plan(History(3, [], [1, 2, 3, 4], [], [], []))


@pytest.mark.parametrize(
    ("cost", "k", "gain", "above", "below"),
    [(BLOCK, 6, 1.773734, 0.0467, 0.0280), (STEPS, 3, 1.6738, 0.216, 0.1296)],
    ids=["block", "token-by-token"],
)
def test_the_marginal_rule_of_f4_3(
    cost: CostModel, k: int, gain: float, above: float, below: float
) -> None:
    fixed = CostOptimal(cost, GEOMETRIC, dynamic=False)
    assert fixed.plan(history([])).k == k
    drafts = [cost.draft_seconds("any", i) for i in range(11)]
    assert best_k(GEOMETRIC, ROWS, drafts) == (k, pytest.approx(gain, abs=5e-5))
    # The step's worth at the best rate lies between S_k and S_(k + 1) ...
    extra = cost.round_seconds("any", k + 1) - cost.round_seconds("any", k)
    assert GEOMETRIC[k - 1] == pytest.approx(above, abs=5e-5)
    assert GEOMETRIC[k] == pytest.approx(below, abs=5e-5)
    assert GEOMETRIC[k] < gain * extra < GEOMETRIC[k - 1]
    # ... so a draft whose confidences are alpha stops there (F4.4), a surer one later.
    policy = CostOptimal(cost, GEOMETRIC)
    assert policy.plan(history([])).k == 10
    assert [policy.more(view([ALPHA] * j)) for j in range(1, 11)] == [j < k for j in range(1, 11)]
    assert all(policy.more(view([0.99] * j)) for j in range(1, 10))
    assert not policy.more(view([0.01]))
    assert not policy.more(view([0.99] * 10))


def test_confidences_are_calibrated_first() -> None:
    """A drafter that says 0.9 where it is right 6 times in 10."""
    table = ((0.2, 0.0), (1.0, 0.6 / 0.7 * 0.8))
    policy = CostOptimal(BLOCK, GEOMETRIC, calibration=table)
    raw = 0.2 + 0.8 * 0.7 / 0.8
    assert [policy.more(view([raw] * j)) for j in range(1, 8)] == [j < 6 for j in range(1, 8)]
    assert not policy.more(view([0.1]))  # level below the table: never right


def test_where_no_round_got_further_drafting_stops() -> None:
    policy = CostOptimal(free_drafts(), (0.5, 0.0, 0.0))
    assert policy.plan(history([])).k == 3
    assert not policy.more(view([0.9], k=3))
    assert not policy.more(view([0.9, 0.9], k=3))


def test_a_dear_drafter_is_not_asked() -> None:
    dear = CostModel.from_array([1.0, 1.0], [3.0 * k for k in range(11)])
    assert CostOptimal(dear, GEOMETRIC).plan(history([])).k == 0
    assert CostOptimal(dear, GEOMETRIC, dynamic=False).plan(history([])).k == 0


def test_a_step_in_the_verification_curve_is_looked_across() -> None:
    """5 rows are as dear as 8: who pays for the fifth drafts on to the eighth."""
    steps = CostModel.from_array([1, 1, 1, 1, 1.5, 1.5, 1.5, 1.5], [0.0] * 8)
    policy = CostOptimal(steps, [0.95**j for j in range(1, 8)])
    assert policy.plan(history([])).k == 7
    assert all(policy.more(view([0.95] * j, k=7)) for j in range(1, 7))
    # The marginal rule alone would stop at the step: S_4 < R* (T(4) - T(3)).
    rate = max(
        (1 + sum(0.95**i for i in range(1, j + 1))) / steps.round_seconds("*", j) for j in range(8)
    )
    assert rate * 0.5 > 0.95**4


def test_the_bandit_settles_on_the_better_length() -> None:
    policy = Bandit((0, 1, 6), free_drafts(), explore=0.3)
    rounds: list[tuple[int, int]] = []
    for _ in range(60):
        k = policy.plan(history(rounds)).k
        rounds.append((k, min(k, 4)))  # 4 tokens always match
    drafted = [k for k, _ in rounds]
    assert sorted(drafted[:3]) == [0, 1, 6]
    assert drafted.count(6) > 45
    # Where a draft costs four plain steps a token and nothing matches, it learns to rest.
    dear = CostModel.from_array([1.0, 1.0], [4.0 * k for k in range(7)])
    rounds = []
    for _ in range(60):
        rounds.append((Bandit((0, 1, 6), dear, explore=0.3).plan(history(rounds)).k, 0))
    assert [k for k, _ in rounds].count(0) > 40


def test_the_bandit_prices_what_was_drafted() -> None:
    """Planned 6, but the drafter had 1 to offer: 2 tokens in 2 plain steps, not in 7."""
    dear = CostModel.from_array([1.0, 1.0], [float(k) for k in range(7)])
    policy = Bandit((6, 2), dear, explore=0)
    first = policy.plan(history([])).k
    rounds = {6: (1, 1), 2: (2, 1)}  # rates 2 / 2 and 2 / 3
    assert policy.plan(history([rounds[first], rounds[8 - first]])).k == 6


def test_seeds_of_the_bandit() -> None:
    firsts = {Bandit((1, 3, 7), t4_like(), seed=seed).plan(history([])).k for seed in range(12)}
    assert firsts == {1, 3, 7}


def test_names_are_short_and_tell_the_parameters() -> None:
    names = [
        p.name
        for p in (
            Heuristic(),
            EMAWindow(),
            ConfidenceStop(0.4),
            SVIP(),
            AdaEDL(),
            EntropyGate(0.5, 1.5),
            EBFMatched(),
            CostOptimal(BLOCK, GEOMETRIC),
            Bandit((1, 3, 7), t4_like()),
        )
    ]
    assert names == [
        "heuristic-5+2-1",
        "ema-0.5-0.25",
        "confidence-0.4",
        "svip-score-0.3",
        "adaedl-score-0.9",
        "gate-0.5-1.5-k7",
        "ebf-run-8",
        "cost-optimal",
        "bandit-1-3-7",
    ]


def test_the_drafter_is_passed_on() -> None:
    past = history([(3, 1)])
    cost = CostModel.from_array([1.0, 1.1], {"a": [0.0] * 11, "b": [0.1 * k for k in range(11)]})
    made: list[Policy] = [
        Heuristic(drafter="a"),
        EMAWindow(drafter="a"),
        ConfidenceStop(drafter="a"),
        SVIP(drafter="a"),
        AdaEDL(drafter="a"),
        EntropyGate(1, 2, drafter="a"),
        EBFMatched(drafter="a"),
        CostOptimal(cost, GEOMETRIC, "a"),
        Bandit((1, 3), cost, "a"),
    ]
    assert {policy.plan(past).drafter for policy in made} == {"a"}
    a, b = (CostOptimal(cost, GEOMETRIC, name, dynamic=False).plan(past).k for name in "ab")
    assert a > b


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: Heuristic(0), "start must be a whole number, at least 1"),
    (lambda: Heuristic(5, up=-1), "up must be a whole number"),
    (lambda: Heuristic(5, most=4), "start must be at most most = 4, not 5"),
    (lambda: EMAWindow(up=0), "up must be above 0"),
    (lambda: EMAWindow(down=1.5), "down must be a finite number from 0 to 1"),
    (lambda: EMAWindow(start=99), "start must be a finite number from 0 to 15"),
    (lambda: EMAWindow(probe=0), "probe must be a whole number"),
    (lambda: ConfidenceStop(1.2), "threshold must be a finite number from 0 to 1, not 1.2"),
    (lambda: ConfidenceStop(float("nan")), "threshold must be a finite number"),
    (lambda: ConfidenceStop("low"), "threshold must be a finite number"),  # type: ignore[arg-type]
    (lambda: ConfidenceStop(0.4, -1), "k must be a whole number, at least 0"),
    (lambda: SVIP(-0.1), "h must be a finite number of at least 0"),
    (lambda: SVIP(c=0), "c must be above 0"),
    (lambda: AdaEDL(goal=2), "goal must be a finite number from 0 to 1"),
    (lambda: AdaEDL(start=1.1), "start must be"),
    (lambda: EntropyGate(2, 1), "low = 2 must not be above high = 1"),
    (lambda: EntropyGate(1, float("inf")), "high must be a finite number"),
    (lambda: EntropyGate(1, 2, window=0), "window must be a whole number"),
    (lambda: EBFMatched(reading="inverse"), 'must be "run" or "equal", not \'inverse\''),
    (lambda: EBFMatched(most=0), "most must be a whole number"),
    (lambda: CostOptimal(BLOCK, [0.5, 0.6]), "must not rise"),
    (lambda: CostOptimal(BLOCK, []), "list of shares"),
    (lambda: CostOptimal(BLOCK, ["a"]), "list of shares"),
    (lambda: CostOptimal(BLOCK, [1.5]), "list of shares"),
    (lambda: CostOptimal(BLOCK, [0.5] * 11), "at most 10 tokens"),
    (lambda: CostOptimal(None, [0.5]), "is not a cost model"),  # type: ignore[arg-type]
    (lambda: CostOptimal(BLOCK, [0.5], calibration=((0, 1), (1, 0))), "calibration must rise"),
    (lambda: CostOptimal(BLOCK, [0.5], calibration=(0.5,)), "calibration must be pairs"),
    (lambda: Bandit((), BLOCK), "ks must be a list of lengths"),
    (lambda: Bandit(3, BLOCK), "ks must be a list of lengths"),  # type: ignore[arg-type]
    (lambda: Bandit((1, 1), BLOCK), "must not name a length twice"),
    (lambda: Bandit((1, 99), BLOCK), "at most 10 tokens"),
    (lambda: Bandit((1,), BLOCK, explore=-1), "explore must be"),
    (lambda: Bandit((1,), CostModel("x", "given", (1.0, 1.0), {})), "prices no drafter"),
    (
        lambda: Bandit((1,), CostModel.from_array([1, 1], {"a": [0, 1], "b": [0, 1]})),
        "Say whose drafts these are: .* prices a, b",
    ),
]


@pytest.mark.parametrize(("make", "said"), BAD)
def test_bad_parameters_are_refused_in_a_sentence(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        make()
    assert str(caught.value).endswith(".")
