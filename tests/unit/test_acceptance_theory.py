"""F3.1 to F3.8: the worked numbers, the orderings that are theorems, and the engine's own rules."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize_scalar
from scipy.special import rel_entr

from specviz.analysis.branching import hill
from specviz.analysis.theory import acceptance as f
from specviz.analysis.theory import multi_draft as m
from specviz.analysis.theory.tree import Conditional, Path
from specviz.engine.lossy import Lenience, ProbabilityGap, ProbabilityRatio, TopM, Typical
from specviz.engine.multi_draft import RecursiveRejection
from specviz.engine.protocols import Draft
from specviz.engine.sampling import race
from tests.unit import test_acceptance_exact as exact

P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
WIDE, WIDE_Q = [0.4, 0.3, 0.15, 0.1, 0.05], [0.2, 0.45, 0.2, 0.1, 0.05]

some = settings(max_examples=60, deadline=None)


@st.composite
def pairs(draw: st.DrawFn, least: int = 2, most: int = 5, positive: bool = False) -> np.ndarray:
    """p and q over a few tokens: spread out, nearly equal, or with tokens ruled out."""
    size = draw(st.integers(least, most))
    weight = st.integers(1 if positive else 0, 12)
    rows = st.lists(weight, min_size=size, max_size=size).filter(any)
    p, q = (np.array(draw(rows), dtype=float) ** draw(st.sampled_from([1, 3])) for _ in "pq")
    return np.stack([p / p.sum(), q / q.sum()])


def markov(seed: int, size: int, sharpness: float = 1.5) -> Conditional:
    logits = sharpness * np.random.default_rng(seed).normal(size=(size, size))
    rows = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return lambda path: rows[path[-1] if path else 0]


# ---- one draft: the worked numbers -----------------------------------------------------


def test_f3_1_rejection() -> None:
    assert f.rejection_chance(P, Q) == pytest.approx(0.7)
    assert f.rejection_chance(P, P) == pytest.approx(1.0)


def test_f3_2_sample_match() -> None:
    assert f.sample_match_chance(P, Q) == pytest.approx(0.29)
    assert f.sample_match_chance(P, P) == pytest.approx(0.38)
    assert f.sample_match_chance(P, P) == pytest.approx(1 / hill(P, 2))
    for d, point in enumerate(np.eye(3)):  # nothing is lost for a fixed token
        for rule in (f.rejection_chance, f.sample_match_chance, f.shared_noise_chance):
            assert rule(P, point) == pytest.approx(P[d])


def test_f3_3_shared_noise() -> None:
    assert f.shared_noise_chance(P, Q) == pytest.approx(0.630769, abs=5e-7)
    assert f.shared_noise_floor(P, Q) == pytest.approx(0.538462, abs=5e-7)


def test_f3_4_greedy() -> None:
    assert f.greedy_chance([0.51, 0.49], [0.49, 0.51]) == 0.0
    assert f.rejection_chance([0.51, 0.49], [0.49, 0.51]) == pytest.approx(0.98)
    assert f.greedy_chance(P, [0.4, 0.3, 0.3]) == 1.0


def test_f3_4_certificate() -> None:
    found = f.argmax_certificate(P)
    assert found == pytest.approx(0.0252672, abs=5e-8)
    assert found >= (0.5 - 0.3) ** 2 / (2 * (0.5 + 0.3))
    # Least divergence of a q with equal first tokens, found without the formula.
    least = minimize_scalar(
        lambda x: rel_entr(P, [x, x, 1 - 2 * x]).sum(), bounds=(0.01, 0.49), method="bounded"
    )
    assert found == pytest.approx(least.fun, abs=1e-7)


def test_f3_7_typical() -> None:
    assert hill(WIDE, 1) == pytest.approx(4.02418, abs=5e-6)
    assert min(0.09, 0.3 / hill(WIDE, 1)) == pytest.approx(0.0745493, abs=5e-8)
    allowed = Typical().allowed(torch.tensor([WIDE]))[0].numpy()
    assert allowed.sum() == 4
    assert f.allowed_chance(WIDE, allowed) == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (TopM(1), 0.2),
        (ProbabilityGap(0.0), 0.2),
        (ProbabilityGap(0.1), 0.65),
        (ProbabilityRatio(0.5), 0.65),
        (TopM(2), 0.65),
    ],
    ids=lambda rule: getattr(rule, "name", None),
)
def test_f3_8_relaxations(rule: TopM | ProbabilityGap | ProbabilityRatio, kept: float) -> None:
    allowed = rule.allowed(torch.tensor([WIDE], dtype=torch.float64))[0].numpy()
    assert f.allowed_chance(WIDE_Q, allowed) == pytest.approx(kept)


def test_f3_8_a_gap_within_the_three_likeliest() -> None:
    row = torch.tensor([WIDE], dtype=torch.float64)
    both = (TopM(3).allowed(row) & ProbabilityGap(0.3).allowed(row))[0].numpy()
    assert f.allowed_chance(WIDE_Q, both) == pytest.approx(0.85)


def test_f3_8_lenience() -> None:
    assert f.lenient_chance(P, Q, 0.5) == pytest.approx(0.9)
    assert f.lenient_chance(P, Q, 1.0) == f.rejection_chance(P, Q)


# ---- one draft: theorems ---------------------------------------------------------------


def direct_shared_noise(p: np.ndarray, q: np.ndarray) -> float:
    """The sum of F3.3 as it stands."""
    both = [x for x in range(len(p)) if p[x] > 0 and q[x] > 0]
    return sum(1 / np.maximum(p / p[x], q / q[x]).sum() for x in both)


@some
@given(pairs())
def test_shared_noise_is_the_sum_and_lies_between(pq: np.ndarray) -> None:
    found = f.shared_noise_chance(*pq)
    assert found == pytest.approx(direct_shared_noise(*pq), abs=1e-12)
    assert f.shared_noise_floor(*pq) <= found + 1e-12
    assert f.sample_match_chance(*pq) <= found + 1e-12
    assert found <= f.rejection_chance(*pq) + 1e-12
    tv = np.abs(pq[0] - pq[1]).sum() / 2
    assert f.rejection_chance(*pq) == pytest.approx(1 - tv)
    assert f.shared_noise_floor(*pq) == pytest.approx((1 - tv) / (1 + tv))


def test_shared_noise_is_what_races_do() -> None:
    p, q, rng = torch.tensor(P), torch.tensor(Q), np.random.default_rng(0)
    noises = (torch.from_numpy(rng.standard_exponential(3)) for _ in range(4000))
    share = np.mean([race(p, noise) == race(q, noise) for noise in noises])
    assert share == pytest.approx(f.shared_noise_chance(P, Q), abs=4 * np.sqrt(0.25 / 4000))


@some
@given(pairs())
def test_divergence_bounds_hold_for_rejection(pq: np.ndarray) -> None:
    kept = f.rejection_chance(*pq)
    for kl in (rel_entr(*pq).sum(), rel_entr(*pq[::-1]).sum()):
        assert kept >= 1 - np.sqrt(1 - np.exp(-kl)) - 1e-12
        assert kept >= 1 - np.sqrt(kl / 2) - 1e-12
    overlap = np.sqrt(pq[0] * pq[1]).sum()
    assert 1 - np.sqrt(max(0.0, 1 - overlap**2)) - 1e-7 <= kept <= overlap + 1e-12


@some
@given(pairs(positive=True))
def test_no_argmax_moves_below_the_certificate(pq: np.ndarray) -> None:
    p, q = pq
    bar = f.argmax_certificate(p)
    top, second = np.sort(p)[::-1][:2]
    assert bar >= (top - second) ** 2 / (2 * (top + second)) - 1e-12
    if rel_entr(p, q).sum() < bar - 1e-12:
        assert f.greedy_chance(p, q) == 1.0
    # It is sharp: the two likeliest made equal, and then a hair more.
    best, other = np.argsort(-p, kind="stable")[:2]
    moved = p.copy()
    moved[[best, other]] = (top + second) / 2
    assert rel_entr(p, moved).sum() == pytest.approx(bar, abs=1e-12)
    moved[other] += 1e-9
    assert p[best] == p[other] or moved.argmax() != best


@some
@given(pairs(), st.floats(0.05, 1))
def test_lenience_keeps_more_and_is_what_the_rule_does(pq: np.ndarray, lenience: float) -> None:
    p, q = pq
    kept = f.lenient_chance(p, q, lenience)
    assert kept >= f.rejection_chance(p, q) - 1e-12
    rows = torch.from_numpy(np.stack([p, p]))
    rule = sum(
        float(q[x]) * chance * len(verdict.path)
        for x in np.flatnonzero(q).tolist()
        for chance, verdict in exact.outcomes(
            Lenience(lenience), Draft.chain(0, [x], q=torch.from_numpy(q[None])), rows
        )
    )
    assert kept == pytest.approx(rule, abs=1e-9)


def test_rows_give_one_chance_per_position() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(6), size=(2, 7))
    for rule in (
        f.rejection_chance,
        f.sample_match_chance,
        f.shared_noise_chance,
        f.shared_noise_floor,
        f.greedy_chance,
    ):
        each = [rule(x, y) for x, y in zip(p, q, strict=True)]
        assert rule(p, q).tolist() == pytest.approx(each)
        against = [rule(x, q[0]) for x in p]
        assert rule(p, q[0]).tolist() == pytest.approx(against)
    bars = [f.argmax_certificate(x) for x in p]
    assert f.argmax_certificate(p).tolist() == pytest.approx(bars)


def test_a_whole_vocabulary_in_single_precision() -> None:
    z = np.random.default_rng(0).normal(0, 3, size=(2, 50_000))
    p, q = (np.exp(z) / np.exp(z).sum(-1, keepdims=True)).astype(np.float32)
    assert f.shared_noise_floor(p, q) <= f.shared_noise_chance(p, q) <= f.rejection_chance(p, q)
    assert f.shared_noise_chance(p, p) == pytest.approx(1.0)


# ---- a chain ---------------------------------------------------------------------------


def test_f3_5_block_verification() -> None:
    table = f.chain_survival(lambda path: [1 / 3, 2 / 3], lambda path: [2 / 3, 1 / 3], k=2)
    assert table["rejection"].sum() == pytest.approx(10 / 9)
    assert table["block"].sum() == pytest.approx(11 / 9)
    assert table["ceiling"].sum() == pytest.approx(12 / 9)
    assert table.index.tolist() == [1, 2]


RULES = ["sample-match", "shared-noise", "rejection", "block", "ceiling"]


@some
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3))
def test_the_rules_of_a_chain_are_ordered_at_every_depth(seed: int, size: int, k: int) -> None:
    p, q = markov(seed, size), markov(seed + 1, size)
    table = f.chain_survival(p, q, k)
    assert table.columns.tolist() == RULES
    assert (np.diff(table.to_numpy(), axis=1) >= -1e-12).all()
    assert (np.diff(table.to_numpy(), axis=0) <= 1e-12).all()
    first = [f.sample_match_chance, f.shared_noise_chance, *[f.rejection_chance] * 3]
    assert table.iloc[0].tolist() == pytest.approx([rule(p(()), q(())) for rule in first])
    same = f.chain_survival(p, p, k)[["shared-noise", "rejection", "block", "ceiling"]]
    assert same.to_numpy() == pytest.approx(np.ones((k, 4)))


@some
@given(pairs(most=4), st.integers(1, 3))
def test_equal_places_give_powers(pq: np.ndarray, k: int) -> None:
    p, q = pq
    table = f.chain_survival(lambda path: p, lambda path: q, k)
    depths = np.arange(1, k + 1)
    assert table["sample-match"].tolist() == pytest.approx(f.sample_match_chance(p, q) ** depths)
    assert table["shared-noise"].tolist() == pytest.approx(f.shared_noise_chance(p, q) ** depths)
    assert table["rejection"].tolist() == pytest.approx(f.rejection_chance(p, q) ** depths)
    path_p, path_q = p, q
    for j in range(k):
        assert table["ceiling"].iloc[j] == pytest.approx(np.minimum(path_p, path_q).sum())
        path_p, path_q = np.outer(path_p, p).ravel(), np.outer(path_q, q).ravel()


@pytest.mark.parametrize("shape", exact.CHAINS)
@pytest.mark.parametrize("name", ["sample-match", "rejection", "block"])
def test_the_engines_rules_keep_what_the_theory_says(name: str, shape: str) -> None:
    """Every draft times every outcome of the rule's chance, against the closed sums."""

    def law(model: object) -> Conditional:
        return lambda path: model.logits((*exact.TEXT, *path)).exp().numpy()

    rule, k = exact.RULES[name][0], len(exact.SHAPES[shape])
    survival = np.zeros(k)
    for drafting, draft in exact.drawn(exact.SHAPES[shape], True):
        for chance, verdict in exact.outcomes(rule, draft, exact.p_of(draft)):
            survival[: len(verdict.path)] += drafting * chance
    table = f.chain_survival(law(exact.TARGET), law(exact.DRAFTER), k)
    assert survival.tolist() == pytest.approx(table[name].tolist(), abs=1e-12)


