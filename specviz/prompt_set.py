"""Sets of prompts: the one that comes with specviz, and JSONL files of your own."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from specviz._data_files import data_file
from specviz.refuse import whole

__all__ = ["Message", "Prompt", "prompts"]

_ROLES = ("system", "user", "assistant")


class Message(TypedDict):
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat that ends with a message from the user, ready to be answered.

    Attributes
    ----------
    id : str
        A name that no other prompt of the same set has.
    content_type : str
        The kind of text that is asked for, for example ``"code"``.
    messages : tuple of dict
        The chat. Each message has a ``role`` (``"system"``, ``"user"`` or
        ``"assistant"``) and a ``content``.

    Examples
    --------
    >>> from specviz.prompt_set import Prompt
    >>> hello = Prompt("hello", "dialogue", ({"role": "user", "content": "Hello!"},))
    >>> hello.messages[-1]["content"]
    'Hello!'
    """

    id: str
    content_type: str
    # Dictionaries cannot be hashed; without them a prompt can still be a key.
    messages: tuple[Message, ...] = field(hash=False)


def prompts(
    path: str | os.PathLike[str] | None = None,
    content_type: str | Iterable[str] | None = None,
    limit: int | None = None,
) -> list[Prompt]:
    """Load a set of prompts, in the order of the file.

    Parameters
    ----------
    path : str or path-like, optional
        A JSONL file in UTF-8. Without it, the set that comes with specviz is
        loaded. Blank lines are skipped, and each of the other lines may have any
        of the three forms in the notes.
    content_type : str or sequence of str, optional
        Keep only the prompts of this content type, or of these.
    limit : int, optional
        Keep at most this many prompts *of each content type*: the first ones in
        the file.

    Returns
    -------
    list of Prompt
        The prompts in the order of the file, whatever the order of
        `content_type`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a line of the file cannot be used, if no prompt has a content type that
        was asked for, or if `limit` is not a positive whole number. For a bad line
        the message gives the file, the number of the line and the remedy.

    Warns
    -----
    UserWarning
        If a file has lines with several turns, of which only the first is used.

    Notes
    -----
    The form of a line is recognised by its fields. Further fields, such as a
    licence or a reference answer, may be there and are not read.

    ==================  ======================================  ===================
    Form                Fields                                  Content type
    ==================  ======================================  ===================
    specviz             ``id``, ``content_type``, ``messages``  ``content_type``
    Spec-Bench,         ``question_id``, ``category``,          ``category``
    MT-Bench            ``turns``
    HumanEval           ``task_id``, ``prompt``                 ``"code"``
    ==================  ======================================  ===================

    Of ``turns`` only the first becomes a message, since each later turn replies to
    an answer that the model has yet to give. The ``prompt`` of HumanEval is the
    beginning of a function, and is wrapped in a request to complete it.

    Examples
    --------
    >>> from specviz.prompt_set import prompts
    >>> [prompt.id for prompt in prompts(content_type=["maths", "code"], limit=2)]
    ['code-01', 'code-02', 'maths-01', 'maths-02']
    """
    _check_limit(limit)
    file = data_file("prompts.jsonl") if path is None else Path(path).expanduser()
    found, cut_short = _read(file)
    if cut_short:
        warnings.warn(
            f"{file}: {cut_short} of the {len(found)} prompts have several turns, of which only "
            "the first is used, because the later ones need the model's own answers",
            stacklevel=2,
        )
    if content_type is not None:
        found = _of_types(found, content_type, file)
    return found if limit is None else _first_of_each_type(found, limit)


# --- choosing from the set


def _check_limit(limit: int | None) -> None:
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 1:
        raise ValueError(
            f"limit must be a positive whole number, not {limit!r}; "
            "leave it out to load every prompt"
        )


