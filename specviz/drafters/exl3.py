"""DFlash and DFlash2 as exllamav3 runs them: one pass drafts a whole block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import embedding

from specviz.drafters.assemble import no_drafts
from specviz.drafters.exl3_base import Exl3Drafter
from specviz.drafters.growers import BlockGrower
from specviz.drafters.per_depth import all_drafts
from specviz.engine.chain import Growing
from specviz.engine.inputs import Ids
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree_drafts import grow_tree
from specviz.policies import Plan
from specviz.targets.exl3 import Exl3Target
from specviz.targets.exl3_cache import PAGE, at


class Exl3Block(Exl3Drafter):
    """exllamav3's DFlash or DFlash2 draft model, fed with the target's states every round.

    Parameters
    ----------
    model, cache
        exllamav3's draft model and its cache, made before any weights were loaded.
    max_k
        Most tokens drafted in a round; by default all of a block.

    Notes
    -----
    q is what the tokens were chosen from: with DFlash2's selector a few candidates, given the
    token before; without one the row's distribution. The library itself drafts greedily only;
    drawn tokens and trees are made here from the same numbers, so that rules which compare p
    with q can be used. A row of the head that is no token of the tokenizer is no candidate.
    Not verified on T4.
    """

    def __init__(
        self,
        model: Any,
        cache: Any,
        name: str = "dflash",
        caption: str = "",
        fingerprint: str = "",
        max_k: int | None = None,
    ) -> None:
        super().__init__(model, cache, name, caption, fingerprint)
        self._widest = widest = int(model.caps["default_draft_size"])
        self.max_k = widest if max_k is None else max_k
        if not 1 <= self.max_k <= widest:
            raise ValueError(f"{name} drafts blocks of {widest} tokens: max_k cannot be {max_k}.")
        self.taps = tuple(sorted({layer + 1 for layer in model.config.target_layer_ids}))
        self._sliding = bool(model.caps.get("recurrent_states"))
        self._rings: Any = None  # of sliding-window layers
        self._length = 0  # tokens whose states it has: all before the anchor

    def attach(self, target: Target) -> None:
        self._meet(target)
        self._drop_rings()
        self._length = 0
        self.net = _Said(self.model, self._attached())

    def start(self, prompt: Ids, rows: Rows) -> None:
        self._drop_rings()
        if self._sliding:
            self._rings = self.cache.get_new_state()
        self._length = 0
        self._feed(rows, range(len(prompt)))

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        self._feed(rows, [0, *(node + 1 for node in path)])

    @torch.inference_mode()
    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        k = min(plan.k, self.max_k)
        if k < 1:
            return Draft(context[-1])
        hidden = self._block(context)
        if plan.tree is not None:
            if plan.tree.depth > self.max_k:
                raise ValueError(
                    f"{self.name} drafts {self.max_k} tokens deep and {plan.tree.builder} is "
                    f"{plan.tree.depth} deep: ask for a depth of at most {self.max_k}."
                )
            grower = BlockGrower(self.net, hidden, context[-1], self.net.vocab_size)  # type: ignore[arg-type]
            return grow_tree(plan.tree, grower, context[-1], pick)
        chain, unary, token = Growing(context[-1], pick), self.net.unary(hidden[:k]), context[-1]
        while True:
            depth = len(chain)
            before = torch.tensor(token, device=hidden.device)
            token = chain.add(self.net.said(hidden[depth], unary[depth], before))
            if len(chain) == k or not more(chain.view(plan)):
                return chain.draft()

    @torch.inference_mode()
    def propose_all(self, reference: Reference, k: int) -> Drafts:
        if reference.anchors == 0:
            return no_drafts(k)
        text, first = reference.prompt + reference.realised, len(reference.prompt)
        seen = len(reference.taps[self.taps[0]])
        blocks = []
        if self._sliding:  # a ring holds the end of what it was fed: feed it along
            self.start(reference.prompt, Rows(_EMPTY, _rows(reference.taps, range(first))))
        else:
            self.start(text[:seen], Rows(_EMPTY, reference.taps))
        for place in range(first, first + reference.anchors):
            blocks.append(self._block(text[: place + 1]))
            if self._sliding:
                self._feed(Rows(_EMPTY, reference.taps), range(place, place + 1))
        hidden = torch.stack(blocks)
        anchors = torch.tensor(text[first : first + reference.anchors], device=hidden.device)
        return all_drafts(_Unroll(self.net, hidden, 0, anchors), reference, k, self.max_k)

    @torch.inference_mode()
    def _feed(self, rows: Rows, kept: Sequence[int]) -> None:
        """Keys and values of what the target held at some rows, behind those there are."""
        states = [rows.taps[tap][list(kept)][None] for tap in self.taps]
        params = at(self.cache, self._length, [self._table()]) | self._states()
        self.model.update_kv_from_target(states, self.cache, params, [len(kept)])
        self._length += len(kept)

    def _block(self, context: Ids) -> torch.Tensor:
        """Final states [block - 1, hidden] of the block behind the last token."""
        place = len(context) - 1
        if self._length < place or (self._sliding and self._length != place):
            raise RuntimeError(
                f"{self.name} has the target's states of {self._length} tokens and needs {place}: "
                "start it with what prefill returned, and let it observe every round."
            )
        self._check_room(place + 1 + self._widest)  # else it would be written behind the last page
        if self._rings is not None:  # the last block, if asked again, was no part of the text
            self._rings.rewind(self._rings.position - place)
        # Behind the text there is room; before its end the block would write over it.
        table = self._table() if place == self._length else self._aside(place)
        params = at(self.cache, place, [table]) | self._states()
        state: torch.Tensor = self.model.forward(torch.tensor([[context[-1]]]), params)
        return state[0, 1:]

    def _aside(self, place: int) -> list[int]:
        """Pages whose end is a copy, so that the block leaves the text behind `place` alone."""
        table, span = self._table(), range(place // PAGE, (place + self._widest) // PAGE + 1)
        if span.stop + len(span) > len(table):
            raise ValueError(f"{self.name} needs a larger cache: load with more tokens.")
        table[span.start : span.stop] = table[-len(span) :]
        if place % PAGE:
            copy = self._table()[span.start], table[span.start], place % PAGE
            self.cache.copy_page(self.cache, *copy)
        return table

    def _states(self) -> dict[str, Any]:
        return {"recurrent_states": [self._rings]} if self._rings is not None else {}

    def _drop_rings(self) -> None:
        if self._rings is not None:
            self._rings.free()
            self._rings = None


class _Said:
    """What a block's states say, with the interface of specviz's own `BlockNet`."""

    def __init__(self, model: Any, target: Exl3Target) -> None:
        self.model, self.target, self.vocab_size = model, target, target.vocab_size
        self.vocabulary = torch.arange(self.vocab_size)
        self.selector = getattr(model, "selector", None)
        self.scale = float(getattr(model.config, "output_multiplier", 1.0))
        self.softcap = float(getattr(model.config, "final_logit_softcapping", 0.0) or 0.0)

    def unary(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocabulary] of each row by itself."""
        logits = self.target.unembed(hidden).float().to(hidden.device)
        if self.selector is None:
            return logits
        logits = logits * self.scale
        return torch.tanh(logits / self.softcap) * self.softcap if self.softcap > 0 else logits

    def said(self, hidden: torch.Tensor, unary: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocabulary] after the token chosen before: -inf but for candidates."""
        if self.selector is None:
            return unary
        device = self.selector.device
        gate = self.selector.hidden_proj.forward(hidden.to(device).half().contiguous(), {}).float()
        best, which = unary.to(device).topk(min(self.selector.top_k, self.vocab_size), -1)
        code = embedding(before.to(device), self.selector.pred_codebook).float() * gate
        offered = embedding(which, self.selector.succ_codebook).float()
        scores = best + (offered @ code[..., None])[..., 0]
        said = unary.new_full(unary.shape, -torch.inf, device=device).scatter(-1, which, scores)
        return said.to(unary.device)


class _Unroll:
    """The blocks of all anchors, walked from left to right side by side."""

    def __init__(self, net: _Said, hidden: torch.Tensor, depth: int, before: torch.Tensor) -> None:
        self.net, self.hidden, self.depth, self.before = net, hidden, depth, before

    def said(self, low: int, high: int) -> torch.Tensor:
        hidden = self.hidden[low:high, self.depth]
        return self.net.said(hidden, self.net.unary(hidden), self.before[low:high])

    def go(self, tokens: torch.Tensor) -> _Unroll:
        return _Unroll(self.net, self.hidden, self.depth + 1, tokens.to(self.before.device))


_EMPTY = torch.empty(0)


def _rows(taps: Any, kept: range) -> dict[int, torch.Tensor]:
    return {tap: states[list(kept)] for tap, states in taps.items()}