def test_a_drafter_that_says_nothing_the_target_says() -> None:
    table = f.chain_survival(lambda path: [1, 0], lambda path: [0, 1], 3)
    assert (table.to_numpy() == 0).all()


def test_conditionals_are_asked_only_where_both_can_be() -> None:
    asked: list[Path] = []

    def q(path: Path) -> list[float]:
        asked.append(path)
        return [0.5, 0.5, 0.0]

    f.chain_survival(lambda path: [0.0, 0.5, 0.5], q, 2)
    assert asked == [(), (1,)]


# ---- several drafts --------------------------------------------------------------------

Law = dict[tuple[int, ...], float]


def drawn_law(q: Iterable[float], n: int, replacement: bool) -> Law:
    """Every ordered tuple of drafts, with its probability."""
    q = np.asarray(q, dtype=float)
    law = {}
    every = product(range(len(q)), repeat=n) if replacement else permutations(range(len(q)), n)
    for tokens in every:
        chance = 1.0
        for i, token in enumerate(tokens):
            left = 1.0 if replacement else 1.0 - q[list(tokens[:i])].sum()
            chance *= q[token] / left if q[token] > 0 else 0.0
        law[tokens] = chance
    return law


def by_linear_programme(p: Iterable[float], law: Law) -> float:
    """The most that can be moved from tuples to tokens they hold: the primal of F3.6."""
    edges = [(i, x) for i, tokens in enumerate(law) for x in sorted(set(tokens))]
    rows = np.zeros((len(law) + len(list(p)), len(edges)))
    for column, (i, x) in enumerate(edges):
        rows[i, column] = rows[len(law) + x, column] = 1
    found = linprog(-np.ones(len(edges)), A_ub=rows, b_ub=[*law.values(), *p])
    return float(-found.fun)


