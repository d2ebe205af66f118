"""Drafters that know the answer, perfectly or with a set share of errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specviz.drafters.assemble import no_drafts, point_columns
from specviz.engine.inputs import Ids, fingerprint_of
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree_drafts import refuse_tree
from specviz.policies import DraftView, Plan
from specviz.refuse import whole


class Oracle:
    """Drafts the target's own output, each token right with probability `match`.

    Whether output token t is drafted rightly is decided once, from the seed and t, so the
    same draft comes from every anchor and M(a) is the distance to the next error: with
    `match` = alpha the i.i.d. formula (F2.2) is exact for it.

    Parameters
    ----------
    match
        Probability that a drafted token is the target's; 1 is the perfect oracle.
    seed
        Decides which tokens are wrong.

    Notes
    -----
    Live, it must be told the answer first: `oracle.know(prompt_ids, output_ids)`. Capture
    tells it by itself.
    """

    taps: tuple[int, ...] = ()
    simulated_cost = True

    def __init__(
        self, match: float = 1.0, seed: int = 0, max_k: int = 15, name: str | None = None
    ) -> None:
        if not 0 <= match <= 1:
            raise ValueError(f"match is a probability between 0 and 1, not {match}.")
        self.match, self.seed, self.max_k = match, seed, whole("max_k", max_k, 1)
        self.name = name or ("oracle" if match == 1 else f"oracle-{match:g}")
        self.caption = f"knows the output; each token right with probability {match:g}"
        self.fingerprint = fingerprint_of("oracle", match, seed)
        self._vocab_size = 0
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._prompt: tuple[int, ...] = ()

    def know(self, prompt: Ids, output: Ids) -> Oracle:
        """Learn the target's output for a prompt (token ids); returns itself."""
        self._known[tuple(prompt)] = tuple(output)
        return self

    def attach(self, target: Target) -> None:
        self._vocab_size = target.vocab_size

    def start(self, prompt: Ids, rows: Rows) -> None:
        self._prompt = tuple(prompt)
        if self._prompt not in self._known:
            raise ValueError(
                "The oracle does not know this prompt's output: decode it first and call "
                "oracle.know(prompt_ids, output_ids)."
            )

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        pass

    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        refuse_tree(plan, self.name)
        answer = self._known[self._prompt]
        done = len(context) - len(self._prompt)
        right = answer[done : done + min(plan.k, self.max_k)]
        tokens = [self._token(done + i, token) for i, token in enumerate(right)]
        zeros, ones = [0.0] * len(tokens), [1.0] * len(tokens)
        for depth in range(1, len(tokens)):
            if not more(DraftView(plan, zeros[:depth], zeros[:depth], ones[:depth])):
                tokens = tokens[:depth]
                break
        return Draft.chain(context[-1], tokens)

    def propose_all(self, reference: Reference, k: int) -> Drafts:
        anchors, realised = reference.anchors, reference.realised
        if anchors == 0:
            return no_drafts(k)
        noisy = np.array([self._token(t, token) for t, token in enumerate(realised)])
        where = np.arange(anchors)[:, None] + 1 + np.arange(k)[None]
        inside = where < len(realised)
        token = np.where(inside, noisy[np.minimum(where, len(realised) - 1)], -1)
        certain = np.where(inside, 0.0, np.nan)
        return Drafts(
            drafted=inside.sum(1),
            token=token,
            logq=certain,
            entropy=certain,
            confidence=np.where(inside, 1.0, np.nan),
            **point_columns(reference, noisy[1:], k),
        )

    def _token(self, t: int, right: int) -> int:
        """The drafted token at output position t: the right one, or its neighbour."""
        if self.match < 1:
            draw = np.random.default_rng((self.seed, t)).random()
            if draw >= self.match:
                return (right + 1) % self._vocab_size
        return right
