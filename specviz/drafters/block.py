"""DFlash as a drafter: one pass drafts a whole block, whatever part of it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from specviz.drafters.assemble import no_drafts
from specviz.drafters.block_layers import BlockConfig
from specviz.drafters.block_net import BlockNet, Context, check_sizes
from specviz.drafters.growers import BlockGrower
from specviz.drafters.on_states import OnStates
from specviz.drafters.per_depth import all_drafts
from specviz.drafters.small_lm import widened
from specviz.drafters.weights import Weights
from specviz.engine.chain import Growing
from specviz.engine.inputs import Ids, fingerprint_of
from specviz.engine.observe import CHUNK
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import FINAL, Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree_drafts import grow_tree
from specviz.policies import Plan
from specviz.refuse import whole


class BlockDrafter(OnStates[BlockNet]):
    """Drafts chains and trees with a DFlash or DFlash2 network.

    Parameters
    ----------
    weights
        As `specviz train block` writes them, or `read_dflash` reads them.
    max_k
        Most tokens drafted in a round; by default all that a block has.

    Notes
    -----
    The block always has its full width, and a shorter plan is the beginning of it: rows see
    one another, so that a narrower block would say other tokens (F7.5, R2). Not
    suffix-consistent: another anchor is another block. `q` is what the selector chose from, a
    few candidates, given the token before; without a selector (DFlash) the row's distribution.
    `confidence` is q of the drafted token.
    """

    def __init__(
        self, weights: Weights, name: str = "block", caption: str = "", max_k: int | None = None
    ) -> None:
        self.weights, self.name = weights, name
        self.config = BlockConfig.of(weights.settings)
        widest = self.config.block - 1
        self.max_k = widest if max_k is None else whole("max_k", max_k, 1)
        if self.max_k > widest:
            raise ValueError(f"{name} drafts blocks of {widest} tokens: max_k {max_k} is more.")
        kind = "DFlash2" if self.config.second else "DFlash"
        self.caption = caption or f"{name}: {kind}, {self.config.layers} layers"
        self.taps = tuple(
            # What transformers calls the last hidden state is normalised.
            FINAL if layer + 1 == self.config.target_depth else layer + 1
            for layer in self.config.target_layers
        )
        ends = (t.reshape(-1)[[*range(min(32, t.numel())), -1]] for t in weights.tensors.values())
        self.fingerprint = fingerprint_of(
            "block", self.config, *(part.float().numpy().tobytes() for part in ends)
        )
        self._forget()

    def _built(self, target: Target, model: Any, vocabulary: torch.Tensor) -> BlockNet:
        check_sizes(self.config, target, model, self.name)
        return BlockNet(self.config, model, vocabulary)

    def _forget(self) -> None:
        self._context: Context | None = None

    @torch.inference_mode()
    def start(self, prompt: Ids, rows: Rows) -> None:
        self._context = self._seen(rows.taps, 0)

    @torch.inference_mode()
    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        seen = 0 if self._context is None else len(self._context)
        new = self._seen(self._along(rows, path), seen)
        self._context = new if self._context is None else self._context.then(new)

    @torch.inference_mode()
    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        k = min(plan.k, self.max_k)
        if k == 0:
            return Draft(context[-1])
        net = self._attached()
        hidden = self._block(net, context)
        if plan.tree is not None:
            if plan.tree.depth > self.max_k:
                raise ValueError(
                    f"{self.name} drafts {self.max_k} tokens deep and {plan.tree.builder} is "
                    f"{plan.tree.depth} deep: ask for a depth of at most {self.max_k}."
                )
            return grow_tree(
                plan.tree,
                BlockGrower(net, hidden, context[-1], self._vocab_size),
                context[-1],
                pick,
            )
        chain = Growing(context[-1], pick)
        unary = net.unary(hidden[:k])
        token = context[-1]
        while True:
            depth = len(chain)
            before = torch.tensor(token, device=hidden.device)
            row = net.said(hidden[depth], unary[depth], before)
            token = chain.add(widened(row, net.vocabulary, self._vocab_size))
            if len(chain) == k or not more(chain.view(plan)):
                return chain.draft()

    @torch.inference_mode()
    def propose_all(self, reference: Reference, k: int) -> Drafts:
        if reference.anchors == 0:
            return no_drafts(k)
        net = self._attached()
        text = reference.prompt + reference.realised
        context = self._seen(reference.taps, 0)
        first = len(reference.prompt)  # place of anchor 0
        places = range(first, first + reference.anchors)
        hidden = self._blocks(net, text, places, context)
        anchors = torch.tensor(text[first : first + reference.anchors], device=hidden.device)
        unroll = _Unroll(net, hidden, 0, anchors, self._vocab_size)
        return all_drafts(unroll, reference, k, self.max_k)

    @torch.inference_mode()
    def tie_after(self, context: Ids, drafted: int = 0) -> tuple[float, float]:
        """Top-2 margin (nats) after `context` and the logit noise of its batch shape.

        The last `drafted` tokens of the context are a draft. Noise is the largest difference of
        a logit between the anchor's block alone and among others; a draft that differs between
        live and capture where margin <= 4 noise is a near-tie decided by rounding (see
        `specviz.engine.certificate`). A candidate that only one of the two has is left out.
        """
        net = self._attached()
        text, before = list(context[: len(context) - drafted]), context[-1]
        alone = self._block(net, text)
        places = range(max(len(text) - CHUNK, 1), len(text))
        among = self._blocks(net, text, places, self._enough(self._context, len(text) - 1))[-1]
        rows = [
            net.said(
                hidden[drafted],
                net.unary(hidden[drafted]),
                torch.tensor(before, device=net.head.device),
            ).double()
            for hidden in (alone, among)
        ]
        best = rows[1].topk(2).values
        both = rows[0].isfinite() & rows[1].isfinite()
        return float(best[0] - best[1]), float((rows[0] - rows[1])[both].abs().max())

    def _seen(self, taps: Mapping[int, torch.Tensor], first: int) -> Context:
        """Keys and values of what the target held at some rows, placed first, first + 1, ..."""
        net = self._attached()
        states = torch.stack([taps[tap] for tap in self.taps], -2)
        places = torch.arange(first, first + len(states), device=net.head.device)
        return net.context(states[None].to(net.head.device), places[None])

    def _block(self, net: BlockNet, context: Ids) -> torch.Tensor:
        """Final states [block - 1, hidden] of the block behind the last token."""
        place = len(context) - 1
        held = self._enough(self._context, place)
        return self._blocks(net, context, range(place, place + 1), held.first(place))[0]

    def _blocks(self, net: BlockNet, text: Ids, places: range, context: Context) -> torch.Tensor:
        """The same behind every place of a text, [places, block - 1, hidden]."""
        device = net.head.device
        tokens = torch.tensor([text], device=device)
        slots = torch.arange(len(context), device=device)
        found = []
        for low in range(places.start, places.stop, CHUNK):
            where = torch.arange(low, min(low + CHUNK, places.stop), device=device)
            seen = slots < where[:, None]
            found.append(net(tokens[:, where], where[None], seen[None], context)[0])
        return torch.cat(found)


class _Unroll:
    """The blocks of all anchors, walked from left to right side by side."""

    def __init__(
        self, net: BlockNet, hidden: torch.Tensor, depth: int, before: torch.Tensor, vocab_size: int
    ) -> None:
        self.net, self.hidden, self.depth = net, hidden, depth
        self.before, self.vocab_size = before, vocab_size

    def said(self, low: int, high: int) -> torch.Tensor:
        hidden = self.hidden[low:high, self.depth]
        row = self.net.said(hidden, self.net.unary(hidden), self.before[low:high])
        return widened(row, self.net.vocabulary, self.vocab_size)

    def go(self, tokens: torch.Tensor) -> _Unroll:
        tokens = tokens.to(self.before.device)
        return _Unroll(self.net, self.hidden, self.depth + 1, tokens, self.vocab_size)
