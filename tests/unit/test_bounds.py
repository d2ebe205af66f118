"""T5.1 to T5.7 and T6.1 to T6.4: worked numbers, orderings that are theorems, simulated rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr, softmax

from specviz.analysis.branching import entropy, hill
from specviz.analysis.branching_bounds import mean_pmax_bounds
from specviz.analysis.theory import bounds as f
from specviz.analysis.theory import divergence as d
from specviz.analysis.theory.acceptance import (
    argmax_certificate,
    chain_survival,
    greedy_chance,
    rejection_chance,
    sample_match_chance,
)
from specviz.analysis.theory.block import factorised, product_survival
from specviz.analysis.theory.tau import tau_iid
from specviz.analysis.theory.tree import Conditional, Path, best_chain, best_tree

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
V = 151_936
THIRDS = [1 / 3] * 3
WIDE = [0.6, 0.2, 0.1, 0.05, 0.05]
CITIES = [[0.4, 0, 0], [0, 0.35, 0.25]]  # New York, San Francisco, San Diego
some = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 10_000)


def iid(p: object) -> Conditional:
    return lambda path: p


def markov(seed: int, size: int = 3) -> Conditional:
    rows = softmax(2 * np.random.default_rng(seed).normal(size=(size, size)), axis=-1)
    return lambda path: rows[path[-1] if path else 0]


def two_laws(seed: int, size: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """p, and a q that is near to it or far from it."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=size)
    return softmax(z), softmax(z + rng.choice([0.05, 0.5, 3.0]) * rng.normal(size=size))


# ---- T5.1, T5.2: one token -------------------------------------------------------------------


def test_t5_1_worked_numbers() -> None:
    found = d.divergence_bounds(P, Q)
    assert found.kl == pytest.approx(0.274887, abs=1e-6)
    assert found.overlap == pytest.approx(0.7)
    floors = (found.pinsker, found.bretagnolle_huber, found.half_exponential, found.hellinger_low)
    assert floors == pytest.approx((0.6293, 0.5098, 0.3798, 0.6387), abs=5e-5)
    assert found.hellinger_high == pytest.approx(0.9325, abs=5e-5)
    same = d.divergence_bounds(P, P)
    assert same.overlap == same.pinsker == same.hellinger_low == pytest.approx(1, abs=1e-7)


@some
@given(seeds)
def test_t5_1_holds_for_every_pair_and_in_both_directions(seed: int) -> None:
    p, q = two_laws(seed)
    for a, b in ((p, q), (q, p)):
        found = d.divergence_bounds(a, b)
        assert max(found.pinsker, found.hellinger_low) <= found.overlap + 1e-9
        assert found.half_exponential <= found.bretagnolle_huber + 1e-9 <= found.overlap + 2e-9
        assert found.overlap <= found.hellinger_high + 1e-9
        assert max(d.pinsker_floor(found.kl), 0) == pytest.approx(max(found.pinsker, 0))


def test_t5_1_a_reduced_vocabulary_gets_no_promise() -> None:
    found = d.divergence_bounds([0.98, 0.01, 0.01], [0.99, 0.01, 0.0])
    assert found.overlap == pytest.approx(0.99)
    assert found.kl == np.inf
    assert found.bretagnolle_huber == d.pinsker_floor(np.inf) == 0
    assert found.hellinger_low > 0.85  # which needs no logarithm of 0


def test_t5_1_which_of_the_two_is_better() -> None:
    assert d.pinsker_floor(1.5) > d.bretagnolle_huber_floor(1.5)
    assert d.pinsker_floor(1.7) < d.bretagnolle_huber_floor(1.7)
    assert d.pinsker_floor(2.5) == 0 < d.bretagnolle_huber_floor(2.5)
    # Convex, so that a mean KL bounds the mean chance.
    kl = np.linspace(0, 6, 50)
    assert d.bretagnolle_huber_floor(kl.mean()) <= d.bretagnolle_huber_floor(kl).mean()


