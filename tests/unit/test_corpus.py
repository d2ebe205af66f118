"""The training corpus: batched answers equal single ones, loops are cut, builds resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.engine.certificate import plain_decode
from specviz.prompt_set import Prompt
from specviz.training.answers import before_loop
from specviz.training.corpus import build_corpus, load_corpus
from tests.models import tiny_target, toy_pair

PROMPTS = [
    Prompt(f"t{i}", "prose", ({"role": "user", "content": "one two " * (i + 1)},)) for i in range(6)
]


def test_greedy_batches_are_the_target_s_own_answers(tmp_path: Path) -> None:
    target = tiny_target()
    corpus = build_corpus(
        target,
        PROMPTS,
        tmp_path,
        temperatures=[0.0],
        max_new_tokens=24,
        batch_size=4,
        progress=False,
    )
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    rows = {row["prompt_id"]: row for row in corpus.table.to_pylist()}
    for prompt in PROMPTS:
        ids = target.codec.encode(prompt.messages)
        alone = before_loop(plain_decode(target, ids, 24))
        if len(alone) >= 8:
            assert rows[prompt.id]["prompt_ids"] == list(ids)
            assert rows[prompt.id]["output_ids"] == alone
    assert corpus.tokens == sum(len(answer) for _, answer in corpus.texts())


def test_a_build_resumes_and_the_seed_decides(tmp_path: Path) -> None:
    target = tiny_target()

    def build(folder: str, seed: int = 0, n: int = 6) -> list[dict]:
        return build_corpus(
            target,
            PROMPTS[:n],
            tmp_path / folder,
            temperatures=[0.0, 1.0],
            max_new_tokens=16,
            batch_size=2,
            seed=seed,
            progress=False,
        ).table.to_pylist()

    whole = build("a")
    build("b", n=4)
    kept = (tmp_path / "b" / "00001.parquet").stat().st_mtime_ns
    assert build("b") == whole
    assert (tmp_path / "b" / "00001.parquet").stat().st_mtime_ns == kept
    assert build("b", n=5) == whole[: len(build("b", n=5))]  # half a batch is not the batch
    assert build("b") == whole
    assert build("c", seed=1) != whole
    assert {row["temperature"] for row in whole} == {0.0, 1.0}


def test_an_answer_is_cut_where_it_begins_to_loop() -> None:
    fresh = list(range(30))
    assert before_loop(fresh) == fresh
    looping = fresh + fresh
    assert before_loop(looping) == looping[:41]  # the 12-gram seen before ends at 41


def test_bad_input_is_refused(tmp_path: Path) -> None:
    target = tiny_target()
    with pytest.raises(ValueError, match="No prompts"):
        build_corpus(target, [], tmp_path)
    with pytest.raises(ValueError, match="Temperatures"):
        build_corpus(target, PROMPTS, tmp_path, temperatures=[-1.0])
    with pytest.raises(ValueError, match="batch_size"):
        build_corpus(target, PROMPTS, tmp_path, batch_size=0)
    with pytest.raises(ValueError, match="torch target"):
        build_corpus(toy_pair()[0], PROMPTS, tmp_path / "toy")
    with pytest.raises(ValueError, match="build one first"):
        load_corpus(tmp_path / "nothing")
    (tmp_path / "00000.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match="damaged"):
        load_corpus(tmp_path)
