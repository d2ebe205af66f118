"""A chain while it is drafted: what every autoregressive drafter keeps of it."""

from __future__ import annotations

import numpy as np
import torch

from specviz.engine.picking import Pick
from specviz.engine.protocols import Draft
from specviz.engine.sampling import in_full
from specviz.policies import DraftView, Plan


class Growing:
    """Tokens picked so far, with the drafter's own numbers for each.

    Examples
    --------
    >>> from specviz.engine.picking import ARGMAX
    >>> chain = Growing(9, ARGMAX)
    >>> chain.add(torch.tensor([0.0, 1.0]))
    1
    >>> chain.draft().tokens
    (1,)
    """

    def __init__(self, anchor: int, pick: Pick) -> None:
        self.anchor, self._pick = anchor, pick
        self.tokens: list[int] = []
        self.logq: list[float] = []
        self.entropy: list[float] = []
        self._rows: list[torch.Tensor] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, logits: torch.Tensor) -> int:
        """Pick the next token from logits [vocabulary]."""
        wide = in_full(logits)
        logp = wide.log_softmax(-1)
        token, q = self._pick(wide, len(self.tokens))
        self.tokens.append(token)
        self.logq.append(float(logp[token]))
        self.entropy.append(float(torch.special.entr(logp.exp()).sum()))
        if q is not None:
            self._rows.append(q)
        return token

    def view(self, plan: Plan) -> DraftView:
        """What a policy is shown."""
        return DraftView(plan, self.logq, self.entropy, np.exp(self.logq).tolist())

    def draft(self) -> Draft:
        q = torch.stack(self._rows) if self._rows else None
        confidence = np.exp(self.logq).tolist()
        return Draft.chain(self.anchor, self.tokens, self.logq, self.entropy, confidence, q)
