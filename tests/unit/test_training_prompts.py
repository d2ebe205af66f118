"""The training prompts: many, all different, well formed, and none of the evaluation set."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from string import Template

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz._data_files import data_file
from specviz.prompt_set import Prompt, prompts
from specviz.training import templates
from specviz.training.prompts import CONTENT_TYPES, text_prompts, training_prompts

SAMPLE = training_prompts(4000, seed=7)
WORDS = json.loads(data_file("training/words.json").read_text(encoding="utf-8"))
#: Closed lists of the world; every other list must be long.
CLOSED = {"month", "day", "unit", "language"}


def texts(prompt: Prompt) -> list[str]:
    return [message["content"] for message in prompt.messages]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def runs_of_eight(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9']+", text.lower())
    return set(zip(*(words[i:] for i in range(8)), strict=False))


# --- the same call, the same prompts; never the same prompt twice


def test_the_same_arguments_make_the_same_prompts() -> None:
    assert training_prompts(300, seed=3) == training_prompts(300, seed=3)


def test_another_seed_makes_other_prompts() -> None:
    first = {tuple(texts(p)) for p in training_prompts(200, seed=3)}
    second = {tuple(texts(p)) for p in training_prompts(200, seed=4)}
    assert len(first & second) < 10


def test_the_prompts_of_a_type_do_not_depend_on_the_mix() -> None:
    alone = training_prompts(20, mix={"prose": 1})
    among = training_prompts(160)
    assert alone == [p for p in among if p.content_type == "prose"]


def test_ids_and_texts_are_distinct() -> None:
    assert len({p.id for p in SAMPLE}) == len(SAMPLE)
    assert len({tuple(texts(p)) for p in SAMPLE}) == len(SAMPLE)


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_twenty_thousand_distinct_prompts_of_each_type(content_type: str) -> None:
    chats = templates.distinct_chats(content_type, 20_000, np.random.default_rng(0))
    assert len({tuple(message["content"] for message in chat) for chat in chats}) == 20_000
    assert templates.least_capacity(content_type) > 20_000


def test_the_capacity_is_what_the_templates_can_make(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [
        ({"role": "user", "content": "Meet on $day, not on $day2, $Day."},),
        ({"role": "user", "content": "Add ${a_1_9_4} and ${b_1_3}."},),
    ]
    monkeypatch.setattr(templates, "_templates", lambda content_type: small)
    count = templates.least_capacity.__wrapped__("any")
    assert count == 7 * 6 + 3 * 3
    found = list(templates.distinct_chats("any", count, np.random.default_rng(0)))
    assert len({chat[0]["content"] for chat in found}) == count
    for chat in found:
        if chat[0]["content"].startswith("Meet"):
            first, second, again = re.findall(r"\w+day", chat[0]["content"])
            assert first == again != second


def test_more_than_the_templates_can_make_is_refused() -> None:
    with pytest.raises(ValueError, match="different prompts of the content type 'code'"):
        training_prompts(10**15, mix={"code": 1})


# --- the mix


def test_equal_shares_without_a_mix() -> None:
    assert Counter(p.content_type for p in SAMPLE) == dict.fromkeys(CONTENT_TYPES, 500)
    # Any run of neighbours is mixed too, so a tail can be held out.
    assert Counter(p.content_type for p in SAMPLE[-80:]) == dict.fromkeys(CONTENT_TYPES, 10)


def test_the_types_are_those_of_the_evaluation_set() -> None:
    assert set(CONTENT_TYPES) == {prompt.content_type for prompt in prompts()}


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 60),
    st.dictionaries(st.sampled_from(CONTENT_TYPES), st.floats(0.01, 100), min_size=1),
)
def test_shares_follow_the_weights(n: int, mix: dict[str, float]) -> None:
    made = training_prompts(n, mix=mix)
    count = Counter(prompt.content_type for prompt in made)
    assert len(made) == n
    assert set(count) <= set(mix)
    for name, weight in mix.items():
        assert abs(count[name] - n * weight / sum(mix.values())) < 1


def test_ids_count_within_a_type() -> None:
    made = training_prompts(6, mix={"copy_edit": 2, "maths": 1})
    assert [p.id for p in made if p.content_type == "copy_edit"] == [
        f"train-copy-edit-{i:06d}" for i in range(1, 5)
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0}, "n must be a whole number from 1, not 0"),
        ({"n": 2.5}, "n must be a whole number from 1, not 2.5"),
        ({"n": True}, "n must be"),
        ({"n": 3, "seed": -1}, "seed must be a whole number from 0, not -1"),
        ({"n": 3, "mix": {"poetry": 1}}, "unknown content type 'poetry'; the types are code, "),
        ({"n": 3, "mix": {"code": -1}}, "the weight of 'code' in mix must be a number from 0"),
        ({"n": 3, "mix": {"code": float("nan")}}, "the weight of 'code'"),
        ({"n": 3, "mix": {"code": "much"}}, "the weight of 'code'"),
        ({"n": 3, "mix": {"code": 0}}, "add up to nothing"),
        ({"n": 3, "mix": {}}, "add up to nothing"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        training_prompts(**arguments)  # type: ignore[arg-type]


# --- the texts


def test_no_slot_stays_open_and_no_word_is_a_template() -> None:
    for prompt in SAMPLE:
        for text in texts(prompt):
            assert "$" not in text
            assert "bare_" not in text
            assert "{{" not in text


def test_chats_end_with_the_user() -> None:
    assert all(prompt.messages[-1]["role"] == "user" for prompt in SAMPLE)
    assert {len(p.messages) for p in SAMPLE if p.content_type == "dialogue"} == {1, 2, 3}


def test_spaces_and_ends_are_clean() -> None:
    for prompt in SAMPLE:
        for text in texts(prompt):
            assert text == text.strip()
            assert not re.search(r"\S {2,}", text), text
            assert not re.search(r" [.,;:!?](\s|$)", without_code(text)), text
            assert text.count("```") % 2 == 0


def takes_an(word: str) -> bool:
    if re.match(r"(?i)(hour|honou?r|honest|heir)|(HTML|SQL|SQLite|XML|INI|8\d*|11|18)\b", word):
        return True
    if re.match(r"(?i)(uni[tvcf]|us[eu]|one\b|once\b|euro|ukulele)|URL", word):
        return False
    return word[0].lower() in "aeiou"


def test_articles_agree_with_the_next_word() -> None:
    wrong = Counter(
        f"{article} {word}"
        for prompt in SAMPLE
        for text in texts(prompt)
        for article, word in re.findall(r"(?<!['\w])([Aa]n?) (\w[\w-]*)", without_code(text))
        if takes_an(word) != (article.lower() == "an")
    )
    assert not wrong


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_templates_are_many_and_of_ordinary_length(content_type: str) -> None:
    chats = templates._templates(content_type)
    assert len(chats) >= 25
    assert len({str(chat) for chat in chats}) == len(chats)
    for chat in chats:
        # What stands around a passage or some code is the template proper.
        for message in chat:
            assert len(message["content"].split("\n\n")[0].split()) <= 60
        if content_type != "copy_edit":
            assert sum(len(m["content"].split()) for m in chat) >= 7, chat
            assert any(Template(m["content"]).get_identifiers() for m in chat)


@pytest.mark.parametrize("kind", sorted(WORDS))
def test_word_lists_are_long_and_have_no_repeats(kind: str) -> None:
    words = WORDS[kind]
    assert len(set(words)) == len(words)
    assert 60 <= len(words) <= 200 or kind in CLOSED


def test_every_list_of_words_is_used() -> None:
    everything = json.dumps(WORDS) + data_file("training/templates.json").read_text("utf-8")
    slots = {
        name.lower().removeprefix("bare_").rstrip("0123456789")
        for name in Template(everything).get_identifiers()
    }
    assert {slot for slot in slots if not re.match("[a-z]_", slot)} == set(WORDS)


# --- nothing of the evaluation set


def test_no_prompt_shares_eight_words_in_a_row_with_the_evaluation_set() -> None:
    held_out: dict[tuple[str, ...], str] = {
        run: prompt.id
        for prompt in prompts()
        for text in texts(prompt)
        for run in runs_of_eight(text)
    }
    whole = {" ".join(" ".join(texts(prompt)).split()) for prompt in prompts()}
    for prompt in SAMPLE:
        assert " ".join(" ".join(texts(prompt)).split()) not in whole
        for text in texts(prompt):
            shared = held_out.keys() & runs_of_eight(text)
            assert not shared, (prompt.id, [(held_out[run], run) for run in shared])


def test_the_check_of_eight_words_can_fail() -> None:
    text = texts(prompts()[0])[0]
    assert runs_of_eight(f"Please. {text}") & runs_of_eight(text)


# --- text files

STORY = " ".join(
    f"On day {i} the boat number {i} left the quay and came back late." for i in range(60)
)
CODE = "".join(f"def f{i}(x):\n    y = x + {i}\n    return y\n\n" for i in range(60))


def test_passages_come_from_the_file_and_do_not_overlap(tmp_path: Path) -> None:
    file = tmp_path / "story.txt"
    file.write_text(STORY, encoding="utf-8")
    made = text_prompts(file, 10)
    passages = [texts(p)[0].split("\n\n", 1)[1] for p in made]
    assert {p.content_type for p in made} == {"prose"}
    assert [p.id for p in made][:2] == ["text-000001", "text-000002"]
    for passage in passages:
        assert passage.strip() in STORY
        assert 60 <= len(passage.split()) <= 90
    days = [day for passage in passages for day in re.findall(r"day \d+", passage)]
    assert len(set(days)) == len(days)


def test_code_keeps_its_lines_and_is_fenced(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(CODE, encoding="utf-8")
    for prompt in text_prompts(tmp_path / "f.py", 5):
        request, _, block = texts(prompt)[0].partition("\n\n")
        assert prompt.content_type == "code"
        assert request
        assert block.startswith("```python\n")
        assert block.endswith("\n```")
        assert block.removeprefix("```python\n").removesuffix("\n```") in CODE


def test_a_folder_gives_all_its_texts(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "story.md").write_text(STORY, encoding="utf-8")
    (tmp_path / "f.PY").write_text(CODE, encoding="utf-8")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "note.txt").write_bytes(b"\xff\xfe")
    assert {p.content_type for p in text_prompts(tmp_path, 20)} == {"code", "prose"}


def test_text_prompts_follow_the_seed(tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text(STORY, encoding="utf-8")
    assert text_prompts(tmp_path, 8, seed=1) == text_prompts(tmp_path, 8, seed=1)
    assert text_prompts(tmp_path, 8, seed=1) != text_prompts(tmp_path, 8, seed=2)


def test_a_text_without_full_stops_is_still_cut(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("word " * 500, encoding="utf-8")
    passage = texts(text_prompts(tmp_path, 1)[0])[0].split("\n\n", 1)[1]
    assert len(passage.split()) == 90


def test_evaluation_prompts_in_a_file_are_left_out(tmp_path: Path) -> None:
    stolen = max((texts(p)[-1] for p in prompts(content_type="prose")), key=len)
    (tmp_path / "mine.txt").write_text(stolen, encoding="utf-8")
    with pytest.raises(ValueError, match="no passage"):
        text_prompts(tmp_path, 1)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*gone\.txt"):
        text_prompts(tmp_path / "gone.txt", 1)
    with pytest.raises(ValueError, match="holds no text or source files"):
        text_prompts(tmp_path, 1)
    (tmp_path / "short.txt").write_text("Only a few words.", encoding="utf-8")
    with pytest.raises(ValueError, match=r"short\.txt holds no passage of at least 20 words"):
        text_prompts(tmp_path / "short.txt", 1)
    (tmp_path / "story.txt").write_text(STORY, encoding="utf-8")
    with pytest.raises(ValueError, match=r"story\.txt holds \d+ different passages, not 9999"):
        text_prompts(tmp_path / "story.txt", 9999)
    (tmp_path / "latin.txt").write_bytes("Un café".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt: the byte 0xe9 at place 6 is not UTF-8"):
        text_prompts(tmp_path, 1)
    with pytest.raises(ValueError, match="n must be a whole number from 1"):
        text_prompts(tmp_path / "story.txt", 0)
