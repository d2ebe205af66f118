"""Trees from capture to replay: the live rounds, at every budget, and what a trace must satisfy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import specviz as sv
from specviz.analysis.replays.tree_rounds import tree_rounds
from specviz.cost import CostModel, tree_key
from specviz.drafters.eagle import EagleDrafter
from specviz.drafters.lm import LMDrafter
from specviz.drafters.markov import MarkovDrafter
from specviz.drafters.ngram import NGram
from specviz.drafters.oracle import Oracle
from specviz.engine.protocols import Drafter, Target
from specviz.engine.timing import measure_cost
from specviz.engine.tree_drafts import SampledTree, Trie
from specviz.engine.tree_shapes import BestFirst, Cartesian, Chain, Dynamic, Sequoia
from specviz.policies import FixedK, FixedTree, History, Plan
from specviz.presets import free_drafts
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.trace import Trace
from specviz.trace.store import TraceError
from tests.models import fitted_eagle, near_twin, tiny_target, tokenizer

K, N = 5, 33
SHAPES = (
    Chain(K),
    BestFirst(12, K),
    Dynamic(width=3, depth=4, budget=12),
    Sequoia((0.5, 0.2, 0.1), budget=12, depth=K),
    Cartesian((3, 2, 1)),
)
PROMPTS = ["abcabc", "hgfehg", "aabbaabb"]


def toy() -> tuple[Target, Drafter]:
    chain = MarkovModel.random(8, order=2, seed=5)
    return ToyTarget(chain), MarkovDrafter(chain.mixed_with(MarkovModel.random(8, seed=6), 0.5))


def lm() -> tuple[Target, Drafter]:
    return tiny_target(), LMDrafter(near_twin(), tokenizer())


def eagle() -> tuple[Target, Drafter]:
    return tiny_target(), EagleDrafter(fitted_eagle())


def words(make: Callable[..., Any]) -> list[Any]:
    return PROMPTS if make is toy else ["the quick brown fox and the", "a lazy dog"]


def captured(make: Callable[..., Any], trees: Any = SHAPES, n: int = N) -> Trace:
    target, drafter = make()
    return sv.capture(
        words(make), target, drafter, k=K, trees=trees, max_new_tokens=n, progress=False
    )


@pytest.fixture(scope="module", params=[toy, lm, eagle], ids=lambda make: make.__name__)
def both(request: pytest.FixtureRequest) -> tuple[Callable[..., Any], Trace]:
    return request.param, captured(request.param)


@pytest.mark.parametrize(
    "shape",
    [*SHAPES, BestFirst(5, K), Dynamic(3, 4, 7), Sequoia((0.5, 0.2, 0.1), 4, K), Chain(K)],
    ids=lambda shape: f"{shape.builder}x{shape.nodes}",
)
def test_live_tree_rounds_equal_replayed_ones(both: Any, shape: Any) -> None:
    make, trace = both
    target, drafter = make()
    policy = FixedTree(shape)
    rounds = sv.replay(trace, policy).rounds
    columns = ["anchor", "drafted", "nodes", "accepted", "emitted", "stop"]
    for seq, prompt in enumerate(words(make)):
        run = sv.generate(target, drafter, prompt, policy=policy, max_new_tokens=N).finish()
        live = run.rounds[columns].to_numpy().tolist()
        assert live == rounds[rounds.seq == seq][columns].to_numpy().tolist()
        assert run.certificate.certified
    assert rounds.nodes.max() == shape.nodes or shape.depth > 4
    assert set(rounds.builder) <= {shape.builder, ""}


def test_a_chain_as_a_tree_is_the_chain(both: Any) -> None:
    _, trace = both
    chain = sv.replay(trace, sv.FixedK(K)).rounds
    tree = sv.replay(trace, FixedTree(Chain(K))).rounds
    columns = ["seq", "anchor", "drafted", "nodes", "accepted", "emitted", "stop"]
    assert tree[columns].equals(chain[columns])


@pytest.mark.parametrize("builder", [shape.builder for shape in SHAPES[1:4]])
def test_a_larger_budget_accepts_no_less_at_any_anchor(both: Any, builder: str) -> None:
    _, trace = both
    (drafter,) = trace.drafters
    before = np.zeros(0)
    for budget in range(1, 13):
        now = tree_rounds(trace, drafter, builder, budget)
        assert now.nodes.max() <= budget
        assert (now.accepted <= now.drafted).all()
        if len(before):
            assert (now.accepted >= before).all()
        before = now.accepted
    assert before.max() > 0


def test_a_tree_that_holds_the_chain_accepts_no_less_on_the_same_anchors(both: Any) -> None:
    _, trace = both
    (drafter,) = trace.drafters
    chain = tree_rounds(trace, drafter, "chain", 3).accepted
    wide = tree_rounds(trace, drafter, "cartesian-3-2-1", 15).accepted  # rank 0 down to depth 3
    assert (wide >= chain).all()
    assert wide.sum() > chain.sum()


def test_copies_of_an_ngram_replay_too() -> None:
    target, _ = toy()
    trees = {"ngram": [Trie(12, K)]}
    trace = sv.capture(PROMPTS, target, NGram(), k=K, trees=trees, max_new_tokens=N, progress=False)
    for nodes in (1, 4, 12):
        policy = FixedTree(Trie(nodes, K))
        rounds = sv.replay(trace, policy).rounds
        for seq, prompt in enumerate(PROMPTS):
            run = sv.generate(target, NGram(), prompt, policy=policy, max_new_tokens=N).finish()
            mine = rounds[rounds.seq == seq]
            for column in ("anchor", "drafted", "nodes", "accepted"):
                assert run.rounds[column].tolist() == mine[column].tolist()


def test_a_policy_may_switch_between_chains_and_trees() -> None:
    @dataclasses.dataclass(frozen=True)
    class Both:
        name = "both"
        replayable = True

        def plan(self, past: History) -> Plan:
            tree = BestFirst(6, K) if len(past.rounds) % 2 else None
            return Plan(K, tree=tree)

        def more(self, view: Any) -> bool:
            return True

    trace = captured(toy)
    replayed = sv.replay(trace, Both())
    target, drafter = toy()
    run = sv.generate(target, drafter, PROMPTS[0], policy=Both(), max_new_tokens=N).finish()
    mine = replayed.rounds[replayed.rounds.seq == 0]
    assert run.rounds.nodes.tolist() == mine.nodes.tolist()
    assert run.rounds.accepted.tolist() == mine.accepted.tolist()
    assert {"", "best-first-d5"} == set(mine.builder)


# ---- what a tree costs -----------------------------------------------------------------


def test_rounds_are_priced_by_nodes_and_depth() -> None:
    trace = captured(toy)
    cost = CostModel(
        "given",
        "given",
        verify=tuple(1 + 0.1 * n for n in range(13)),
        draft={
            "markov": tuple(0.01 * k for k in range(K + 1)),
            tree_key("markov", "best-first-d5"): tuple(0.02 * n for n in range(13)),
        },
        overhead=0.5,
    )
    run = sv.replay(trace, FixedTree(BestFirst(12, K)))
    expected = 0.02 * run.rounds.nodes + 1 + 0.1 * run.rounds.nodes + 0.5
    bare = run.rounds.nodes == 0  # a plain step at the very end
    np.testing.assert_allclose(run.seconds(cost)[~bare], expected[~bare])
    assert run.rows_per_round == pytest.approx(run.rounds.nodes.mean() + 1)
    np.testing.assert_allclose(run.seconds(free_drafts()), 1.0)
    with pytest.raises(ValueError, match=r"does not price chain trees by 'markov': measure_cost"):
        sv.replay(trace, FixedTree(Chain(K))).seconds(cost)


def test_trees_are_timed_beside_chains() -> None:
    target, drafter = toy()
    trees = [BestFirst(4, K), BestFirst(20, K), Cartesian((2, 1))]
    cost = measure_cost(target, drafter, trees=trees, context=20, repeats=1, progress=False)
    assert set(cost.draft) == {"markov", "markov best-first-d5", "markov cartesian-2-1"}
    assert len(cost.draft["markov best-first-d5"]) == 21
    assert len(cost.verify) == 21
    assert cost.draft["markov cartesian-2-1"][-1] > 0
    trace = captured(toy)
    assert (sv.replay(trace, FixedTree(BestFirst(12, K))).seconds(cost) > 0).all()


# ---- traces ----------------------------------------------------------------------------


def test_a_capture_with_trees_is_written_read_and_resumed(tmp_path: Path) -> None:
    target, drafter = toy()

    def capture(prompts: list[str], trees: Any = SHAPES) -> Trace:
        return sv.capture(
            prompts, target, drafter, k=K, trees=trees, max_new_tokens=N, out=tmp_path,
            progress=False,
        )  # fmt: skip

    first = capture(PROMPTS[:2])
    whole = capture(PROMPTS)
    memory = captured(toy)
    assert len(first.trees) < len(whole.trees)
    assert whole.table("trees").sort_by([("seq", "ascending")]).num_rows == len(memory.trees)
    for shape in SHAPES:
        here, there = (
            tree_rounds(trace, "markov", shape.builder, shape.nodes) for trace in (whole, memory)
        )
        assert here.accepted.tolist() == there.accepted.tolist()
        assert here.nodes.tolist() == there.nodes.tolist()
    assert sv.load_trace(tmp_path).meta.trees == memory.meta.trees
    assert len(whole.select(drafter="markov").trees) == len(whole.trees)
    with pytest.raises(TraceError, match="another trees"):
        capture(PROMPTS, ())
    (tmp_path / "trees.parquet").unlink()
    with pytest.raises(TraceError, match=r"lost trees\.parquet"):
        sv.load_trace(tmp_path)


def test_a_capture_from_before_there_were_trees_still_opens(tmp_path: Path) -> None:
    captured(toy, trees=()).save(tmp_path)
    (tmp_path / "trees.parquet").unlink()
    assert len(sv.load_trace(tmp_path).validate().trees) == 0


@pytest.mark.parametrize(
    ("column", "change", "sentence"),
    [
        ("anchor", lambda a: pc.add(a, 100).cast(pa.int32()), "anchor outside"),
        ("builder", lambda b: pa.array(["oak"] * len(b)).dictionary_encode(), "does not name"),
        ("node_depth", lambda d: pa.array([[1] * 20] * len(d)), "more nodes"),
        ("node_token", lambda t: pa.array([[1]] * len(t)), "node_token does not have one entry"),
        (
            "node_token",
            lambda t: pa.array([[99, *row[1:]] for row in t.to_pylist()]),
            "not what the tokens say",
        ),
        ("node_logq", lambda q: pa.array([[5.0] * len(row) for row in q.to_pylist()]), "above 0"),
        ("node_parent", lambda p: pa.array([[0, *row[1:]] for row in p.to_pylist()]), "one level"),
        ("node_parent", lambda p: pa.array([[-1] * len(row) for row in p.to_pylist()]), "one lev"),
        ("node_parent", lambda p: pa.array([[*row[:-1], -2] for row in p.to_pylist()]), "one lev"),
        ("enter_budget", lambda e: pa.array([[0] * K] * len(e)), "no number of nodes"),
        ("enter_budget", lambda e: pa.array([[99] * K] * len(e)), "after the last node"),
        ("enter_budget", lambda e: pa.array([[3, 2, -1, -1, -1]] * len(e)), "before its parent"),
        ("anchor", lambda a: pa.array([0] * len(a), pa.int32()), "two trees"),
    ],
)
def test_validate_notices(column: str, change: Any, sentence: str) -> None:
    trace = captured(toy, trees=[BestFirst(12, K)])
    table = trace.table("trees")
    where = table.schema.get_field_index(column)
    broken = table.set_column(where, column, change(table[column].combine_chunks()))
    tables = {name: trace.table(name) for name in ("sequences", "positions", "drafts")}
    with pytest.raises(ValueError, match=sentence):
        Trace(trace.meta, {**tables, "trees": broken}).validate()
    with pytest.raises(ValueError, match="trees for"):
        Trace(trace.meta, {**tables, "trees": table.slice(1)}).validate()


# ---- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trees", "sentence"),
    [
        ([BestFirst(8, K + 1)], "captured to 5"),
        ([BestFirst(8, 3), BestFirst(12, 3)], "Two trees are called 'best-first-d3'"),
        ([SampledTree((2, 2))], "whose tokens are chosen"),
        ([7], "no tree shape"),
        ({"oak": [BestFirst(8, 3)]}, "'oak', which is not among"),
        ([Trie(8, 3)], "cannot be grown from a drafter's distributions"),
    ],
)
def test_trees_that_cannot_be_captured(trees: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        captured(toy, trees=trees)


def test_trees_that_were_not_captured() -> None:
    trace = captured(toy, trees=[BestFirst(12, K), Cartesian((3, 2, 1))])
    with pytest.raises(ValueError, match=r"no dynamic-w10-d5 trees by 'markov'; it has best-first"):
        sv.replay(trace, FixedTree(Dynamic(depth=K)))
    with pytest.raises(ValueError, match="replay at 1 to 12, not at 13"):
        sv.replay(trace, FixedTree(BestFirst(13, K)))
    with pytest.raises(ValueError, match="exactly 15, not at 4"):
        tree_rounds(trace, "markov", "cartesian-3-2-1", 4)


def test_a_run_records_rows_and_memory() -> None:
    target, drafter = lm()
    wide, narrow = (
        sv.generate(target, drafter, "a lazy dog", policy=policy, max_new_tokens=20).finish().trace
        for policy in (FixedTree(BestFirst(12, K)), FixedK(2))
    )
    assert wide.rounds.nodes.max() == 12
    assert len(wide.rows) == (wide.rounds.nodes + 1).sum()
    assert wide.meta.memory["peak_slots"] > narrow.meta.memory["peak_slots"]


def test_who_cannot_draft_or_verify_a_tree_says_so() -> None:
    target, drafter = toy()
    tree = FixedTree(BestFirst(4, 2))
    with pytest.raises(ValueError, match="ngram has no distributions to grow a best-first-d2 tree"):
        sv.generate(target, NGram(), "abcabc", policy=tree).finish()
    oracle = Oracle().know(target.codec.encode("abc"), [0] * 9)
    with pytest.raises(ValueError, match="oracle has no distributions"):
        sv.generate(target, oracle, "abc", policy=tree).finish()
    with pytest.raises(ValueError, match="drafts at most 15"):
        sv.generate(target, drafter, "abc", policy=FixedTree(BestFirst(32, 20))).finish()
    with pytest.raises(ValueError, match="needs a rule for drawn siblings"):
        sv.generate(target, drafter, "abc", policy=FixedTree(SampledTree((2, 2)))).finish()
    target.supports_trees = False
    with pytest.raises(ValueError, match="verifies chains only"):
        sv.generate(target, drafter, "abc", policy=tree).finish()
    assert sv.generate(target, drafter, "abc", policy=FixedK(2)).finish().finished


@pytest.mark.parametrize("shape", [BestFirst, 7, "tree"])
def test_a_fixed_tree_needs_a_shape(shape: Any) -> None:
    with pytest.raises(ValueError, match="is no tree shape"):
        FixedTree(shape)
