"""Trees: what may be asked of one, and every shape against brute force on exact toy models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specviz.analysis.theory.tree import best_tree, expected_accepted, sequoia_tau
from specviz.drafters.markov import MarkovDrafter
from specviz.engine.acceptance import Greedy
from specviz.engine.protocols import Draft
from specviz.engine.tree import (
    MAX_NODES,
    Grower,
    ancestors,
    chains,
    children,
    follow,
    prune,
    shallow,
    trie,
)
from specviz.engine.tree_drafts import enter_budget
from specviz.engine.tree_shapes import (
    BestFirst,
    Cartesian,
    Chain,
    Dynamic,
    Sequoia,
    Shape,
)
from specviz.policies import Plan
from specviz.targets.toy import MarkovModel, ToyTarget

some = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 10_000)
TEXT = [1, 2, 0]


class ToyGrower:
    """Exact rows of a Markov chain; counts forwards and rows, and checks the numbering."""

    def __init__(self, model: MarkovModel, text: Sequence[int] = TEXT) -> None:
        self.model, self.text = model, list(text)
        self.nodes: list[list[int]] = []  # text down to each extended node
        self.forwards: list[int] = []  # rows of each

    def root(self) -> torch.Tensor:
        self.forwards.append(1)
        return self.model.logits(self.text)

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        assert len(parents) == len(tokens) > 0
        assert all(-1 <= parent < len(self.nodes) for parent in parents)
        self.forwards.append(len(tokens))
        new = [
            [*(self.nodes[parent] if parent >= 0 else self.text), token]
            for parent, token in zip(parents, tokens, strict=True)
        ]
        self.nodes += new
        return torch.stack([self.model.logits(text) for text in new])


class Marginals:
    """A block drafter's rows, [depth, V]: the same after every node of a level."""

    def __init__(self, logq: np.ndarray) -> None:
        self.logq = torch.tensor(logq)
        self.depths: list[int] = []

    def root(self) -> torch.Tensor:
        return self.logq[0]

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        new = [1 + (self.depths[parent] if parent >= 0 else 0) for parent in parents]
        self.depths += new
        return self.logq[new]


def grown(shape: Shape, seed: int, size: int = 4, order: int = 2) -> Draft:
    return shape.grow(ToyGrower(MarkovModel.random(size, order, seed=seed)), TEXT[-1])


def paths(draft: Draft) -> list[tuple[int, ...]]:
    ways: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        ways.append((*(ways[parent] if parent >= 0 else ()), token))
    return ways


def logp(model: MarkovModel, path: tuple[int, ...]) -> float:
    """ln of the probability of a path behind the text."""
    return sum(float(model.logits([*TEXT, *path[:j]])[path[j]]) for j in range(len(path)))


def same_ranking(
    model: MarkovModel, mine: list[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]
) -> None:
    """The same paths in the same order, but where two take the same steps in another order: these
    tie, and rounding alone ranks them."""
    assert len(set(mine)) == len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        assert one == other or math.isclose(logp(model, one), logp(model, other), rel_tol=1e-12)


def same(one: Draft, other: Draft) -> None:
    assert (one.anchor, one.tokens, one.parents) == (other.anchor, other.tokens, other.parents)
    for column in ("logq", "entropy", "confidence"):
        assert getattr(one, column) == pytest.approx(getattr(other, column))
    assert (one.q is None) == (other.q is None)
    if one.q is not None:
        assert torch.allclose(one.q, other.q)