def test_t5_1_and_t5_2_on_simulated_draws() -> None:
    rng = np.random.default_rng(0)
    for seed in range(12):
        p, q = two_laws(seed)
        n = 20_000
        x, y = rng.choice(4, n, p=q), rng.choice(4, n, p=p)
        kept = (rng.random(n) < p[x] / q[x]).mean()
        slack = 4 * np.sqrt(0.25 / n)
        found = d.divergence_bounds(p, q)
        assert max(found.pinsker, found.bretagnolle_huber) - slack <= kept
        assert kept <= found.hellinger_high + slack
        # A match with an independent draw, and a fixed draft, never pass p_max (T5.2).
        assert (x == y).mean() <= p.max() + slack
        assert (y == q.argmax()).mean() <= p.max() + slack
        assert sample_match_chance(p, q) <= 1 / hill(p, np.inf) + 1e-12


# ---- F3.4: certificates -----------------------------------------------------------------------


def test_f3_4_certificates() -> None:
    assert d.kl_certificate(0.5, 0.3) == pytest.approx(argmax_certificate(P), abs=1e-12)
    assert d.overlap_certificate(0.5, 0.3) == pytest.approx(0.9)
    # Reached: what the first token loses the second gains.
    assert rejection_chance(P, [0.4, 0.4, 0.2]) == pytest.approx(0.9)
    assert d.kl_certificate(0.4, 0.4) == 0
    assert d.overlap_certificate(0.4, 0.4) == 1


def test_f3_4_what_is_certified_matches() -> None:
    pairs = [two_laws(seed) for seed in range(1000)]
    p, q = np.array(pairs).swapaxes(0, 1)
    second, first = np.sort(p, -1)[:, -2:].T
    same = greedy_chance(p, q) == 1
    kl = np.sum(p * np.log(p / q), -1)
    by_kl = kl < d.kl_certificate(first, second)
    by_overlap = rejection_chance(p, q) > d.overlap_certificate(first, second)
    for certain in (by_kl, by_overlap):
        assert 0.2 < certain.mean() < same.mean()
        assert same[certain].all()


# ---- T5.3 to T5.7: entropy ----------------------------------------------------------------------


def test_t5_4_worked_numbers() -> None:
    chain = f.exit_identity([(0,), (0, 0)], iid([0.8, 0.2]))
    assert chain.tau == pytest.approx(2.44)
    assert chain.emitted == pytest.approx(1.2209819, abs=1e-7)
    assert (chain.exit, chain.bonus) == pytest.approx((0.9007244, 0.3202576), abs=1e-7)
    tree = f.exit_identity([(0,), (1,), (0, 0)], iid(P))
    assert tree.tau == pytest.approx(2.05)
    assert tree.emitted == tree.exit + tree.bonus == pytest.approx(2.1107887, abs=1e-7)
    h = float(entropy(np.log(P)))
    assert tree.emitted == pytest.approx(tree.tau * h)
    assert tree.tau <= f.exit_ceiling(h, 3, tree.bonus) < 2.07


@some
@given(seeds, st.integers(1, 12))
def test_t5_4_holds_whatever_the_dependence(seed: int, nodes: int) -> None:
    conditional = markov(seed)
    found = f.exit_identity(best_tree(conditional, nodes).paths, conditional)
    assert found.emitted == pytest.approx(found.exit + found.bonus)
    assert found.accepted_surprisal <= found.exit + 1e-9 <= found.budget + 2e-9


def test_t5_4_entropy_of_accepted_tokens_has_no_such_budget() -> None:
    """Against "E[entropy absorbed by accepted drafts] <= ln(n + 1)": one node is enough."""
    p = [0.9, *[0.1 / 1000] * 1000]
    found = f.exit_identity([(0,)], iid(p))
    assert found.accepted_entropy == pytest.approx(0.9 * entr(p).sum())
    assert found.accepted_entropy == pytest.approx(0.914, abs=1e-3)
    assert found.budget == pytest.approx(np.log(2))
    assert found.accepted_entropy > found.budget
    assert found.accepted_surprisal == pytest.approx(-0.9 * np.log(0.9))
    assert found.accepted_surprisal < found.budget


def test_t5_4_on_simulated_rounds() -> None:
    conditional = markov(3)
    tree = best_tree(conditional, 5)
    found = f.exit_identity(tree.paths, conditional)
    rng, emitted = np.random.default_rng(0), []
    for _ in range(1500):
        path: Path = ()
        spent = 0.0
        while True:
            row = np.asarray(conditional(path))
            spent += entr(row).sum()
            path = (*path, int(rng.choice(3, p=row)))
            if path not in tree.paths:
                break
        emitted.append((spent, len(path)))
    sums = np.array(emitted)
    error = 4 * sums.std(0) / np.sqrt(len(sums))
    assert sums.mean(0) == pytest.approx((found.emitted, found.tau), abs=error.max())