@pytest.mark.parametrize(
    ("n", "replacement", "optimum", "recursive"),
    [
        (1, True, 0.7, 0.7),
        (2, True, 0.86, 0.76),
        (3, True, 0.988, None),
        (1, False, 0.7, 0.7),
        (2, False, 0.985714, 0.82),
    ],
)
def test_f3_6_drawn(n: int, replacement: bool, optimum: float, recursive: float | None) -> None:
    assert m.optimal_chance(P, Q, n, replacement) == pytest.approx(optimum, abs=5e-7)
    law = drawn_law(Q, n, replacement)
    assert m.optimal_chance_of_law(P, law) == pytest.approx(optimum, abs=5e-7)
    assert by_linear_programme(P, law) == pytest.approx(optimum, abs=5e-7)
    if recursive is not None:
        assert m.recursive_chance(P, Q, n, replacement) == pytest.approx(recursive)


def test_f3_6_other_laws() -> None:
    one_fixed = {(2, 0): 0.2 / 0.5, (2, 1): 0.3 / 0.5}  # the likeliest of q, and one other
    best_two = {(0, 1): 1.0}  # of p, nothing drawn
    for law, optimum in ((one_fixed, 0.9), (best_two, 0.8)):
        assert m.optimal_chance_of_law(P, law) == pytest.approx(optimum)
        assert by_linear_programme(P, law) == pytest.approx(optimum)