SHAPES = [
    Chain(5),
    Cartesian((3, 2, 1)),
    BestFirst(12, 4),
    Dynamic(width=3, depth=4, budget=12),
    Sequoia((0.5, 0.2, 0.1), budget=12, depth=4),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_every_node_carries_what_the_drafter_said_there(shape: Shape) -> None:
    model = MarkovModel.random(4, seed=3)
    grower = ToyGrower(model)
    draft = shape.grow(grower, TEXT[-1])
    assert isinstance(shape, Shape)
    assert isinstance(grower, Grower)
    assert 0 < len(draft) <= shape.nodes
    assert max(draft.depths()) <= shape.depth
    assert draft.anchor == TEXT[-1]
    assert len(set(paths(draft))) == len(draft)
    assert draft.q is None  # chosen, not drawn
    for node, path in enumerate(paths(draft)):
        row = model.logits([*TEXT, *path[:-1]])
        p = row.exp()
        assert draft.logq[node] == pytest.approx(float(row[path[-1]]))
        assert draft.confidence[node] == pytest.approx(float(p[path[-1]]))
        assert draft.entropy[node] == pytest.approx(-float((p * row).sum()))


@some
@given(seeds, st.integers(1, 7))
def test_a_tree_one_node_wide_is_the_chain(seed: int, k: int) -> None:
    model = MarkovModel.random(4, seed=seed)
    chain = MarkovDrafter(model).propose(TEXT, Plan(k), lambda view: True)
    for shape in (
        Chain(k),
        Cartesian((1,) * k),
        Dynamic(width=1, depth=k, budget=k),
        Sequoia((0.5,), budget=k),
    ):
        same(shape.grow(ToyGrower(model), TEXT[-1]), chain)


@some
@given(seeds, st.integers(1, 20), st.integers(1, 4))
def test_best_first_equals_brute_force(seed: int, budget: int, depth: int) -> None:
    model = MarkovModel.random(3, seed=seed)
    chance = {
        path: math.exp(logp(model, path))
        for d in range(1, depth + 1)
        for path in product(range(3), repeat=d)
    }
    draft = BestFirst(budget, depth).grow(ToyGrower(model), TEXT[-1])
    ranked = sorted(chance, key=lambda path: -chance[path])
    same_ranking(model, paths(draft), ranked[:budget])
    assert expected_accepted(draft.parents, draft.confidence) == pytest.approx(
        sum(chance[path] for path in ranked[:budget])
    )


@some
@given(seeds, st.integers(1, 64), st.integers(1, 8))
@example(51, 23, 8)
def test_best_first_equals_the_tree_of_the_theory(seed: int, budget: int, depth: int) -> None:
    model = MarkovModel.random(5, seed=seed)
    draft = BestFirst(budget, depth).grow(ToyGrower(model), TEXT[-1])
    theory = best_tree(lambda path: model.logits([*TEXT, *path]).exp(), budget, depth)
    same_ranking(model, paths(draft), theory.paths)


def test_best_first_on_published_marginals() -> None:
    """CAST's quickstart: 1.01483 accepted for the chain, 1.78242 and 3.53594 for trees (T5.3)."""
    logits = np.random.default_rng(0).normal(scale=5, size=(15, 64))
    logq = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    logq[logq < np.sort(logq, -1)[:, [-8]]] = -np.inf
    for shape, value in (
        (Chain(15), 1.01483),
        (BestFirst(15, 15), 1.78242),
        (BestFirst(127, 15), 3.53594),
    ):
        draft = shape.grow(Marginals(logq), 0)
        assert len(draft) == shape.nodes
        assert expected_accepted(draft.parents, draft.confidence) == pytest.approx(
            value, abs=5.1e-6
        )


@some
@given(seeds, st.sampled_from(["best", "dynamic", "sequoia", "chain"]), st.integers(1, 40))
def test_nested_budgets_are_prefixes(seed: int, kind: str, budget: int) -> None:
    def shape(nodes: int) -> Shape:
        return {
            "best": BestFirst(nodes, 5),
            "dynamic": Dynamic(4, 5, nodes),
            "sequoia": Sequoia((0.5, 0.25, 0.125), nodes, 5),
            "chain": Chain(nodes),
        }[kind]

    whole = grown(shape(40), seed)
    smaller = grown(shape(budget), seed)
    same(smaller, prune(whole, range(min(budget, len(whole)))))
    entered = enter_budget(shape(40), whole)
    assert [node for node, at in enumerate(entered) if at <= budget] == list(range(len(smaller)))


def test_a_cartesian_tree_has_one_budget() -> None:
    shape = Cartesian((2, 2))
    assert not shape.nested
    assert enter_budget(shape, grown(shape, seed=0)) == (6,) * 6


@pytest.mark.parametrize("size", [3, 8])
def test_nested_where_everything_is_equally_likely(size: int) -> None:
    model = MarkovModel(np.full((size, size), 1 / size))
    largest = BestFirst(60, 3).grow(ToyGrower(model), 0)
    # Of equals the shallower first, then the smaller tokens.
    levels = [path for d in (1, 2, 3) for path in product(range(size), repeat=d)]
    assert paths(largest) == levels[: len(largest)]
    for budget in (1, 2, 5, 9, 30):
        draft = BestFirst(budget, 3).grow(ToyGrower(model), 0)
        same(draft, prune(largest, range(budget)))
    assert paths(Dynamic(2, 2, 6).grow(ToyGrower(model), 0))[:3] == [(0,), (1,), (0, 0)]


@some
@given(seeds, st.integers(1, 30), st.integers(1, 5))
def test_dynamic_as_wide_as_its_budget_is_best_first(seed: int, budget: int, depth: int) -> None:
    same(
        grown(Dynamic(width=budget, depth=depth, budget=budget), seed),
        grown(BestFirst(budget, depth), seed),
    )


@some
@given(seeds, st.integers(1, 4), st.integers(1, 5), st.integers(1, 30))
def test_dynamic_equals_the_paper_s_two_steps(
    seed: int, width: int, depth: int, budget: int
) -> None:
    model = MarkovModel.random(4, seed=seed)

    chance = partial(logp, model)
    level: list[tuple[int, ...]] = [()]
    pool: list[tuple[int, ...]] = []
    for _ in range(depth):
        below = []
        for path in level:
            row = model.logits([*TEXT, *path]).numpy()
            below += [(*path, int(token)) for token in np.argsort(-row)[:width]]
        pool += below
        level = sorted(below, key=chance, reverse=True)[:width]
    draft = grown(Dynamic(width, depth, budget), seed)
    assert paths(draft) == sorted(pool, key=chance, reverse=True)[:budget]


@some
@given(seeds, st.integers(1, 60))
def test_trees_contain_the_beginning_of_the_greedy_chain(seed: int, budget: int) -> None:
    depth = 6
    greedy = paths(grown(Chain(depth), seed))
    for shape in (BestFirst(budget, depth), Dynamic(3, depth, budget)):
        assert greedy[0] in paths(grown(shape, seed))
    # A level has at most 1 / P nodes as likely as P, so a path above depth / budget is in.
    draft = grown(BestFirst(budget, depth), seed)
    likely = np.cumsum(grown(Chain(depth), seed).logq)
    for path, logp in zip(greedy, likely, strict=True):
        if math.exp(logp) > depth / budget:
            assert path in paths(draft)
    # Cartesian trees, and Sequoia's where rank 0 is the likeliest, hold a whole greedy branch.
    assert greedy[2] in paths(grown(Cartesian((2, 2, 1)), seed))
    sequoia = Sequoia((0.6, 0.3), budget, depth)
    firsts = [ranks for ranks in sequoia.ranks if set(ranks) == {0}]
    assert len(follow(grown(sequoia, seed), greedy[-1])) == len(firsts) > 0


@some
@given(seeds, st.sampled_from(SHAPES), st.floats(0, 1))
def test_a_tree_never_emits_fewer_tokens_than_a_chain_it_contains(
    seed: int, shape: Shape, share: float
) -> None:
    model = MarkovModel.random(4, seed=seed)
    drafter = model.mixed_with(MarkovModel.random(4, seed=seed + 1), share)
    target = ToyTarget(model)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        text = rng.integers(0, 4, size=5).tolist()
        draft = shape.grow(ToyGrower(drafter, text), text[-1])
        branches = [prune(draft, branch) for branch in chains(draft)]
        target.prefill(text[:-1])
        accepted = [
            len(Greedy()(one, target.verify(one), torch.Generator()).path)
            for one in (draft, *branches)
        ]
        assert accepted[0] == max(accepted[1:])
        # It is how far the tree goes along with the target's own text.
        own = text + [0] * 8
        for t in range(5, 13):
            own[t] = int(model.logits(own[:t]).argmax())
        assert accepted[0] == len(follow(draft, own[5:]))


@some
@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=4),
    st.sampled_from([3, 7, 15]),
    st.sampled_from([1, 2, 15]),
)
def test_sequoia_s_shape_has_the_value_of_its_programme(
    weights: list[float], budget: int, depth: int
) -> None:
    p = np.array(weights) / max(1.0, sum(weights))
    shape = Sequoia(tuple(p), budget, depth)
    assert 1 + sum(math.prod(p[list(path)]) for path in shape.ranks) == pytest.approx(
        sequoia_tau(p, budget, depth)[budget], abs=1e-12
    )