@pytest.mark.parametrize(("nodes", "bound", "true"), [(7, 2.971, 2.444), (127, 5.506, 5.029)])
def test_t5_5_worked_numbers(nodes: int, bound: float, true: float) -> None:
    found = f.speed_of_light(np.log(3), np.log(3) ** 2, nodes)
    assert found.tau == found.explicit == pytest.approx(bound, abs=5e-4)
    best = best_tree(iid(THIRDS), nodes).tau
    assert best == pytest.approx(true, abs=5e-4)
    assert found.scaling < best < found.tau < found.leading + 1  # ln P / mu is no bound


def test_t5_5_moments_as_given() -> None:
    assert f.speed_of_light(1.0986, 1.2069, 7).tau == pytest.approx(2.971, abs=5e-4)
    assert f.speed_of_light(1.0986, 1.2069, 7).scaling == pytest.approx(1.893, abs=5e-4)
    assert f.speed_of_light(1.088, 2.0, 7).scaling == pytest.approx(1.91, abs=5e-3)
    assert f.speed_of_light(1.088, 2.0, 127).scaling == pytest.approx(4.46, abs=5e-3)


def test_t5_5_heavy_tails_pass_k_plus_1() -> None:
    """p_max .9 and a long tail; the example of 10.5 names no tail, an even one gives 9.4."""
    tail = 632
    p = np.append(0.9, np.full(tail, 0.1 / tail))
    mu, mu2 = entr(p).sum(), (p * np.log(p) ** 2).sum()
    assert mu == pytest.approx(0.97, abs=1e-3)
    found = f.speed_of_light(mu, mu2, 7)
    assert found.explicit == pytest.approx(9.37, abs=0.01)
    assert found.tau == found.most == 8
    assert f.speed_of_light(mu, mu2, 7, depth=3).tau == 4
    assert f.speed_of_light(0.0, 0.0, 7).tau == 8


def test_t5_5_holds_for_random_laws() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        p = rng.dirichlet(np.full(rng.integers(2, 9), rng.choice([0.1, 0.3, 1.0])))
        mu, mu2 = entr(p).sum(), (p * np.log(np.maximum(p, 1e-300)) ** 2).sum()
        for nodes in (1, 4, 31):
            assert best_tree(iid(p), nodes).tau <= f.speed_of_light(mu, mu2, nodes).tau + 1e-9


def test_t5_5_holds_for_laws_drawn_anew_and_not_for_bursty_text() -> None:
    """Half the places sharp, half flat: independent, the bound holds; in long runs it fails."""
    sharp, flat, nodes = np.array([0.95, *[0.01] * 5]), np.full(6, 1 / 6), 15

    def anew(seed: int) -> Conditional:
        return lambda path: sharp if hash((seed, path)) % 1_000_003 % 2 else flat

    both = np.stack([sharp, flat])
    mu, mu2 = entr(both).sum(-1).mean(), (both * np.log(both) ** 2).sum(-1).mean()
    bound = f.speed_of_light(mu, mu2, nodes).tau
    taus = np.array([best_tree(anew(seed), nodes).tau for seed in range(150)])
    assert taus.mean() + 2 * taus.std() / np.sqrt(150) < bound
    # The same two laws, each for as long as a round lasts: mu and mu2 do not change.
    runs = (best_tree(iid(sharp), nodes).tau + best_tree(iid(flat), nodes).tau) / 2
    assert (bound, runs) == pytest.approx((4.64, 6.72), abs=5e-3)


def test_t5_6_a_drafter_that_draws_breaks_every_entropy_ceiling() -> None:
    kept = chain_survival(iid(THIRDS), iid(THIRDS), k=7)["rejection"].sum()
    assert 1 + kept == pytest.approx(8)
    assert best_chain(iid(THIRDS), 7).tau == pytest.approx(1.50, abs=5e-3)
    assert 1 + kept > f.speed_of_light(np.log(3), np.log(3) ** 2, 7).tau


