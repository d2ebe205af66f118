"""`specviz corpus` and `specviz train`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from specviz.cli import app
from specviz.drafters.trained import WEIGHTS
from specviz.drafters.weights import load_weights
from specviz.zoo import load_drafter, load_target
from tests.models import tiny_llama, tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(dtype=torch.float32).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_from_a_model_folder_and_a_text_file_to_a_drafter(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text(
        " ".join(f"Sentence {i} says that boat number {i} lies on the sand." for i in range(60))
    )
    answers, out = tmp_path / "answers", tmp_path / "mine"
    asked = ("corpus", answers, "--target", model, "--answers", 24, "--tokens", 12, "--seed", 3)
    made = typed(*asked, "--text", text, "--text-answers", 3, "--mix", "code=1", "--mix", "prose=2")
    assert made.exit_code == 0, made.output
    assert "27 answers" in made.output
    words = ("train", "eagle", "--target", model, "--corpus", answers, "--out", out)
    first = typed(*words, "--steps", 3, "--vocabulary", 100)
    assert first.exit_code == 0, first.output
    card = json.loads((out / "card.json").read_text())
    assert card["corpus"]["tokens_by_type"].keys() == {"code", "prose"}
    assert card["log"][-1]["step"] == 3
    weights = load_weights(out / WEIGHTS).tensors
    target = load_target(model)
    drafter = load_drafter(out, target)
    assert drafter.name == "mine"
    assert drafter.taps == (2,)  # of four layers, early, middle and late are one
    # Typed again, it has nothing left to do, and says the same.
    again = typed(*words, "--steps", 3, "--vocabulary", 100)
    assert again.exit_code == 0
    kept = load_weights(out / WEIGHTS).tensors
    assert all(torch.equal(kept[name], tensor) for name, tensor in weights.items())
    other = typed(*words, "--steps", 4, "--vocabulary", 100)
    assert "other settings" in str(other.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mix", "code"), "--mix takes a content type and a weight"),
        (("--layers", "0,x"), "--layers takes numbers"),
        (("--rate", "-1"), "learning rate"),
    ],
)
def test_words_that_make_no_sense_are_refused_before_any_model_is_loaded(
    words: tuple[str, str], message: str, tmp_path: Path
) -> None:
    said = typed("train", "lm", "--target", tmp_path / "none", "--out", tmp_path / "o", *words)
    assert message in str(said.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "lm", "--out", "FILE"),
        ("corpus", "FILE", "--answers", "8"),
        ("capture", "FILE", "--limit", "1"),
    ],
)
def test_a_folder_that_cannot_be_is_refused_before_any_model_is_loaded(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    named = [str(tmp_path / "file") if word == "FILE" else word for word in words]
    said = typed(*named, "--target", tmp_path / "none")
    assert "is a file, and a folder is needed" in str(said.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("medusa",), "Families that can be trained"),
        (("eagle", "--objective", "recall"), "goes on from a trained one"),
        (("mtp", "--objective", "nonsense"), "An objective is one of"),
    ],
)
def test_no_model_is_loaded_for_a_training_that_cannot_be(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    said = typed("train", *words, "--target", tmp_path / "none", "--out", tmp_path / "o")
    assert message in str(said.exception)
    assert not (tmp_path / "o").exists()
