"""Lossless rules leave the target's law as it is: by enumeration, and by many seeded draws.

Every draft that a toy drafter can make, times every outcome of the rule's coins and draws,
gives the exact law of what a round emits; the target's own continuation fills it up to a
fixed length. It must be the target's law, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import specviz.engine.acceptance as acceptance_module
import specviz.engine.block_verify as block_module
import specviz.engine.multi_draft as multi_module
from specviz.drafters.markov import MarkovDrafter
from specviz.drafters.ngram import NGram
from specviz.engine.acceptance import Greedy, Rejection, SampleMatch, SharedNoise
from specviz.engine.block_verify import BlockVerify
from specviz.engine.loop import generate
from specviz.engine.multi_draft import RecursiveRejection
from specviz.engine.protocols import Draft, Rows, Verdict
from specviz.engine.sampling import Dice, Sampling, race, shared_noise
from specviz.engine.tree_drafts import SampledTree, Trie
from specviz.engine.tree_shapes import BestFirst
from specviz.policies import FixedK, FixedTree, Plan
from specviz.targets.toy import MarkovModel, ToyTarget

V = 4
TEXT = (2, 0)  # the last token is the anchor
TARGET = MarkovModel.random(V, order=2, sharpness=1.0, seed=11)
DRAFTER = MarkovModel.random(V, order=2, sharpness=1.0, seed=12)
SHAPES = {
    "chain-1": (-1,),
    "chain-2": (-1, 0),
    "chain-3": (-1, 0, 1),
    "pair": (-1, -1),
    "triple": (-1, -1, -1),
    "deep-left": (-1, -1, 0, 0),
    "one-each": (-1, -1, 0, 1),
}
CHAINS = [name for name in SHAPES if name.startswith("chain")]
TREES = [name for name in SHAPES if name not in CHAINS]


class Script:
    """Dice that follow a script, and note which other scripts there are."""

    def __init__(self, script: Sequence[tuple[Any, float]], others: list[Any]) -> None:
        self.script, self.others = list(script), others
        self.step, self.chance = 0, 1.0

    def coin(self, chance: float) -> bool:
        return self._next([(True, chance), (False, 1 - chance)])

    def draw(self, weights: torch.Tensor) -> int:
        return self._next(list(enumerate((weights / weights.sum()).tolist())))

    def _next(self, options: list[tuple[Any, float]]) -> Any:
        if self.step == len(self.script):
            first, *rest = [option for option in options if option[1] > 0]
            self.others += [[*self.script, other] for other in rest]
            self.script.append(first)
        value, chance = self.script[self.step]
        self.step += 1
        self.chance *= chance
        return value


def outcomes(rule: Any, draft: Draft, p: torch.Tensor) -> Iterator[tuple[float, Verdict]]:
    """Every verdict a rule can give, with its exact probability."""
    todo: list[Any] = [[]]
    while todo:
        dice = Script(todo.pop(), todo)
        verdict = rule.decide(draft, p, dice)
        yield dice.chance, verdict


@cache
def rows_of(model: MarkovModel, parents: tuple[int, ...], tokens: tuple[int, ...]) -> torch.Tensor:
    """ln p after the anchor and after every node, [1 + n, V]."""
    texts: list[tuple[int, ...]] = [TEXT]
    for token, parent in zip(tokens, parents, strict=True):
        texts.append((*texts[parent + 1], token))
    return torch.stack([model.logits(text) for text in texts])


def p_of(draft: Draft) -> torch.Tensor:
    return rows_of(TARGET, draft.parents, draft.tokens).exp()


def make(parents: tuple[int, ...], tokens: Sequence[int], with_q: bool = True) -> Draft:
    q = rows_of(DRAFTER, parents, tuple(tokens)).exp()[[parent + 1 for parent in parents]]
    n = len(tokens)
    return Draft(TEXT[-1], tuple(tokens), parents, (0.0,) * n, q=q if with_q else None)


def drawn(parents: tuple[int, ...], replacement: bool) -> Iterator[tuple[float, Draft]]:
    """Every draft of this shape that can be drawn, with its probability."""
    for tokens in product(range(V), repeat=len(parents)):
        draft, chance = make(parents, tokens), 1.0
        for node, token in enumerate(tokens):
            elder = [tokens[i] for i in range(node) if parents[i] == parents[node]]
            q = rows_of(DRAFTER, parents, tokens)[parents[node] + 1].exp()
            if not replacement:
                q[elder] = 0
            chance *= float(q[token] / q.sum())
        if chance > 0:
            yield chance, draft


def point(parents: tuple[int, ...], with_q: bool = False) -> Iterator[tuple[float, Draft]]:
    """The r-th likeliest token for the r-th sibling."""
    tokens: list[int] = []
    for node, parent in enumerate(parents):
        rank = parents[:node].count(parent)
        row = rows_of(DRAFTER, parents[:node], tuple(tokens))[parent + 1]
        tokens.append(int(row.argsort(descending=True)[rank]))
    yield 1.0, make(parents, tokens, with_q)


def pruned(parents: tuple[int, ...]) -> Iterator[tuple[float, Draft]]:
    """Drawn, then cut after a token 0: the length depends on what was drafted."""
    for chance, draft in drawn(parents, True):
        n = draft.tokens.index(0) + 1 if 0 in draft.tokens else len(draft)
        q = None if draft.q is None else draft.q[:n]
        yield chance, Draft.chain(draft.anchor, draft.tokens[:n], q=q)


def without_q(drafts: Iterator[tuple[float, Draft]]) -> Iterator[tuple[float, Draft]]:
    for chance, draft in drafts:
        yield chance, replace(draft, q=None)


@cache
def future(text: tuple[int, ...], n: int) -> np.ndarray:
    """The target's law of the next n tokens, [V] * n."""
    if n == 0:
        return np.array(1.0)
    p = TARGET.logits(text).exp().numpy()
    return np.stack([p[token] * future((*text[-1:], token), n - 1) for token in range(V)])