def test_sequoia_takes_the_token_of_each_rank() -> None:
    model = MarkovModel.random(5, seed=1)
    shape = Sequoia((0.1, 0.6, 0.2), budget=9)
    draft = shape.grow(ToyGrower(model), TEXT[-1])
    assert shape.ranks[0] == (1,)
    for ranks, path in zip(shape.ranks, paths(draft), strict=True):
        for j, rank in enumerate(ranks):
            row = model.logits([*TEXT, *path[:j]])
            assert path[j] == row.argsort(descending=True)[rank]


def test_what_cannot_be_said_is_never_drafted() -> None:
    table = np.zeros((4, 4))
    table[:, :2] = [0.75, 0.25]
    model = MarkovModel(table)
    for shape in (
        Cartesian((3, 3)),
        BestFirst(100, 3),
        Dynamic(4, 3, 100),
        Sequoia((0.4, 0.3, 0.2), 30, 3),
    ):
        draft = shape.grow(ToyGrower(model), 0)
        assert set(draft.tokens) == {0, 1}
    assert len(BestFirst(100, 3).grow(ToyGrower(model), 0)) == 2 + 4 + 8
    assert len(Cartesian((3, 3)).grow(ToyGrower(model), 0)) == 2 + 4
    silent = np.full((1, 4), -np.inf)
    assert len(BestFirst(5).grow(Marginals(silent), 0)) == 0
    assert len(Chain(5).grow(Marginals(silent), 0)) == 0


