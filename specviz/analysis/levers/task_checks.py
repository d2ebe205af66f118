"""Does the emitted code still compile, does the emitted JSON still parse?

Checks of a text that ask no model how likely it is. Nothing that was emitted is ever run: Python
is compiled and thrown away. A text that the token limit cut must not fail for the cut alone, so
with `cut` it passes when something could follow that makes it right.
"""

from __future__ import annotations

import codeop
import json
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from itertools import product

PYTHON, JSON, JSON_LINES = "python", "json", "json-lines"
#: What a block may be called to be of that language; nameless blocks count where none is.
_TAGS = {
    PYTHON: {"python", "py", "python3"},
    JSON: {"json", "geojson"},
    JSON_LINES: {"jsonl", "json", "jsonlines", "ndjson"},
}
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+.-]*)[^\n`]*$")
#: What compile and the JSON parser raise for text they cannot read; deep nesting is one of them.
_UNREADABLE = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)


def asks_for(content_type: str, prompt: str) -> str | None:
    """What a prompt wants to have, if there is a check for it: "python", "json" or "json-lines".

    Code whose prompt speaks of Python, and structured text whose prompt speaks of JSON; None
    for everything else, where no parser can say whether a text is right.

    Examples
    --------
    >>> asks_for("code", "Write a Python function."), asks_for("code", "Write a Bash script.")
    ('python', None)
    """
    if content_type == "code" and re.search(r"\b(python|pytest)\b", prompt, re.IGNORECASE):
        return PYTHON
    if content_type == "structured" and re.search(r"\bJSON\b", prompt):
        return JSON_LINES if re.search(r"\bJSON Lines\b", prompt) else JSON
    return None


def task_check(
    content_type: str, prompt: str, text: str, cut: bool = False
) -> tuple[str | None, bool | None]:
    """The check that a prompt has (see `asks_for`), and whether `text` passes it.

    Examples
    --------
    >>> task_check("structured", "Give me JSON.", '[{"year": 19', cut=True)
    ('json', True)
    >>> task_check("prose", "Tell me a story.", "Once upon")
    (None, None)
    """
    kind = asks_for(content_type, prompt)
    if kind is None:
        return None, None
    if kind == PYTHON:
        return kind, python_compiles(text, cut)
    return kind, json_parses(text, cut, lines=kind == JSON_LINES)


def python_compiles(text: str, cut: bool = False) -> bool | None:
    """Whether the Python in a text compiles; with `cut`, whether it compiles up to the cut.

    Parameters
    ----------
    text
        An answer: its fenced blocks marked as Python, else its nameless blocks, are the code;
        without any fence all of the text is.
    cut
        The text was ended by the token limit. A block that it left open (or the text, without
        fences) then loses its last line, which the cut may have broken, and passes when
        Python's parser accepts the rest or only asks for more.

    Returns
    -------
    bool or None
        True when every block compiles; False, too, when there is nothing that is Python. None
        when there is nothing to check yet: no whole line before the cut, or no block of Python
        in a text that has other blocks.

    Examples
    --------
    >>> python_compiles("def f(x):\\n    return x +"), python_compiles("def f(x):\\n    return x")
    (False, True)
    >>> python_compiles("def f(x):\\n    return x +", cut=True)
    True
    >>> python_compiles("def f(x)\\n    return x +", cut=True)       # no colon: the cut is innocent
    False
    """
    return _every(_blocks(text, PYTHON, cut), cut, _compiles)


def json_parses(text: str, cut: bool = False, lines: bool = False) -> bool | None:
    """Whether the JSON in a text parses; with `cut`, whether it begins a JSON text.

    Parameters
    ----------
    text
        An answer: its fenced blocks marked as JSON, else its nameless blocks, are the JSON;
        without any fence all of the text is. Each is one object or array.
    cut
        The text was ended by the token limit: a block that it left open (or the text, without
        fences) passes when some ending makes it an object or array.
    lines
        JSON Lines: an object or array on every line that is not blank.

    Returns
    -------
    bool or None
        True when every block parses; False, too, when there is nothing that is JSON. None when
        the cut leaves nothing to check.

    Notes
    -----
    As strict as RFC 7493 (I-JSON): NaN, Infinity and an object with one name twice, which
    Python's parser lets pass, are refused. Of two values of one name a reader keeps one at best.

    Examples
    --------
    >>> json_parses('{"a": [1, 2'), json_parses('{"a": [1, 2', cut=True)
    (False, True)
    >>> json_parses('{"a": [1, 2}', cut=True)
    False
    """

    blocks = _blocks(text, JSON_LINES if lines else JSON, cut)
    if lines:
        blocks = [row for block in blocks for row in _rows(*block)]
    return _every(blocks, cut, _json_text)


Block = tuple[str, bool]  # its text, and whether the token limit cut it


def _blocks(text: str, kind: str, cut: bool) -> list[Block]:
    """The parts of a text that are of one kind; all of it when it has no fence."""
    named: list[Block] = []
    nameless: list[Block] = []
    lines = text.split("\n")
    fence, tag, start = "", "", 0
    fenced = False
    for i, line in enumerate(lines):
        mark = _FENCE.match(line.rstrip("\r"))
        if not fence and mark:
            fence, tag, start, fenced = mark[1], mark[2].lower(), i + 1, True
        elif fence and mark and not mark[2] and mark[1].startswith(fence):
            _sort_in("\n".join(lines[start:i]), False, tag, kind, named, nameless)
            fence = ""
    if fence and start < len(lines):
        if cut and lines[-1].strip() and fence.startswith(lines[-1].strip()):
            lines.pop()  # half of the fence that would have closed the block
        _sort_in("\n".join(lines[start:]), cut, tag, kind, named, nameless)
    return (named or nameless) if fenced else [(text, cut)]


def _sort_in(
    text: str, cut: bool, tag: str, kind: str, named: list[Block], nameless: list[Block]
) -> None:
    if tag in _TAGS[kind]:
        named.append((text, cut))
    elif not tag:
        nameless.append((text, cut))


def _rows(text: str, cut: bool) -> list[Block]:
    """The lines of a block that are not blank; only the last can be cut."""
    rows = text.split("\n")
    return [(row, cut and i == len(rows) - 1) for i, row in enumerate(rows) if row.strip()]


def _every(
    blocks: list[Block], cut: bool, check: Callable[[str, bool], bool | None]
) -> bool | None:
    """Whether all blocks pass, those apart that have nothing to check."""
    found = [check(*block) for block in blocks]
    if False in found:
        return False
    # Without a block, one may still have come after the cut.
    return True if True in found else (None if cut else False)


def _compiles(block: str, cut: bool) -> bool | None:
    source = textwrap.dedent(block)
    if _accepted(source, cut):
        return True
    if not cut:
        return False
    kept = source.rpartition("\n")[0]
    return _accepted(kept, cut) if kept.strip() else None


def _accepted(source: str, cut: bool) -> bool:
    """Whether Python's compiler takes it or, after a cut, only asks for more."""
    if not source.strip():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return codeop.compile_command(source, "<emitted>", "exec") is not None or cut
        except _UNREADABLE:
            return False


def _json_text(text: str, cut: bool) -> bool | None:
    text = text.lstrip()
    if not text:
        return None if cut else False
    if text[0] not in "{[":
        return False
    return _loads(text) or (cut and any(_loads(text + ending) for ending in _endings(text)))


def _loads(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
    except _UNREADABLE:
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(name)


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name twice")


def _endings(text: str) -> Iterator[str]:
    """Endings of which one makes the text JSON, if any ending does."""
    closers: list[str] = []
    quoted = escaped = False
    for letter in text:
        if quoted:
            quoted = letter != '"' or escaped
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "{[":
            closers.append("}" if letter == "{" else "]")
        elif letter in "}]" and closers:
            closers.pop()
    close = "".join(reversed(closers))
    # Longer than any string of the text, so that no name is there twice.
    new = "0" * len(text)
    if quoted:  # finish an escape, then the string, which may be a name
        for rest, end in product(("", "n"), ('"', '":0')):
            yield rest + new + end + close
    else:  # nothing, a number, a value, a pair, or the rest of true, false or null
        words = [word[i:] for word in ("true", "false", "null") for i in range(1, len(word))]
        for rest in ("", "0", ":0", f'"{new}":0', *words):
            yield rest + close
