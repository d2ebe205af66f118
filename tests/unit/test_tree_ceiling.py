"""The target's own likeliest paths, against enumeration on exact targets."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import specviz.engine.tree_ceiling as engine
from specviz.analysis.ceilings.tree import drafters_at_anchors, tree_ceiling
from specviz.analysis.theory.bounds import exit_identity
from specviz.analysis.theory.tree import best_chain, best_tree
from specviz.bundled import TARGET_TREES, bundled_target_trees, bundled_trace
from specviz.campaign import capture
from specviz.drafters.markov import MarkovDrafter
from specviz.engine.sampling import RAW, Sampling
from specviz.engine.tree_ceiling import capture_tree_ceiling, likely_paths
from specviz.figures import plot_tree_ceiling
from specviz.markup import number
from specviz.prompt_set import Prompt
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.trace import Trace, TraceError
from specviz.trace.target_trees import TargetTrees, load_target_trees
from tests.models import tiny_target

CHAIN = MarkovModel.random(6, order=2, seed=3)


@lru_cache(maxsize=2)
def sampled(temperature: float = 1.0) -> Trace:
    letters = np.random.default_rng(0).choice(list("abcde"), (8, 4))
    prompts = [
        Prompt(f"p{i}", "ab"[i % 2], ({"role": "user", "content": "".join(row)},))
        for i, row in enumerate(letters)
    ]
    near = CHAIN.mixed_with(MarkovModel.random(6, order=2, seed=4), 0.3)
    return capture(
        prompts,
        ToyTarget(CHAIN),
        MarkovDrafter(near),
        sampling=Sampling(temperature),
        k=5,
        max_new_tokens=40,
        progress=False,
    )


@lru_cache(maxsize=2)
def expanded(follow: int | None = None) -> TargetTrees:
    return capture_tree_ceiling(
        sampled(), ToyTarget(CHAIN), nodes=20, depth=5, follow=follow, progress=False
    )


def conditional(target: ToyTarget, context: tuple[int, ...], sampling: Sampling = RAW):
    """p after a path below the last token of a context."""

    def row(path: tuple[int, ...]) -> np.ndarray:
        if any(token in target.eos_ids for token in path):
            return np.zeros(target.vocab_size)
        logits = target.prefill((*context, *path)).logits[-1:]
        return sampling.probs(logits)[0].numpy()

    return row


@pytest.mark.parametrize("sampling", [RAW, Sampling(0.7, top_p=0.9), Sampling(top_k=2)])
@given(
    context=st.lists(st.integers(0, 5), min_size=2, max_size=5),
    nodes=st.integers(1, 30),
    depth=st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_the_paths_are_the_best_tree(sampling, context, nodes, depth) -> None:
    target = ToyTarget(CHAIN)
    target.prefill(tuple(context[:-1]))
    found = likely_paths(target, context[-1], nodes, depth, sampling)
    best = best_tree(conditional(ToyTarget(CHAIN), tuple(context), sampling), nodes, depth)
    assert np.allclose(found.chances, best.chances, atol=1e-6)
    paths = [(), *found.paths]
    assert all(path[:-1] in paths[: i + 1] for i, path in enumerate(found.paths))


def test_a_transformer_target_gives_the_same_in_batches_of_any_size(monkeypatch) -> None:
    target = tiny_target()
    prompt = tuple(range(5, 17))

    def of(batch: int) -> engine.LikelyPaths:
        monkeypatch.setattr(engine, "BATCH", batch)
        target.prefill(prompt)
        return likely_paths(target, 40, 24, 4, RAW)

    one_by_one, at_once = of(1), of(64)
    assert one_by_one.paths == at_once.paths
    # and each chance is what reading the path token by token says
    path = at_once.paths[-1]
    chance = 1.0
    for end in range(len(path)):
        p = target.prefill((*prompt, 40, *path[:end])).logits[-1].softmax(-1)
        chance *= float(p[path[end]])
    assert at_once.chances[-1] == pytest.approx(chance, rel=1e-6)
    assert one_by_one.rows > 24


def test_entropies_are_those_of_p(tmp_path: Path) -> None:
    found = expanded()
    target = ToyTarget(CHAIN)
    row = found.anchors.iloc[3]
    text = engine._texts(sampled())[int(row.seq)]
    context = (*text.prompt, *text.tokens[: row.anchor + 1])
    p = conditional(target, context)(())
    assert row.entropy == pytest.approx(-(p[p > 0] * np.log(p[p > 0])).sum(), rel=1e-5)
    for node, parent in enumerate(row.parent):
        token, entropy = row.token[node], row.node_entropy[node]
        if parent < 0 and token not in target.eos_ids:
            q = conditional(target, context)((token,))
            assert entropy == pytest.approx(-(q[q > 0] * np.log(q[q > 0])).sum(), rel=1e-5)
        assert math.isnan(entropy) == (token in target.eos_ids)


def test_the_table_is_the_theory_at_every_anchor() -> None:
    found = expanded()
    target, texts = ToyTarget(CHAIN), {text.seq: text for text in engine._texts(sampled())}
    trees, chains, exits, realised = [], [], [], []
    for row in found.anchors.itertuples():
        text = texts[row.seq]
        p = conditional(target, (*text.prompt, *text.tokens[: row.anchor + 1]))
        tree = best_tree(p, 4, 5)
        trees.append(tree.tau)
        chains.append(best_chain(p, 4).tau)
        exits.append(exit_identity(tree.paths, p).exit)
        ahead = text.tokens[row.anchor + 1 :]
        realised.append(1 + sum(path == ahead[: len(path)] for path in tree.paths))
    table = tree_ceiling(found, [4], draws=50).set_index(["content_type", "shape"])
    tree, chain = table.loc[("all", "tree")], table.loc[("all", "chain")]
    assert tree.tokens_per_round == pytest.approx(np.mean(trees), rel=1e-5)
    assert tree.realised == pytest.approx(np.mean(realised))
    assert tree.exit_entropy == pytest.approx(np.mean(exits), rel=1e-4)
    assert tree.exit_entropy <= math.log(5)
    assert chain.tokens_per_round <= np.mean(chains) + 1e-6 <= chain.at_most + 2e-6
    assert chain.tokens_per_round < tree.tokens_per_round


@given(seed=st.integers(0, 10**6), n=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_no_chain_passes_its_limit(seed: int, n: int) -> None:
    rows = np.random.default_rng(seed).dirichlet([0.4] * 4, 256)
    p = lambda path: rows[hash(path) % 256]  # noqa: E731
    tree = best_tree(p, 9, 4)
    place = {path: node for node, path in enumerate(tree.paths)} | {(): -1}
    table = TargetTrees(
        {"nodes": 9, "depth": 4, "follow": None},
        _one_row(tree.paths, tree.chances, [place[path[:-1]] for path in tree.paths]),
    )
    chain = tree_ceiling(table, [n], draws=1).iloc[-1]
    best = max(
        1 + sum(math.prod(p(way[:j])[way[j]] for j in range(i + 1)) for i in range(n))
        for way in product(range(4), repeat=n)
    )
    assert chain.tokens_per_round <= best + 1e-6
    assert best <= chain.at_most + 1e-6


def _one_row(paths, chances, parents):
    from specviz.trace.target_trees import trees_of_rows

    row = {
        "seq": 0,
        "prompt_id": "p",
        "content_type": "a",
        "anchor": 0,
        "entropy": 1.0,
        "token": [path[-1] for path in paths],
        "text": ["?"] * len(paths),
        "parent": parents,
        "chance": list(chances),
        "node_entropy": [0.0] * len(paths),
        "realised": [],
    }
    return trees_of_rows({}, [row]).table


def test_followed_rounds_partition_the_output() -> None:
    found = expanded(follow=6)
    for seq, rows in found.anchors.groupby("seq"):
        here = 0
        for row in rows.itertuples():
            assert row.anchor == here
            here += 1 + int((np.asarray(row.realised) < 6).sum())
        assert here >= engine._texts(sampled())[int(seq)].n - 1
    table = tree_ceiling(found, [5, 6], draws=50)
    assert table.loc[table.on_policy, "n"].unique().tolist() == [6]
    # tokens emitted over rounds, but for the last round of each output, which may pass its end
    own = table[table.on_policy & (table.content_type == "all")].iloc[0]
    texts = engine._texts(sampled())
    assert own.realised >= sum(text.n - 1 for text in texts) / own.n_anchors
    assert own.realised == pytest.approx(own.tokens_per_round, rel=0.15)


def test_a_drafter_stands_beside_the_tree_at_the_same_anchors() -> None:
    trees, trace = expanded(), sampled()
    table = drafters_at_anchors(trees, trace, k=3, draws=50)
    matched = trace.drafts.set_index(["seq", "anchor"]).matched
    n = trace.sequences.set_index("seq").n_output
    kept = [
        min(matched[row.seq, row.anchor], 3)
        for row in trees.anchors.itertuples()
        if n[row.seq] - 1 - row.anchor >= 3
    ]
    everything = table[table.content_type == "all"].iloc[0]
    assert everything.tokens == pytest.approx(1 + np.mean(kept))
    assert everything.n_anchors == len(kept) < len(trees.anchors)
    drawn = drafters_at_anchors(trees, trace, k=3, rule="rejection", draws=50)
    assert drawn.tokens.iloc[-1] != everything.tokens


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "trees.parquet"
    real, calls = engine._expand, []

    def broken(*args):
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    def run(**more) -> TargetTrees:
        return capture_tree_ceiling(
            sampled(), ToyTarget(CHAIN), nodes=20, depth=5, out=out, progress=False, **more
        )

    monkeypatch.setattr(engine, "_expand", broken)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert load_target_trees(out).anchors.seq.nunique() == 3
    calls.clear()
    calls += [None] * 10
    assert run().table.equals(expanded().table)
    assert len(calls) == 10 + 5
    assert load_target_trees(out).table.equals(expanded().table)
    with pytest.raises(TraceError, match="another seed"):
        run(seed=1)
    with pytest.raises(TraceError, match="already exists"):
        run(resume=False)


def test_what_cannot_be_measured_is_refused() -> None:
    target = ToyTarget(CHAIN)
    greedy = capture(["ab"], target, MarkovDrafter(CHAIN), max_new_tokens=8, progress=False)
    with pytest.raises(ValueError, match=r"ceiling is k \+ 1"):
        capture_tree_ceiling(greedy, target)
    with pytest.raises(ValueError, match="other weights"):
        capture_tree_ceiling(sampled(), ToyTarget(MarkovModel.random(6, seed=9)))
    with pytest.raises(ValueError, match="at most 128"):
        capture_tree_ceiling(sampled(), target, nodes=200)
    with pytest.raises(ValueError, match="only 8 nodes"):
        capture_tree_ceiling(sampled(), target, nodes=8, follow=9)
    with pytest.raises(ValueError, match="is not a target"):
        capture_tree_ceiling(sampled(), "toy")
    chains = ToyTarget(CHAIN)
    chains.supports_trees = False
    with pytest.raises(ValueError, match="chains only"):
        capture_tree_ceiling(sampled(), chains)
    with pytest.raises(ValueError, match="20 nodes, and 21"):
        tree_ceiling(expanded(), [21])
    with pytest.raises(ValueError, match="another target"):
        drafters_at_anchors(expanded(), bundled_trace("smollm2-sampled"), k=3)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        load_target_trees(tmp_path / "none.parquet")
    other = tmp_path / "other.parquet"
    sampled().save(tmp_path / "trace")
    with pytest.raises(TraceError, match="holds no trees"):
        load_target_trees(tmp_path / "trace" / "drafts.parquet")
    other.write_bytes(b"nothing")
    with pytest.raises(TraceError, match="holds no trees"):
        load_target_trees(other)
    other.write_bytes(b"PAR1 and no more")
    with pytest.raises(TraceError, match="damaged"):
        load_target_trees(other)


@pytest.mark.parametrize("name", TARGET_TREES)
def test_the_bundled_trees_fit_the_bundled_capture(name: str) -> None:
    trees, trace = bundled_target_trees(name), bundled_trace("smollm2-sampled")
    assert trees.meta["target"] == trace.meta.target
    for row in trees.anchors.itertuples():
        chance, parent = np.asarray(row.chance), np.asarray(row.parent)
        above = np.where(parent >= 0, chance[parent], 1.0)
        assert np.all(np.diff(chance) <= 0)
        assert np.all(chance <= above)
        assert np.all(parent < np.arange(len(parent)))
    texts = {text.seq: text for text in engine._texts(trace)}
    row = trees.anchors.iloc[len(trees.anchors) // 2]
    tokens = [row.token[node] for node in row.realised]
    ahead = texts[row.seq].tokens[row.anchor + 1 :]
    assert tuple(tokens) == ahead[: len(tokens)]


def test_torch_is_needed_only_to_measure() -> None:
    assert torch.is_tensor(RAW.probs(torch.zeros(1, 3)))
    with pytest.raises(ValueError, match="there are anchors"):
        bundled_target_trees("nothing")


def test_the_picture_shows_every_ceiling_and_the_drafters_beside() -> None:
    table = tree_ceiling(expanded(), [1, 3, 20], draws=50)
    near = drafters_at_anchors(expanded(), sampled(), k=3, draws=50)
    figure = plot_tree_ceiling(table, near)
    named = {trace.name: trace for trace in figure.data if trace.name}
    assert list(named) == [
        "a, best tree",
        "a, best chain",
        "b, best tree",
        "b, best chain",
        "markov, argmax-match",
    ]
    own = table[(table.content_type == "b") & (table["shape"] == "tree")]
    assert list(named["b, best tree"].y) == own.tokens_per_round.tolist()
    assert list(named["b, best chain"].x) == [1, 3]  # no chain of 20 within 5 levels
    assert list(named["markov, argmax-match"].y) == near.tokens.tolist()[:2]
    value = own.tokens_per_round.iloc[-1]
    assert f"b {number(value)} tokens per round" in figure.layout.title.text
    with pytest.raises(ValueError, match=r"specviz\.tree_ceiling"):
        plot_tree_ceiling(near)
