"""Exact toy models: float64 Markov chains, small enough to enumerate.

Every number the engine produces on them can be computed by hand or by brute force, and no
change of batch shape moves a logit. Tests and the first lessons run on these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from specviz.engine.inputs import Ids, Prompt, as_ids, check_ids, fingerprint_of, is_messages
from specviz.engine.protocols import FINAL, Draft, Rows

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class ToyCodec:
    """One letter per token: 'a' is token 0."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.template = {"text": "", "sha256": hashlib.sha256(b"").hexdigest()}

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        if not isinstance(prompt, str) and not is_messages(prompt):
            return as_ids(prompt)
        text = self.render(prompt)
        if not text:
            raise ValueError("The prompt is empty: give at least one letter.")
        ids = tuple(_LETTERS.find(letter) for letter in text)
        if min(ids) < 0 or max(ids) >= self.size:
            raise ValueError(f"A toy prompt uses the letters {_LETTERS[: self.size]!r} only.")
        return ids

    def render(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        if is_messages(prompt):
            return "".join(message["content"] for message in prompt)
        return self.decode(as_ids(prompt))

    def decode(self, tokens: Ids) -> str:
        return "".join(self.token_text(token) for token in tokens)

    def token_text(self, token: int) -> str:
        return _LETTERS[token % len(_LETTERS)]


class MarkovModel:
    """Next-token distributions that depend on the last `order` tokens only.

    Parameters
    ----------
    table
        Probabilities [V, ..., V], `order` + 1 axes, summing to 1 over the last.
    """

    def __init__(self, table: np.ndarray) -> None:
        table = np.asarray(table, dtype=np.float64)
        if table.ndim < 2 or len(set(table.shape)) != 1:
            raise ValueError(f"A Markov table has equal axes, at least two, not {table.shape}.")
        if (table < 0).any() or not np.allclose(table.sum(-1), 1):
            raise ValueError("Every row of a Markov table must be a probability distribution.")
        self.table, self.order, self.vocab_size = table, table.ndim - 1, table.shape[0]

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.table.shape, self.table.tobytes())

    @classmethod
    def random(
        cls, vocab_size: int, order: int = 2, sharpness: float = 2.0, seed: int = 0
    ) -> MarkovModel:
        """A random chain; a larger `sharpness` gives lower entropy."""
        rng = np.random.default_rng(seed)
        logits = sharpness * rng.normal(size=(vocab_size,) * (order + 1))
        p = np.exp(logits - logits.max(-1, keepdims=True))
        return cls(p / p.sum(-1, keepdims=True))

    def mixed_with(self, other: MarkovModel, share: float) -> MarkovModel:
        """This chain with a `share` of another: a drafter that is right most of the time."""
        return MarkovModel((1 - share) * self.table + share * other.table)

    def logits(self, text: Ids) -> torch.Tensor:
        """ln p of the token after `text`, [V]; a text shorter than the order is padded by 0."""
        state = ((0,) * self.order + tuple(text))[-self.order :]
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(self.table[state]))


class ToyTarget:
    """A `MarkovModel` as a target, in float64."""

    supports_trees = True
    dtype, device = "float64", "cpu"

    def __init__(self, model: MarkovModel, eos_ids: Sequence[int] = (), name: str = "toy") -> None:
        self.model, self.name = model, name
        self.caption = f"toy Markov chain of order {model.order}, float64"
        self.vocab_size, self.eos_ids = model.vocab_size, frozenset(eos_ids)
        self.codec = ToyCodec(model.vocab_size)
        self.fingerprint = model.fingerprint
        self.session = self.verifies = 0
        self._text: list[int] = []
        self._taps: tuple[int, ...] = ()
        self._pending: Draft | None = None

    def prefill(self, prompt: Ids, taps: Sequence[int] = ()) -> Rows:
        check_ids(prompt, self.vocab_size)
        if set(taps) - {FINAL}:
            raise ValueError("A toy target has no hidden states but the final one.")
        self.session += 1
        self.verifies, self._pending = 0, None
        self._text, self._taps = list(prompt), tuple(taps)
        rows = torch.stack([self.model.logits(prompt[: i + 1]) for i in range(len(prompt))])
        return Rows(rows[-1:], dict.fromkeys(self._taps, rows))

    def verify(self, draft: Draft) -> Rows:
        check_ids((draft.anchor, *draft.tokens), self.vocab_size)
        texts = [[*self._text, draft.anchor]]
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            texts.append([*texts[parent + 1], token])
        self._pending = draft
        self.verifies += 1
        rows = torch.stack([self.model.logits(text) for text in texts])
        return Rows(rows, dict.fromkeys(self._taps, rows))

    def commit(self, path: Sequence[int]) -> None:
        if self._pending is None:
            raise RuntimeError("Nothing to commit: verify a draft first.")
        self._pending.check_path(path)
        self._text += [self._pending.anchor, *(self._pending.tokens[node] for node in path)]
        self._pending = None

    def memory(self) -> dict[str, int]:
        return {}  # there is no cache

    def unembed(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden  # the final hidden state of a toy is its logits

    def synchronize(self) -> None:
        pass
