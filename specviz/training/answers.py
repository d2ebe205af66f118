"""A target's answers to many prompts at once, with the hidden states it had on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specviz.engine.protocols import FINAL
from specviz.engine.record import repeated
from specviz.targets.slots import WINDOW, SlotCache, SlotLM

#: How many steps pass between two looks for finished or looping answers.
_LOOK = 8
_FP16_MAX = 65504.0


@dataclass(frozen=True)
class Answer:
    """One answer, cut at its end of text or where it begins to loop.

    Attributes
    ----------
    prompt, tokens
        Token ids.
    states
        Hidden states fp16 [len(prompt) + len(tokens) - 1, taps, hidden] of every token that
        was fed, or None. Values beyond the range of fp16 are set to its ends.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    states: torch.Tensor | None


def before_loop(tokens: Sequence[int]) -> list[int]:
    """An answer up to where it begins to repeat a run of 12 tokens."""
    flags = repeated(tokens)
    first = int(np.argmax(flags)) if flags.any() else len(tokens)
    return list(tokens[:first])


@torch.inference_mode()
def answer_batch(
    lm: SlotLM,
    prompts: Sequence[Sequence[int]],
    eos_ids: Collection[int],
    *,
    temperatures: Sequence[float],
    max_new_tokens: int,
    generator: torch.Generator,
    taps: Sequence[int] = (),
) -> list[Answer]:
    """Answer every prompt, all in one batch; finished answers leave it.

    Parameters
    ----------
    lm
        The target's model with a key-value buffer of its own, which this call overwrites.
    temperatures
        Of each prompt; 0 for a greedy answer.
    taps
        Layers whose states to keep; `FINAL` (-1) is the final hidden state.
    """
    lm.cache = SlotCache(len(lm.layers))
    n, width = len(prompts), max(map(len, prompts))
    lm.cache.capacity = -(-(width + max_new_tokens) // WINDOW) * WINDOW  # what it will need
    shared = _shared_prefix(prompts)
    # Slots: the shared prefix, then padding, then the rest of the prompt, then the answer.
    pads = torch.tensor([width - len(prompt) for prompt in prompts])
    states = _States(lm, n, width + max_new_tokens - 1, taps)

    def feed(rows: torch.Tensor, tokens: torch.Tensor, start: int) -> torch.Tensor:
        slots = torch.arange(start + tokens.shape[1])
        here = slots[start:]
        padding = (slots >= shared) & (slots < shared + pads[rows][:, None])
        visible = (slots <= here[:, None]) & ~padding[:, None]
        visible |= slots == here[:, None]  # padding sees itself: no softmax over nothing
        positions = (here - pads[rows][:, None]).clamp(min=0)
        hidden, tapped = lm.forward_batch(tokens, start, positions, visible, taps)
        states.keep(rows, start, hidden, tapped)
        return hidden[:, -1]

    if shared:
        prefix, tapped = lm.forward(prompts[0][:shared], 0, taps=taps)
        states.keep(torch.arange(n), 0, prefix, tapped)
        lm.cache.keep(torch.zeros(n, dtype=torch.long))
    rows = torch.arange(n)  # the prompts still being answered
    rest = torch.tensor([[0] * (width - len(p)) + list(p[shared:]) for p in prompts])
    last = feed(rows, rest, shared)
    warmth = torch.tensor(temperatures)
    said: list[list[int]] = [[] for _ in prompts]
    for step in range(max_new_tokens):
        new = _choose(lm.unembed(last), warmth[rows], generator).cpu()
        for row, token in zip(rows.tolist(), new.tolist(), strict=True):
            said[row].append(token)
        if step + 1 == max_new_tokens:
            break
        if (step + 1) % _LOOK == 0:
            going = torch.tensor([not _over(said[row], eos_ids) for row in rows.tolist()])
            if not going.any():
                break
            if not going.all():
                lm.cache.keep(going.nonzero()[:, 0])
                rows, new = rows[going], new[going]
        last = feed(rows, new[:, None], width + step)
    answers = []
    for row, (prompt, output) in enumerate(zip(prompts, said, strict=True)):
        answer = before_loop(_to_end(output, eos_ids))
        pad, fed = int(pads[row]), len(prompt) + len(answer) - 1
        slots = torch.cat([torch.arange(shared), torch.arange(shared + pad, pad + fed)])
        answers.append(Answer(tuple(prompt), tuple(answer), states.of(row, slots)))
    return answers


class _States:
    """The hidden states of every slot, in fp16."""

    def __init__(self, lm: SlotLM, texts: int, slots: int, taps: Sequence[int]) -> None:
        self.taps = taps
        hidden = lm.model.get_input_embeddings().weight.shape[1] if taps else 0
        self.buffer = torch.zeros(texts, slots, len(taps), hidden, dtype=torch.float16)

    def keep(
        self,
        rows: torch.Tensor,
        start: int,
        hidden: torch.Tensor,
        tapped: Mapping[int, torch.Tensor],
    ) -> None:
        for place, tap in enumerate(self.taps):
            kept = (hidden if tap == FINAL else tapped[tap]).float()
            kept = kept.clamp(-_FP16_MAX, _FP16_MAX).half().cpu()
            self.buffer[rows, start : start + kept.shape[-2], place] = kept

    def of(self, row: int, slots: torch.Tensor) -> torch.Tensor | None:
        return self.buffer[row, slots] if self.taps else None


def _shared_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens with which all prompts begin (the chat template's), short of a whole prompt."""
    most = min(map(len, prompts)) - 1
    for place in range(most):
        if len({prompt[place] for prompt in prompts}) > 1:
            return place
    return most


def _choose(
    logits: torch.Tensor, temperatures: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """One token per row: the best, or one drawn at the row's temperature."""
    best = logits.argmax(-1)
    warm = temperatures.to(logits.device)[:, None]
    below = (logits.float() / warm.clamp(min=1e-6)).softmax(-1).cumsum(-1)
    draw = torch.rand(len(logits), 1, generator=generator, device=logits.device)
    drawn = torch.searchsorted(below, draw * below[:, -1:], right=True)[:, 0]
    return torch.where(warm[:, 0] > 0, drawn.clamp(max=logits.shape[-1] - 1), best)


def _over(output: list[int], eos_ids: Collection[int]) -> bool:
    return any(token in eos_ids for token in output) or bool(repeated(output).any())


def _to_end(tokens: list[int], eos_ids: Collection[int]) -> list[int]:
    """Up to and including the first end of text; what follows is padding."""
    for index, token in enumerate(tokens):
        if token in eos_ids:
            return tokens[: index + 1]
    return tokens
