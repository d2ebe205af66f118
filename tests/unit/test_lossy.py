"""Lossy rules: what they let pass, by hand; Greedy and Rejection at their tight end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.engine.acceptance import Greedy, Rejection
from specviz.engine.lossy import Lenience, ProbabilityGap, ProbabilityRatio, TopM, Typical
from specviz.engine.protocols import Acceptance, Draft, Rows, Verdict
from specviz.engine.sampling import Sampling
from tests.unit.test_acceptance import P, Q, accepted, call, chains, laws, normal, tensor
from tests.unit.test_acceptance_exact import outcomes

WIDE = tensor([[0.4, 0.3, 0.15, 0.1, 0.05]])
GUESS = tensor([0.2, 0.45, 0.2, 0.1, 0.05])
RELAXED: tuple[Any, ...] = (Typical(), ProbabilityGap(0.1), ProbabilityRatio(0.5), TopM(2))
names = lambda rule: rule.name  # noqa: E731 - test ids


def kept_share(rule: Any, p: torch.Tensor = WIDE) -> float:
    """Q(S): the chance that a token drawn from GUESS is allowed."""
    return float(GUESS[rule.allowed(p)[0]].sum())


def test_typical_by_hand() -> None:
    """F3.7: H = 1.392321, the bar .0745493, four tokens that hold .95."""
    entropy = float(-torch.xlogy(WIDE, WIDE).sum())
    assert entropy == pytest.approx(1.392321, abs=1e-6)
    assert 0.3 * np.exp(-entropy) == pytest.approx(0.0745493, abs=1e-7)
    allowed = Typical().allowed(WIDE)[0]
    assert allowed.tolist() == [True, True, True, True, False]
    assert float(WIDE[0, allowed].sum()) == pytest.approx(0.95)
    # Where p is sharp, epsilon is the bar.
    assert Typical().allowed(tensor([[0.905, 0.095, 0.0]])).tolist() == [[True, True, False]]
    assert Typical().allowed(tensor([[0.915, 0.085, 0.0]])).tolist() == [[True, False, False]]


def test_relaxations_by_hand() -> None:
    """F3.8: strict .2; gap .1, ratio .5 and top-2 all .65."""
    for strict in (ProbabilityGap(0), ProbabilityRatio(1), TopM(1)):
        assert kept_share(strict) == pytest.approx(0.2)
    for rule in (ProbabilityGap(0.1), ProbabilityRatio(0.5), TopM(2)):
        assert kept_share(rule) == pytest.approx(0.65)
        assert kept_share(rule, WIDE.float()) == pytest.approx(0.65)
    assert kept_share(TopM(3)) == pytest.approx(0.85)
    assert kept_share(TopM(99)) == pytest.approx(1)


def test_lenience_by_hand() -> None:
    """F3.8: .9 for the pair of F3.1 at l = .5; at l = 1 it is rejection."""
    assert accepted(Lenience(0.5), P, chains(P, Q, 1)) == pytest.approx(0.9)
    assert accepted(Lenience(1), P, chains(P, Q, 1)) == pytest.approx(0.7)


@settings(max_examples=40, deadline=None)
@given(laws, laws, st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]))
def test_lenience_emits_nothing_above_p_over_l(left: list[int], right: list[int], l: float) -> None:  # noqa: E741
    p, q = normal(left), normal(right)
    law = np.zeros(3)
    for drafting, draft in chains(p, q, 1):
        for chance, verdict in outcomes(Lenience(l), draft, tensor([p, p])):
            law[draft.tokens[0] if verdict.path else verdict.token] += drafting * chance
    assert law.sum() == pytest.approx(1)
    assert np.all(law <= np.array(p) / l + 1e-9)
    kept = accepted(Lenience(l), p, chains(p, q, 1))
    assert kept == pytest.approx(np.minimum(q, np.array(p) / l).sum())
    assert kept >= accepted(Rejection(), p, chains(p, q, 1)) - 1e-12


def case(seed: int, tree: bool) -> tuple[Draft, Rows]:
    rng = np.random.default_rng(seed)
    parents = (-1, -1, 0, 0, 1, 2) if tree else (-1, 0, 1, 2, 3, 4)
    tokens = tuple(int(token) for token in rng.integers(5, size=6))
    return Draft(0, tokens, parents, (0.0,) * 6), Rows(torch.from_numpy(rng.normal(size=(7, 5))))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_the_tight_end_is_greedy_and_the_loose_end_keeps_all(seed: int, tree: bool) -> None:
    draft, rows = case(seed, tree)
    if not tree:
        for strict in (ProbabilityGap(0), ProbabilityRatio(1), TopM(1)):
            assert call(strict, draft, rows) == call(Greedy(), draft, rows)
    depth = max(draft.depths())
    for loose in (ProbabilityGap(1), ProbabilityRatio(1e-12), TopM(5), Typical(1e-9, 1e-9)):
        verdict = call(loose, draft, rows)
        assert len(verdict.path) == depth
        assert verdict.full
        draft.check_path(verdict.path)
        assert verdict.token == int(rows.logits[verdict.path[-1] + 1].argmax())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(RELAXED), st.booleans())
def test_kept_paths_are_the_longest_allowed_ones(seed: int, rule: Any, tree: bool) -> None:
    draft, rows = case(seed, tree)
    p = rows.logits.softmax(-1)
    allowed = rule.allowed(p)
    verdict = call(rule, draft, rows)
    draft.check_path(verdict.path)

    def path_to(node: int) -> tuple[int, ...]:
        return (*path_to(draft.parents[node]), node) if node >= 0 else ()

    def passes(path: tuple[int, ...]) -> bool:
        return all(allowed[draft.parents[n] + 1, draft.tokens[n]] for n in path)

    def chance(path: tuple[int, ...]) -> float:
        return float(np.prod([float(p[draft.parents[n] + 1, draft.tokens[n]]) for n in path]))

    good = [path for node in range(-1, len(draft)) if passes(path := path_to(node))]
    longest = [path for path in good if len(path) == max(map(len, good))]
    assert verdict.path in longest
    assert chance(verdict.path) == pytest.approx(max(map(chance, longest)))
    assert len(verdict.path) >= len(call(Greedy(), draft, rows).path)
    assert call(rule, draft, rows, seed=1) == verdict  # no chance in it


def test_of_two_paths_the_likelier_is_kept() -> None:
    draft = Draft(0, (1, 0, 2), (-1, -1, -1), (0.0,) * 3)
    rows = Rows(WIDE.log().expand(4, -1))
    assert call(ProbabilityGap(0.1), draft, rows) == Verdict((1,), 0, full=True)
    assert call(TopM(1), replace(draft, tokens=(3, 3, 3)), rows) == Verdict((), 0, full=False)


@pytest.mark.parametrize("rule", [*RELAXED, Lenience(0.5)], ids=names)
def test_every_lossy_rule_says_so(rule: Any) -> None:
    assert isinstance(rule, Acceptance)
    assert not rule.lossless
    logits = torch.tensor([[-50.0, 50.0, -50.0]])
    assert call(rule, Draft(0), Rows(logits)) == Verdict((), 1, full=True)
    with pytest.raises(ValueError, match="rows"):
        call(rule, Draft(0), Rows(logits.expand(2, -1)))
    with pytest.raises(ValueError, match="q must be"):
        call(rule, Draft.chain(0, [1], q=torch.ones(1, 2)), Rows(logits.expand(2, -1)))


def test_names_tell_the_settings() -> None:
    rules: list[Any] = [*RELAXED, Lenience(0.5)]
    assert [rule.name for rule in rules] == [
        "typical-0.09-0.3",
        "gap-0.1",
        "ratio-0.5",
        "top-2",
        "lenience-0.5",
    ]


@pytest.mark.parametrize("rule", [Typical, Lenience])
def test_at_temperature_0_they_are_greedy(rule: Any) -> None:
    cold = Sampling(temperature=0)
    lossy = Typical(shape=cold) if rule is Typical else Lenience(0.1, cold)
    for seed in range(40):
        draft, rows = case(seed, tree=False)
        assert call(lossy, draft, rows) == call(Greedy(), draft, rows)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Typical(0), "epsilon must be above 0"),
        (lambda: Typical(delta=1.5), "delta must be above 0"),
        (lambda: ProbabilityGap(-0.1), "delta is a probability"),
        (lambda: ProbabilityRatio(0), "rho must be above 0"),
        (lambda: TopM(0), "m must be a whole number"),
        (lambda: TopM(1.5), "m must be a whole number"),  # type: ignore[arg-type]
        (lambda: Lenience(0), "l must be above 0"),
        (lambda: Lenience(1.5), "l must be above 0"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