@some
@given(pairs(positive=True), st.integers(1, 4), st.booleans())
def test_sets_in_order_of_the_ratio_are_enough(pq: np.ndarray, n: int, replacement: bool) -> None:
    p, q = pq
    n = min(n, len(q))
    law = drawn_law(q, n, replacement)
    found = m.optimal_chance(p, q, n, replacement)
    sets = [s for size in range(len(p) + 1) for s in combinations(range(len(p)), size)]
    every = min(
        1 + p[list(s)].sum() - sum(law[tokens] for tokens in law if set(tokens) <= set(s))
        for s in sets
    )
    assert found == pytest.approx(every, abs=1e-12)
    assert m.optimal_chance_of_law(p, law) == pytest.approx(every, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(pairs(least=3, most=4), st.integers(1, 3), st.booleans())
def test_the_optimum_is_the_linear_programmes(pq: np.ndarray, n: int, replacement: bool) -> None:
    p, q = pq
    n = min(n, int((q > 0).sum()))
    law = {tokens: chance for tokens, chance in drawn_law(q, n, replacement).items() if chance > 0}
    found = m.optimal_chance(p, q, n, replacement)
    assert found == pytest.approx(by_linear_programme(p, law), abs=1e-7)


@some
@given(pairs(positive=True), st.integers(1, 4))
def test_how_the_rules_for_several_drafts_are_ordered(pq: np.ndarray, n: int) -> None:
    p, q = pq
    n = min(n, len(q))
    one = f.rejection_chance(p, q)
    optimum, recursive = (
        {replacement: rule(p, q, n, replacement) for replacement in (True, False)}
        for rule in (m.optimal_chance, m.recursive_chance)
    )
    assert optimum[False] >= optimum[True] - 1e-12  # distinct drafts can only help
    for replacement in (True, False):
        assert optimum[replacement] >= recursive[replacement] - 1e-12
        assert recursive[replacement] >= one - 1e-12
        if n > 1:
            assert m.optimal_chance(p, q, n - 1, replacement) <= optimum[replacement] + 1e-12
            assert m.recursive_chance(p, q, n - 1, replacement) <= recursive[replacement] + 1e-12
    if n == 2:
        assert recursive[False] >= recursive[True] - 1e-12
    if n == len(q):  # every token is drafted: the best rule always has one to keep
        assert optimum[False] == pytest.approx(1.0)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_engines_recursive_rejection_keeps_as_much(n: int, replacement: bool) -> None:
    parents = (-1,) * n
    kept = 0.0
    for drafting, draft in exact.drawn(parents, replacement):
        rule = RecursiveRejection(replacement)
        for chance, verdict in exact.outcomes(rule, draft, exact.p_of(draft)):
            kept += drafting * chance * len(verdict.path)
    p, q = (model.logits(exact.TEXT).exp().numpy() for model in (exact.TARGET, exact.DRAFTER))
    assert kept == pytest.approx(m.recursive_chance(p, q, n, replacement), abs=1e-12)
    assert kept <= m.optimal_chance(p, q, n, replacement) + 1e-12


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("n", [2, 3])
def test_nothing_is_refused_when_q_is_p(n: int, replacement: bool) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(6))
    assert m.recursive_chance(p, p, n, replacement) == pytest.approx(1.0, abs=1e-12)
    assert m.optimal_chance(p, p, n, replacement) == pytest.approx(1.0, abs=1e-12)


