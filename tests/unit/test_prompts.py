"""The packaged prompts, the three forms of a line, and what is said about a bad file."""

from __future__ import annotations

import copy
import doctest
import importlib
import json
import pickle
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specviz import _data_files
from specviz._data_files import data_file
from specviz.prompt_set import Prompt, prompts

TYPES = (
    "code",
    "prose",
    "structured",
    "explanation",
    "maths",
    "dialogue",
    "copy_edit",
    "mixed",
)


def line(name="a", content_type="code", content="Write a loop.", **others):
    """Return one good line of our own form."""
    record = {
        "id": name,
        "content_type": content_type,
        "messages": [{"role": "user", "content": content}],
    }
    return json.dumps(record | others)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes lines to a file and returns its path."""

    def write_lines(*lines):
        file = tmp_path / "mine.jsonl"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file

    return write_lines


# --- the packaged set


def test_every_content_type_has_at_least_sixteen_prompts_of_its_own():
    count = Counter(prompt.content_type for prompt in prompts())
    assert set(count) == set(TYPES)
    assert min(count.values()) >= 16


def test_no_line_of_the_packaged_file_is_lost():
    text = data_file("prompts.jsonl").read_text(encoding="utf-8")
    assert len(prompts()) == len(text.splitlines())


def test_ids_are_unique_and_number_the_prompts_of_each_type_in_order():
    seen = Counter()
    for prompt in prompts():
        seen[prompt.content_type] += 1
        stem = prompt.content_type.replace("_", "-")
        assert prompt.id == f"{stem}-{seen[prompt.content_type]:02d}"


def test_no_two_packaged_prompts_begin_alike():
    """A set made from one template would repeat its first words."""
    chats = [" / ".join(message["content"] for message in prompt.messages) for prompt in prompts()]
    assert len(set(chats)) == len(chats)
    openings = Counter(" ".join(chat.split()[:5]) for chat in chats)
    assert openings.most_common(1)[0][1] == 1


def test_packaged_prompts_are_short_but_not_bare():
    for prompt in prompts():
        words = sum(len(message["content"].split()) for message in prompt.messages)
        assert 15 <= words <= 260, prompt.id


def test_packaged_text_is_tidy():
    for prompt in prompts():
        for message in prompt.messages:
            content = message["content"]
            assert content == content.strip(), prompt.id
            bad = [c for c in content if unicodedata.category(c)[0] == "C" and c != "\n"]
            assert not bad, prompt.id
            assert content.count("```") % 2 == 0, prompt.id


def test_packaged_set_has_system_turns_and_long_dialogues():
    roles = [[message["role"] for message in prompt.messages] for prompt in prompts()]
    assert sum(chat[0] == "system" for chat in roles) >= len(TYPES)
    assert sum("assistant" in chat for chat in roles) >= 3
    assert all(chat[-1] == "user" for chat in roles)


# --- the three forms


def test_own_form(write):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello to you"},
        {"role": "user", "content": "Goodbye"},
    ]
    file = write(json.dumps({"id": "x", "content_type": "dialogue", "messages": messages}))
    assert prompts(file) == [Prompt("x", "dialogue", tuple(messages))]


def test_bench_form_keeps_the_first_turn_and_says_so(write):
    file = write(
        json.dumps({"question_id": 81, "category": "writing", "turns": ["First.", "Second."]}),
        json.dumps({"question_id": 82, "category": "qa", "turns": ["Only."], "reference": ["r"]}),
    )
    with pytest.warns(UserWarning, match=r"1 of the 2 prompts have several turns") as caught:
        found = prompts(str(file))
    assert found == [
        Prompt("81", "writing", ({"role": "user", "content": "First."},)),
        Prompt("82", "qa", ({"role": "user", "content": "Only."},)),
    ]
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_bench_form_with_single_turns_does_not_warn(write):
    file = write(json.dumps({"question_id": "q", "category": "qa", "turns": ["Only."]}))
    assert prompts(file)[0].id == "q"


def test_human_eval_form_asks_to_complete_the_function(write):
    code = '\n\ndef double(x):\n    """Return twice x."""\n'
    file = write(json.dumps({"task_id": "HumanEval/0", "prompt": code, "test": "assert True"}))
    (prompt,) = prompts(file)
    assert (prompt.id, prompt.content_type) == ("HumanEval/0", "code")
    (message,) = prompt.messages
    assert message["role"] == "user"
    assert message["content"].startswith("Complete this Python function.")
    assert message["content"].endswith('```python\ndef double(x):\n    """Return twice x."""\n```')


def test_forms_may_share_a_file(write):
    file = write(
        json.dumps({"task_id": "t", "prompt": "def f():"}),
        line("own", "prose"),
        json.dumps({"question_id": 3, "category": "qa", "turns": ["Why?"]}),
    )
    assert [prompt.id for prompt in prompts(file)] == ["t", "own", "3"]


def test_further_fields_beside_the_chat_are_allowed(write):
    assert prompts(write(line(licence="MIT", note=["x"]))) == prompts(write(line()))


# --- the file itself


def test_blank_lines_bom_and_windows_line_ends_are_accepted(tmp_path):
    file = tmp_path / "windows.jsonl"
    text = f"\r\n{line('a')}\r\n   \r\n{line('b')}"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert [prompt.id for prompt in prompts(file)] == ["a", "b"]


def test_unusual_separators_inside_a_string_do_not_end_the_line(tmp_path):
    content = "one\u2028two\u0085three"
    record = json.loads(line(content=content))
    file = tmp_path / "separators.jsonl"
    file.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    assert prompts(file)[0].messages[0]["content"] == content


def test_a_whole_surrogate_pair_is_one_character(write):
    assert "\\ud83d\\ude00" in line(content="\U0001f600")
    assert prompts(write(line(content="\U0001f600")))[0].messages[0]["content"] == "\U0001f600"


def test_home_folder_is_expanded(write, monkeypatch):
    file = write(line())
    monkeypatch.setenv("HOME", str(file.parent))
    monkeypatch.setenv("USERPROFILE", str(file.parent))
    assert prompts("~/mine.jsonl") == prompts(file)


printable = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
message_lists = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": printable}
    ),
    max_size=3,
)


@given(
    chats=st.dictionaries(
        printable, st.tuples(printable, message_lists, printable), min_size=1, max_size=5
    ),
    escape=st.booleans(),
)
def test_own_form_round_trip(tmp_path_factory, chats, escape):
    expected = [
        Prompt(name, kind, (*messages, {"role": "user", "content": last}))
        for name, (kind, messages, last) in chats.items()
    ]
    file = tmp_path_factory.mktemp("round") / "trip.jsonl"
    records = (
        {"id": p.id, "content_type": p.content_type, "messages": p.messages} for p in expected
    )
    text = "\n".join(json.dumps(record, ensure_ascii=escape) for record in records)
    file.write_bytes(text.encode())
    assert prompts(file) == expected


# --- choosing


def test_limit_takes_the_first_prompts_of_each_type_in_file_order(write):
    file = write(
        line("p1", "prose"),
        line("c1", "code"),
        line("p2", "prose"),
        line("p3", "prose"),
        line("c2", "code"),
        line("m1", "maths"),
    )

    def ids(**choice):
        return [prompt.id for prompt in prompts(file, **choice)]

    assert ids() == ["p1", "c1", "p2", "p3", "c2", "m1"]
    assert ids(limit=1) == ["p1", "c1", "m1"]
    assert ids(limit=2) == ["p1", "c1", "p2", "c2", "m1"]
    assert ids(limit=99) == ids()
    assert ids(limit=np.int64(1)) == ids(limit=1)
    assert ids(content_type="prose") == ["p1", "p2", "p3"]
    assert ids(content_type=["maths", "code"]) == ["c1", "c2", "m1"]
    assert ids(content_type=("code", "prose", "code"), limit=1) == ["p1", "c1"]


@pytest.mark.parametrize("limit", [0, -3, 2.0, True, "5"])
def test_limit_must_be_a_positive_whole_number(limit):
    with pytest.raises(ValueError, match="limit must be a positive whole number, not ") as error:
        prompts(limit=limit)
    assert repr(limit) in str(error.value)


@pytest.mark.parametrize(
    ("asked", "meant"), [("math", "maths"), ("CODE", "code"), ("copy-edit", "copy_edit")]
)
def test_unknown_content_type_suggests_a_close_one(asked, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'\\?") as error:
        prompts(content_type=["prose", asked])
    said = str(error.value)
    assert "prompts.jsonl" in said
    assert f"no prompt in {data_file('prompts.jsonl')} has the content type {asked!r}" in said
    assert said.endswith(", ".join(repr(name) for name in TYPES))


def test_content_type_with_no_close_match_still_lists_the_types(write):
    with pytest.raises(ValueError, match="has the content type 'zzzz'; the types there are 'x'"):
        prompts(write(line(content_type="x")), content_type="zzzz")


def test_no_content_type_at_all_is_an_error():
    with pytest.raises(ValueError, match="content_type is empty; leave it out"):
        prompts(content_type=[])


# --- what is said about a bad file


def chat(*messages):
    return line(messages=list(messages))


USER = {"role": "user", "content": "Hello"}

BAD_LINES = {
    "not JSON": (
        "{'id': 'b'}",
        "not JSON (Expecting property name enclosed in double quotes at column 2); "
        "write one complete JSON object on each line",
    ),
    "two objects": (line("b") + line("c"), "not JSON (Extra data at column "),
    "cut off": (line("b")[:-1], "not JSON ("),
    "too deep": ("[" * 200_000, "the JSON is nested too deeply"),
    "a list": ('["b"]', "expected a JSON object, found a list; write each prompt as {"),
    "a string": ('"b"', "expected a JSON object, found a string"),
    "a number": ("1", "expected a JSON object, found a number"),
    "null": ("null", "expected a JSON object, found null"),
    "true": ("true", "expected a JSON object, found a boolean"),
    "a field twice": (
        '{"id": "b", "id": "c", "content_type": "x", "messages": []}',
        "the field 'id' appears 2 times in one object; keep one",
    ),
    "nothing known": (
        '{"text": "Hello"}',
        "none of the fields is known; a line needs 'id', 'content_type', 'messages', "
        "or 'question_id', 'category', 'turns', or 'task_id', 'prompt'",
    ),
    "no content type": (
        json.dumps({"id": "b", "messages": [USER]}),
        "no field 'content_type'; needed here are 'id', 'content_type', 'messages'",
    ),
    "no category": (
        json.dumps({"question_id": 1, "turns": ["Why?"]}),
        "no field 'category'; needed here are 'question_id', 'category', 'turns'",
    ),
    "no HumanEval prompt": (
        json.dumps({"task_id": "HumanEval/1"}),
        "no field 'prompt'; needed here are 'task_id', 'prompt'",
    ),
    "id of a wrong type": (line(None), "'id' must be a string, not null"),
    "id is true": (line(True), "'id' must be a string, not a boolean"),
    "empty id": (line(" "), "'id' is empty; write some text in it"),
    "empty content type": (line("b", ""), "'content_type' is empty"),
    "messages no list": (
        line(messages=USER),
        "'messages' must be a list of messages, not an object",
    ),
    "no messages": (chat(), "'messages' is empty; it needs at least one message from the user"),
    "message no object": (
        chat("Hello"),
        "message 1: expected an object with 'role' and 'content', not a string",
    ),
    "message without content": (
        chat(USER, {"role": "user"}),
        "message 2: no field 'content'; needed here are 'role', 'content'",
    ),
    "message with more": (
        chat(USER | {"name": "Ada"}),
        "message 1: cannot use 'name'; keep only 'role' and 'content'",
    ),
    "unknown role": (
        chat({"role": "human", "content": "Hello"}),
        "message 1: the role 'human' must be one of 'system', 'user', 'assistant'",
    ),
    "role of a wrong type": (
        chat({"role": ["user"], "content": "Hello"}),
        "message 1: the role ['user'] must be one of",
    ),
    "content no string": (
        chat({"role": "user", "content": ["Hello"]}),
        "message 1: 'content' must be a string, not a list",
    ),
    "empty content": (line(content=" \n"), "message 1: 'content' is empty; write some text in it"),
    "last from the model": (
        chat(USER, {"role": "assistant", "content": "Hi"}),
        "the last message is from 'assistant'; end the chat with a message from 'user'",
    ),
    "half a pair": (
        line(content="x\ud800y"),
        "message 1: 'content' has half of a surrogate pair",
    ),
    "half a pair in the id": (line("\udfff"), "'id' has half of a surrogate pair"),
    "turns no list": (
        json.dumps({"question_id": 1, "category": "qa", "turns": "Why?"}),
        "'turns' must be a list with at least one string in it",
    ),
    "no turns": (
        json.dumps({"question_id": 1, "category": "qa", "turns": []}),
        "'turns' must be a list with at least one string in it",
    ),
    "turn no string": (
        json.dumps({"question_id": 1, "category": "qa", "turns": [7]}),
        "'turns[0]' must be a string, not a number",
    ),
    "empty HumanEval prompt": (
        json.dumps({"task_id": "HumanEval/1", "prompt": "\n"}),
        "'prompt' is empty",
    ),
    "an id twice": (
        line("good"),
        "the id 'good' is already used on line 1; give each prompt an id of its own",
    ),
}


@pytest.mark.parametrize(("bad", "said"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_named_with_the_reason(write, bad, said):
    file = write(line("good"), "", bad)
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole message is checked below)
        prompts(file)
    assert str(error.value).startswith(f"{file}, line 3: {said}")


def test_ids_of_two_forms_can_clash(write):
    file = write(line("7"), json.dumps({"question_id": 7, "category": "qa", "turns": ["Why?"]}))
    with pytest.raises(ValueError, match="line 2: the id '7' is already used on line 1"):
        prompts(file)


def test_a_missing_file_is_named(tmp_path):
    file = tmp_path / "absent.jsonl"
    with pytest.raises(FileNotFoundError) as error:
        prompts(file)
    assert str(error.value).startswith(f"there is no file {file}; check the path")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(ValueError, match="is a folder; give the path of a JSONL file"):
        prompts(tmp_path)


@pytest.mark.parametrize("text", ["", "\n \n\n", "\ufeff"])
def test_an_empty_file_is_an_error(tmp_path, text):
    file = tmp_path / "empty.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="holds no prompts; write one JSON object") as error:
        prompts(file)
    assert str(error.value).startswith(str(file))


@pytest.mark.parametrize(
    ("data", "number", "byte"),
    [
        (line().encode() + b"\n" + '{"id": "caf\u00e9"}'.encode("latin-1"), 2, "0xe9"),
        (line().encode("utf-16"), 1, "0xf"),
    ],
    ids=["latin-1", "utf-16"],
)
def test_another_encoding_is_named_with_its_line(tmp_path, data, number, byte):
    file = tmp_path / "old.jsonl"
    file.write_bytes(data)
    with pytest.raises(ValueError, match="is not UTF-8; save the file again") as error:
        prompts(file)
    assert str(error.value).startswith(f"{file}, line {number}: the byte {byte}")


# --- the prompt, the data files and the documentation


def test_a_prompt_is_frozen_hashable_and_can_be_copied():
    prompt = prompts(limit=1)[0]
    with pytest.raises(AttributeError):
        prompt.id = "other"
    assert {prompt: 1}[copy.deepcopy(prompt)] == 1
    assert pickle.loads(pickle.dumps(prompt)) == prompt


def test_two_loads_share_nothing():
    prompts()[0].messages[0]["content"] = "changed"
    assert prompts()[0].messages[0]["content"] != "changed"


def test_data_file_prefers_the_installed_folder(tmp_path, monkeypatch):
    package = tmp_path / "specviz"
    monkeypatch.setattr(_data_files, "_PACKAGE", package)
    with pytest.raises(FileNotFoundError, match=r"'x\.txt' of specviz is missing .*reinstall"):
        data_file("x.txt")
    for folder in (tmp_path / "data", package / "_data"):
        folder.mkdir(parents=True)
        (folder / "x.txt").touch()
        assert data_file("x.txt") == folder / "x.txt"


@pytest.mark.parametrize("name", ["specviz.prompt_set", "specviz._data_files"])
def test_documented_examples_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_prompts_load_without_torch():
    code = "import sys, specviz; specviz.prompts(); print('torch' in sys.modules)"
    root = Path(_data_files.__file__).parents[1]
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "False"
