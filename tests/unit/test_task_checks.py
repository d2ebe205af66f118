"""Checks without likelihood: what is broken fails, and nothing fails for being cut."""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.levers.task_checks import asks_for, json_parses, python_compiles, task_check
from specviz.prompt_set import prompts
from tests import synthetic

LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
DOCUMENT = st.lists(VALUE, max_size=4) | st.dictionaries(st.text(), VALUE, max_size=4)


@settings(max_examples=150, deadline=None)
@given(DOCUMENT.filter(lambda x: not _infinite(x)), st.booleans(), st.data())
def test_every_beginning_of_json_begins_json(value: Any, ascii_only: bool, data: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=data.draw(st.sampled_from([None, 2])))
    assert json_parses(text)
    part = text[: data.draw(st.integers(1, len(text)))]
    assert json_parses(part, cut=True)
    assert json_parses(part) is (part.rstrip() == text)


def _infinite(value: Any) -> bool:
    return "Infinity" in json.dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a" 1',
        '{"a": 1]',
        "[1 2",
        "[1, ]",
        "{a: 1",
        "{'a'",
        '{"a": 1,}',
        '{"a": trie',
        '["\\x',
        '["\\u12x',
        '["a\nb',
        "[01",
        "[1.e",
        "[NaN]",
        "[Infinity",
        '{"a": 1, "b": 2, "a"',
        '[{"a": {"b": 1, "b": 2}',
        "[1] and so",
        "Here it is: [",
        "12",
        '"text"',
    ],
)
def test_what_no_ending_mends_fails_cut_or_not(text: str) -> None:
    assert json_parses(text) is False
    assert json_parses(text, cut=True) is False


def test_a_name_that_only_begins_like_another_is_no_repeat() -> None:
    assert json_parses('{"a": 1, "a', cut=True)
    assert json_parses('{"a": 1, ', cut=True)
    assert json_parses('{"": 1, "0": 2, "00": 3, "', cut=True)
    assert json_parses('[{"a": 1}, {"a": {"a": 2}}]')
    assert not json_parses('{"a": 1, "a": 1}')


def test_json_lines_are_checked_line_by_line() -> None:
    good = '{"a": 1}\n\n{"a": 2}\n'
    assert json_parses(good, lines=True)
    assert not json_parses(good)
    cut = '{"a": 1}\n{"a": 2'
    assert json_parses(cut, cut=True, lines=True)
    assert not json_parses(cut, lines=True)
    assert not json_parses('{"a": 1\n{"a": 2', cut=True, lines=True)  # only the last line is cut
    assert not json_parses("", lines=True)
    assert json_parses("\n", cut=True, lines=True) is None


PROGRAMS = [
    inspect.getsource(json.decoder),
    inspect.getsource(textwrap),
    Path(synthetic.__file__).read_text(encoding="utf-8"),
    "try:\n    pass\nexcept (A,\n        B):\n    x = '''a\n    b'''\nelse:\n    y = f(1,\n  2)\n",
    "@property\n@other(1)\nasync def f(a, *, b=2):\n    async with a as b:\n        await b\n",
    "if a:\n    b\nelif c:\n    d = [\n        1,\n    ]\n",
]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_every_beginning_of_a_program_compiles_up_to_the_cut(program: str) -> None:
    assert python_compiles(program)
    step = max(1, len(program) // 120)
    first_line = program.index("\n") + 1
    for end in range(first_line + 1, len(program), step):
        assert python_compiles(program[:end], cut=True), program[:end][-80:]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x)\n    return x\n",
        "def f(x):\nreturn x\n",
        "if x = 3:\n    pass\n",
        "x = (1, 2]\ny = 3\n",
        "for i in range(3):\n    print i\nelse:\n    pass\n",
        "return 3\nx = 2\n",
        "Here is the function you want.\nIt adds two numbers\n",
        "    x = 1\n  y = 2\nz",
        "x = 'open\ny = 2\n",
        "x = 1\0\ny\n",
        "function f(x) {\n  return x;\n}\n",
    ],
)
def test_what_is_wrong_before_the_cut_fails_cut_or_not(text: str) -> None:
    assert python_compiles(text) is False
    assert python_compiles(text, cut=True) is False
    fenced = f"```python\n{text}"
    assert python_compiles(fenced) is False
    assert python_compiles(fenced, cut=True) is False


