"""Which drafted tokens are kept: the rules that leave the output's law as it is.

Here are the rules that follow one wish of the target at a time, and rejection sampling;
`block_verify` and `multi_draft` hold the two that look further, `lossy` those that trade the
law for length. A rule with chance in it has `decide`, a pure function of the draft, the
target's probabilities and the `Dice`.

`Draft.q` row i is the distribution that node i was drawn from, given the path to it. Without
q the draft is taken as given (a point draft), which is lossless however it was made; with the
true q more is kept. A drafter that proposes its argmax, or prunes what it drew, leaves q out:
its softmax is not what such a token was drawn from, and the output's law would be off.

At temperature 0 the target's law is one token, and every rule of this module becomes
`Greedy`. An empty draft is a plain decoding step. Rules raise ValueError when rows or q do not
belong to the draft, when q rules out a token that was drafted, and when a rule for chains
meets a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.picking import Drawn, Pick, Raced, TakesChosen
from specviz.engine.protocols import Acceptance, Draft, Rows, Verdict
from specviz.engine.sampling import GREEDY, RAW, Dice, Sampling, next_noise, one_hot, race
from specviz.engine.tree import children


@dataclass(frozen=True)
class Greedy(TakesChosen):
    """Keep the drafted tokens that the target's argmax would have produced (F3.4).

    Lossless for greedy decoding: the output is the target's own greedy output, up to ties
    that a change of batch shape decides differently. For chains and trees.
    """

    sampling: ClassVar[Sampling] = GREEDY
    name: ClassVar[str] = "greedy"
    lossless: ClassVar[bool] = True

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        best = rows.logits.argmax(-1).tolist()
        return follow(draft, lambda row: best[row])


@dataclass(frozen=True)
class SampleMatch(TakesChosen):
    """Draw the target's own token, keep a drafted one that equals it (F3.2).

    Lossless whatever the draft: the output is the target's own samples. A token d is kept
    with probability p(d), as by `Rejection` when the draft is a point draft, but with
    sum p q < sum min(p, q) when it is drawn from q. For chains and trees; q is not used.
    """

    sampling: Sampling = RAW
    name: ClassVar[str] = "sample-match"
    lossless: ClassVar[bool] = True

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        return self.decide(draft, target_probs(draft, rows, self.sampling), Dice(rng))

    def decide(self, draft: Draft, p: torch.Tensor, dice: Dice) -> Verdict:
        return follow(draft, lambda row: dice.draw(p[row]))


@dataclass(frozen=True)
class SharedNoise:
    """Draw the target's token by noise keyed to its position, keep a draft that equals it (F3.3).

    Lossless whatever the draft: y[t] is the winner of the race between the target's p and the
    noise of position t, so the output depends on the seed only, not on drafter or k, and
    counts replay as under greedy decoding. Drafts are kept often when the drafter runs its
    own q against the same noise: `specviz.engine.sampling.shared_noise` is what it needs. A
    drafter that does not is still harmless, and is kept as by `SampleMatch`. For chains and
    trees (nodes of one depth share their noise); q is not used.

    The noise of a position comes from the run's generator, one key for each emitted token:
    no one else may draw from that generator, and the token of prefill must go through the
    rule, too (as in `specviz.engine.loop`).
    """

    sampling: Sampling = RAW
    name: ClassVar[str] = "shared-noise"
    lossless: ClassVar[bool] = True

    def pick(self, seed: int, anchor: int) -> Pick:
        return Raced(self.sampling, seed, anchor)

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        p = target_probs(draft, rows, self.sampling)
        return follow(draft, lambda row: race(p[row], next_noise(rng, p.shape[-1])))


@dataclass(frozen=True)
class Rejection:
    """Keep x with probability min(1, p(x) / q(x)), else draw from (p - q)+ rescaled (F3.1).

    Lossless when every token was drawn from its q row; when to stop drafting may depend on
    what was drafted. A token is kept with probability sum min(p, q): no rule for one draft
    at one position does better. Chains only.

    Examples
    --------
    >>> rows = Rows(torch.tensor([[0.5, 0.3, 0.2]] * 2).log())
    >>> draft = Draft.chain(0, [2], q=torch.tensor([[0.2, 0.3, 0.5]]))
    >>> rng = torch.Generator().manual_seed(0)
    >>> Rejection()(draft, rows, rng)            # .4 to be kept; else only token 0 is owed
    Verdict(path=(), token=0, full=False)
    """

    sampling: Sampling = RAW
    name: ClassVar[str] = "rejection"
    lossless: ClassVar[bool] = True

    def pick(self, seed: int, anchor: int) -> Pick:
        return Drawn(self.sampling, seed, anchor)

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        return self.decide(draft, target_probs(draft, rows, self.sampling), Dice(rng))

    def decide(self, draft: Draft, p: torch.Tensor, dice: Dice) -> Verdict:
        check_chain(draft, self.name)
        return reject(draft, p, dice, lenience=1.0)


def check_acceptance(rule: object) -> None:
    """Raise ValueError unless `rule` is an acceptance rule."""
    if isinstance(rule, type) or not isinstance(rule, Acceptance):
        raise ValueError(
            f"{rule!r:.60} is not an acceptance rule: pass one such as Greedy() or Rejection()."
        )


def follow(draft: Draft, wish: Callable[[int], int]) -> Verdict:
    """Walk down the draft as long as it holds the token that `wish(row)` asks for."""
    below = children(draft.parents)
    path: list[int] = []
    here = -1
    while True:
        wanted, held = wish(here + 1), below.get(here, [])
        match = next((node for node in held if draft.tokens[node] == wanted), None)
        if match is None:
            return Verdict(tuple(path), wanted, full=not held)
        path.append(match)
        here = match


def reject(draft: Draft, p: torch.Tensor, dice: Dice, lenience: float) -> Verdict:
    """Rejection down a chain, with q times `lenience` in the ratio (1 is lossless)."""
    q = draft_probs(draft, p)
    ratios = likelihood_ratios(draft, p, q)
    for node, ratio in enumerate(ratios):
        if not dice.coin(min(1.0, ratio / lenience)):
            token = dice.draw(residual(p[node], q[node]))
            return Verdict(tuple(range(node)), token, full=False)
    return Verdict(tuple(range(len(draft))), dice.draw(p[-1]), full=True)


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """(p - q)+, unnormalised, [vocabulary]: what q does not cover of p (F3.1).

    p itself when q covers all of it: then only rounding can have rejected anything.
    """
    rest = (p - q).clamp(min=0)
    return rest if bool(rest.any()) else p


def likelihood_ratios(draft: Draft, p: torch.Tensor, q: torch.Tensor) -> list[float]:
    """p(x) / q(x) of every drafted token; refuses a token that its q cannot have drawn."""
    n = len(draft)
    tokens = torch.tensor(draft.tokens, dtype=torch.long, device=p.device)
    above = torch.tensor(draft.parents, dtype=torch.long, device=p.device) + 1
    own = q[torch.arange(n, device=p.device), tokens].tolist()
    if any(value <= 0 for value in own):
        node = next(i for i, value in enumerate(own) if value <= 0)
        raise ValueError(
            f"Drafted token {draft.tokens[node]} (node {node}) has q = {own[node]:g}: q must be "
            "the distribution it was drawn from, so give drafter and rule the same Sampling."
        )
    return [x / y for x, y in zip(p[above, tokens].tolist(), own, strict=True)]


def target_probs(draft: Draft, rows: Rows, sampling: Sampling) -> torch.Tensor:
    """The target's p, [1 + n, vocabulary]; refuses rows that do not belong to the draft."""
    p = sampling.probs(rows.logits)
    n, size = p.shape
    if n != len(draft) + 1:
        raise ValueError(f"A draft of {len(draft)} tokens has {len(draft) + 1} rows, not {n}.")
    if draft.q is not None and draft.q.shape != (len(draft), size):
        raise ValueError(
            f"q must be [{len(draft)}, {size}], a row per drafted token over the target's "
            f"vocabulary, not {list(draft.q.shape)}."
        )
    return p


def draft_probs(draft: Draft, p: torch.Tensor) -> torch.Tensor:
    """The drafter's q, [n, vocabulary] like p: point masses for a point draft."""
    if draft.q is not None:
        return draft.q.to(p)
    tokens = torch.tensor(draft.tokens, dtype=torch.long, device=p.device)
    return one_hot(tokens, p.shape[-1]).to(p)


def check_chain(draft: Draft, rule: str) -> None:
    """Raise ValueError for a draft with branches."""
    if not draft.is_chain:
        raise ValueError(
            f"The {rule} rule takes a chain, and this draft branches: use SampleMatch, "
            "SharedNoise or RecursiveRejection for trees."
        )
