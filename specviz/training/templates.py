"""Fill the templates of the training prompts with words.

A template has slots: ``$word`` for a word of that list, ``$word2`` for another one of the same
list, ``$Word`` for the first with a capital, ``${bare_word}`` for it without its article, and
``${a_2_9}`` or ``${a_10_90_5}`` for a whole number between two others, in steps. A word may
have slots of its own; they are shared with the template, so that a name stays the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from string import Template
from typing import Any

import numpy as np

from specviz._data_files import data_file
from specviz.prompt_set import Message

__all__ = ["distinct_chats", "least_capacity"]

_NUMBER = re.compile(r"[a-z]_(\d+)_(\d+)(?:_(\d+))?")


class _Slots(dict[str, str]):
    """The words of one prompt, drawn when first asked for and never twice from a list."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self._rng = rng
        self._drawn: set[tuple[str, str]] = set()

    def __missing__(self, slot: str) -> str:
        if slot[0].isupper():
            word = self[slot[0].lower() + slot[1:]]
            word = word[0].upper() + word[1:]
        elif slot.startswith("bare_"):
            word = re.sub("^an? ", "", self[slot.removeprefix("bare_")])
        else:
            word = Template(self._draw(slot)).substitute(self)
        self[slot] = word
        return word

    def _draw(self, slot: str) -> str:
        kind, choices = _choices(slot)
        while True:
            word = str(choices[int(self._rng.integers(len(choices)))])
            if (kind, word) not in self._drawn:
                self._drawn.add((kind, word))
                return word


def _choices(slot: str) -> tuple[str, list[str] | range]:
    """Return what may stand in a slot, and a name that slots of the same kind share."""
    if number := _NUMBER.fullmatch(slot):
        low, high, step = (int(part or 1) for part in number.groups())
        return slot[2:], range(low, high + 1, step)
    kind = slot.rstrip("0123456789")
    return kind, _data("words")[kind]


@cache
def _data(name: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = json.loads(
        data_file(f"training/{name}.json").read_text(encoding="utf-8")
    )
    return found


@cache
def _templates(content_type: str) -> list[tuple[Message, ...]]:
    """Return the templates of a type as chats; the file has plain strings for one message."""
    return [
        ({"role": "user", "content": template},) if isinstance(template, str) else tuple(template)
        for template in _data("templates")[content_type]
    ]


def distinct_chats(
    content_type: str, n: int, rng: np.random.Generator
) -> Iterator[tuple[Message, ...]]:
    """Yield `n` different chats of a content type; `least_capacity` says how many there are.

    Examples
    --------
    >>> import numpy as np
    >>> from specviz.training.templates import distinct_chats
    >>> chats = distinct_chats("maths", 3, np.random.default_rng(0))
    >>> [chat[-1]["role"] for chat in chats]
    ['user', 'user', 'user']
    """
    templates = _templates(content_type)
    seen: set[tuple[str, ...]] = set()
    while len(seen) < n:
        slots = _Slots(rng)
        template = templates[int(rng.integers(len(templates)))]
        texts = tuple(Template(message["content"]).substitute(slots) for message in template)
        if texts not in seen:
            seen.add(texts)
            yield tuple(
                {"role": message["role"], "content": text}
                for message, text in zip(template, texts, strict=True)
            )


@cache
def least_capacity(content_type: str) -> int:
    """Count the different chats of a type, without the slots that are inside words.

    Examples
    --------
    >>> from specviz.training.templates import least_capacity
    >>> least_capacity("code") > 20_000
    True
    """
    total = 0
    for template in _templates(content_type):
        text = "\n".join(message["content"] for message in template)
        slots = {name.lower().removeprefix("bare_") for name in Template(text).get_identifiers()}
        ways: dict[str, int] = {}
        product = 1
        for slot in slots:
            kind, choices = _choices(slot)
            product *= len(choices) - ways.get(kind, 0)
            ways[kind] = ways.get(kind, 0) + 1
        total += product
    return total
