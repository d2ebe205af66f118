"""Multi-token prediction from the target's last hidden state: one small module per depth.

A module takes the state so far and the token that has just been drafted, and says the state
behind it: with it the target's own output head guesses one token further. There is no attention
and no cache: all that a draft knows of the text is the one state that the target had before the
anchor.

Between Medusa and DeepSeek's modules: Medusa-1 (Cai et al. 2024, arXiv:2401.10774) has one head
per depth that never sees what was drafted; DeepSeek-V3 (arXiv:2412.19437) passes a state on from
module to module, with a whole decoder layer in each, as here `eagle` does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from specviz.drafters.eagle_net import unit


class Module(nn.Module):
    """From a state and the next token to the next state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(2 * width, 2 * width)
        self.down = nn.Linear(2 * width, width, bias=False)
        nn.init.zeros_(self.down.weight)  # at first the state stays what it is

    def forward(self, state: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """What a unit-sized state and token [..., hidden] add to the state."""
        added: torch.Tensor = self.down(nn.functional.silu(self.up(torch.cat([state, token], -1))))
        return added


class MtpNet(nn.Module):
    """Modules for the first depths; the last one serves all deeper ones, too.

    Parameters
    ----------
    model
        The target's transformers model: its embeddings and its output head are used as they
        are, frozen and never stored.
    vocabulary
        Token ids that can be said, [m].
    modules
        How many of them.
    """

    vocabulary: torch.Tensor
    head: torch.Tensor
    size: torch.Tensor

    def __init__(self, model: Any, vocabulary: torch.Tensor, modules: int = 3) -> None:
        super().__init__()
        width = model.get_input_embeddings().weight.shape[1]
        self.steps = nn.ModuleList(Module(width) for _ in range(modules))
        self._embedding = [model.get_input_embeddings()]  # shared, not a part of this module
        head = model.get_output_embeddings().weight.detach()
        self.register_buffer("vocabulary", vocabulary.to(head.device), persistent=False)
        self.register_buffer("head", head[self.vocabulary], persistent=False)
        self.to(head.dtype).to(head.device)
        # How large the target's states are: modules learn at unit size.
        self.register_buffer("size", torch.ones((), dtype=head.dtype, device=head.device))

    def forward(self, state: torch.Tensor, tokens: torch.Tensor, depth: int) -> torch.Tensor:
        """The state [..., hidden] behind `tokens` [...], of which `depth` were drafted.

        With depth 0 the tokens are anchors, and the state is the target's before them.
        """
        step = self.steps[min(depth, len(self.steps) - 1)]
        added = step(unit(state), unit(self._embedding[0](tokens)))
        out: torch.Tensor = state + self.size * added
        return out

    def logits(self, state: torch.Tensor) -> torch.Tensor:
        """Logits over the reduced vocabulary."""
        return nn.functional.linear(state, self.head)
