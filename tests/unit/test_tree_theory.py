"""T5.3 and T6.3: the best tree and chain by brute force, and the worked numbers."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.theory import tree as f
from specviz.analysis.theory.tau import tau

some = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 10_000)


def markov(seed: int, size: int, sharpness: float = 2.0) -> f.Conditional:
    """A random chain of order 1; the anchor is token 0."""
    logits = sharpness * np.random.default_rng(seed).normal(size=(size, size))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return lambda path: p[path[-1] if path else 0]


def iid(*p: float) -> f.Conditional:
    return lambda path: p


def all_paths(size: int, depth: int) -> list[f.Path]:
    return [path for d in range(1, depth + 1) for path in product(range(size), repeat=d)]


def closed(paths: tuple[f.Path, ...]) -> bool:
    return all(len(path) == 1 or path[:-1] in paths for path in paths)


@pytest.mark.parametrize("seed", range(6))
def test_t5_3_the_best_tree_equals_brute_force(seed: int) -> None:
    conditional = markov(seed, size=2)
    everything = f.tree_chances(all_paths(2, 3), conditional)
    chance = dict(zip(everything.paths, everything.chances, strict=True))
    best = max(
        sum(chance[path] for path in paths)
        for paths in combinations(everything.paths, 4)
        if closed(paths)
    )
    found = f.best_tree(conditional, nodes=4, depth=3)
    assert found.accepted == pytest.approx(best, abs=1e-12)
    assert len(found.paths) == 4
    assert closed(found.paths)


@some
@given(seeds, st.integers(1, 5))
def test_the_best_chain_equals_brute_force(seed: int, k: int) -> None:
    conditional = markov(seed, size=3)
    best = max(
        f.tree_chances([path[: j + 1] for j in range(k)], conditional).accepted
        for path in product(range(3), repeat=k)
    )
    found = f.best_chain(conditional, k)
    assert found.accepted == pytest.approx(best, abs=1e-12)
    assert len(found.paths) == k


def test_the_greedy_chain_is_not_always_the_best() -> None:
    rows = {(): [0.55, 0.45, 0.0], (0,): [0.34, 0.33, 0.33]}

    def conditional(path: f.Path) -> list[float]:
        return rows.get(path, [0.0, 0.0, 1.0])

    best = f.best_chain(conditional, k=2)
    assert best.paths[0] == (1,)
    assert best.accepted == pytest.approx(0.9)
    assert f.tree_chances([(0,), (0, 0)], conditional).accepted == pytest.approx(0.737)


@some
@given(seeds, st.integers(1, 12))
def test_the_tree_is_worth_at_least_the_chain_and_at_most_its_nodes(seed: int, n: int) -> None:
    conditional = markov(seed, size=3)
    tree, chain = f.best_tree(conditional, n), f.best_chain(conditional, min(n, 6))
    assert chain.accepted <= tree.accepted + 1e-12 <= n + 1e-12
    smaller = f.best_tree(conditional, max(1, n - 1))
    assert tree.paths[: len(smaller.paths)] == smaller.paths


@pytest.mark.parametrize(
    ("p", "chain", "tree"),
    [
        ((1 / 3,) * 3, 1.49977, 2.44444),
        ((1 / 2,) * 2, 1.99219, 3.125),
        ((0.6, 0.2, 0.1, 0.05, 0.05), 2.45801, 2.7456),
    ],
)
def test_t5_3_seven_nodes_of_equal_places(p: tuple[float, ...], chain: float, tree: float) -> None:
    assert f.best_chain(iid(*p), k=7).tau == pytest.approx(chain, abs=5.1e-6)
    assert f.best_tree(iid(*p), nodes=7).tau == pytest.approx(tree, abs=5.1e-6)
    assert f.sequoia_tau(p, nodes=7)[7] == pytest.approx(tree, abs=5.1e-6)


def test_t5_3_127_nodes() -> None:
    uniform = [1 / 3] * 3
    assert f.best_tree(iid(*uniform), nodes=127).tau == pytest.approx(5.0288, abs=5e-5)
    assert f.sequoia_tau(uniform, nodes=127)[127] == pytest.approx(5.0288, abs=5e-5)


def test_t5_3_published_marginals() -> None:
    """CAST's quickstart: 15 random marginals over 64 tokens, the 8 likeliest of each."""
    logits = np.random.default_rng(0).normal(scale=5, size=(15, 64))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    p[p < np.sort(p, -1)[:, [-8]]] = 0

    def conditional(path: f.Path) -> np.ndarray:
        return p[len(path)]

    # Accepted tokens: these are printed without the bonus.
    assert f.best_tree(conditional, 15, depth=15).accepted == pytest.approx(1.78242, abs=5.1e-6)
    assert f.best_tree(conditional, 127, depth=15).accepted == pytest.approx(3.53594, abs=5.1e-6)
    # The best chain of independent places is that of the likeliest tokens.
    likeliest = tuple(p.argmax(-1).tolist())
    greedy = f.tree_chances([likeliest[: j + 1] for j in range(15)], conditional)
    assert greedy.accepted == pytest.approx(1.01483, abs=5.1e-6)
    assert greedy.tau == pytest.approx(tau(p.max(-1)))
    assert f.best_chain(conditional, 15).paths == greedy.paths


@some
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=5).filter(lambda p: sum(p) > 0),
    st.sampled_from([3, 7, 15]),
    st.sampled_from([None, 1, 2, 4]),
)
def test_sequoia_equals_the_best_tree_where_only_the_rank_matters(
    weights: list[float], n: int, depth: int | None
) -> None:
    p = np.array(weights) / max(1.0, sum(weights))
    values = f.sequoia_tau(p, n, depth)
    assert values[n] == pytest.approx(f.best_tree(iid(*p), n, depth).tau, abs=1e-12)
    assert values[0] == 1.0
    assert (np.diff(values) >= 0).all()