def test_forward_passes_of_the_drafter() -> None:
    def forwards(shape: Shape) -> list[int]:
        grower = ToyGrower(MarkovModel.random(6, seed=2))
        shape.grow(grower, TEXT[-1])
        return grower.forwards

    assert forwards(Chain(5)) == [1] * 5
    assert forwards(Cartesian((3, 2, 2))) == [1, 3, 6]
    assert forwards(Dynamic(width=4, depth=3, budget=9)) == [1, 4, 4]
    assert forwards(BestFirst(1)) == [1]
    assert forwards(BestFirst(6, depth=1)) == [1]
    for depth in (2, 4, 8):
        assert len(forwards(BestFirst(32, depth))) <= depth
    # Leaves of the shape are not extended.
    assert forwards(Sequoia((0.6, 0.3), budget=4)) == [1, 1, 1]


def test_a_best_first_row_is_asked_for_once_and_only_where_a_child_may_enter() -> None:
    grower = ToyGrower(MarkovModel.random(6, seed=2))
    draft = BestFirst(32, 6).grow(grower, TEXT[-1])
    extended = [tuple(text[len(TEXT) :]) for text in grower.nodes]
    assert len(set(extended)) == len(extended)
    inner = {path[:-1] for path in paths(draft)} - {()}
    assert inner <= set(extended)
    assert len(extended) < len(grower.forwards) * 32


def test_a_rounding_error_does_not_put_a_child_before_its_parent() -> None:
    logq = np.log([[0.5, 0.5], [1 + 1e-15, 1e-30]])
    assert logq[1, 0] > 0
    draft = BestFirst(3, 2).grow(Marginals(logq), 0)
    assert draft.tokens == (0, 1, 0)


def test_a_grower_that_gives_too_few_rows_is_noticed() -> None:
    class Short(ToyGrower):
        def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
            return super().extend(parents, tokens)[:1]

    with pytest.raises(ValueError, match="one row of ln q per node: 2 nodes"):
        Cartesian((2, 2)).grow(Short(MarkovModel.random(3)), 0)


# What may be asked of a tree.

TREE = Draft(
    9, (1, 2, 3, 4), (-1, 0, -1, 1), (-0.1, -0.2, -0.3, -0.4), (1, 2, 3, 4), (0.9, 0.8, 0.7, 0.6)
)


def test_ancestors_are_the_attention_mask() -> None:
    mask = ancestors(TREE.parents)
    assert mask.dtype == torch.bool
    assert mask.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 1]]
    assert mask.sum(-1).tolist() == TREE.depths()
    assert ancestors([]).shape == (0, 0)
    with pytest.raises(ValueError, match="parents come before children"):
        ancestors([0])


def test_children_and_chains() -> None:
    assert children(TREE.parents) == {-1: [0, 2], 0: [1], 1: [3]}
    assert chains(TREE) == [(2,), (0, 1, 3)]
    assert chains(Draft(9)) == []
    for branch in chains(TREE):
        TREE.check_path(branch)