def emitted_law(rule: Any, drafts: Iterator[tuple[float, Draft]], length: int) -> np.ndarray:
    law = np.zeros((V,) * length)
    for drafting, draft in drafts:
        for chance, verdict in outcomes(rule, draft, p_of(draft)):
            tokens = (*(draft.tokens[node] for node in verdict.path), verdict.token)
            law[tokens] += drafting * chance * future((*TEXT, *tokens)[-2:], length - len(tokens))
    return law


def error(rule: Any, drafts: Iterator[tuple[float, Draft]], shape: str) -> float:
    length = 1 + max(make(SHAPES[shape], (0,) * len(SHAPES[shape])).depths())
    return float(np.abs(emitted_law(rule, drafts, length) - future(TEXT, length)).max())


RULES: dict[str, tuple[Any, bool, list[str]]] = {  # rule, drawn with replacement, shapes
    "sample-match": (SampleMatch(), True, [*CHAINS, *TREES]),
    "rejection": (Rejection(), True, CHAINS),
    "block": (BlockVerify(), True, CHAINS),
    "recursive-with": (RecursiveRejection(True), True, [*CHAINS, *TREES]),
    "recursive-without": (RecursiveRejection(False), False, [*CHAINS, *TREES]),
}
CASES = [(name, shape) for name, (_, _, shapes) in RULES.items() for shape in shapes]
#: Where each rule finds the residual it draws from.
PLACES: dict[str, Any] = {
    "rejection": acceptance_module,
    "block": block_module,
    "recursive-with": multi_module,
    "recursive-without": multi_module,
}


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_law_of_the_output_is_the_targets(name: str, shape: str) -> None:
    rule, replacement, _ = RULES[name]
    assert rule.lossless
    drafts = list(drawn(SHAPES[shape], replacement))
    assert sum(chance for chance, _ in drafts) == pytest.approx(1)
    assert error(rule, iter(drafts), shape) < 1e-12
    assert error(rule, point(SHAPES[shape]), shape) < 1e-12