def test_many_tokens_with_replacement() -> None:
    z = np.random.default_rng(0).normal(0, 3, size=(2, 50_000))
    p, q = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    kept = [m.recursive_chance(p, q, n, True) for n in (1, 2, 4)]
    best = [m.optimal_chance(p, q, n, True) for n in (1, 2, 4)]
    assert kept[0] == pytest.approx(best[0])
    assert kept[1] < best[1]
    assert kept == sorted(kept)
    assert best == sorted(best)


# ---- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: f.rejection_chance([0.5, 0.6], [0.5, 0.5]), "p must sum to 1"),
        (lambda: f.rejection_chance([0.5, 0.5], [1.5, -0.5]), "q must hold probabilities"),
        (lambda: f.rejection_chance([0.5, float("nan")], [1, 0]), "p must hold probabilities"),
        (lambda: f.rejection_chance(1.0, [1.0]), "over the last axis"),
        (lambda: f.rejection_chance([], []), "over the last axis"),
        (lambda: f.sample_match_chance([0.5, 0.5], P), "one vocabulary, not 2 and 3"),
        (lambda: f.argmax_certificate([1.0]), "only one"),
        (lambda: f.lenient_chance(P, Q, 0.0), "l must be above 0"),
        (lambda: f.allowed_chance(Q, [1, 1, 0]), "True or False"),
        (lambda: f.allowed_chance(Q, [True, False]), "each of the 3 tokens"),
        (lambda: f.chain_survival(lambda path: P, lambda path: Q, 0), "k must be"),
        (lambda: f.chain_survival(lambda path: P, lambda path: Q, 12), "too many"),
        (lambda: f.chain_survival(lambda path: P, lambda path: [[1.0]], 1), "one distribution"),
        (lambda: f.chain_survival(lambda path: P, lambda path: [0.5, 0.5], 1), "one vocabulary"),
        (lambda: m.recursive_chance(P, Q, 0, True), "n must be"),
        (lambda: m.recursive_chance(P, [0.5, 0.5, 0.0], 3, False), "q has 2 tokens"),
        (lambda: m.optimal_chance([P], Q, 2, True), "one distribution"),
        (lambda: m.optimal_chance([0.01] * 100, [0.01] * 100, 4, False), "too many"),
        (lambda: m.optimal_chance_of_law(P, {(0, 3): 1.0}), "among the 3 tokens"),
        (lambda: m.optimal_chance_of_law(P, {(-1,): 1.0}), "whole number"),
        (lambda: m.optimal_chance_of_law(P, {(0,): 0.5}), "law of the drafts must sum"),
        (lambda: m.optimal_chance_of_law([0.05] * 20, {(0,): 1.0}), "use optimal_chance"),
    ],
)
def test_bad_input_is_refused(call: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


def test_a_vocabulary_that_changes_on_the_way_is_refused() -> None:
    def p(path: Path) -> list[float]:
        return [0.5, 0.5] if path != (1,) else [1.0]

    with pytest.raises(ValueError, match="same vocabulary"):
        f.chain_survival(p, lambda path: [0.5, 0.5], 2)
