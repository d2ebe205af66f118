"""Multi-token prediction as a drafter: a few small modules behind the target's last state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specviz.drafters.assemble import no_drafts
from specviz.drafters.growers import MtpGrower
from specviz.drafters.mtp_net import MtpNet
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


class MtpDrafter(OnStates[MtpNet]):
    """Drafts chains and trees with MTP modules.

    Parameters
    ----------
    weights
        As `specviz train mtp` writes them.
    max_k
        Most tokens drafted in a round.

    Notes
    -----
    Not suffix-consistent (F7.5): another anchor has another state of the target before it.
    `confidence` is q of the drafted token.
    """

    taps: tuple[int, ...] = (FINAL,)

    def __init__(
        self, weights: Weights, name: str = "mtp", caption: str = "", max_k: int = 15
    ) -> None:
        self.weights, self.name, self.max_k = weights, name, whole("max_k", max_k, 1)
        self.modules = int(weights.settings["modules"])
        self.caption = caption or f"{name}: {self.modules} modules on the target's last state"
        self.fingerprint = fingerprint_of(
            "mtp", *(tensor.numpy().tobytes() for tensor in weights.tensors.values())
        )
        self._forget()

    def _built(self, target: Target, model: Any, vocabulary: torch.Tensor) -> MtpNet:
        return MtpNet(model, vocabulary, self.modules)

    def _forget(self) -> None:
        self._states: torch.Tensor | None = None  # [tokens seen by the target, hidden]

    def start(self, prompt: Ids, rows: Rows) -> None:
        self._states = rows.taps[FINAL]

    @torch.inference_mode()
    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        seen = self._along(rows, path)[FINAL]
        self._states = seen if self._states is None else torch.cat([self._states, seen])

    @torch.inference_mode()
    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        k = min(plan.k, self.max_k)
        if k == 0:
            return Draft(context[-1])
        net = self._attached()
        state = self._anchored(net, context)
        if plan.tree is not None:
            grower = MtpGrower(net, state, self._vocab_size)
            return grow_tree(plan.tree, grower, context[-1], pick)
        chain = Growing(context[-1], pick)
        while True:
            row = widened(net.logits(state)[0], net.vocabulary, self._vocab_size)
            token = chain.add(row)
            if len(chain) == k or not more(chain.view(plan)):
                return chain.draft()
            state = net(state, torch.tensor([token], device=state.device), len(chain))

    @torch.inference_mode()
    def propose_all(self, reference: Reference, k: int) -> Drafts:
        if reference.anchors == 0:
            return no_drafts(k)
        net = self._attached()
        first, n = len(reference.prompt), reference.anchors
        tokens = torch.tensor(reference.output[:n], device=net.head.device)
        held = reference.taps[FINAL][first - 1 : first - 1 + n].to(net.head)
        unroll = _Unroll(net, net(held, tokens, 0), 0, self._vocab_size)
        return all_drafts(unroll, reference, k, self.max_k)

    @torch.inference_mode()
    def tie_after(self, context: Ids, drafted: int = 0) -> tuple[float, float]:
        """Top-2 margin (nats) after `context` and the logit noise of its batch shape.

        The last `drafted` tokens of the context are a draft. Noise is the largest difference of
        a logit between one row alone and among as many as a capture computes at once; a draft
        that differs between live and capture where margin <= 4 noise is a near-tie decided by
        rounding (see `specviz.engine.certificate`).
        """
        net = self._attached()
        text, chain = context[: len(context) - drafted], context[len(context) - drafted :]
        rows = []
        for copies in (1, CHUNK):
            state = self._anchored(net, text, copies)
            for depth, token in enumerate(chain, start=1):
                state = net(state, torch.full((copies,), token, device=state.device), depth)
            rows.append(net.logits(state)[-1].double())
        best = rows[1].topk(2).values
        return float(best[0] - best[1]), float((rows[0] - rows[1]).abs().max())

    def _anchored(self, net: MtpNet, context: Ids, copies: int = 1) -> torch.Tensor:
        """The state [copies, hidden] behind the anchor, from the target's before it."""
        before = len(context) - 1  # tokens that the target has seen
        if before < 1:
            raise ValueError(f"{self.name} needs a context of at least two tokens.")
        held = self._enough(self._states, before)[before - 1 : before]
        held = held.to(net.head).expand(copies, -1)
        anchor = torch.full((copies,), context[-1], device=held.device)
        state: torch.Tensor = net(held, anchor, 0)
        return state


class _Unroll:
    """The states behind all anchors' drafts, side by side."""

    def __init__(self, net: MtpNet, states: torch.Tensor, depth: int, vocab_size: int) -> None:
        self.net, self.states, self.depth, self.vocab_size = net, states, depth, vocab_size

    def said(self, low: int, high: int) -> torch.Tensor:
        logits = self.net.logits(self.states[low:high])
        return widened(logits, self.net.vocabulary, self.vocab_size)

    def go(self, tokens: torch.Tensor) -> _Unroll:
        depth = self.depth + 1
        states = self.net(self.states, tokens.to(self.states.device), depth)
        return _Unroll(self.net, states, depth, self.vocab_size)