@pytest.mark.parametrize("name", RULES)
def test_without_q_any_draft_will_do(name: str) -> None:
    rule, _, shapes = RULES[name]
    shape = "deep-left" if "deep-left" in shapes else "chain-2"
    # Distinct siblings, but drawn in a way that no row tells.
    assert error(rule, without_q(drawn(SHAPES[shape], False)), shape) < 1e-12


@pytest.mark.parametrize("name", RULES)
def test_when_to_stop_may_depend_on_what_was_drafted(name: str) -> None:
    assert error(RULES[name][0], pruned(SHAPES["chain-3"]), "chain-3") < 1e-12


@pytest.mark.parametrize("name", PLACES)
def test_a_wrong_residual_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, replacement, shapes = RULES[name]
    monkeypatch.setattr(PLACES[name], "residual", lambda p, q: p)
    for shape in shapes:
        assert error(rule, drawn(SHAPES[shape], replacement), shape) > 0.01


def test_a_draft_must_be_drawn_as_the_rule_assumes() -> None:
    parents = SHAPES["pair"]
    assert error(RecursiveRejection(True), drawn(parents, False), "pair") > 0.01
    with pytest.raises(ValueError, match="without replacement"):
        error(RecursiveRejection(False), drawn(parents, True), "pair")
    # The argmax is not drawn from the softmax: such a drafter has to leave q out.
    for rule in (Rejection(), BlockVerify(), RecursiveRejection(True)):
        assert error(rule, point(SHAPES["chain-2"], with_q=True), "chain-2") > 0.01
        assert error(rule, point(SHAPES["chain-2"]), "chain-2") < 1e-12


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    """p-value of counts under a law; cells that expect fewer than 5 are pooled."""
    counts, expected = counts.ravel(), law.ravel() * counts.sum()
    small = expected < 5
    if small.any():
        counts = np.append(counts[~small], counts[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


def draw_draft(parents: tuple[int, ...], replacement: bool, dice: Dice) -> Draft:
    tokens: list[int] = []
    for node, parent in enumerate(parents):
        q = rows_of(DRAFTER, parents[:node], tuple(tokens))[parent + 1].exp()
        if not replacement:
            q[[tokens[i] for i in range(node) if parents[i] == parent]] = 0
        tokens.append(dice.draw(q))
    return make(parents, tokens)


def sampled_counts(
    call: Callable[[Draft, Rows, torch.Generator], Verdict],
    shape: str,
    replacement: bool,
    draws: int,
) -> np.ndarray:
    """Counts [V, V] of the first two tokens emitted, in many seeded rounds."""
    rng = torch.Generator().manual_seed(1)
    dice = Dice(torch.Generator().manual_seed(2))
    counts = np.zeros((V, V))
    for _ in range(draws):
        draft = draw_draft(SHAPES[shape], replacement, dice)
        verdict = call(draft, Rows(rows_of(TARGET, draft.parents, draft.tokens)), rng)
        tokens = [*(draft.tokens[node] for node in verdict.path), verdict.token]
        if len(tokens) == 1:
            tokens.append(dice.draw(TARGET.logits((*TEXT, *tokens)).exp()))
        counts[tokens[0], tokens[1]] += 1
    return counts


@pytest.mark.parametrize("name", RULES)
def test_seeded_draws_follow_the_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real dice, not the script; and enough of them to see a wrong residual."""
    rule, replacement, shapes = RULES[name]
    shape = "deep-left" if "deep-left" in shapes else "chain-2"
    law = future(TEXT, 2)
    assert chi_square(sampled_counts(rule, shape, replacement, 1000), law) > 1e-3
    if name in PLACES:
        monkeypatch.setattr(PLACES[name], "residual", lambda p, q: p)
        assert chi_square(sampled_counts(rule, shape, replacement, 1000), law) < 1e-10


# ---- shared noise: the output is a function of the seed --------------------------------


def noisy_decode(seed: int, n: int) -> list[int]:
    """Plain decoding by the position-keyed race."""
    text = list(TEXT)
    for position in range(n):
        text.append(race(TARGET.logits(text).exp(), shared_noise(seed, position, V)))
    return text[len(TEXT) :]


def noisy_draft(parents: tuple[int, ...], seed: int, eldest_shares: bool) -> Draft:
    """Eldest siblings run q against the shared noise of their depth, the others do not."""
    tokens: list[int] = []
    depths = make(parents, (0,) * len(parents)).depths()
    for node, parent in enumerate(parents):
        row = rows_of(DRAFTER, parents[:node], tuple(tokens))[parent + 1].exp()
        elder = parent in parents[:node]
        key = seed if eldest_shares and not elder else seed + 999 + node
        tokens.append(race(row, shared_noise(key, depths[node] - 1, V)))
    return make(parents, tokens)


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_shared_noise_emits_the_plain_tokens(shape: str, shares: bool) -> None:
    kept = []
    for seed in range(60):
        draft = noisy_draft(SHAPES[shape], seed, shares)
        logits = rows_of(TARGET, draft.parents, draft.tokens)
        verdict = SharedNoise()(draft, Rows(logits), torch.Generator().manual_seed(seed))
        tokens = [*(draft.tokens[node] for node in verdict.path), verdict.token]
        assert tokens == noisy_decode(seed, len(tokens))
        kept.append(len(verdict.path))
    assert sum(kept) > 0


def test_the_race_follows_p() -> None:
    counts = np.zeros((V, V))
    for seed in range(2000):
        counts[tuple(noisy_decode(seed, 2))] += 1
    assert chi_square(counts, future(TEXT, 2)) > 1e-3


# ---- live ----------------------------------------------------------------------------


CHAIN = FixedK(2)
CHOSEN, SAMPLED, COPIED = (
    FixedTree(shape) for shape in (BestFirst(4, depth=2), SampledTree((2, 2)), Trie(4, depth=2))
)
FOLLOWING = (SampleMatch(), SharedNoise())
COMPARING = (Rejection(), BlockVerify())
RECURSIVE = (RecursiveRejection(True), RecursiveRejection(False))
LIVE = [
    *((rule, "markov", CHAIN) for rule in (*FOLLOWING, *COMPARING, *RECURSIVE)),
    *((rule, "markov", CHOSEN) for rule in (*FOLLOWING, *RECURSIVE)),
    *((rule, "markov", SAMPLED) for rule in RECURSIVE),
    *((rule, "ngram", CHAIN) for rule in (*FOLLOWING, *COMPARING, *RECURSIVE)),
    *((rule, "ngram", COPIED) for rule in (*FOLLOWING, *RECURSIVE)),
]


def live(rule: Any, drafter: str, policy: Any, seed: int, n: int) -> Any:
    return generate(
        ToyTarget(TARGET),
        NGram() if drafter == "ngram" else MarkovDrafter(DRAFTER),
        (*TEXT, *TEXT, *TEXT),  # something to copy
        policy=policy,
        acceptance=rule,
        max_new_tokens=n,
        seed=seed,
        instrument=False,
    ).finish()


@pytest.mark.parametrize(
    ("rule", "drafter", "policy"), LIVE, ids=lambda x: x if isinstance(x, str) else x.name
)
def test_live_runs_follow_the_law(rule: Any, drafter: str, policy: Any) -> None:
    counts = np.zeros((V, V, V))
    accepted = 0
    for seed in range(300):
        run = live(rule, drafter, policy, seed, 4)
        counts[tuple(run.token_ids[1:])] += 1
        accepted += sum(each.accepted for each in run.log)
    first = TARGET.logits(TEXT).exp().numpy()
    law = sum(first[y] * future((TEXT[-1], y), 3) for y in range(V))
    assert chi_square(counts, law) > 1e-3
    assert accepted > 50


def test_a_softmax_passed_for_what_an_argmax_was_drawn_from_is_noticed() -> None:
    """Why chosen drafts carry no q: with it, rejection is no longer lossless."""

    class Pretending(MarkovDrafter):
        def propose(self, context: Any, plan: Plan, more: Any, pick: Any = None) -> Draft:
            draft = super().propose(context, plan, more)
            texts = [[*context, *draft.tokens[:i]] for i in range(len(draft))]
            q = [self.model.logits(text).exp() for text in texts]
            return replace(draft, q=torch.stack(q)) if q else draft

    counts = np.zeros((V, V, V))
    for seed in range(600):
        run = generate(
            ToyTarget(TARGET),
            Pretending(DRAFTER),
            TEXT,
            policy=FixedK(2),
            acceptance=Rejection(),
            max_new_tokens=4,
            seed=seed,
            instrument=False,
        )
        counts[tuple(run.finish().token_ids[1:])] += 1
    first = TARGET.logits(TEXT).exp().numpy()
    law = sum(first[y] * future((TEXT[-1], y), 3) for y in range(V))
    assert chi_square(counts, law) < 1e-10


def test_live_shared_noise_depends_on_the_seed_only() -> None:
    rule = SharedNoise()
    plain = live(rule, "markov", FixedK(0), 7, 25)
    assert plain.token_ids == noisy_decode(7, 25)
    for policy, name in ((FixedK(1), "markov"), (FixedK(3), "ngram"), (CHOSEN, "markov")):
        run = live(rule, name, policy, 7, 25)
        assert run.token_ids == plain.token_ids
        assert run.certificate.equal
    assert live(rule, "markov", FixedK(3), 8, 25).token_ids != plain.token_ids


def test_a_drafter_in_the_same_race_is_kept_more_often_than_an_argmax() -> None:
    def accepted(rule: Any) -> int:
        runs = [live(rule, "markov", FixedK(3), seed, 40) for seed in range(20)]
        return sum(each.accepted for run in runs for each in run.log)

    assert accepted(SharedNoise()) > 1.05 * accepted(SampleMatch())


def test_sample_match_depends_on_the_seed_only() -> None:
    runs = [live(SampleMatch(), "markov", policy, 3, 25) for policy in (FixedK(0), CHAIN, CHOSEN)]
    assert len({tuple(run.token_ids) for run in runs}) == 1
    assert all(run.certificate.equal for run in runs)


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_emits_the_argmax_tokens(shape: str) -> None:
    text = list(TEXT)
    for _ in range(4):
        text.append(int(TARGET.logits(text).argmax()))
    plain = text[len(TEXT) :]
    for _, draft in drawn(SHAPES[shape], True):
        logits = rows_of(TARGET, draft.parents, draft.tokens)
        verdict = Greedy()(draft, Rows(logits), torch.Generator())
        tokens = [*(draft.tokens[node] for node in verdict.path), verdict.token]
        assert tokens == plain[: len(tokens)]


@pytest.mark.parametrize("name", RULES)
def test_truncated_laws_are_kept_too(name: str) -> None:
    """p and q through one Sampling: tokens that p or q rules out stay out."""
    rule, _, _ = RULES[name]
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.8)
    rule = replace(rule, sampling=sampling)
    q = sampling.probs(DRAFTER.logits(TEXT)[None])
    p = sampling.probs(rows_of(TARGET, (), ()))[0]
    law = torch.zeros_like(p)
    for token in range(V):
        if q[0, token] > 0:
            draft = Draft.chain(TEXT[-1], [token], q=q)
            rows = sampling.probs(rows_of(TARGET, draft.parents, draft.tokens))
            for chance, verdict in outcomes(rule, draft, rows):
                law[token if verdict.path else verdict.token] += q[0, token] * chance
    torch.testing.assert_close(law, p)
    assert 0 in p.tolist()
