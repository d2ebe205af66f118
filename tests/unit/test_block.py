"""DFlash as a drafter: the network against one written by hand, and what it drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specviz.drafters.block import BlockDrafter
from specviz.drafters.block_layers import BlockConfig, rotated
from specviz.drafters.block_net import BlockNet
from specviz.drafters.weights import load_weights, save_weights
from specviz.engine.loop import generate
from specviz.engine.picking import Drawn
from specviz.engine.sampling import Sampling
from specviz.engine.tree_drafts import SampledTree
from specviz.engine.tree_shapes import BestFirst, Cartesian
from specviz.policies import FixedK, Plan
from tests.block_models import (
    CONFIG,
    KINDS,
    as_weights,
    fitted_block,
    random_net,
)
from tests.contract.drafter_contract import decoded_reference
from tests.models import VOCAB, tiny_target, toy_pair


def always(view: Any) -> bool:
    return True


def convolved(rows: torch.Tensor, base: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Row by row; base [length, hidden], own [rows, length, groups]."""
    out = torch.zeros_like(rows)
    for row in range(len(rows)):
        for back in range(min(row + 1, len(base))):
            shared = own[row, back].repeat_interleave(rows.shape[1] // own.shape[2])
            out[row] += (base[back] + shared) * rows[row - back]
    return out


def by_hand(net: BlockNet, anchor: int, place: int, states: torch.Tensor) -> torch.Tensor:
    """One block, as the papers say it, with loops; states [tokens, taps, hidden]."""
    config = net.config
    fused = net.hidden_norm(net.fc(states.flatten(1)))
    table = net._embedding[0].weight
    stream = table[[anchor, *[config.mask_token] * (config.block - 1)]] * config.embedding_scale
    where = [*range(len(states)), *range(place, place + config.block)]
    for index, layer in enumerate(net.layers):
        attention = layer.self_attn
        rows = layer.input_layernorm(stream)
        own = []
        if layer.attention_conv is not None:
            conv = layer.attention_conv
            own = conv.kernel_projection(rows).unflatten(-1, (2, config.kernel, -1))
            after = own[:, 1]
            rows = convolved(rows, conv.base_kernel[0], own[:, 0])
        everything = torch.cat([fused, rows])
        query, key, value = (
            project(part).unflatten(-1, (-1, config.head_dim))
            for project, part in (
                (attention.q_proj, rows),
                (attention.k_proj, everything),
                (attention.v_proj, everything),
            )
        )
        query, key = attention.q_norm(query), attention.k_norm(key)
        heads = []
        for row in range(config.block):
            for head in range(config.heads):
                shared = head // (config.heads // config.kv_heads)
                q = rotated(query[row, head], torch.tensor(place + row), config.rope_theta)
                scores = []
                for slot, position in enumerate(where):
                    k = rotated(key[slot, shared], torch.tensor(position), config.rope_theta)
                    apart = place + row - position
                    far = config.windows and 0 < config.windows[index] <= abs(apart)
                    later = config.causal and config.causal[index] and apart < 0
                    scores.append(torch.tensor(-torch.inf) if far or later else q @ k / 4)
                weights = torch.stack([s.double() for s in scores]).softmax(0)
                heads.append((weights[:, None] * value[:, shared]).sum(0))
        found = attention.o_proj(torch.stack(heads).reshape(config.block, -1))
        if layer.attention_conv is not None:
            found = convolved(found, layer.attention_conv.base_kernel[1], after)
        stream = stream + found
        rows = layer.post_attention_layernorm(stream)
        if layer.mlp_conv is None:
            stream = stream + layer.mlp(rows)
            continue
        own = layer.mlp_conv.kernel_projection(rows).unflatten(-1, (2, config.kernel, -1))
        rows = convolved(rows, layer.mlp_conv.base_kernel[0], own[:, 0])
        stream = stream + convolved(layer.mlp(rows), layer.mlp_conv.base_kernel[1], own[:, 1])
    return net.norm(stream[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_side_by_side_are_blocks_by_hand(kind: str) -> None:
    net = random_net(KINDS[kind])
    text = torch.tensor([[7, 3, 9, 11, 250, 8, 4]])
    states = torch.randn(1, 7, 2, 64, dtype=torch.float64)
    context = net.context(states, torch.arange(7)[None])
    places = torch.tensor([[1, 6]])
    seen = torch.arange(7) < places[..., None]
    found = net(text[:, places[0]], places, seen, context)[0]
    for block, place in enumerate(places[0].tolist()):
        wanted = by_hand(net, int(text[0, place]), place, states[0, :place])
        torch.testing.assert_close(found[block], wanted)


def test_the_selector_walks_among_the_likeliest() -> None:
    net = random_net(CONFIG)
    hidden = torch.randn(4, 64, dtype=torch.float64)
    unary = net.unary(hidden)
    before = torch.tensor([4, 200, VOCAB + 1, 7])  # one of them is no word it knows
    said = net.said(hidden, unary, before)
    selector = net.candidate_selector
    for row in range(4):
        best = unary[row].topk(6).indices
        assert set(said[row].isfinite().nonzero()[:, 0].tolist()) == set(best.tolist())
        code = selector.hidden_projection(hidden[row])
        known = before[row] < VOCAB
        for token in best:
            added = selector.successor_codebook[token] * code
            added = added * selector.predecessor_codebook[before[row]] if known else added * 0
            assert float(said[row, token]) == pytest.approx(float(unary[row, token] + added.sum()))
    everything = unary + net.following(hidden, before)
    kept = said.isfinite()
    torch.testing.assert_close(said[kept], everything[kept])


def test_the_width_of_the_block_does_not_depend_on_the_plan() -> None:
    """F7.5, R2: a narrower block would say other tokens."""
    target = tiny_target()
    drafter = BlockDrafter(as_weights(random_net(CONFIG)), max_k=3)
    wide = BlockDrafter(as_weights(random_net(CONFIG)))
    text = list(target.codec.encode("the quick brown fox"))
    said = []
    for each in (drafter, wide):
        each.attach(target)
        each.start(text, target.prefill(text, each.taps))
        said.append(each.propose([*text, 65], Plan(4), always).tokens)
    assert said[0] == said[1][:3]
    assert (drafter.max_k, wide.max_k) == (3, 4)
    with pytest.raises(ValueError, match="blocks of 4 tokens"):
        BlockDrafter(as_weights(random_net(CONFIG)), max_k=5)


def test_a_capture_deeper_than_the_block_says_how_deep_it_went() -> None:
    target = tiny_target()
    drafter = BlockDrafter(as_weights(random_net(CONFIG)))
    drafter.attach(target)
    prompt = list(target.codec.encode("the quick brown"))
    reference = decoded_reference(target, prompt, drafter.taps)
    drafts, shorter = (drafter.propose_all(reference, k) for k in (6, 4))
    assert (drafts.drafted == 4).all()
    assert (drafts.token[:, 4:] == -1).all()
    assert np.isnan(drafts.logq[:, 4:]).all()
    assert (drafts.token[:, :4] == shorter.token).all()
    assert (drafts.path_rank[:, :4] == shorter.path_rank).all()


def test_a_tree_is_no_deeper_than_the_block_and_may_be_drawn() -> None:
    target = tiny_target()
    drafter = BlockDrafter(as_weights(random_net(CONFIG)))
    drafter.attach(target)
    text = list(target.codec.encode("the quick brown fox"))
    drafter.start(text, target.prefill(text, drafter.taps))
    tree = drafter.propose([*text, 65], Plan(4, tree=Cartesian((3, 2, 1, 1))), always)
    assert (len(tree), tree.depth) == (21, 4)
    pick = Drawn(Sampling(), 0, 1)
    drawn = drafter.propose([*text, 65], Plan(4, tree=SampledTree((3, 2, 1, 1))), always, pick)
    assert len(drawn) == 21
    assert drawn.q is not None
    assert int((drawn.q[0] > 0).sum()) == CONFIG.candidates
    with pytest.raises(ValueError, match="4 tokens deep and best-first-d5 is 5 deep"):
        drafter.propose([*text, 65], Plan(4, tree=BestFirst(8, 5)), always)


def test_block_says_what_it_lacks() -> None:
    target = tiny_target()
    drafter = BlockDrafter(fitted_block())
    with pytest.raises(RuntimeError, match="not attached"):
        drafter.propose([1, 2], Plan(2), always)
    drafter.attach(target)
    with pytest.raises(RuntimeError, match="states of 0 tokens and needs 1"):
        drafter.propose([1, 2], Plan(2), always)
    with pytest.raises(ValueError, match="another target"):
        BlockDrafter(fitted_block()).attach(tiny_target(seed=1))
    toy, _ = toy_pair()
    with pytest.raises(ValueError, match="has none"):
        BlockDrafter(fitted_block()).attach(toy)


def test_near_ties_of_block_can_be_told() -> None:
    target = tiny_target()
    drafter = BlockDrafter(fitted_block())
    drafter.attach(target)
    text = list(target.codec.encode("the quick brown fox"))
    drafter.start(text, target.prefill(text, drafter.taps))
    draft = drafter.propose([*text, 65], Plan(4), always)
    for depth in range(4):
        margin, noise = drafter.tie_after([*text, 65, *draft.tokens[:depth]], drafted=depth)
        assert noise < 1e-9 < margin


def test_a_written_block_drafts_like_the_one_in_memory(tmp_path: Path) -> None:
    target = tiny_target()
    save_weights(fitted_block(), tmp_path / "drafter.safetensors")
    back = load_weights(tmp_path / "drafter.safetensors")
    assert BlockConfig.of(back.settings) == BlockConfig.of(fitted_block().settings)
    runs = [
        generate(target, BlockDrafter(w), "the quick brown", policy=FixedK(7), max_new_tokens=30)
        for w in (back,)
    ]
    assert runs[0].finish().certificate.equal
