"""EAGLE as a drafter: from the target's hidden states, then on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specviz.drafters.assemble import no_drafts
from specviz.drafters.eagle_net import EagleNet
from specviz.drafters.growers import EagleGrower
from specviz.drafters.on_states import OnStates
from specviz.drafters.per_depth import all_drafts
from specviz.drafters.small_lm import widened
from specviz.drafters.weights import Weights
from specviz.engine.chain import Growing
from specviz.engine.inputs import Ids, fingerprint_of
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree_drafts import grow_tree
from specviz.policies import Plan
from specviz.refuse import whole
from specviz.targets.layer import LayerMemory


class EagleDrafter(OnStates[EagleNet]):
    """Drafts chains and trees with an EAGLE head.

    Parameters
    ----------
    weights
        As `specviz train eagle` writes them.

    Notes
    -----
    Not suffix-consistent (F7.5): the target's states reach the anchor and no further, so that
    a draft from the next anchor is another draft. `propose_all` therefore unrolls every anchor
    twice, on its own tokens and on the realised ones. `confidence` is q of the drafted token.
    """

    def __init__(self, weights: Weights, name: str = "eagle", caption: str = "", max_k: int = 15):
        self.weights, self.name, self.max_k = weights, name, whole("max_k", max_k, 1)
        self.caption = caption or f"{name}: one decoder layer on the target's states"
        self.taps = tuple(weights.settings["taps"])
        self.fingerprint = fingerprint_of(
            "eagle",
            self.taps,
            *(tensor.numpy().tobytes() for tensor in weights.tensors.values()),
        )
        self._forget()

    def _forget(self) -> None:
        self._memory = LayerMemory()
        self._cached: list[int] = []  # tokens of the slots in memory; slot i holds token i + 1
        self._features: torch.Tensor | None = None  # [tokens seen by the target, hidden]

    def _built(self, target: Target, model: Any, vocabulary: torch.Tensor) -> EagleNet:
        return EagleNet(model, self.taps, vocabulary)

    @torch.inference_mode()
    def start(self, prompt: Ids, rows: Rows) -> None:
        self._forget()
        self._features = self._attached().features(rows.taps)

    @torch.inference_mode()
    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        seen = self._attached().features(self._along(rows, path))
        self._features = seen if self._features is None else torch.cat([self._features, seen])

    @torch.inference_mode()
    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        k = min(plan.k, self.max_k)
        if k == 0:
            return Draft(context[-1])
        net = self._attached()
        features = self._catch_up(net, context)
        slots, place = len(self._cached), len(context) - 1
        if plan.tree is not None:
            grower = EagleGrower(net, features, self._memory, place, self._vocab_size)
            return grow_tree(plan.tree, grower, context[-1], pick)
        chain = Growing(context[-1], pick)
        try:
            while True:
                logits = net.logits(features)[0, 0]
                token = chain.add(widened(logits, net.vocabulary, self._vocab_size))
                if len(chain) == k or not more(chain.view(plan)):
                    return chain.draft()
                features = self._step(net, features, [token], place + len(chain))
        finally:
            self._memory.crop_to(slots)  # the draft's own keys are of this draft only

    @torch.inference_mode()
    def propose_all(self, reference: Reference, k: int) -> Drafts:
        anchors = reference.anchors
        if anchors == 0:
            return no_drafts(k)
        net = self._attached()
        text = torch.tensor(reference.prompt + reference.realised, device=net.head.device)
        first = len(reference.prompt)  # place of anchor 0
        memory = LayerMemory()
        held = net.features(reference.taps)[: len(text) - 1]
        n = len(held)
        causal = torch.ones(n, n, dtype=torch.bool, device=held.device).tril()
        places = torch.arange(1, n + 1, device=held.device)
        out = net(held[None], text[None, 1:], places[None], causal[None], memory)
        at = out[:, first - 1 : first - 1 + anchors]  # slot i - 1 holds token i
        visible = causal[first - 1 : first - 1 + anchors]
        unroll = _Unroll(
            net, at, places[first - 1 : first - 1 + anchors], visible, memory, self._vocab_size
        )
        return all_drafts(unroll, reference, k, self.max_k)

    @torch.inference_mode()
    def tie_after(self, context: Ids, drafted: int = 0) -> tuple[float, float]:
        """Top-2 margin (nats) after `context` and the logit noise of its batch shape.

        The last `drafted` tokens of the context are a draft. Noise is the largest difference of
        a logit between running the anchor's slot alone and with all others; a draft that differs
        between live and capture where margin <= 4 noise is a near-tie decided by rounding (see
        `specviz.engine.certificate`).
        """
        net = self._attached()
        text, chain = list(context), context[len(context) - drafted :]
        del text[len(context) - drafted :]
        rows = []
        for fed in ([text], [text[:-1], text]):
            self._memory, self._cached = LayerMemory(), []
            for part in fed:
                features = self._catch_up(net, part)
            for depth, token in enumerate(chain):
                features = self._step(net, features, [token], len(text) + depth)
            rows.append(net.logits(features)[0, 0].double())
        self._memory, self._cached = LayerMemory(), []
        best = rows[1].topk(2).values
        return float(best[0] - best[1]), float((rows[0] - rows[1]).abs().max())

    def _catch_up(self, net: EagleNet, context: Ids) -> torch.Tensor:
        """Run the slots that memory lacks; the features [1, 1, hidden] in the anchor's slot."""
        fed = list(context[1:])
        if not fed:
            raise ValueError(f"{self.name} needs a context of at least two tokens.")
        held = self._enough(self._features, len(fed))
        known = 0
        for mine, theirs in zip(self._cached, fed[:-1], strict=False):
            if mine != theirs:
                break
            known += 1
        self._memory.crop_to(known)
        del self._cached[known:]
        n = len(fed)
        device = held.device
        places = torch.arange(known + 1, n + 1, device=device)
        visible = torch.arange(n, device=device) <= places[:, None] - 1
        out = net(
            held[None, known:n],
            torch.tensor([fed[known:]], device=device),
            places[None],
            visible[None],
            self._memory,
        )
        self._cached = fed
        return out[:, -1:]

    def _step(
        self, net: EagleNet, features: torch.Tensor, tokens: list[int], place: int
    ) -> torch.Tensor:
        device = features.device
        slots = self._memory.get_seq_length() + 1
        return net(
            features,
            torch.tensor([tokens], device=device),
            torch.tensor([[place]], device=device),
            torch.ones(1, 1, slots, dtype=torch.bool, device=device),
            self._memory,
        )


class _Unroll:
    """Drafts from all anchors side by side; each sees the text up to its anchor, and itself."""

    def __init__(
        self,
        net: EagleNet,
        features: torch.Tensor,
        places: torch.Tensor,
        visible: torch.Tensor,
        memory: LayerMemory,
        vocab_size: int,
    ) -> None:
        self.net, self.features, self.places = net, features, places
        self.visible, self.memory, self.vocab_size = visible, memory, vocab_size

    def said(self, low: int, high: int) -> torch.Tensor:
        logits = self.net.logits(self.features[0, low:high])
        return widened(logits, self.net.vocabulary, self.vocab_size)

    def go(self, tokens: torch.Tensor) -> _Unroll:
        memory = self.memory.branch()
        tokens = tokens.to(self.places.device)
        own = torch.eye(len(tokens), dtype=torch.bool, device=tokens.device)
        visible, places = torch.cat([self.visible, own], 1), self.places + 1
        features = self.net(self.features, tokens[None], places[None], visible[None], memory)
        return _Unroll(self.net, features, places, visible, memory, self.vocab_size)