def _of_types(found: list[Prompt], content_type: str | Iterable[str], file: Path) -> list[Prompt]:
    wanted = [content_type] if isinstance(content_type, str) else list(content_type)
    if not wanted:
        raise ValueError("content_type is empty; leave it out to load every content type")
    present = list(dict.fromkeys(prompt.content_type for prompt in found))
    for name in wanted:
        if name not in present:
            close = difflib.get_close_matches(str(name).casefold(), present, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(
                f"no prompt in {file} has the content type {name!r}; {hint}"
                f"the types there are {_listed(present)}"
            )
    return [prompt for prompt in found if prompt.content_type in wanted]


def _first_of_each_type(found: list[Prompt], limit: int) -> list[Prompt]:
    kept: list[Prompt] = []
    count: Counter[str] = Counter()
    for prompt in found:
        count[prompt.content_type] += 1
        if count[prompt.content_type] <= limit:
            kept.append(prompt)
    return kept


# --- reading a file


def _read(file: Path) -> tuple[list[Prompt], int]:
    """Return the prompts of a file, and how many of them lost their later turns."""
    found: list[Prompt] = []
    cut_short = 0
    line_of: dict[str, int] = {}
    # Only "\n" ends a line: JSON strings may hold the other separators of splitlines.
    for number, line in enumerate(_decoded(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = _parsed(line)
            form = _form_of(record)
            prompt = form.build(record)
            if prompt.id in line_of:
                raise ValueError(
                    f"the id {prompt.id!r} is already used on line {line_of[prompt.id]}; "
                    "give each prompt an id of its own"
                )
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
        line_of[prompt.id] = number
        found.append(prompt)
        cut_short += form is _BENCH and len(record["turns"]) > 1
    if not found:
        raise ValueError(f"{file} holds no prompts; write one JSON object on each line")
    return found, cut_short


def _decoded(file: Path) -> str:
    if file.is_dir():
        raise ValueError(f"{file} is a folder; give the path of a JSONL file")
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file {file}; check the path, or leave it out to load the prompts "
            "that come with specviz"
        ) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        raise ValueError(
            f"{file}, line {number}: the byte 0x{byte:02x} is not UTF-8; "
            "save the file again with the encoding UTF-8"
        ) from None


def _parsed(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON ({error.msg} at column {error.colno}); "
            "write one complete JSON object on each line"
        ) from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply; a prompt needs no such depth") from None
    if not isinstance(record, dict):
        raise ValueError(
            f"expected a JSON object, found {_kind(record)}; "
            'write each prompt as {"id": ..., "content_type": ..., "messages": ...}'
        )
    return record


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Of two equal keys the json module would quietly keep the second.
    for key, times in Counter(key for key, _ in pairs).items():
        if times > 1:
            raise ValueError(f"the field {key!r} appears {times} times in one object; keep one")
    return dict(pairs)


# --- the three forms of a line


def _own(record: dict[str, Any]) -> Prompt:
    messages = record["messages"]
    if not isinstance(messages, list):
        raise ValueError(f"'messages' must be a list of messages, not {_kind(messages)}")
    if not messages:
        raise ValueError("'messages' is empty; it needs at least one message from the user")
    chat = tuple(_message(message, place) for place, message in enumerate(messages, start=1))
    if chat[-1]["role"] != "user":
        raise ValueError(
            f"the last message is from {chat[-1]['role']!r}; "
            "end the chat with a message from 'user', for the model to answer"
        )
    return Prompt(_id(record, "id"), _text(record, "content_type"), chat)


def _message(message: Any, place: int) -> Message:
    try:
        if not isinstance(message, dict):
            raise ValueError(f"expected an object with 'role' and 'content', not {_kind(message)}")
        _require(message, ("role", "content"))
        unknown = [key for key in message if key not in ("role", "content")]
        if unknown:
            # Unlike a note beside the chat, this might be meant for the model.
            raise ValueError(f"cannot use {_listed(unknown)}; keep only 'role' and 'content'")
        if message["role"] not in _ROLES:
            raise ValueError(f"the role {message['role']!r} must be one of {_listed(_ROLES)}")
        return {"role": message["role"], "content": _text(message, "content")}
    except ValueError as error:
        raise ValueError(f"message {place}: {error}") from None


def _bench(record: dict[str, Any]) -> Prompt:
    turns = record["turns"]
    if not isinstance(turns, list) or not turns:
        raise ValueError("'turns' must be a list with at least one string in it")
    content = _text({"turns[0]": turns[0]}, "turns[0]")
    return Prompt(_id(record, "question_id"), _text(record, "category"), _asked(content))


def _human_eval(record: dict[str, Any]) -> Prompt:
    code = _text(record, "prompt").strip("\n")
    request = (
        "Complete this Python function. Answer with the whole function in one code block.\n\n"
        f"```python\n{code}\n```"
    )
    return Prompt(_id(record, "task_id"), "code", _asked(request))


class _Form(NamedTuple):
    fields: tuple[str, ...]
    build: Callable[[dict[str, Any]], Prompt]


_OWN = _Form(("id", "content_type", "messages"), _own)
_BENCH = _Form(("question_id", "category", "turns"), _bench)
_HUMAN_EVAL = _Form(("task_id", "prompt"), _human_eval)


def _form_of(record: dict[str, Any]) -> _Form:
    """Return the form that fits best, so that an error names the field that is missing."""
    forms = (_OWN, _BENCH, _HUMAN_EVAL)
    if not any(name in record for form in forms for name in form.fields):
        known = ", or ".join(_listed(form.fields) for form in forms)
        raise ValueError(f"none of the fields is known; a line needs {known}")
    form = max(forms, key=lambda form: sum(name in record for name in form.fields))
    _require(record, form.fields)
    return form


# --- small parts


def _asked(content: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": content},)


def _require(record: dict[str, Any], fields: Iterable[str]) -> None:
    missing = [name for name in fields if name not in record]
    if missing:
        raise ValueError(f"no field {_listed(missing)}; needed here are {_listed(fields)}")


def _id(record: dict[str, Any], name: str) -> str:
    value = record[name]
    # The benches number their questions.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text(record, name)


def _text(record: dict[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise ValueError(f"{name!r} must be a string, not {_kind(value)}")
    if not value.strip():
        raise ValueError(f"{name!r} is empty; write some text in it")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(
            f"{name!r} has half of a surrogate pair (an escape from \\ud800 to \\udfff that "
            "stands alone), which no encoding can write; remove it or write the whole character"
        )
    return value


def _kind(value: object) -> str:
    """Name the type of a JSON value in the words of JSON."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def _listed(names: Iterable[object]) -> str:
    return ", ".join(repr(name) for name in names)


def prompt_seed(seed: int, prompt_id: str) -> int:
    """The seed that a sampled capture, or `run_prompts`, decodes this prompt with.

    Made of the prompt's id and not of its place in a list, so that a prompt has the same answer
    alone and among others. `seed` is `trace.meta.seed` and the id is in `trace.sequences`.

    Examples
    --------
    >>> prompt_seed(0, "code-01") == prompt_seed(0, "code-01") != prompt_seed(1, "code-01")
    True
    """
    text = f"{whole('seed', seed, least=0)} {prompt_id}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])
