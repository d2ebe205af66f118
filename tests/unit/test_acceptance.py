"""The lossless rules: worked numbers, what bounds them, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.engine.acceptance import Greedy, Rejection, SampleMatch, SharedNoise, residual
from specviz.engine.block_verify import BlockVerify
from specviz.engine.lossy import Lenience
from specviz.engine.multi_draft import RecursiveRejection
from specviz.engine.protocols import Acceptance, Draft, Rows, Verdict
from specviz.engine.sampling import Sampling
from tests.unit.test_acceptance_exact import outcomes

P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
SAMPLING = (
    SampleMatch(),
    SharedNoise(),
    Rejection(),
    BlockVerify(),
    RecursiveRejection(True),
    RecursiveRejection(False),
)
USES_Q = SAMPLING[2:]
names = lambda rule: rule.name  # noqa: E731 - test ids


def tensor(rows: Any) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def chains(p: Sequence[float], q: Sequence[float], k: int) -> Iterator[tuple[float, Draft]]:
    """Every chain drawn from the same q at each depth, with its probability."""
    for tokens in product(range(len(q)), repeat=k):
        chance = float(np.prod([q[token] for token in tokens]))
        if chance > 0:
            yield chance, Draft.chain(0, tokens, q=tensor([q] * k))


def pairs(q: Sequence[float], replacement: bool) -> Iterator[tuple[float, Draft]]:
    for x, y in product(range(len(q)), repeat=2):
        if replacement or x != y:
            chance = q[x] * (q[y] if replacement else q[y] / (1 - q[x]))
            yield chance, Draft(0, (x, y), (-1, -1), (0.0, 0.0), q=tensor([q, q]))


def accepted(rule: Any, p: Sequence[float], drafts: Iterator[tuple[float, Draft]]) -> float:
    """Mean accepted tokens per round, without the bonus, when p is the same everywhere."""
    return sum(
        drafting * chance * len(verdict.path)
        for drafting, draft in drafts
        for chance, verdict in outcomes(rule, draft, tensor([p] * (len(draft) + 1)))
    )


def test_rejection_by_hand() -> None:
    """F3.1: alpha = .7, and what is rejected is replaced by token 0."""
    assert accepted(Rejection(), P, chains(P, Q, 1)) == pytest.approx(0.7)
    assert residual(tensor(P), tensor(Q)).tolist() == pytest.approx([0.3, 0, 0])
    draft = Draft.chain(0, [2], q=tensor([Q]))
    law = list(outcomes(Rejection(), draft, tensor([P, P])))
    rejected = [(chance, v) for chance, v in law if not v.path]
    assert rejected == [(pytest.approx(0.6), Verdict((), 0, False))]
    assert sum(chance for chance, v in law if v.path) == pytest.approx(0.4)
    assert all(v.full for _, v in law if v.path)
    assert accepted(Rejection(), P, chains(P, P, 1)) == pytest.approx(1)


def test_sample_match_by_hand() -> None:
    """F3.2: .29 against .7, and .38 against 1 for the same law twice."""
    assert accepted(SampleMatch(), P, chains(P, Q, 1)) == pytest.approx(0.29)
    assert accepted(SampleMatch(), P, chains(P, P, 1)) == pytest.approx(0.38)
    for token, p in enumerate(P):  # a point draft loses nothing
        draft = Draft.chain(0, [token])
        for rule in (SampleMatch(), Rejection(), BlockVerify()):
            assert accepted(rule, P, iter([(1.0, draft)])) == pytest.approx(p)


def test_block_verification_by_hand() -> None:
    """F3.5: token-level 10/9, block 11/9 of at most 12/9."""
    p, q = [1 / 3, 2 / 3], [2 / 3, 1 / 3]
    assert accepted(Rejection(), p, chains(p, q, 2)) == pytest.approx(10 / 9)
    assert accepted(BlockVerify(), p, chains(p, q, 2)) == pytest.approx(11 / 9)
    ceiling = sum(
        np.minimum(*(np.prod(list(product(law, repeat=i)), axis=1) for law in (p, q))).sum()
        for i in (1, 2)
    )
    assert ceiling == pytest.approx(12 / 9)


def test_recursive_rejection_by_hand() -> None:
    """F3.6: two drafts for one position, .76 with and .82 without replacement."""
    assert accepted(RecursiveRejection(True), P, pairs(Q, True)) == pytest.approx(0.76)
    assert accepted(RecursiveRejection(False), P, pairs(Q, False)) == pytest.approx(0.82)
    best = Draft(0, (0, 1), (-1, -1), (0.0, 0.0))  # the two best of p, without chance
    for replacement in (True, False):
        rule = RecursiveRejection(replacement)
        assert accepted(rule, P, iter([(1.0, best)])) == pytest.approx(0.8)
        assert accepted(rule, P, chains(P, Q, 1)) == pytest.approx(0.7)


laws = st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any)


def normal(weights: Sequence[int]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


@settings(max_examples=40, deadline=None)
@given(laws, laws)
def test_rejection_keeps_the_overlap_and_emits_p(left: list[int], right: list[int]) -> None:
    p, q = normal(left), normal(right)
    overlap = float(np.minimum(p, q).sum())
    for rule in (Rejection(), BlockVerify(), RecursiveRejection(True), RecursiveRejection(False)):
        assert accepted(rule, p, chains(p, q, 1)) == pytest.approx(overlap, abs=1e-12)
    emitted = np.zeros(3)
    for drafting, draft in chains(p, q, 1):
        for chance, verdict in outcomes(Rejection(), draft, tensor([p, p])):
            emitted[draft.tokens[0] if verdict.path else verdict.token] += drafting * chance
    assert emitted == pytest.approx(p, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(laws, laws)
def test_block_verification_keeps_at_least_as_much(left: list[int], right: list[int]) -> None:
    p, q = normal(left), normal(right)
    token, block = (accepted(rule, p, chains(p, q, 2)) for rule in (Rejection(), BlockVerify()))
    formula = sum(
        chance * (min(1, (r := p[x] / q[x])) + min(1, min(1, r) * p[y] / q[y]))
        for x, y in product(range(3), repeat=2)
        if (chance := q[x] * q[y]) > 0
    )
    assert block == pytest.approx(formula, abs=1e-12)
    assert block >= token - 1e-12


@settings(max_examples=25, deadline=None)
@given(laws, laws)
def test_recursive_rejection_emits_p(left: list[int], right: list[int]) -> None:
    p, q = normal(left), normal(right)
    for replacement in (True, False):
        if not replacement and max(q) == 1:
            continue  # two cannot be drawn from one without replacement
        emitted = np.zeros(3)
        for drafting, draft in pairs(q, replacement):
            if drafting > 0:
                rule = RecursiveRejection(replacement)
                for chance, verdict in outcomes(rule, draft, tensor([p] * 3)):
                    kept = [draft.tokens[node] for node in verdict.path]
                    emitted[[*kept, verdict.token][0]] += drafting * chance
        assert emitted == pytest.approx(p, abs=1e-12)


def random_case(rule: Any, seed: int, tree: bool) -> tuple[Draft, Rows]:
    """A draft of three nodes over five tokens, with distinct siblings."""
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(4, 5)))
    parents = (-1, -1, 0) if tree else (-1, 0, 1)
    x, y = rng.permutation(5)[:2]
    tokens = (int(x), int(y), int(rng.integers(5)))
    q = torch.from_numpy(rng.normal(size=(4, 5))).softmax(-1)[[p + 1 for p in parents]]
    return Draft(0, tokens, parents, (0.0,) * 3, q=q), Rows(logits)


def call(rule: Any, draft: Draft, rows: Rows, seed: int = 0) -> Verdict:
    return rule(draft, rows, torch.Generator().manual_seed(seed))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SAMPLING), st.booleans())
def test_the_same_seed_gives_the_same_verdict(seed: int, rule: Any, tree: bool) -> None:
    tree = tree and rule.name not in ("rejection", "block")
    draft, rows = random_case(rule, seed, tree)
    assert call(rule, draft, rows, seed) == call(rule, draft, rows, seed)
    assert len({call(rule, draft, rows, other).token for other in range(40)}) > 1


@pytest.mark.parametrize("rule", SAMPLING, ids=names)
def test_at_temperature_0_every_rule_is_greedy(rule: Any) -> None:
    cold = type(rule)(rule.replacement) if isinstance(rule, RecursiveRejection) else type(rule)()
    object.__setattr__(cold, "sampling", Sampling(temperature=0))
    for seed in range(60):
        for tree in [False] if rule.name in ("rejection", "block") else [False, True]:
            draft, rows = random_case(rule, seed, tree)
            assert call(cold, draft, rows) == call(Greedy(), draft, rows)


@pytest.mark.parametrize("rule", SAMPLING, ids=names)
def test_an_empty_draft_is_a_plain_step(rule: Any) -> None:
    assert isinstance(rule, Acceptance)
    assert rule.lossless
    for token in range(3):
        logits = torch.full((1, 3), -torch.inf)
        logits[0, token] = 0
        assert call(rule, Draft(0), Rows(logits)) == Verdict((), token, full=True)


@pytest.mark.parametrize("rule", SAMPLING, ids=names)
def test_a_certain_target_keeps_its_own_token(rule: Any) -> None:
    rows = Rows(torch.tensor([[-50.0, 50.0], [50.0, -50.0]]))
    assert call(rule, Draft.chain(0, [1]), rows) == Verdict((0,), 0, full=True)
    assert call(rule, Draft.chain(0, [0]), rows) == Verdict((), 1, full=False)


@pytest.mark.parametrize("rule", SAMPLING, ids=names)
def test_what_does_not_fit_together_is_refused(rule: Any) -> None:
    draft = Draft.chain(0, [1], q=torch.full((1, 3), 1 / 3))
    with pytest.raises(ValueError, match="2 rows, not 1"):
        call(rule, draft, Rows(torch.zeros(1, 3)))
    with pytest.raises(ValueError, match=r"q must be \[1, 4\].*not \[1, 3\]"):
        call(rule, draft, Rows(torch.zeros(2, 4)))


@pytest.mark.parametrize("rule", USES_Q, ids=names)
def test_a_token_that_q_rules_out_is_refused(rule: Any) -> None:
    draft = Draft.chain(0, [1], q=tensor([[0.5, 0, 0.5]]))
    with pytest.raises(ValueError, match=r"token 1 \(node 0\) has q = 0"):
        call(rule, draft, Rows(torch.zeros(2, 3)))


@pytest.mark.parametrize("rule", [Rejection(), BlockVerify(), Lenience(0.5)], ids=names)
def test_chain_rules_refuse_trees(rule: Any) -> None:
    tree = Draft(0, (0, 1), (-1, -1), (0.0, 0.0))
    with pytest.raises(ValueError, match=f"{rule.name} rule takes a chain"):
        call(rule, tree, Rows(torch.zeros(3, 3)))


def test_the_same_sibling_twice_cannot_be_drawn_without_replacement() -> None:
    twice = Draft(0, (1, 1), (-1, -1), (0.0, 0.0), q=tensor([Q, Q]))
    rows = Rows(torch.tensor([[0.0, -50.0, 0.0]] * 3))  # so that the elder one is refused
    with pytest.raises(ValueError, match="without replacement"):
        call(RecursiveRejection(False), twice, rows)
    assert call(RecursiveRejection(True), twice, rows).path == ()


@pytest.mark.parametrize("rule", USES_Q, ids=names)
def test_half_precision_rows_and_a_draft_that_matches_them(rule: Any) -> None:
    """q = p: everything is kept, in fp32 as well, and rounding raises nothing."""
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    q = rule.sampling.probs(logits)[:3]
    draft = Draft.chain(0, q.argmax(-1).tolist(), q=q)
    for seed in range(30):
        assert call(rule, draft, Rows(logits), seed).path == (0, 1, 2)


def test_nothing_is_left_of_p_that_q_covers() -> None:
    p = tensor([0.25, 0.75])
    assert residual(p, p).tolist() == p.tolist()
    assert residual(p, tensor([0.3, 0.8])).tolist() == p.tolist()
