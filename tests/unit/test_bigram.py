"""The bigram drafter, exactly: what it counts, where its drafts end, how it is stored."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specviz.drafters.bigram import Bigram, fit_bigram
from specviz.engine.protocols import Reference
from specviz.policies import Plan
from tests.models import toy_pair

V = 5
texts = st.lists(
    st.tuples(
        st.lists(st.integers(0, V - 1), min_size=1, max_size=4),
        st.lists(st.integers(0, V - 1), max_size=12),
    ),
    min_size=1,
    max_size=6,
).filter(lambda given: any(answer for _, answer in given))


def draft(drafter: Bigram, last: int, k: int = 6) -> tuple[int, ...]:
    return drafter.propose([last], Plan(k), lambda view: True).tokens


def test_counts_answer_tokens_and_the_first_follows_the_prompt() -> None:
    found = fit_bigram([([0, 4, 1], [2, 1, 3]), ([3], [2])], V)
    # 1 -> 2 and 1 -> 3 once each: the smaller id. Inside the prompt nothing counts.
    assert found.after.tolist() == [-1, 2, 1, 2, -1]
    assert found.share.tolist() == [0.0, 0.5, 1.0, 1.0, 0.0]


def test_the_order_of_the_texts_does_not_matter() -> None:
    pairs = [([1], [2, 1, 3]), ([1], [3, 3]), ([0], [1, 4])]
    assert fit_bigram(pairs, V).fingerprint == fit_bigram(pairs[::-1], V).fingerprint


@given(texts)
def test_equals_the_naive_count(pairs: list[tuple[list[int], list[int]]]) -> None:
    counts = np.zeros((V, V), int)
    for prompt, answer in pairs:
        last = prompt[-1]
        for token in answer:
            counts[last, token] += 1
            last = token
    found = fit_bigram(iter(pairs), V)
    seen = counts.sum(axis=1)
    assert (found.after == np.where(seen > 0, counts.argmax(axis=1), -1)).all()
    expected = counts.max(axis=1) / np.maximum(seen, 1)
    assert (found.share == expected.astype(np.float16)).all()


def test_a_draft_ends_at_a_token_never_seen() -> None:
    table = Bigram([1, 2, -1, 3], [1.0, 0.5, 0.0, 0.75])
    assert draft(table, 0) == (1, 2)
    assert draft(table, 2) == ()
    assert draft(table, 3, k=4) == (3, 3, 3, 3)
    assert table.propose([0], Plan(6), lambda view: True).confidence == (1.0, 0.5)
    assert draft(Bigram([0], [1.0], max_k=2), 0) == (0, 0)


def test_propose_all_where_drafts_end_or_are_empty() -> None:
    table = Bigram([1, 2, -1, 0], [1.0, 0.5, 0.0, 0.25])
    output, k = (3, 0, 1, 2, 0, 3), 3
    p = torch.full((len(output), 4), 0.25, dtype=torch.float64)
    reference = Reference((2,), output, (), lambda low, high: p[low:high].log())
    drafts = table.propose_all(reference, k)
    assert drafts.drafted.tolist() == [3, 2, 1, 0, 2]
    assert drafts.token.tolist() == [[0, 1, 2], [1, 2, -1], [2, -1, -1], [-1, -1, -1], [1, 2, -1]]
    nan = np.nan
    np.testing.assert_array_equal(
        drafts.confidence,
        [[0.25, 1, 0.5], [1, 0.5, nan], [0.5, nan, nan], [nan, nan, nan], [1, 0.5, nan]],
    )
    # Forced: after 3, 0, 1 it offers the output's own token, after 2 none, after 0 not the 3.
    assert drafts.path_logq[0].tolist() == [0, 0, 0]
    assert drafts.path_rank[1].tolist() == [0, 0, -1]
    np.testing.assert_array_equal(drafts.overlap[2], [0.25, 0, 0.25])
    np.testing.assert_array_equal(drafts.path_logq[3], [nan, -np.inf, nan])
    for anchor in range(reference.anchors):
        live = table.propose([2, *output[: anchor + 1]], Plan(k), lambda view: True)
        n = drafts.drafted[anchor]
        assert list(live.tokens) == drafts.token[anchor, :n].tolist()
    alone = dataclasses.replace(reference, output=(3,))
    assert table.propose_all(alone, k).token.shape == (0, k)


def test_a_table_read_back_is_the_same_drafter() -> None:
    table = fit_bigram([([0], [1, 0, 2, 0, 1, 4, 0, 2])], V)
    tensors = table.to_tensors()
    assert tensors["after"].dtype == torch.int32
    assert tensors["share"].dtype == torch.float16
    again = Bigram.from_tensors(tensors)
    assert again.fingerprint == table.fingerprint
    assert (again.share == table.share).all()
    tensors["after"][0] = 3
    assert Bigram.from_tensors(tensors).fingerprint != table.fingerprint
    assert table.after[0] != 3


def test_the_fingerprint_changes_with_followers_and_with_shares() -> None:
    prints = {
        Bigram(after, share).fingerprint
        for after, share in [([1, 0], [1, 1]), ([0, 0], [1, 1]), ([1, 0], [1, 0.5])]
    }
    assert len(prints) == 3
    assert Bigram([1, 0], [1, 1], name="other").fingerprint in prints


def test_refuses_a_target_of_another_vocabulary() -> None:
    target, _ = toy_pair()
    with pytest.raises(ValueError, match=r"vocabulary of 5 tokens, .* has 8"):
        fit_bigram([([0], [1, 2])], V).attach(target)
    fit_bigram([([0], [1, 2])], target.vocab_size).attach(target)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fit_bigram([], V), "nothing to count"),
        (lambda: fit_bigram([([1], []), ([], [2])], V), "nothing to count"),
        (lambda: fit_bigram([([0], [1, 5])], V), "Token id 5 is outside a vocabulary of 5"),
        (lambda: fit_bigram([([-1], [1])], V), "Token id -1 is outside"),
        (lambda: fit_bigram([([0], [1])], 0), "vocab_size must be a whole number"),
        (lambda: Bigram([0, 1], [1.0]), "one follower and one share per token"),
        (lambda: Bigram([], []), "one follower and one share per token"),
        (lambda: Bigram([0, 2], [1.0, 1.0]), "from 0 to 1, or -1 for none"),
        (lambda: Bigram([0.5, 1], [1.0, 1.0]), "from 0 to 1, or -1 for none"),
        (lambda: Bigram([2**32, 1], [1.0, 1.0]), "from 0 to 1, or -1 for none"),
        (lambda: Bigram([0, 1], [1.0, np.nan]), "between 0 and 1"),
        (lambda: Bigram([0, 1], [1.0, 1.0], max_k=0), "max_k must be"),
        (lambda: Bigram.from_tensors({"after": torch.zeros(2)}), "there is no 'share'"),
    ],
)
def test_refusals(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
