"""ContentAdaptive against its rule with running variables, live against replay, and refusals."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.levers.switching import (
    class_rates,
    content_of,
    detection,
    fit_choices,
    speed_ratio,
)
from specviz.analysis.replays.replay import replay
from specviz.cost import CostModel
from specviz.drafters.markov import MarkovDrafter
from specviz.drafters.ngram import NGram
from specviz.engine.loop import generate
from specviz.policies import DraftView, FixedK, History, PastRound, Plan, Policy
from specviz.policies.adaptive import REACH, ContentAdaptive
from specviz.policies.detector import KINDS, Detector
from specviz.presets import free_drafts, t4_like
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.trace.trace import Trace
from tests.synthetic import VOCAB, synthetic_trace

K = 6
CLASSES = ("code", "prose")
some = settings(max_examples=30, deadline=None)


def by_kind(kinds: str, long: int = 1) -> Detector:
    """Prose where most of the last tokens are words, code where they are brackets."""
    names = Detector.feature_names()
    weights = np.zeros((2, len(names)))
    weights[0, names.index("bracket, long")] = weights[1, names.index("word, long")] = 1
    table = kinds.replace("(", "abcdefghijkl"[KINDS.index("bracket")])
    return Detector(CLASSES, weights.tolist(), table, long, 1)


def random_detector(seed: int, vocabulary: int = VOCAB) -> Detector:
    rng = np.random.default_rng(seed)
    table = "".join(rng.choice(list("abcdefghijkl"), vocabulary))
    weights = rng.normal(size=(3, len(Detector.feature_names())))
    return Detector(("a", "b", "c"), weights.tolist(), table, 4, 2)


def history(tokens: list[int], entropy: list[float] | None = None) -> History:
    values = [1.0] * len(tokens) if entropy is None else entropy
    return History(len(tokens) - 1, (), tokens, values, values, values)


PLANS = {"code": Plan(5, "fast"), "prose": Plan(2, "slow")}
TWO = by_kind("a(")  # token 0 is a word, token 1 a bracket


@cache
def some_trace(seed: int) -> Trace:
    return synthetic_trace(
        seed, prompts_per_type=2, drafters=("steady", "fresh"), k=K, max_new_tokens=6 + 4 * seed
    )


@st.composite
def policies(draw: st.DrawFn) -> ContentAdaptive:
    plan = st.builds(Plan, st.integers(0, K), st.sampled_from(["steady", "fresh"]))
    return ContentAdaptive(
        random_detector(draw(st.integers(0, 5))),
        {name: draw(plan) for name in "abc"},
        draw(st.integers(1, 6)),
    )


def believed(policy: ContentAdaptive, tokens: list[int], entropy: list[float]) -> list[str]:
    """The class after every token, with a variable that is kept from one to the next."""
    classes, kept, led, leaders, since = policy.detector.classes, None, 0, [], 0
    said = []
    for t in range(len(tokens)):
        leader = int(policy.detector.labels(tokens[: t + 1], entropy[: t + 1], 1)[0])
        led = led + 1 if leaders and leader == leaders[-1] else 1
        leaders.append(leader)
        if led >= policy.hold:
            kept, since = leader, t
        # A run is looked for among the last REACH tokens; it has to lie there whole.
        known = kept is not None and t - since + policy.hold <= REACH
        said.append(classes[kept if known and kept is not None else leader])
    return said


@some
@given(st.integers(0, 9), policies())
def test_replay_equals_the_rule_with_running_variables(seed: int, policy: ContentAdaptive) -> None:
    trace = some_trace(seed)
    drafts = {(r.seq, r.anchor, r.drafter): r for r in trace.drafts.itertuples()}
    expected = []
    for s in trace.sequences.itertuples():
        y = trace.positions.query("seq == @s.seq")
        content = believed(policy, y["token_id"].tolist(), y["entropy"].tolist())
        a = 0
        while a < s.n_output - 1:
            plan = policy.choices[content[a]]
            offer = drafts[s.seq, a, plan.drafter]
            drafted = min(plan.k, s.max_new_tokens - 2 - a, offer.drafted)
            accepted = max(0, min(drafted, offer.matched, s.n_output - 2 - a))
            expected.append((s.seq, a, plan.drafter, drafted, accepted))
            a += accepted + 1
    rounds = replay(trace, policy).rounds[["seq", "anchor", "drafter", "drafted", "accepted"]]
    assert list(rounds.itertuples(index=False, name=None)) == expected
    assert content_of(trace, policy) == [
        believed(policy, part["token_id"].tolist(), part["entropy"].tolist())
        for _, part in trace.positions.groupby("seq")
    ]


@some
@given(st.integers(0, 9), policies())
def test_the_contract_of_a_policy(seed: int, policy: ContentAdaptive) -> None:
    """No state: what is asked twice, in any order and with other rounds, is answered alike."""
    assert isinstance(policy, Policy)
    assert policy.replayable
    assert 0 < len(policy.name) <= 40
    before, trace = repr(policy), some_trace(seed)
    tokens = trace.positions.query("seq == 0")["token_id"].tolist()
    entropy = trace.positions.query("seq == 0")["entropy"].tolist()
    pasts = [history(tokens[: t + 1], entropy[: t + 1]) for t in range(len(tokens))]
    plans = [policy.plan(past) for past in pasts]
    assert [policy.plan(past) for past in reversed(pasts)] == plans[::-1]
    for past, plan in zip(pasts, plans, strict=True):
        rounds = [PastRound(0, "steady", 3, 1)]
        other = History(past.anchor, rounds, tuple(past.tokens), tuple(past.entropy), (), ())
        assert policy.plan(other) == plan
        assert policy.more(DraftView(plan, [-9.0], [9.0], [0.0]))
    assert repr(policy) == before


def test_the_past_before_the_windows_does_not_matter() -> None:
    policy = ContentAdaptive(random_detector(1), dict.fromkeys("abc", Plan(1, "steady")), 3)
    rng = np.random.default_rng(0)
    tokens = [t for t in rng.integers(0, VOCAB, 400).tolist() if policy.detector.table[t] != "k"]
    entropy = rng.random(len(tokens)).tolist()
    for cut in (1, 50, len(tokens) - 2 * REACH):
        assert policy.content(history(tokens[cut:], entropy[cut:])) == policy.content(
            history(tokens, entropy)
        )


def test_a_class_has_to_lead_for_hold_tokens() -> None:
    policy = ContentAdaptive(TWO, PLANS, hold=3)
    #        prose      one odd  prose   two odd  prose  three: a switch
    tokens = [0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1]
    said = [policy.content(history(tokens[: t + 1])) for t in range(len(tokens))]
    assert said == ["prose"] * 15 + ["code"] * 5
    at_once = ContentAdaptive(TWO, PLANS, hold=1)
    assert [at_once.content(history(tokens[: t + 1])) for t in range(len(tokens))] == [
        CLASSES[1 - token] for token in tokens
    ]
    assert policy.plan(history(tokens)) == PLANS["code"]


def test_before_any_class_has_led_long_enough_the_leader_counts() -> None:
    policy = ContentAdaptive(TWO, PLANS, hold=4)
    assert policy.plan(history([1])) == PLANS["code"]
    assert policy.plan(history([0])) == PLANS["prose"]
    flapping = [0, 0, 0, 0, *[1, 0] * (REACH // 2)]
    assert policy.content(history(flapping[:-4])) == "prose"
    assert policy.content(history([*flapping, 1])) == "code"  # the run of prose is out of reach


def test_live_rounds_equal_replayed_rounds() -> None:
    """Both drafters of one capture, switched by an untrained detector."""
    import specviz as sv

    chain = MarkovModel.random(40, seed=3)
    drafters = {"markov": MarkovDrafter(chain), "ngram": NGram()}
    policy = ContentAdaptive(
        random_detector(2, 40),
        {"a": Plan(5, "markov"), "b": Plan(3, "ngram"), "c": Plan(1, "markov")},
        hold=2,
    )
    names = ["seq", "anchor", "drafter", "drafted", "accepted"]
    used = set()
    for prompt in ("abc", "hello", "xyz"):
        target = ToyTarget(chain)
        trace = sv.capture([prompt], target, list(drafters.values()), k=5, progress=False)
        live = generate(target, drafters, prompt, policy=policy).finish().rounds
        replayed = replay(trace, policy).rounds
        assert live[names[1:]].values.tolist() == replayed[names[1:]].values.tolist()
        used |= set(live["drafted"])
    assert len(used) > 1  # it did switch


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"detector": "content"}, "detector must be a Detector"),
        ({"choices": {"code": Plan(1)}}, "one Plan for each of code, prose"),
        ({"choices": PLANS | {"verse": Plan(1)}}, "one Plan for each of code, prose"),
        ({"choices": [Plan(1), Plan(2)]}, "one Plan for each of code, prose"),
        ({"choices": {"code": 5, "prose": 2}}, "choice for code must be a Plan"),
        ({"hold": 0}, "hold must be a whole number"),
        ({"hold": 1.5}, "hold must be a whole number"),
        ({"hold": REACH + 1}, "hold must be at most 32"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ContentAdaptive(**({"detector": TWO, "choices": PLANS} | changes))


def test_what_only_a_run_can_refuse() -> None:
    trace = some_trace(2)
    fits = random_detector(0)

    def run(detector: Detector, plan: Plan) -> object:
        choices = dict.fromkeys(detector.classes, plan)
        return replay(trace, ContentAdaptive(detector, choices))

    with pytest.raises(ValueError, match="No drafter 'absent'"):
        run(fits, Plan(1, "absent"))
    with pytest.raises(ValueError, match="at most K = 6"):
        run(fits, Plan(K + 1, "steady"))
    with pytest.raises(ValueError, match="fitted for another target"):
        run(TWO, Plan(1, "steady"))
    with pytest.raises(ValueError, match="instrument=True"):
        ContentAdaptive(TWO, PLANS).plan(History(1, (), [0, 1], (), (), ()))


# --- choices, detection, comparison


def test_class_rates_are_those_of_the_rounds_of_each_class() -> None:
    trace, cost, fits = some_trace(8), t4_like(), random_detector(3)
    table = class_rates(trace, fits, cost, hold=2)
    policy = ContentAdaptive(fits, dict.fromkeys("abc", Plan(0, "steady")), 2)
    content = content_of(trace, policy)
    seqs = trace.sequences["seq"].tolist()
    for row in table[table["k"].isin([0, 3, K])].itertuples():
        rounds = replay(trace, FixedK(int(row.k), str(row.drafter))).rounds
        here = [content[seqs.index(r.seq)][r.anchor] == row.content for r in rounds.itertuples()]
        mine = rounds[here]
        seconds = cost.round_seconds(str(row.drafter), mine["drafted"].to_numpy()).sum()
        assert row.n_rounds == len(mine)
        assert row.n_prompts == mine["prompt_id"].nunique()
        assert row.tokens_per_round == pytest.approx(mine["emitted"].mean())
        assert row.tokens_per_second == pytest.approx(mine["emitted"].sum() / seconds)
    assert table.groupby(["drafter", "k"])["n_rounds"].sum().tolist() == [
        replay(trace, FixedK(k, name)).n_rounds
        for name in ("fresh", "steady")
        for k in range(K + 1)
    ]


def test_choices_are_the_fastest_of_each_class() -> None:
    trace, cost, fits = some_trace(20), t4_like(), random_detector(3)
    table = class_rates(trace, fits, cost).set_index(["content", "drafter", "k"])
    table = table[table["n_rounds"] >= 30]["tokens_per_second"]
    seen = set(table.index.get_level_values("content"))
    assert len(seen) == 2  # the third is rare
    choices = fit_choices(trace, fits, cost)
    assert set(choices) == set("abc")
    for name in seen:
        plan = choices[name]
        assert table.loc[name, plan.drafter, plan.k] == table.loc[name].max()
    only = fit_choices(trace, fits, cost, drafters=["fresh"])
    assert {plan.drafter for plan in only.values()} == {"fresh"}
    with pytest.raises(ValueError, match="No drafter 'absent'"):
        fit_choices(trace, fits, cost, drafters=["absent"])


def test_a_rare_class_gets_the_plan_of_all() -> None:
    trace = some_trace(9)
    names = Detector.feature_names()
    weights = np.zeros((2, len(names)))
    weights[0, 0] = 1  # everything is of the first class
    fits = Detector(("always", "never"), weights.tolist(), "a" * VOCAB)
    free = fit_choices(trace, fits, free_drafts())
    assert free["never"] == free["always"]
    dear = CostModel.from_array([1.0, 1.0], [0.0, *[50.0] * K])
    assert fit_choices(trace, fits, dear)["never"].k == 0


def test_detection_counts_delays_misses_and_false_switches() -> None:
    labels = [["p"] * 4 + ["c"] * 4 + ["p"] * 2, ["c"] * 3 + ["p"] * 3]
    said = [list("ppcpppccpp"), list("cccppc")]
    found = detection(said, labels, ["c", "p"], ["one", "two"])
    assert found.confusion.loc["c"].tolist() == [5, 2]
    assert found.confusion.loc["p"].tolist() == [2, 7]
    assert found.tokens == 16
    assert found.right == 12 / 16
    assert found.delays["start"].tolist() == [4, 8, 3]
    assert found.delays["delay"].tolist() == [2, 0, 0]
    assert found.delays["prompt"].tolist() == ["one", "one", "two"]
    assert found.false_switches == 2  # p to c within p: once in each
    assert found.false_per_100 == 12.5
    missed = detection([["p"] * 4], [["p", "c", "c", "p"]], ["c", "p"]).delays["delay"]
    assert np.isnan(missed[0])
    assert missed[1] == 0
    assert len(detection([["c"] * 3], [["p"] * 3], ["c", "p"]).delays) == 0


@pytest.mark.parametrize(
    ("content", "labels", "sentence"),
    [
        ([["p"]], [["p", "p"]], "as\\s+many tokens"),
        ([], [], "same sequences"),
        ([["p"]], [["x"]], "'x' is none of the classes"),
    ],
)
def test_detection_refuses(content: Any, labels: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        detection(content, labels, ["c", "p"])


def test_speed_ratio_is_of_total_seconds() -> None:
    trace, cost = some_trace(7), t4_like()
    one, other = replay(trace, FixedK(3, "steady")), replay(trace, FixedK(0, "steady"))
    found = speed_ratio(one, other, cost)
    spent = [
        cost.round_seconds("steady", run.rounds["drafted"].to_numpy()).sum() for run in (one, other)
    ]
    assert found.estimate == pytest.approx(spent[1] / spent[0])
    assert found.low <= found.estimate <= found.high
    assert speed_ratio(one, one, cost).low == speed_ratio(one, one, cost).high == 1
    part = trace.select(content_type="code")
    with pytest.raises(ValueError, match="different prompts"):
        speed_ratio(one, replay(part, FixedK(0, "steady")), cost)