def test_t5_7_worked_numbers() -> None:
    h = float(entr(WIDE).sum())
    small, large = f.entropy_sandwich(h, 7, 5), f.entropy_sandwich(h, 7, V)
    assert (small.crude, small.low, small.high) == pytest.approx(
        (1.45769, 1.48906, 2.68059), abs=5.1e-6
    )
    assert large.low == small.low
    assert large.high == pytest.approx(6.19149, abs=5.1e-6)
    true = best_chain(iid(WIDE), 7).tau
    assert true == pytest.approx(2.45801, abs=5.1e-6) == tau_iid(0.6, 7)
    for entropy_, low, high in ((0.279, 6.08, 7.56), (1.088, 1.58, 6.29)):
        found = f.entropy_sandwich(entropy_, 7, V)
        assert (found.low, found.high) == pytest.approx((low, high), abs=6e-3)


@some
@given(seeds, st.integers(1, 6))
def test_t5_7_holds_for_every_law(seed: int, k: int) -> None:
    p = np.random.default_rng(seed).dirichlet(np.full(5, 0.5))
    found = f.entropy_sandwich(min(float(entr(p).sum()), np.log(5)), k, 5)
    tau = best_chain(iid(p), k).tau
    assert found.crude - 1e-7 <= found.low <= tau + 1e-5
    assert tau <= found.high + 1e-5
    assert f.chain_tau(p.max(), k) == pytest.approx(tau)


# ---- T6.1 to T6.4 -------------------------------------------------------------------------------


def test_t6_1_worked_numbers() -> None:
    found = factorised([[0.5, 0], [0, 0.5]])  # New York, San Francisco
    assert found.total_correlation == pytest.approx([0, np.log(2)])
    assert found.survival == pytest.approx([1, 0.5])
    assert found.exact_marginals == pytest.approx(1.5)
    assert found.autoregressive == 2
    assert found.best_chain == pytest.approx(1.0)
    assert found.floor.sum() == pytest.approx(1.293, abs=5e-4)
    # Two likeliest tokens, tied, may well be those of "New Francisco".
    assert product_survival([[0.5, 0], [0, 0.5]], [[1, 0], [0, 1]]).sum() == pytest.approx(0.5)


def test_t6_2_exact_marginals_are_not_the_best_product() -> None:
    found = factorised(CITIES)
    assert found.exact_marginals == pytest.approx(1.52)
    assert found.best_product == pytest.approx(1.60)
    assert found.best_laws[1] == pytest.approx([0, 7 / 12, 5 / 12])
    assert product_survival(CITIES, found.best_laws).sum() == pytest.approx(1.60)
    grid = np.linspace(0, 1, 11)
    searched = max(
        product_survival(CITIES, [[1 - s, s], [y, (1 - y) * x, (1 - y) * (1 - x)]]).sum()
        for s in grid
        for y in grid
        for x in grid
    )
    assert searched <= 1.60 + 1e-9


def test_t6_3_decoding_from_marginals_is_what_costs() -> None:
    found = factorised(CITIES)
    assert found.argmax_of_marginals == pytest.approx(0.60)  # "San York"
    assert found.best_chain == pytest.approx(0.95)  # "San Francisco"


@settings(max_examples=6, deadline=None)
@given(seeds)
def test_t6_1_holds_for_every_rule_and_block(seed: int) -> None:
    law = np.random.default_rng(seed).dirichlet(np.full(27, 0.3)).reshape(3, 3, 3)
    found = factorised(law, starts=0)
    assert (found.floor <= found.survival + 1e-9).all()
    assert (np.diff(found.total_correlation) >= -1e-9).all()
    assert found.exact_marginals <= found.best_product + 1e-9 <= 3 + 2e-9
    assert found.argmax_of_marginals <= found.best_chain + 1e-9 <= found.best_product + 2e-9

    def target(path: Path) -> np.ndarray:
        rest = law[path]
        rest = rest.sum(axis=tuple(range(1, rest.ndim)))
        return rest / rest.sum()

    marginals = [law.sum(axis=tuple(a for a in range(3) if a != j)) for j in range(3)]
    table = chain_survival(target, lambda path: marginals[len(path)], 3)
    assert (table["block"] <= table["ceiling"] + 1e-9).all()
    assert table["ceiling"].to_numpy() == pytest.approx(found.survival)
    # The first token loses nothing, and rejection token by token reaches the second ceiling.
    assert table["rejection"].to_numpy()[:2] == pytest.approx(found.survival[:2])


