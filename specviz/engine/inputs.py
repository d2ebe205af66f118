"""Token ids and prompts as they come in, checked; and short hashes of what they met."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, TypeGuard

Ids = Sequence[int]
#: Text, chat messages ({"role", "content"}), or token ids.
Messages = Sequence[Mapping[str, Any]]
Prompt = str | Messages | Ids


def check_prompt(prompt: object) -> None:
    """Raise ValueError unless `prompt` is text, chat messages or token ids."""
    if isinstance(prompt, str) or is_messages(prompt):
        return
    if not isinstance(prompt, Sequence) or not all(isinstance(t, SupportsIndex) for t in prompt):
        raise ValueError(
            "A prompt is a string, a list of chat messages (role, content) or a list of token "
            f"ids, not {prompt!r:.60}."
        )


def is_messages(prompt: object) -> TypeGuard[Messages]:
    """Whether a prompt is a chat: a list of mappings with a role and a content."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str)
        and len(prompt) > 0
        and all(isinstance(m, Mapping) and {"role", "content"} <= set(m) for m in prompt)
    )


def fingerprint_of(*parts: object) -> str:
    """Short hash of settings (by their repr) and of bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
    return digest.hexdigest()[:16]


def as_ids(prompt: Prompt) -> tuple[int, ...]:
    """Token ids given as a prompt, as plain ints."""
    return tuple(operator.index(token) for token in prompt)  # type: ignore[arg-type]


def check_ids(tokens: Ids, vocab_size: int) -> None:
    """Raise ValueError for no tokens at all, or one outside the vocabulary."""
    if len(tokens) == 0:
        raise ValueError("An empty prompt has no next token: give at least one token.")
    low, high = min(tokens), max(tokens)
    if low < 0 or high >= vocab_size:
        bad = low if low < 0 else high
        raise ValueError(f"Token id {bad} is outside this target's vocabulary of {vocab_size}.")
