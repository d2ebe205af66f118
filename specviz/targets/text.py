"""Prompts to token ids, token ids to text that is safe to store."""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from typing import Any

from specviz.engine.inputs import Ids, Prompt, as_ids, is_messages


class TextCodec:
    """A transformers tokenizer as specviz uses it.

    Parameters
    ----------
    tokenizer
        Any transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.size = len(tokenizer)

    @property
    def template(self) -> dict[str, str]:
        """The chat template and its SHA-256: a template changes what is accepted."""
        text = self.tokenizer.chat_template or ""
        if not isinstance(text, str):
            text = str(text)
        return {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}

    def render(self, prompt: Prompt) -> str:
        """The text the model sees, chat template applied to messages."""
        if isinstance(prompt, str):
            return prompt
        if is_messages(prompt):
            if not self.tokenizer.chat_template:
                raise ValueError(
                    "This tokenizer has no chat template: give the prompt as a string or ids."
                )
            messages = [dict(message) for message in prompt]
            return self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        return self.decode(as_ids(prompt))

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of text, chat messages, or ids (returned as they are).

        Raises
        ------
        ValueError
            When the prompt is empty.
        """
        if isinstance(prompt, str):
            ids = self.tokenizer(prompt, add_special_tokens=True)["input_ids"]
        elif is_messages(prompt):
            # The template already wrote the special tokens.
            ids = self.tokenizer(self.render(prompt), add_special_tokens=False)["input_ids"]
        else:
            ids = as_ids(prompt)
        if len(ids) == 0:
            raise ValueError("The prompt is empty: give at least one token.")
        return tuple(ids)

    def decode(self, tokens: Ids) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=False)

    def token_text(self, token: int) -> str:
        """One token as text; bytes that are not UTF-8 on their own appear as \\xNN."""
        return self.token_bytes(token).decode("utf-8", "backslashreplace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for (byte-level and byte-fallback vocabularies)."""
        piece = self.tokenizer.convert_ids_to_tokens(int(token))
        if piece is None:
            return b""
        if token in self._special:
            return piece.encode()
        if self._byte_level and all(letter in _letters() for letter in piece):
            return bytes(_letters()[letter] for letter in piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("\u2581", " ").encode("utf-8", "surrogatepass")

    @cached_property
    def _special(self) -> frozenset[int]:
        return frozenset(self.tokenizer.all_special_ids)

    @cached_property
    def _byte_level(self) -> bool:
        """Whether the vocabulary writes bytes as letters (a space is then 'Ġ')."""
        ids = self.tokenizer(" a b", add_special_tokens=False)["input_ids"]
        pieces = self.tokenizer.convert_ids_to_tokens(ids)
        return any("\u0120" in piece for piece in pieces)


@lru_cache(maxsize=1)
def _letters() -> dict[str, int]:
    """The byte-level alphabet: printable bytes stand for themselves, the rest from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in set(printable))
    letters.update({chr(0x100 + i): byte for i, byte in enumerate(rest)})
    return letters


def check_same_tokens(mine: Any, theirs: Any, name: str) -> None:
    """Refuse a drafter whose tokenizer gives tokens other ids than the target's; ValueError."""
    ours, other = mine.get_vocab(), theirs.get_vocab()
    if ours == other:
        return
    different = sorted(t for t in ours.keys() | other.keys() if ours.get(t) != other.get(t))
    shown = ", ".join(
        f"{token!r} ({ours.get(token, 'absent')} against {other.get(token, 'absent')})"
        for token in different[:3]
    )
    raise ValueError(
        f"{name} cannot draft for this target: {len(different)} tokens have other ids, such as "
        f"{shown}. Use a drafter with the target's tokenizer."
    )