def test_the_cut_excuses_only_the_block_that_it_cuts() -> None:
    closed = "```python\nx = (1,\n```\nThat is all. Now"
    assert python_compiles(closed, cut=True) is False
    two = "```python\nx = 1\n```\nand\n```python\ny = (2,\n"
    assert python_compiles(two) is False
    assert python_compiles(two, cut=True) is True
    broken = "```python\nx 1\n```\nand\n```python\ny = (2,\n"
    assert python_compiles(broken, cut=True) is False


def test_blocks_of_another_language_are_not_checked() -> None:
    text = "Install:\n```bash\npip install it\n```\nThen:\n```python\nimport it\n```\n"
    assert python_compiles(text)
    assert python_compiles(text + "It prints\n```\nhello world again\n```")  # a nameless block
    assert python_compiles("```\nx = 1\n```")
    assert python_compiles("```\nx 1\n```") is False
    assert python_compiles("~~~py\nx = 1\n~~~\n")
    assert python_compiles("1. So:\n   ```python\n   x = 1\n   ```\n")
    assert python_compiles("```rust\nfn main() {}\n```") is False
    assert json_parses('Here:\n```json\n{"a": 1}\n```\nDone.')
    assert json_parses('Here:\n```json\n{"a": 1\n```\nDone.', cut=True) is False
    assert json_parses('```json\r\n{"a": 1}\r\n```\r\n')
    assert python_compiles("```python\ns = '''\n```js\n'''\n```\n")  # a fence inside a block


@pytest.mark.parametrize("end", ["`", "``", "```", "```\n", "\n"])
def test_a_closing_fence_may_be_cut_itself(end: str) -> None:
    assert json_parses('```json\n{"a": 1}\n' + end, cut=True)
    assert python_compiles("```python\nx = 1\n" + end, cut=True)


def test_nothing_yet_is_neither_right_nor_wrong() -> None:
    for check in (python_compiles, json_parses):
        assert check("") is False
        assert check("", cut=True) is None
        assert check("```", cut=True) is None
        assert check("```pyth", cut=True) is None
        assert check("```\n\n", cut=True) is None
    assert python_compiles("x = (", cut=True)  # asks for more
    assert python_compiles("x = y z", cut=True) is None  # the only line, and it is cut
    assert python_compiles("```bash\npip install it\n```\nThen", cut=True) is None


def test_nothing_emitted_is_run() -> None:
    assert python_compiles("import builtins\nbuiltins.ran = True\nraise SystemExit\n")
    import builtins

    assert not hasattr(builtins, "ran")


@pytest.mark.parametrize("text", ["(" * 5000, "[" * 100_000, "-" * 5000 + "1", "x" * 10**6])
def test_monstrous_text_is_an_answer_too(text: str) -> None:
    assert python_compiles(text) in (True, False)
    assert json_parses(text, cut=True) in (True, False)


def test_which_prompts_have_a_check() -> None:
    asked: dict[str, list[str]] = {}
    for prompt in prompts():
        text = "\n".join(message["content"] for message in prompt.messages)
        kind = asks_for(prompt.content_type, text)
        if kind:
            asked.setdefault(kind, []).append(prompt.id)
    assert asked["json-lines"] == ["structured-11"]
    assert asked["json"] == [f"structured-{i}" for i in ("01", "07", "08", "13", "14", "18")]
    assert asked["python"] == [
        f"code-{i}" for i in ("01", "02", "05", "07", "09", "10", "12", "14", "16", "17")
    ]
    assert task_check("mixed", "Explain Python.", "```python\nx = (\n```") == (None, None)
    assert task_check("code", "Write Python.", "x = (") == ("python", False)
    assert task_check("structured", "As JSON Lines, please.", "[1]\n[2]") == ("json-lines", True)
