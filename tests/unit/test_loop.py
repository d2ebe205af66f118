"""The loop: lossless, countable, interruptible; and equal to its replay, round for round."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from specviz.analysis.replays.replay import replay
from specviz.campaign import capture
from specviz.cost import CostModel
from specviz.drafters.ngram import NGram
from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import RunClosed, generate
from specviz.engine.protocols import Draft, Drafter, Reference, Target
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
    Plan,
)
from specviz.trace import Trace
from tests.models import cases, tiny_target, toy_pair

CASES = cases()
COST = CostModel.from_array([1 + 0.05 * n for n in range(16)], [0.04 * k for k in range(16)])
SURVIVAL = [0.8**j for j in range(1, 16)]
COLUMNS = ["anchor", "drafter", "drafted", "accepted", "emitted", "stop"]
PROMPTS = {"toy": ["abcabcab", "hgfedcba"], "tin": ["the quick brown the quick", "one two one two"]}


class Picky:
    """A policy that looks at everything it may: the past, and the draft as it grows."""

    name = "picky"
    replayable = True

    def plan(self, past: History) -> Plan:
        assert len(past.entropy) == len(past.tokens) == past.anchor + 1
        lucky = bool(past.rounds) and past.rounds[-1].accepted == past.rounds[-1].drafted
        return Plan(2 + 3 * lucky + int(past.entropy[-1] < 1) + past.tokens[-1] % 3)

    def more(self, view: DraftView) -> bool:
        return sum(view.entropy) < 2.5 and view.confidence[-1] > 0.2


@cache
def captured(case: str) -> Trace:
    target, drafter = CASES[case]
    return capture(PROMPTS[case[:3]], target, drafter, max_new_tokens=40, progress=False)


#: Everything a policy may look at is in `Picky`; the others run on a toy and on a real decoder.
EVERYWHERE = [
    FixedK(0),
    FixedK(1),
    FixedK(4),
    FixedK(15),
    Picky(),
]
OTHERS = [
    Heuristic(start=2, most=9),
    EMAWindow(skip=1.5, probe=2),
    ConfidenceStop(0.5),
    SVIP(),
    AdaEDL(9, goal=0.5, start=0.3, step=0.2),
    EntropyGate(0.4, 1.2, k=5, window=3),
    EBFMatched(4),
    EBFMatched(4, reading="equal"),
    CostOptimal(COST, SURVIVAL),
    CostOptimal(COST, SURVIVAL, calibration=((0.1, 0.0), (0.9, 0.95))),
    CostOptimal(COST, SURVIVAL, dynamic=False),
    Bandit((0, 2, 5, 9), COST),
]
PAIRS = [
    *((case, policy) for case in CASES for policy in EVERYWHERE),
    *((case, policy) for case in ("toy-markov", "tiny-lm") for policy in OTHERS),
]


@pytest.mark.parametrize(
    ("case", "policy"),
    PAIRS,
    ids=lambda x: x if isinstance(x, str) else x.name + str(getattr(x, "k", "")),
)
def test_live_rounds_equal_replayed_rounds(case: str, policy: object) -> None:
    (target, drafter), prompts, trace = CASES[case], PROMPTS[case[:3]], captured(case)
    replayed = replay(trace, policy).rounds
    for seq, prompt in enumerate(prompts):
        run = generate(target, drafter, prompt, policy=policy, max_new_tokens=40).finish()
        live = run.rounds[COLUMNS].astype(str)
        offline = replayed[replayed.seq == seq][COLUMNS].reset_index(drop=True).astype(str)
        assert live.equals(offline)
        assert run.token_ids == trace.positions[trace.positions.seq == seq].token_id.tolist()


@pytest.mark.parametrize("match", [0.5, 1.0])
def test_live_oracle_equals_its_replay(match: float) -> None:
    target, _ = toy_pair()
    oracle = Oracle(match, seed=2)
    trace = capture(["abcd"], target, oracle, max_new_tokens=40, progress=False)
    prompt = target.codec.encode("abcd")
    oracle.know(prompt, plain_decode(target, prompt, 55))
    run = generate(target, oracle, "abcd", policy=FixedK(5), max_new_tokens=40).finish()
    offline = replay(trace, FixedK(5)).rounds
    assert run.rounds[COLUMNS].astype(str).equals(offline[COLUMNS].astype(str))
    if match == 1:
        assert run.rounds.emitted.tolist() == [6, 6, 6, 6, 6, 6, 3]


@pytest.mark.parametrize("case", CASES)
def test_output_is_the_plain_output(case: str) -> None:
    target, drafter = CASES[case]
    run = generate(target, drafter, PROMPTS[case[:3]][0], max_new_tokens=50).finish()
    rounds = target.verifies
    assert rounds == len(run.log)  # verifications == rounds; prefill is neither
    assert run.token_ids == plain_decode(target, run.prompt_ids, 50)
    assert run.certificate.equal
    assert run.rounds.emitted.sum() == len(run.token_ids) - 1
    run.trace.validate()


def test_end_of_text_inside_a_draft() -> None:
    target, drafter = toy_pair(eos=True)
    run = generate(target, drafter, "abcab", policy=FixedK(7), max_new_tokens=60).finish()
    assert run.finish_reason == "eos"
    assert run.token_ids.count(5) == 1
    assert run.token_ids[-1] == 5
    last = run.log[-1]
    assert last.stop == "eos"
    assert last.emitted == last.accepted + 1
    trace = capture(["abcab"], target, drafter, max_new_tokens=60, progress=False)
    offline = replay(trace, FixedK(7)).rounds
    assert run.rounds[COLUMNS].astype(str).equals(offline[COLUMNS].astype(str))


def test_rounds_come_one_by_one_and_show_themselves() -> None:
    target, drafter = toy_pair()
    run = generate(target, drafter, "abc", policy=FixedK(3), max_new_tokens=12)
    first = next(run)
    assert first.anchor == 0
    assert len(first.rows) == first.drafted + 1
    assert first.rows.on_path.tolist() == [True] + [i < first.accepted for i in range(3)]
    assert min(first.draft_seconds, first.verify_seconds, first.other_seconds) >= 0
    assert run.finish_reason == "stopped"
    run.trace.validate()
    assert "<script" not in run._repr_html_() + first._repr_html_()
    assert "tokens per round" in repr(run)


def test_a_new_run_closes_the_older_one() -> None:
    target, drafter = toy_pair()
    old = generate(target, drafter, "abc", max_new_tokens=40)
    next(old)
    kept = list(old.token_ids)
    generate(target, drafter, "cba", max_new_tokens=10).finish()
    with pytest.raises(RunClosed, match="another run"):
        next(old)
    assert old.token_ids == kept
    assert len(old.rounds) == 1


class Interrupting:
    """A target that is interrupted in the middle of a verification, once."""

    def __init__(self, inner: Target, after: int) -> None:
        self._inner, self._left = inner, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def verify(self, draft: Draft) -> object:
        rows = self._inner.verify(draft)
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return rows


@pytest.mark.parametrize("case", ["toy-markov", "tiny-lm"])
def test_an_interrupt_leaves_run_and_target_usable(case: str) -> None:
    target, drafter = CASES[case]
    prompt = PROMPTS[case[:3]][0]
    whole = generate(target, drafter, prompt, policy=FixedK(4), max_new_tokens=40).finish()
    run = generate(Interrupting(target, 3), drafter, prompt, policy=FixedK(4), max_new_tokens=40)
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert len(run.log) == 2
    assert run.finish().token_ids == whole.token_ids  # the round is simply done again
    assert generate(target, drafter, prompt, max_new_tokens=40).finish().token_ids == (
        whole.token_ids
    )


def test_an_interrupted_capture_leaves_the_drafter_usable() -> None:
    """A drafter whose cache was being overwritten must not trust what it held before."""
    target, drafter = CASES["tiny-lm"]
    drafter.attach(target)
    context = target.codec.encode("the quick brown the quick")
    before = drafter.propose(context, Plan(5), lambda view: True)
    forward = drafter.lm.forward

    def stopped(*args, **kwargs):
        forward(*args, **kwargs)
        raise KeyboardInterrupt

    drafter.lm.forward = stopped
    reference = Reference((9, 8, 7), (6, 5, 4, 3), (), lambda low, high: None)
    with pytest.raises(KeyboardInterrupt):
        drafter.propose_all(reference, 3)
    del drafter.lm.forward
    after = drafter.propose(context, Plan(5), lambda view: True)
    assert (after.tokens, after.logq) == (before.tokens, pytest.approx(before.logq))


def test_an_interrupt_while_committing_closes_the_run() -> None:
    target, _ = toy_pair()

    class Impatient(NGram):
        def observe(self, rows: object, path: object) -> None:
            raise KeyboardInterrupt

    run = generate(target, Impatient(), "abc", max_new_tokens=20)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    with pytest.raises(RunClosed, match="interrupted"):
        next(run)
    assert generate(target, NGram(), "abc", max_new_tokens=20).finish().finished


def test_a_bandit_may_learn_from_the_clock() -> None:
    target, drafter = toy_pair()
    run = generate(target, drafter, "abc", policy=Bandit((1, 3)), max_new_tokens=30).finish()
    assert set(run.rounds.drafted[:2]) == {1, 3}
    assert run.certificate.equal


def test_several_drafters_and_a_policy_that_switches() -> None:
    target, markov = toy_pair()

    class Turns:
        name = "turns"
        replayable = True

        def plan(self, past: History) -> Plan:
            return Plan(3, ["markov", "ngram"][len(past.rounds) % 2])

        def more(self, view: DraftView) -> bool:
            return True

    drafters: dict[str, Drafter] = {"markov": markov, "ngram": NGram()}
    run = generate(target, drafters, "abcabc", policy=Turns(), max_new_tokens=30).finish()
    assert run.certificate.equal
    assert set(run.rounds.drafter) == {"markov", "ngram"}
    trace = capture(["abcabc"], target, list(drafters.values()), max_new_tokens=30, progress=False)
    offline = replay(trace, Turns()).rounds
    assert run.rounds[COLUMNS].astype(str).equals(offline[COLUMNS].astype(str))


def test_uninstrumented_run_has_rounds_but_no_statistics() -> None:
    target, drafter = toy_pair()
    run = generate(target, drafter, "abc", instrument=False, max_new_tokens=20).finish()
    assert len(run.trace.positions) == 0
    assert len(run.rounds) == len(run.log)
    with pytest.raises(ValueError, match="instrument"):
        _ = run.log[0].rows


def test_prompts_are_text_messages_or_ids() -> None:
    target = tiny_target()
    text = "<user>hi\n<assistant>"
    runs = [
        generate(target, NGram(), prompt, max_new_tokens=5).finish().token_ids
        for prompt in (text, [{"role": "user", "content": "hi"}], target.codec.encode(text))
    ]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": ""}, "empty"),
        ({"prompt": []}, "empty"),
        ({"prompt": "xyz"}, "letters"),
        ({"prompt": [99]}, "vocabulary"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 1.5}, "whole number"),
        ({"seed": None}, "whole number"),
        ({"policy": None}, "policy has name"),
        ({"policy": 7}, "policy has name"),
        ({"drafter": None}, "not a drafter"),
        ({"drafter": "ngram"}, "not a drafter"),
        ({"drafter": [NGram()]}, "not a drafter"),
        ({"drafter": {}}, "at least one drafter"),
        ({"drafter": {"other": NGram()}}, "names itself"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(change: dict, message: str) -> None:
    target, drafter = toy_pair()
    given = {"drafter": drafter, "prompt": "abc", **change}
    with pytest.raises(ValueError, match=message):
        generate(target, **given)


def test_k_above_the_drafters_and_unknown_drafters_are_refused() -> None:
    target, drafter = toy_pair()
    with pytest.raises(ValueError, match="at most 15"):
        next(generate(target, drafter, "abc", policy=FixedK(16)))
    with pytest.raises(ValueError, match="this run has markov"):
        next(generate(target, drafter, "abc", policy=FixedK(3, "eagle")))


@pytest.mark.parametrize("k", [-3, 2.5, None, "3", True])
def test_a_plan_is_a_whole_number_of_tokens(k: object) -> None:
    class Odd:
        name = "odd"
        replayable = True

        def plan(self, past: History) -> Plan:
            return Plan(k)

        def more(self, view: DraftView) -> bool:
            return True

    target, drafter = toy_pair()
    with pytest.raises(ValueError, match="plan's k must be a whole number"):
        next(generate(target, drafter, "abc", policy=Odd()))
    trace = capture(["abc"], target, drafter, max_new_tokens=9, progress=False)
    with pytest.raises(ValueError, match="plan's k must be a whole number"):
        replay(trace, Odd())


def test_numpy_integers_are_whole_numbers() -> None:
    assert FixedK(np.int64(3)) == FixedK(3)
    assert Plan(np.int64(3)).k == 3


def test_the_oracle_must_be_told() -> None:
    target, _ = toy_pair()
    with pytest.raises(ValueError, match="know"):
        generate(target, Oracle(), "abc")


def test_times_are_those_of_the_parts() -> None:
    target, drafter = toy_pair()
    run = generate(target, drafter, "abc", max_new_tokens=30).finish()
    parts = run.rounds[["draft_seconds", "verify_seconds", "other_seconds"]]
    assert np.isfinite(parts.to_numpy()).all()
    assert (parts >= 0).all().all()