def test_prune_renumbers_and_keeps_every_column() -> None:
    kept = prune(TREE, [1, 0, 3])
    assert (kept.tokens, kept.parents) == ((1, 2, 4), (-1, 0, 1))
    assert (kept.logq, kept.entropy) == ((-0.1, -0.2, -0.4), (1, 2, 4))
    assert kept.confidence == (0.9, 0.8, 0.6)
    assert prune(TREE, range(4)) == TREE
    assert prune(TREE, []) == Draft(9)
    assert prune(Draft(9, (1,), (-1,), (0.0,)), [0]).entropy == ()
    with_q = Draft(9, (1, 2), (-1, -1), (0.0, 0.0), q=torch.eye(3)[:2])
    rows = prune(with_q, [1]).q
    assert rows is not None
    assert rows.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [([1], "without its parent 0"), ([4], "numbered 0 to 3"), ([-1], "numbered 0 to 3")],
)
def test_prune_refuses_what_is_no_tree(kept: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        prune(TREE, kept)


def test_shallow_and_follow() -> None:
    assert shallow(TREE, 1).tokens == (1, 3)
    assert shallow(TREE, 0) == Draft(9)
    assert shallow(TREE, 9) == TREE
    assert follow(TREE, [1, 2, 9]) == (0, 1)
    assert follow(TREE, [3, 3]) == (2,)
    assert follow(TREE, [2]) == ()
    assert follow(Draft(9), [2]) == ()
    with pytest.raises(ValueError, match="depth must be a whole number"):
        shallow(TREE, -1)


def test_a_trie_of_one_continuation_is_the_chain() -> None:
    same(trie([[5, 6, 7]], 9, 8), Draft.chain(9, [5, 6, 7]))
    assert trie([], 9, 8) == Draft(9)
    assert trie([[], []], 9, 8) == Draft(9)


def test_a_trie_prefers_support_then_recency() -> None:
    draft = trie([[5, 6, 7], [8, 6], [8, 9], [8, 9]], anchor=1, budget=100)
    # 8 has three of four; 8 9 two of them; then singles, most recent first.
    assert paths(draft) == [(8,), (8, 9), (5,), (5, 6), (5, 6, 7), (8, 6)]
    assert draft.confidence == pytest.approx((3 / 4, 2 / 3, 1 / 4, 1, 1, 1 / 3))
    assert draft.logq == (0.0,) * 6
    assert draft.q is None


@some
@given(st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=8), st.integers(1, 20))
def test_tries_are_nested_and_hold_what_was_copied(
    continuations: list[list[int]], budget: int
) -> None:
    everything = trie(continuations, 0, MAX_NODES)
    beginnings = {tuple(c[:j]) for c in continuations for j in range(1, len(c) + 1)}
    assert set(paths(everything)) == beginnings
    same(trie(continuations, 0, budget), prune(everything, range(min(budget, len(everything)))))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Chain(0), "k must be a whole number"),
        (lambda: Chain(129), "at most 128"),
        (lambda: Cartesian(()), "one number per depth"),
        (lambda: Cartesian(3), "one number per depth"),
        (lambda: Cartesian((2, 0)), "A width must be a whole number"),
        (lambda: Cartesian((8, 8, 8)), "584 nodes"),
        (lambda: BestFirst(0), "budget must be a whole number"),
        (lambda: BestFirst(129), "budget is 129"),
        (lambda: BestFirst(8, 0), "depth must be a whole number"),
        (lambda: BestFirst(2.5), "budget must be a whole number"),
        (lambda: Dynamic(width=0), "width must be a whole number"),
        (lambda: Dynamic(budget=200), "budget is 200"),
        (lambda: Sequoia((), 8), "one share per rank"),
        (lambda: Sequoia((0.7, 0.7), 8), "at most 1"),
        (lambda: Sequoia((math.nan,), 8), "one share per rank"),
        (lambda: Sequoia((0.0, 0.0), 8), "at least one above 0"),
        (lambda: Sequoia((0.7,), True), "budget must be a whole number"),
        (lambda: trie([[1]], 0, 0), "budget must be a whole number"),
    ],
)
def test_sizes_that_no_tree_has_are_refused(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
    assert Cartesian((2,) * 6).nodes == 126
    assert BestFirst(np.int64(8)) == BestFirst(8)
