"""A toy Markov chain as a drafter: exact in float64, for tests and first lessons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from specviz.drafters.assemble import no_drafts, pair_columns
from specviz.drafters.growers import MarkovGrower
from specviz.engine.chain import Growing
from specviz.engine.inputs import Ids
from specviz.engine.observe import pair_stats
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree_drafts import grow_tree
from specviz.policies import Plan
from specviz.refuse import whole
from specviz.targets.toy import MarkovModel


class MarkovDrafter:
    """Drafts chains and trees from a `MarkovModel`."""

    taps: tuple[int, ...] = ()
    simulated_cost = False

    def __init__(self, model: MarkovModel, max_k: int = 15, name: str = "markov") -> None:
        self.model, self.max_k, self.name = model, whole("max_k", max_k, 1), name
        self.caption = f"toy Markov chain of order {model.order}"
        self.fingerprint = model.fingerprint

    def attach(self, target: Target) -> None:
        if target.vocab_size != self.model.vocab_size:
            raise ValueError(
                f"{self.name} has {self.model.vocab_size} tokens, {target.name} has "
                f"{target.vocab_size}: they must be the same."
            )

    def start(self, prompt: Ids, rows: Rows) -> None:
        pass

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        pass

    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        if plan.tree is not None and plan.k:
            return grow_tree(plan.tree, MarkovGrower(self.model, context), context[-1], pick)
        text, chain = list(context), Growing(context[-1], pick)
        while len(chain) < min(plan.k, self.max_k):
            if len(chain) and not more(chain.view(plan)):
                break
            text.append(chain.add(self.model.logits(text)))
        return chain.draft()

    def propose_all(self, reference: Reference, k: int) -> Drafts:
        anchors = reference.anchors
        if anchors == 0:
            return no_drafts(k)
        text = reference.prompt + reference.realised
        start = len(reference.prompt)
        drafts = [
            self.propose(text[: start + a + 1], Plan(k), lambda view: True) for a in range(anchors)
        ]
        end = len(reference.realised)
        q = torch.stack([self.model.logits(text[: start + t]) for t in range(1, end)])
        realised = torch.tensor(reference.realised[1:])
        pairs = pair_stats(reference.logits(1, end), q, realised, reference.sampling)
        return Drafts(
            drafted=np.full(anchors, k),
            token=np.array([draft.tokens for draft in drafts]),
            logq=np.array([draft.logq for draft in drafts]),
            entropy=np.array([draft.entropy for draft in drafts]),
            confidence=np.array([draft.confidence for draft in drafts]),
            **pair_columns([pairs], anchors, k),
        )
