"""Drafters of exllamav3 that say one token after another: MTP heads and smaller models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from specviz.drafters.assemble import blank_columns, greedy_columns, no_drafts
from specviz.drafters.exl3_base import Exl3Drafter, max_k_of
from specviz.engine.chain import Growing
from specviz.engine.inputs import Ids
from specviz.engine.observe import pair_stats
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import FINAL, Draft, Drafts, More, Reference, Rows, Target
from specviz.policies import Plan
from specviz.targets.exl3_cache import at
from specviz.trace.schema import TOP_DRAFT

#: Tokens of one pass over the text.
CHUNK = 1024


def check_attention(model: Any, name: str) -> None:
    """Refuse a draft model with layers that would have to be stepped back; ValueError."""
    # A family of hybrids may have a member without such layers.
    if model.caps.get("recurrent_states") and model.get_recurrent_layers():
        raise ValueError(
            f"{name} has recurrent or sliding-window layers: as a drafter of single tokens only a "
            "model of full attention can be used."
        )


class _Chains(Exl3Drafter):
    """Catches up with the text by itself: the longest common beginning stays in the cache."""

    def __init__(
        self,
        model: Any,
        cache: Any,
        name: str,
        caption: str = "",
        fingerprint: str = "",
        max_k: int | None = None,
    ) -> None:
        super().__init__(model, cache, name, caption, fingerprint)
        check_attention(model, name)
        self.max_k = max_k_of(model, max_k)
        self._cached: list[int] = []  # the text whose keys and values are in the cache

    #: Whether keys and values of drafted tokens are those that the text would have.
    _keeps_drafted = True

    def attach(self, target: Target) -> None:
        self._meet(target)
        self._cached = []

    def start(self, prompt: Ids, rows: Rows) -> None:
        self._cached = []

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        pass

    @torch.inference_mode()
    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        k = min(plan.k, self.max_k)
        if k < 1:
            return Draft(context[-1])
        self._refuse_tree(plan)
        self._catch_up(context, k)
        chain, token, state = Growing(context[-1], pick), context[-1], self._first(context)
        while True:
            row, state = self._go(context, token, state, len(chain))
            token = chain.add(row[0])
            if len(chain) == k or not more(chain.view(plan)):
                return chain.draft()

    @torch.inference_mode()
    def propose_all(self, reference: Reference, k: int) -> Drafts:
        """Every anchor twice: on its own tokens, and on the realised ones."""
        anchors, drafted = reference.anchors, min(k, self.max_k)
        if anchors == 0:
            return no_drafts(k)
        self.start(reference.prompt, Rows(torch.empty(0), reference.taps))
        self._all_states(reference)
        free, forced = blank_columns(anchors, k)
        realised = reference.realised
        for anchor in range(anchors):
            context = reference.prompt + reference.output[: anchor + 1]
            rows = self._rows(context, drafted, None)
            for column, values in zip(free.values(), greedy_columns(rows), strict=True):
                column[anchor, :drafted] = values
            told = realised[anchor + 1 : anchor + 1 + drafted]
            if not told:
                continue
            q = self._rows(context, len(told), told)
            p = reference.logits(anchor + 1, anchor + 1 + len(told)).to(q.device)
            tokens = torch.tensor(told, device=q.device)
            stats = pair_stats(p, q, tokens, reference.sampling)
            for name, values in zip(
                forced,
                (stats.logq, stats.rank, stats.overlap, stats.kl, stats.top_ids),
                strict=True,
            ):
                forced[name][anchor, : len(told)] = values
        forced["top4_ids"] = forced["top4_ids"].reshape(anchors, k * TOP_DRAFT)
        return Drafts(drafted=np.full(anchors, drafted), **free, **forced)

    def _rows(self, context: Ids, k: int, told: Ids | None) -> torch.Tensor:
        """Logits [k, vocabulary] at every depth behind a context, on its own or given tokens."""
        self._catch_up(context, k)
        token, state, rows = context[-1], self._first(context), []
        for depth in range(k):
            row, state = self._go(context, token, state, depth)
            rows.append(row)
            token = int(row.argmax()) if told is None else told[depth]
        return torch.cat(rows)

    def _go(self, context: Ids, token: int, state: Any, depth: int) -> tuple[torch.Tensor, Any]:
        """One step of a draft, and note that its token is in the cache now."""
        made = self._step(token, state, len(context) - 1 + depth, depth)
        if depth == 0 or self._keeps_drafted:
            self._cached.append(token)
        return made

    def _catch_up(self, context: Ids, deep: int) -> None:
        """Feed what the cache lacks of the text before the anchor of a draft that is `deep`."""
        known = 0
        for mine, theirs in zip(self._cached, context[:-1], strict=False):
            if mine != theirs:
                break
            known += 1
        self._check_room(len(context) + deep)
        del self._cached[known:]
        for low in range(known, len(context) - 1, CHUNK):
            part = context[low : min(low + CHUNK, len(context) - 1)]
            self._read(part, low)
            self._cached.extend(part)

    def _all_states(self, reference: Reference) -> None:
        """Take the target's states of a whole output."""

    def _first(self, context: Ids) -> Any:
        """What the first step needs of the target."""

    def _read(self, tokens: Ids, start: int) -> None:
        """Feed tokens of the text behind its first `start`."""
        raise NotImplementedError

    def _step(self, token: int, state: Any, place: int, depth: int) -> tuple[torch.Tensor, Any]:
        """Logits [1, vocabulary] after a token, and what the next step needs."""
        raise NotImplementedError