def test_t6_1_on_simulated_blocks() -> None:
    rng, n = np.random.default_rng(0), 20_000
    law = np.array(CITIES)
    first, second = law.sum(1), law.sum(0)
    x, y = rng.choice(2, n, p=first), rng.choice(3, n, p=second)
    chance = (law / first[:, None])[x, y] / second[y]  # the first token is kept always
    accepted = 1 + (rng.random(n) < chance)
    assert accepted.mean() == pytest.approx(1.52, abs=4 * accepted.std() / np.sqrt(n))


@pytest.mark.parametrize(
    ("match", "least", "largest"),
    [(0.607, 0.545, 5.359), (0.74, 0.360, 3.675), (0.978, 0.0305, 0.368)],
)
def test_t6_4_worked_numbers(match: float, least: float, largest: float) -> None:
    found = f.posterior_entropy_bounds(match, V)
    assert found == pytest.approx((least, largest), abs=5.1e-4)
    # And back: at that entropy no drafter of those inputs need match less, or can match more.
    assert mean_pmax_bounds(found[0], V)[0] == pytest.approx(match, abs=1e-6)
    assert mean_pmax_bounds(found[1], V)[1] == pytest.approx(match, abs=1e-6)


def test_t6_4_on_simulated_inputs() -> None:
    """A token that is certain given everything, and a drafter that sees a part of it."""
    rng = np.random.default_rng(4)
    outside = 0
    for _ in range(80):
        joint = rng.dirichlet(np.full(24, rng.choice([0.05, 0.3, 1]))).reshape(4, 6)  # F, Y
        seen = joint.sum(1)
        unknown = float(entr(joint).sum() - entr(seen).sum())
        best = float(joint.max(1).sum())
        least, largest = f.posterior_entropy_bounds(best, 6)
        assert least - 1e-9 <= unknown <= largest + 1e-9
        low, high = mean_pmax_bounds(max(unknown, 0.0), 6)
        assert low - 1e-6 <= best <= high + 1e-6
        # A drafter that wastes what it sees: Fano still holds, the other end need not.
        worse = max(float(joint[np.arange(4), rng.integers(0, 6, 4)].sum()), 1 / 6)
        least, largest = f.posterior_entropy_bounds(worse, 6)
        assert unknown <= largest + 1e-9
        outside += unknown < least
    assert outside > 20


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: d.pinsker_floor(-0.1), "0 nats or more"),
        (lambda: d.bretagnolle_huber_floor(np.nan), "0 nats or more"),
        (lambda: d.divergence_bounds([0.5, 0.5], [1 / 3] * 3), "one vocabulary"),
        (lambda: d.kl_certificate(0.2, 0.3), "two largest"),
        (lambda: d.overlap_certificate(0.9, 0.3), "two largest"),
        (lambda: f.posterior_entropy_bounds(0.001, 10), "guessing"),
        (lambda: f.posterior_entropy_bounds(1.1, 10), "guessing"),
        (lambda: f.speed_of_light(1.0, 0.5, 7), "both in nats"),
        (lambda: f.speed_of_light(-1.0, 1.5, 7), "mu is a mean entropy"),
        (lambda: f.speed_of_light(1.0, 1.5, 0), "nodes"),
        (lambda: f.speed_of_light(1.0, 1.5, 7, depth=0), "depth"),
        (lambda: f.exit_identity([(0, 1)], iid(P)), "before its parent"),
        (lambda: f.exit_identity([(0,)], iid([0.5, 0.2])), "must sum to 1"),
        (lambda: f.exit_ceiling(-1.0, 3, 0.0), "0 nats or more"),
        (lambda: f.entropy_sandwich(9.0, 3, 10), "in bits"),
        (lambda: f.entropy_sandwich(1.0, -1, 10), "k"),
        (lambda: factorised([[0.5, 0.1], [0.1, 0.1]]), "sum to 1"),
        (lambda: factorised(np.full((60, 60, 60), 60.0**-3)), "too many to enumerate"),
        (lambda: product_survival(CITIES, [[0.5, 0.5]]), "as many distributions"),
        (lambda: product_survival(CITIES, [[0.5, 0.5], [0.5, 0.5]]), "must hold 3"),
    ],
)
def test_refusals(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        call()