def test_sequoia_leaves_ranks_out_where_a_deeper_node_is_worth_more() -> None:
    # One node: the likelier rank, though it is the second; two: below it, 0.49 > 0.3.
    assert f.sequoia_tau([0.3, 0.7], 2).tolist() == pytest.approx([1.0, 1.7, 2.19])


def test_t6_3_trees_from_marginals_are_not_what_they_promise() -> None:
    """New York, San Francisco, San Diego, of .4, .35 and .25: the marginals mix them up."""
    truth = {(): [0.4, 0.6], (0,): [1, 0, 0], (1,): [0, 0.35 / 0.6, 0.25 / 0.6]}
    marginals = [[0.4, 0.6], [0.4, 0.35, 0.25]]

    def surrogate(path: f.Path) -> list[float]:
        return marginals[len(path)]

    built = f.best_tree(surrogate, 3, depth=2)
    assert built.accepted == pytest.approx(1.24)
    san_york = f.tree_chances([(1,), (1, 0)], lambda path: truth[path])
    assert san_york.accepted == pytest.approx(0.6)
    best = f.best_chain(lambda path: truth[path], 2)
    assert best.paths[-1] == (1, 1)
    assert best.accepted == pytest.approx(0.95)
    for n, found, possible in ((3, 1.0, 1.4), (4, 1.35, 1.75), (5, 1.75, 2.0)):
        paths = f.best_tree(surrogate, n, depth=2).paths
        assert f.tree_chances(paths, lambda path: truth[path]).accepted == pytest.approx(found)
        oracle = f.best_tree(lambda path: truth[path], n, depth=2)
        assert oracle.accepted == pytest.approx(possible)


@some
@given(seeds, st.integers(1, 20))
def test_two_ways_to_the_same_sum(seed: int, n: int) -> None:
    conditional = markov(seed, size=4)
    tree = f.best_tree(conditional, n)
    number = {(): -1} | {path: i for i, path in enumerate(tree.paths)}
    parents = [number[path[:-1]] for path in tree.paths]
    chances = [float(np.asarray(conditional(path[:-1]))[path[-1]]) for path in tree.paths]
    assert f.expected_accepted(parents, chances) == pytest.approx(tree.accepted)
    assert f.tree_chances(tree.paths, conditional).chances == pytest.approx(tree.chances)


def test_expected_accepted_of_a_chain_is_f2_1() -> None:
    alphas = [0.9, 0.8, 0.5]
    assert f.expected_accepted([-1, 0, 1], alphas) + 1 == pytest.approx(tau(alphas))
    assert f.expected_accepted([], []) == 0.0


def test_sampled_rounds_agree_with_the_sum() -> None:
    conditional = markov(3, size=3)
    tree = f.best_tree(conditional, 6)
    rng, kept, rounds = np.random.default_rng(0), 0, 4000
    for _ in range(rounds):
        path: f.Path = ()
        while True:
            drawn = int(np.searchsorted(np.cumsum(conditional(path))[:-1], rng.random()))
            path = (*path, drawn)
            if path not in tree.paths:
                break
            kept += 1
    assert kept / rounds == pytest.approx(tree.accepted, abs=0.08)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: f.expected_accepted([-1], [0.5, 0.5]), "one chance per node"),
        (lambda: f.expected_accepted([-1], [1.5]), "between 0 and 1"),
        (lambda: f.expected_accepted([-1], [np.nan]), "between 0 and 1"),
        (lambda: f.expected_accepted([0], [0.5]), "parents come before children"),
        (lambda: f.expected_accepted([-1, 0, 0], [0.5, 0.7, 0.7]), "children of node 0"),
        (lambda: f.expected_accepted([-1, -1], [0.7, 0.7]), "children of the anchor"),
        (lambda: f.tree_chances([(0, 1)], iid(0.5, 0.5)), "before its parent"),
        (lambda: f.tree_chances([(0,), (0,)], iid(0.5, 0.5)), "comes twice"),
        (lambda: f.tree_chances([(2,)], iid(0.5, 0.5)), "vocabulary of 2"),
        (lambda: f.tree_chances([()], iid(0.5, 0.5)), "comes twice"),
        (lambda: f.best_tree(iid(0.7, 0.7), 3), "sum to at most 1"),
        (lambda: f.best_tree(iid(-0.1, 0.7), 3), "sum to at most 1"),
        (lambda: f.best_tree(iid(np.nan), 3), "sum to at most 1"),
        (lambda: f.best_tree(lambda path: [[0.5]], 3), "one list"),
        (lambda: f.best_tree(iid(1.0), 0), "nodes must be a whole number"),
        (lambda: f.best_tree(iid(1.0), 3, depth=0), "depth must be a whole number"),
        (lambda: f.best_chain(iid(1.0), 0), "k must be a whole number"),
        (lambda: f.sequoia_tau([], 3), "one list"),
        (lambda: f.sequoia_tau([0.7, 0.7], 3), "sum to at most 1"),
        (lambda: f.sequoia_tau([0.7], -1), "nodes must be a whole number"),
        (lambda: f.sequoia_tau([0.7], 3, depth=0), "depth must be a whole number"),
    ],
)
def test_bad_input_is_refused(call: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_what_has_no_probability_is_not_drafted() -> None:
    certain = {(): [1.0, 0.0], (0,): [0.0, 0.0]}
    assert f.best_tree(lambda path: certain[path], 5).paths == ((0,),)
    assert f.best_chain(lambda path: certain[path], 5).paths == ((0,),)
    assert f.sequoia_tau([0.0, 0.5], 2).tolist() == [1.0, 1.5, 1.75]