class Exl3LM(_Chains):
    """A smaller exllamav3 model with the target's tokens, such as another size of its family.

    `confidence` is q of the drafted token. Not verified on T4.
    """

    def attach(self, target: Target) -> None:
        super().attach(target)
        ours, theirs = self.model.config.vocab_size, self._attached().model.config.vocab_size
        if min(ours, theirs) < target.vocab_size:
            raise ValueError(
                f"{self.name} can say {ours} tokens and {target.name} knows {target.vocab_size}: "
                "take a smaller model of the target's own family."
            )

    def _read(self, tokens: Ids, start: int) -> None:
        params = at(self.cache, start, [self._table()])
        self.model.prefill(torch.tensor([list(tokens)]), params)

    def _step(self, token: int, state: Any, place: int, depth: int) -> tuple[torch.Tensor, Any]:
        params = at(self.cache, place, [self._table()])
        logits = self.model.forward(torch.tensor([[token]]), params)
        return logits[0, :, : self._attached().vocab_size], None


class Exl3Mtp(_Chains):
    """The multi-token-prediction head inside the target's own checkpoint (component "mtp").

    Each step feeds on the state of the one before, the first on the target's last state.
    `confidence` is q of the drafted token, by the target's output head. Not
    suffix-consistent (F7.5). Not verified on T4.
    """

    taps: tuple[int, ...] = (FINAL,)
    _keeps_drafted = False  # they were fed with its own states, not with the target's
    _states: torch.Tensor | None = None  # [tokens that the target has seen, hidden]

    def attach(self, target: Target) -> None:
        super().attach(target)
        self._states = None

    def start(self, prompt: Ids, rows: Rows) -> None:
        super().start(prompt, rows)
        self._states = rows.taps[FINAL]

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        new = rows.taps[FINAL][[0, *(node + 1 for node in path)]]
        self._states = new if self._states is None else torch.cat([self._states, new])

    def _first(self, context: Ids) -> torch.Tensor:
        return self._seen(len(context) - 2, len(context) - 1)

    def _seen(self, low: int, high: int) -> torch.Tensor:
        """The target's states [1, high - low, hidden] of the tokens low..high-1; 0 before them."""
        seen = 0 if self._states is None else len(self._states)
        if self._states is None or seen < high:
            raise RuntimeError(
                f"{self.name} has the target's states of {seen} tokens and needs {high}: start it "
                "with what prefill returned, and let it observe every round."
            )
        states = self._states[max(low, 0) : high]
        missing = high - low - len(states)
        return torch.cat([states.new_zeros(missing, states.shape[-1]), states])[None]

    def _read(self, tokens: Ids, start: int) -> None:
        # A token is fed together with the target's state of the token before it.
        params = at(self.cache, start, [self._table()])
        params["target_hidden"] = self._seen(start - 1, start - 1 + len(tokens))
        self.model.prefill(torch.tensor([list(tokens)]), params)

    def _step(self, token: int, state: Any, place: int, depth: int) -> tuple[torch.Tensor, Any]:
        params = at(self.cache, place, [self._table()])
        params |= {"target_hidden": state, "draft_step": depth}
        new = self.model.forward(torch.tensor([[token]]), params)
        logits = self._attached().unembed(new[0])
        return logits, params.get("next_target_hidden", new)
