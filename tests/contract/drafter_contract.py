"""What every drafter must do. Subclass `DrafterContract` and give `make()`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from specviz.engine.certificate import plain_decode
from specviz.engine.loop import generate
from specviz.engine.picking import Drawn
from specviz.engine.protocols import FINAL, Draft, Drafter, Drafts, Reference, Target
from specviz.engine.record import matched_lengths
from specviz.engine.sampling import Sampling
from specviz.engine.tree import follow
from specviz.engine.tree_shapes import BestFirst
from specviz.policies import DraftView, FixedK, Plan, TreeSpec

K = 6
N = 24


def decoded_reference(target: Target, prompt: list[int], taps: tuple[int, ...] = ()) -> Reference:
    """A greedy output of N tokens and K of lookahead, with rows to compare against."""
    tokens = plain_decode(target, prompt, N + K)
    rows = [target.prefill([*prompt, *tokens[:t]], (FINAL,)).logits[0] for t in range(len(tokens))]
    table = torch.stack(rows)
    everything = target.prefill([*prompt, *tokens[:-1]], taps).taps
    n = min(N, len(tokens))
    return Reference(
        tuple(prompt),
        tuple(tokens[:n]),
        tuple(tokens[n:]),
        lambda low, high: table[low:high],
        everything,
    )


def ready(drafter: Drafter, target: Target, context: Sequence[int]) -> None:
    """What a run would have told the drafter by now: a drafter with taps needs the states."""
    if drafter.taps:
        drafter.start(context[:-1], target.prefill(context[:-1], drafter.taps))


def always(view: DraftView) -> bool:
    return True


class DrafterContract:
    """`propose` and `propose_all` must be the same drafter, and obey the plan."""

    tolerance = 1e-9

    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        """A target, a drafter for it, and a prompt."""
        raise NotImplementedError

    @classmethod
    def tell(cls, drafter: Drafter, reference: Reference) -> None:
        """For drafters that must be told the answer."""

    @classmethod
    def tree(cls, depth: int) -> TreeSpec | None:
        """A shape that the drafter can grow, None when it grows none."""
        return BestFirst(12, depth)

    @pytest.fixture(scope="class")
    @classmethod
    def setting(cls) -> tuple[Target, Drafter, Reference, Drafts]:
        target, drafter, prompt = cls.make()
        drafter.attach(target)
        reference = decoded_reference(target, prompt, drafter.taps)
        cls.tell(drafter, reference)
        drafts = drafter.propose_all(reference, K)
        drafter.start(prompt, target.prefill(prompt, drafter.taps))
        return target, drafter, reference, drafts

    def test_is_a_drafter(self, setting) -> None:
        _, drafter, _, _ = setting
        assert isinstance(drafter, Drafter)
        assert drafter.caption
        assert drafter.max_k >= K

    def test_shapes(self, setting) -> None:
        _, _, reference, drafts = setting
        anchors = reference.anchors
        for field in dataclasses.fields(Drafts):
            values = getattr(drafts, field.name)
            width = {"drafted": (), "top4_ids": (4 * K,)}.get(field.name, (K,))
            assert values.shape == (anchors, *width), field.name

    def test_propose_all_is_propose_at_every_anchor(self, setting) -> None:
        target, drafter, reference, drafts = setting
        for anchor in range(reference.anchors):
            context = reference.prompt + reference.output[: anchor + 1]
            ready(drafter, target, context)
            draft = drafter.propose(context, Plan(K), always)
            n = drafts.drafted[anchor]
            assert len(draft) == n
            assert list(draft.tokens) == drafts.token[anchor, :n].tolist()
            for name in ("logq", "entropy", "confidence"):
                live, captured = getattr(draft, name), getattr(drafts, name)[anchor, :n]
                np.testing.assert_allclose(live, captured, atol=max(self.tolerance, 1e-6))
                assert np.isnan(getattr(drafts, name)[anchor, n:]).all()

    def test_is_right_often_enough_to_prove_something(self, setting) -> None:
        _, _, reference, drafts = setting
        matched = matched_lengths(drafts, reference.realised)
        assert matched.max() >= 2
        assert matched.min() < K

    def test_a_chosen_draft_has_no_q(self, setting) -> None:
        """Its softmax is not what an argmax was drawn from: the rules must not see it."""
        target, drafter, reference, _ = setting
        context = reference.prompt + reference.output[:5]
        ready(drafter, target, context)
        assert drafter.propose(context, Plan(K), always).q is None

    def test_q_is_what_the_draft_was_drawn_from(self, setting) -> None:
        target, drafter, reference, _ = setting
        context = reference.prompt + reference.output[:5]
        ready(drafter, target, context)
        drafts = [
            drafter.propose(context, Plan(K), always, Drawn(Sampling(), seed, 4))
            for seed in (0, 0, *range(1, 9))
        ]
        first = drafts[0]
        assert first.tokens == drafts[1].tokens  # the seed decides
        if first.q is None:  # a drafter without distributions
            assert set(first.logq) <= {0.0}
            return
        assert len({draft.tokens for draft in drafts}) > 1
        assert first.q.shape == (len(first), target.vocab_size)
        torch.testing.assert_close(first.q.sum(-1), torch.ones_like(first.q[:, 0]))
        for row, token, logq, entropy in zip(
            first.q, first.tokens, first.logq, first.entropy, strict=True
        ):
            assert float(row[token].log()) == pytest.approx(logq, abs=1e-5)
            assert float(torch.special.entr(row).sum()) == pytest.approx(entropy, abs=1e-4)
        cold = drafter.propose(context, Plan(K), always, Drawn(Sampling(0.5), 0, 4))
        assert cold.q is not None  # q is shaped as p is; logq and entropy are the drafter's own
        own = torch.tensor(cold.logq[:1])
        assert float(cold.q[0, cold.tokens[0]]) != pytest.approx(float(own.exp()), abs=1e-6)

    def test_a_tree_holds_what_chains_would_say(self, setting) -> None:
        target, drafter, reference, _ = setting
        context = reference.prompt + reference.output[:12]
        ready(drafter, target, context)
        chain = drafter.propose(context, Plan(K), always)
        shape = self.tree(K)
        if shape is None:
            with pytest.raises(ValueError, match="no distributions"):
                drafter.propose(context, Plan(K, tree=BestFirst(4, 4)), always)
            return
        tree = drafter.propose(context, Plan(K, tree=shape), always)
        assert tree.q is None
        assert not tree.is_chain
        assert len(tree) <= shape.nodes
        assert tree.depth <= K
        # Below the tree's first branch, the chain's tokens with the chain's own numbers.
        path = follow(tree, chain.tokens)
        assert path
        for depth, node in enumerate(path):
            assert tree.logq[node] == pytest.approx(chain.logq[depth], abs=1e-4)
            assert tree.entropy[node] == pytest.approx(chain.entropy[depth], abs=1e-3)
        assert drafter.propose(context, Plan(K), always).tokens == chain.tokens
        assert len(drafter.propose(context, Plan(0, tree=shape), always)) == 0

    def test_shorter_plans_give_prefixes(self, setting) -> None:
        target, drafter, reference, _ = setting
        context = reference.prompt + reference.output[:5]
        ready(drafter, target, context)
        longest = drafter.propose(context, Plan(K), always).tokens
        for k in range(K + 1):
            assert drafter.propose(context, Plan(k), always).tokens == longest[:k]

    def test_an_empty_plan_gives_an_empty_draft(self, setting) -> None:
        _, drafter, reference, _ = setting
        draft = drafter.propose(reference.prompt + reference.output[:3], Plan(0), always)
        assert draft == Draft(reference.output[2])

    def test_stops_when_asked_and_shows_what_it_has(self, setting) -> None:
        target, drafter, reference, drafts = setting
        anchor = int(np.flatnonzero(drafts.drafted == K)[0])
        context = reference.prompt + reference.output[: anchor + 1]
        ready(drafter, target, context)
        seen: list[int] = []

        def three(view: DraftView) -> bool:
            seen.append(len(view.logq))
            assert len(view.entropy) == len(view.confidence) == len(view.logq)
            return len(view.logq) < 3

        draft = drafter.propose(context, Plan(K), three)
        assert seen == [1, 2, 3]
        assert list(draft.tokens) == drafts.token[anchor, :3].tolist()

    def test_context_decides_not_history(self, setting) -> None:
        target, drafter, reference, _ = setting
        early, late = (reference.prompt + reference.output[:n] for n in (4, 12))
        ready(drafter, target, late)  # the states reach further than the early context needs
        first = drafter.propose(early, Plan(K), always).tokens
        drafter.propose(late, Plan(K), always)
        drafter.propose(early[:-1], Plan(2), always)
        assert drafter.propose(early, Plan(K), always).tokens == first

    def test_rounds_of_a_run_are_the_captured_drafts(self, setting) -> None:
        """Live, a drafter hears of the text by `observe` only."""
        target, drafter, reference, drafts = setting
        n = reference.anchors + 1
        run = generate(target, drafter, list(reference.prompt), policy=FixedK(3), max_new_tokens=n)
        self.tell(drafter, reference)
        lengths = set()
        for round_ in run:
            offered = int(drafts.drafted[round_.anchor])
            k = max(0, min(3, offered, n - 2 - round_.anchor))
            assert list(round_.draft.tokens) == drafts.token[round_.anchor, :k].tolist()
            lengths.add(len(round_.path))
        assert run.token_ids == list(reference.output)
        assert len(lengths) > 1

    def test_overlap_is_a_probability_and_ranks_fit(self, setting) -> None:
        _, _, reference, drafts = setting
        overlap = drafts.overlap[~np.isnan(drafts.overlap)]
        assert ((overlap >= -1e-9) & (overlap <= 1 + 1e-6)).all()
        top = drafts.top4_ids.reshape(reference.anchors, K, 4)
        y = np.array(reference.realised)
        for anchor in range(reference.anchors):
            for depth in range(K):
                rank = drafts.path_rank[anchor, depth]
                if 0 <= rank < 4 and anchor + depth + 1 < len(y):
                    # Ties may order the candidates either way, but the token is among them.
                    assert y[anchor + depth + 1] in top[anchor, depth]

    def test_confidence_is_between_0_and_1(self, setting) -> None:
        *_, drafts = setting
        scores = drafts.confidence[~np.isnan(drafts.confidence)]
        assert ((scores >= 0) & (scores <= 1)).all()
