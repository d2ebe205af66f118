"""A language model as a drafter: any smaller transformers LM with the target's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from specviz.drafters.assemble import (
    Predictions,
    Tail,
    first_departures,
    free_columns,
    greedy_columns,
    no_drafts,
    pair_columns,
    tails_needed,
)
from specviz.drafters.growers import LMGrower
from specviz.engine.chain import Growing
from specviz.engine.inputs import Ids
from specviz.engine.observe import CHUNK, pair_stats
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree_drafts import grow_tree
from specviz.policies import Plan
from specviz.refuse import whole
from specviz.targets.slots import SlotLM, weights_fingerprint
from specviz.targets.text import check_same_tokens


class LMDrafter:
    """Drafts chains and trees with a causal LM that has its own KV cache.

    Parameters
    ----------
    model
        A transformers causal LM with the target's token map.
    tokenizer
        Its tokenizer, to check that map; None trusts the caller.
    max_k
        Most tokens drafted in a round.

    Notes
    -----
    `confidence` is q of the drafted token. The KV cache follows the text by itself (longest
    common prefix), so an interrupted round or a new run needs no reset.
    """

    taps: tuple[int, ...] = ()
    simulated_cost = False

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        name: str = "lm",
        caption: str = "",
        max_k: int = 15,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.name, self.caption, self.max_k = name, caption or name, whole("max_k", max_k, 1)
        self.lm: SlotLM | None = None
        self.fingerprint = ""  # of the weights, once attached
        self._cached: list[int] = []  # the text whose keys and values are in the cache

    def attach(self, target: Target) -> None:
        """Check the token map and make room for keys and values.

        Raises
        ------
        ValueError
            When the drafter's tokens are not the target's; the sentence names which differ.
        """
        theirs = getattr(target.codec, "tokenizer", None)
        if self.tokenizer is not None and theirs is not None:
            check_same_tokens(self.tokenizer, theirs, self.name)
        if self.lm is None or self.lm.model is not self.model:
            self.fingerprint = weights_fingerprint(self.model)
        self.lm = SlotLM(self.model, target.vocab_size)
        self._cached = []

    def start(self, prompt: Ids, rows: Rows) -> None:
        pass

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        pass

    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        k = min(plan.k, self.max_k)
        if k == 0:
            return Draft(context[-1])
        lm = self._attached()
        hidden = self._catch_up(lm, context)
        if plan.tree is not None:
            grower = LMGrower(lm, hidden[-1:], len(context))
            return grow_tree(plan.tree, grower, context[-1], pick)
        chain = Growing(context[-1], pick)
        while True:
            token = chain.add(lm.unembed(hidden[-1:])[0])
            if len(chain) == k or not more(chain.view(plan)):
                return chain.draft()
            hidden, _ = lm.forward([token], len(self._cached))
            self._cached.append(token)

    def propose_all(self, reference: Reference, k: int) -> Drafts:
        anchors = reference.anchors
        if anchors == 0:
            return no_drafts(k)
        lm = self._attached()
        text = reference.prompt + reference.realised
        self._cached = []  # an interrupted forward must not leave it claiming the old text
        hidden, _ = lm.forward(text, 0)
        self._cached = list(text)
        hidden = hidden[len(reference.prompt) :]  # row t - 1 speaks of output token t
        said, pairs = [], []
        realised = torch.tensor(reference.realised, device=hidden.device)
        for low in range(0, len(hidden), CHUNK):
            high = min(low + CHUNK, len(hidden))
            logits = lm.unembed(hidden[low:high])
            said.append(greedy_columns(logits))
            inside = min(high, len(realised) - 1) - low  # the last row has no realised token
            if inside > 0:
                p = reference.logits(low + 1, low + 1 + inside).to(logits.device)
                told = realised[low + 1 : low + 1 + inside]
                pairs.append(pair_stats(p, logits[:inside], told, reference.sampling))
        predictions = Predictions(*(np.concatenate(column) for column in zip(*said, strict=True)))
        departures = first_departures(predictions.token, reference)
        tails = self._unroll(lm, predictions, tails_needed(departures, k), reference)
        return Drafts(
            drafted=np.full(anchors, k),
            **free_columns(predictions, departures, tails, k),
            **pair_columns(pairs, anchors, k),
        )

    def tie_after(self, context: Ids, drafted: int = 0) -> tuple[float, float]:
        """Top-2 margin (nats) after `context` and the logit noise of its batch shape.

        How many of its tokens are `drafted` makes no difference to a drafter of tokens.
        Noise is the largest difference of a logit between feeding the last token alone and
        with all the others. A draft that differs between live and capture where margin <= 4
        noise is a near-tie decided by rounding (see `specviz.engine.certificate`).
        """
        lm = self._attached()
        self._cached = []
        together, _ = lm.forward(context, 0)
        among = lm.unembed(together[-1:])[0].double()
        alone, _ = lm.forward(context[-1:], len(context) - 1)
        self._cached = list(context)
        row = lm.unembed(alone)[0].double()
        best = row.topk(2).values
        said = row > -torch.inf  # a reduced vocabulary: no noise where there is no logit
        return float(best[0] - best[1]), float((row - among)[said].abs().max())

    def _unroll(
        self, lm: SlotLM, predictions: Predictions, needed: dict[int, int], reference: Reference
    ) -> dict[int, Tail]:
        """Every off-path tail at once: each step is one forward with a row per tail."""
        # Longest first, so that the tails still growing are always the first rows.
        where = sorted(needed, key=lambda position: (-needed[position], position))
        tails = {
            t: Tail(
                *(
                    [getattr(predictions, name)[t - 1].item()]
                    for name in ("token", "logq", "entropy", "confidence")
                )
            )
            for t in where
        }
        n_prompt, end = len(reference.prompt), len(self._cached)
        own: list[list[int]] = [[] for _ in where]  # slots of each tail's tokens
        slot = end
        for step in range(1, max(needed.values(), default=1)):
            growing = [t for t in where if needed[t] > step]
            visible = torch.zeros(len(growing), slot + len(growing), dtype=torch.bool)
            for row, t in enumerate(growing):
                own[row].append(slot + row)
                visible[row, : n_prompt + t] = True  # the text before the departure
                visible[row, own[row]] = True
            hidden, _ = lm.forward(
                [tails[t].token[-1] for t in growing],
                slot,
                positions=[n_prompt + t + step - 1 for t in growing],
                visible=visible,
            )
            slot += len(growing)
            for low in range(0, len(growing), CHUNK):
                columns = greedy_columns(lm.unembed(hidden[low : low + CHUNK]))
                for row, t in enumerate(growing[low : low + CHUNK]):
                    tails[t].extend(*(column[row].item() for column in columns))
        return tails

    def _catch_up(self, lm: SlotLM, context: Ids) -> torch.Tensor:
        """Feed what the cache lacks of `context`; the hidden row after its last token."""
        known = 0
        for mine, theirs in zip(self._cached, context[:-1], strict=False):
            if mine != theirs:
                break
            known += 1
        del self._cached[known:]
        hidden, _ = lm.forward(context[known:], known)
        self._cached.extend(context[known:])
        return hidden

    def _attached(self) -> SlotLM:
        if self.lm is None:
            raise RuntimeError(f"{self.name} is not attached to a target yet: attach it first.")
        return self.lm
