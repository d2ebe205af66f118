"""The drafter contract on every drafter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specviz.drafters.bigram import fit_bigram
from specviz.drafters.eagle import EagleDrafter
from specviz.drafters.lm import LMDrafter
from specviz.drafters.ngram import NGram
from specviz.drafters.oracle import Oracle
from specviz.drafters.self_draft import SelfQuant, SelfSkip
from specviz.drafters.small_lm import small_lm, trained_part
from specviz.drafters.trained import TrainedLM
from specviz.drafters.weights import Weights, sample_of
from specviz.engine.certificate import plain_decode
from specviz.engine.protocols import Drafter, Reference, Target
from specviz.engine.record import matched_lengths
from specviz.engine.tree_drafts import Trie
from specviz.policies import TreeSpec
from tests.contract.drafter_contract import DrafterContract
from tests.models import fitted_eagle, near_twin, tiny_target, tokenizer, toy_pair


def words(target: Target) -> list[int]:
    return list(target.codec.encode("the quick brown fox and the quick brown"))


class TestMarkov(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target, drafter = toy_pair()
        return target, drafter, [0, 1, 2, 3]


class TestNGram(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target, _ = toy_pair()
        return target, NGram(), [0, 1, 2, 3]

    @classmethod
    def tree(cls, depth: int) -> TreeSpec | None:
        return Trie(12, depth)


class TestBigram(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target, _ = toy_pair()
        prompts = [[first, second] for first in range(8) for second in range(8)]
        texts = [(prompt, plain_decode(target, prompt, 12)) for prompt in prompts]
        return target, fit_bigram(texts, target.vocab_size), [0, 1, 2, 3]

    @classmethod
    def tree(cls, depth: int) -> TreeSpec | None:
        return None


class TestOracle(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target, _ = toy_pair()
        return target, Oracle(0.7, seed=1), [0, 1, 2, 3]

    @classmethod
    def tree(cls, depth: int) -> TreeSpec | None:
        return None

    @classmethod
    def tell(cls, drafter: Drafter, reference: Reference) -> None:
        drafter.know(reference.prompt, reference.realised)

    def test_errors_are_where_they_are_from_every_anchor(self, setting) -> None:
        _, _, reference, drafts = setting
        matched = matched_lengths(drafts, reference.realised)
        full = matched < drafts.token.shape[1]
        # Suffix-consistency: one token later, one match fewer (F7.5).
        later = matched[:-1][full[:-1] & (matched[:-1] > 0)] - 1
        assert (matched[1:][full[:-1] & (matched[:-1] > 0)] == later).all()


class TestLM(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        return target, LMDrafter(near_twin(), tokenizer()), words(target)


class TestSelfQuant(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        return target, SelfQuant(6), words(target)


class TestSelfSkip(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        return target, SelfSkip([3]), words(target)


class TestEagle(DrafterContract):
    """A head fitted to a few answers, the contract's own among them: it must be right at times."""

    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        return target, EagleDrafter(fitted_eagle()), words(target)


class TestTrainedLM(DrafterContract):
    """Reduced vocabulary and copied layers, before any training."""

    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        said = torch.arange(0, target.vocab_size - 8)
        small = small_lm(target.model, (0, 1, 2), said)
        weights = Weights(
            "lm",
            {"layers": (0, 1, 2)},
            {**trained_part(small).state_dict(), "vocabulary": said},
            sample_of(target.model),
        )
        return target, TrainedLM(weights), words(target)


@pytest.mark.parametrize("match", [0.0, 0.6, 1.0])
def test_the_noisy_oracle_matches_as_often_as_it_says(match: float) -> None:
    oracle = Oracle(match, seed=5)
    oracle._vocab_size = 10
    right = np.mean([oracle._token(t, 3) == 3 for t in range(4000)])
    assert right == pytest.approx(match, abs=0.03)
