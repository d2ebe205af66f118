"""Training: from a target to a drafter that drafts better, resumable, refusing what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specviz.drafters.weights import load_weights
from specviz.prompt_set import Prompt
from specviz.training.batches import batch_of, shuffled_batches
from specviz.training.corpus import Corpus, build_corpus
from specviz.training.held_out import hold_out, walk
from specviz.training.loop import Schedule, train
from specviz.training.run import mixed, train_drafter
from specviz.training.students import EagleStudent, LMStudent
from specviz.zoo import load_drafter
from tests.models import tiny_target

TARGET = tiny_target()


def asked(n: int) -> list[Prompt]:
    return [
        Prompt(f"t{i}", ("code", "prose")[i % 2], ({"role": "user", "content": f"say {i}"},))
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return build_corpus(
        TARGET,
        asked(48),
        tmp_path_factory.mktemp("corpus"),
        temperatures=[0.0, 0.0, 0.3],
        max_new_tokens=40,
        batch_size=16,
        taps=(1, 2, 3),
        progress=False,
    )


def test_states_are_what_the_target_holds(corpus: Corpus) -> None:
    for row in (0, len(corpus) - 1):
        prompt, answer = list(corpus.texts())[row]
        rows = TARGET.prefill([*prompt, *answer[:-1]], (1, 2, 3, -1))
        held = corpus.states(row).double()
        assert held.shape == (len(prompt) + len(answer) - 1, 4, 64)
        for place, tap in enumerate(corpus.taps):
            torch.testing.assert_close(held[:, place], rows.taps[tap], rtol=1e-3, atol=1e-3)


def test_batches_line_answers_up(corpus: Corpus) -> None:
    rows = [3, 0, 5]
    batch = batch_of(corpus, rows, torch.device("cpu"))
    for place, (prompt, answer) in enumerate(corpus.select(rows).texts()):
        text = batch.tokens[place, batch.pads[place] : batch.start + batch.lengths[place]]
        assert text.tolist() == [*prompt, *answer]
        assert batch.positions[place, batch.start] == len(prompt)


def test_an_epoch_has_every_row_once_in_an_order_of_its_own() -> None:
    lengths = np.arange(1, 301)
    epochs = [list(shuffled_batches(lengths, 500, 7, epoch)) for epoch in (0, 0, 1)]
    assert sorted(row for batch in epochs[0] for row in batch) == list(range(300))
    assert epochs[0] == epochs[1] != epochs[2]


def test_eagle_unrolls_in_training_as_it_drafts(corpus: Corpus) -> None:
    """Padding and side-by-side texts change nothing: a row alone has the same features."""
    student = EagleStudent(TARGET.model, (1, 2, 3), torch.arange(TARGET.vocab_size))
    with torch.no_grad():
        student.net.enter.weight.normal_(std=0.1)
    lengths = [len(prompt) for prompt, _ in corpus.texts()]
    rows = [int(np.argmin(lengths)), int(np.argmax(lengths))]
    both = student._unroll(batch_of(corpus, rows, torch.device("cpu")), 3)
    for place, row in enumerate(rows):
        batch = batch_of(corpus, [row], torch.device("cpu"))
        alone = student._unroll(batch, 3)
        for depth in range(3):
            n = int(batch.lengths[0]) - depth - 1
            torch.testing.assert_close(both[depth][place, :n], alone[depth][0, :n])


def test_the_loss_of_eagle_is_the_cross_entropy_written_out(corpus: Corpus) -> None:
    batch = batch_of(corpus, range(4), torch.device("cpu"))
    student = EagleStudent(TARGET.model, (1, 2, 3), torch.arange(200))
    total, first = student.loss(batch)
    means = []
    for depth, features in enumerate(student._unroll(batch, 3)):
        found = []
        for row, length in enumerate(batch.lengths.tolist()):
            for column in range(length - depth - 1):
                final = batch.states[row, batch.start + column + depth, -1].double()
                p = (final @ student.net.head.T).softmax(-1)
                logq = student.net.logits(features[row, column]).log_softmax(-1)
                found.append(-(p * logq).sum())
        means.append(torch.stack(found).mean())
    assert first == pytest.approx(means[0].item())
    wanted = (means[0] + 0.8 * means[1] + 0.64 * means[2]) / 2.44
    torch.testing.assert_close(total, wanted)


@pytest.mark.parametrize("family", ["eagle", "lm", "block", "mtp"])
def test_a_drafter_trained_from_nothing_drafts_better(
    family: str, corpus: Corpus, tmp_path: Path
) -> None:
    folder = train_drafter(
        family,
        TARGET,
        corpus,
        tmp_path / family,
        schedule=Schedule(steps=60, rate=5e-3, batch_tokens=300, evaluate_every=30),
        layers=[0, 3] if family == "lm" else None,
        progress=False,
    )
    card = json.loads((folder / "card.json").read_text())
    curve = [row for row in card["log"] if row["content_type"] == "all"]
    assert [row["step"] for row in curve] == [0, 30, 60]
    assert curve[-1]["tokens_per_round"] > curve[0]["tokens_per_round"] + 0.1
    assert curve[-1]["loss"] < curve[0]["loss"]
    drafter = load_drafter(folder, TARGET)
    assert drafter.name == family
    assert load_weights(folder / "drafter.safetensors").family == family


def test_a_killed_training_goes_on_as_if_nothing_had_been(corpus: Corpus, tmp_path: Path) -> None:
    learn, held = hold_out(corpus, 2)

    def run(folder: Path, stop: int | None = None) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        student = LMStudent(TARGET.model, (0, 3), torch.arange(TARGET.vocab_size))
        schedule = Schedule(steps=12, batch_tokens=200, evaluate_every=4, save_every=3)
        if stop is not None:
            steps, loss = 0, student.loss

            def until(batch):  # killed in the middle of a step, after the last checkpoint
                nonlocal steps
                if student.net.training:
                    steps += 1
                    if steps > stop:
                        raise KeyboardInterrupt
                return loss(batch)

            student.loss = until
            with pytest.raises(KeyboardInterrupt):
                train(student, learn, held, folder, schedule, progress=False)
            return {}
        run.log = train(student, learn, held, folder, schedule, progress=False)
        return student.weights()

    whole = run(tmp_path / "whole")
    log = [{k: v for k, v in row.items() if k != "hours"} for row in run.log]
    run(tmp_path / "killed", stop=8)
    resumed = run(tmp_path / "killed")
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    assert [{k: v for k, v in row.items() if k != "hours"} for row in run.log] == log
    with pytest.raises(ValueError, match="other settings"):
        train(
            LMStudent(TARGET.model, (0, 3), torch.arange(TARGET.vocab_size)),
            learn,
            held,
            tmp_path / "killed",
            Schedule(steps=13),
            progress=False,
        )


def test_held_out_answers_are_greedy_and_not_trained_on(corpus: Corpus) -> None:
    learn, held = hold_out(corpus, 3)
    assert set(held.table["temperature"].to_pylist()) == {0.0}
    assert len(held) == 6
    ids = [set(part.table["prompt_id"].to_pylist()) for part in (learn, held)]
    assert not ids[0] & ids[1]
    with pytest.raises(ValueError, match="too small"):
        hold_out(corpus.select(range(4)), 3)


def test_a_mix_has_the_asked_proportions(corpus: Corpus) -> None:
    mostly = mixed(corpus, {"code": 3, "prose": 1}, None, seed=0)
    sizes = {"code": 0, "prose": 0}
    for kind, (_, answer) in zip(
        mostly.table["content_type"].to_pylist(), mostly.texts(), strict=True
    ):
        sizes[kind] += len(answer)
    assert sizes["code"] / sizes["prose"] == pytest.approx(3, rel=0.3)
    assert mixed(corpus, None, 100, seed=0).tokens <= 100
    with pytest.raises(ValueError, match="no maths"):
        mixed(corpus, {"maths": 1}, None, seed=0)


def test_walks_count_tokens_and_rounds() -> None:
    assert walk(np.array([0, 0, 0]), 4) == (3, 3)
    assert walk(np.array([7, 7, 7, 7]), 4) == (3, 1)
    assert walk(np.array([]), 1) == (0, 0)


def test_bad_input_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Families"):
        train_drafter("medusa", TARGET, corpus, tmp_path)
    with pytest.raises(ValueError, match="taps"):
        train_drafter("lm", TARGET, Corpus(corpus.table), tmp_path)
    with pytest.raises(ValueError, match="layers 0 to 3"):
        train_drafter("lm", TARGET, corpus, tmp_path, layers=[9], progress=False)
    with pytest.raises(ValueError, match="allow more of them"):
        train_drafter("lm", TARGET, corpus, tmp_path, max_tokens=1, progress=False)
    with pytest.raises(ValueError, match="states of another target than tiny-llama"):
        train_drafter("lm", tiny_target(seed=1), corpus, tmp_path, progress=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file"):
        train_drafter("bigram", TARGET, corpus, tmp_path / "file", progress=False)
    with pytest.raises(ValueError, match="keeps no hidden states"):
        Corpus(corpus.table).states(0)


def test_a_trained_drafter_can_go_on_with_other_texts(corpus: Corpus, tmp_path: Path) -> None:
    short = Schedule(steps=4, batch_tokens=200)
    first = train_drafter(
        "eagle", TARGET, corpus, tmp_path / "first", schedule=short, vocabulary=60, progress=False
    )
    second = train_drafter(
        "eagle",
        TARGET,
        corpus,
        tmp_path / "second",
        schedule=short,
        mix={"code": 1},
        start=first,
        progress=False,
    )
    before, after = (json.loads((f / "card.json").read_text()) for f in (first, second))
    assert after["start"] == "first"
    assert after["vocabulary"] == before["vocabulary"]
    # It begins where the first ended, but for the rounding of int8.
    assert after["log"][0]["loss"] == pytest.approx(before["log"][-1]["loss"], abs=0.02)
    with pytest.raises(ValueError, match="family eagle, not lm"):
        train_drafter("lm", TARGET, corpus, tmp_path / "x", start=first, progress=False)
    with pytest.raises(ValueError, match="no trained drafter"):
        train_drafter("lm", TARGET, corpus, tmp_path / "x", start=tmp_path, progress=False)


@pytest.mark.parametrize("objective", ["expected-length", "recall"])
def test_a_trained_eagle_goes_on_with_another_objective(
    objective: str, corpus: Corpus, tmp_path: Path
) -> None:
    def run(name: str, steps: int, **options: Any) -> Path:
        schedule = Schedule(steps=steps, rate=3e-3, batch_tokens=300, evaluate_every=steps)
        folder = tmp_path / name
        return train_drafter(
            "eagle", TARGET, corpus, folder, schedule=schedule, progress=False, **options
        )

    def reached(folder: Path) -> float:
        """The objective on all answers, in training's own terms."""
        said = load_weights(folder / "drafter.safetensors")
        tensors = dict(said.tensors)
        vocabulary = tensors.pop("vocabulary").long()
        student = EagleStudent(TARGET.model, said.settings["taps"], vocabulary, objective=objective)
        student.net.load_state_dict(tensors)
        with torch.no_grad():
            return float(student.loss(batch_of(corpus, range(24), torch.device("cpu")))[0])

    first = run("first", 30)
    second = run("second", 30, start=first, objective=objective)
    assert json.loads((second / "card.json").read_text())["objective"] == objective
    assert reached(second) < reached(first) - 0.02
    with pytest.raises(ValueError, match="belongs to a training with other settings"):
        run("second", 30, start=first)
    with pytest.raises(ValueError, match="goes on from a trained one"):
        run("third", 30, objective=objective)
    with pytest.raises(ValueError, match="An objective is one of"):
        run("third", 30, start=first, objective="entropy")


def test_a_damaged_log_is_refused_with_what_to_do(corpus: Corpus, tmp_path: Path) -> None:
    def again() -> None:
        train_drafter(
            "lm", TARGET, corpus, tmp_path, schedule=Schedule(steps=1), layers=[0], progress=False
        )

    again()
    (tmp_path / "log.jsonl").write_text("{broken")
    with pytest.raises(ValueError, match=r"log.jsonl is damaged"):
        again()
    (tmp_path / "log.jsonl").unlink()
    again()
    assert {row["step"] for row in json.loads((tmp_path / "card.json").read_text())["log"]} == {1}


def test_lost_states_are_made_again(tmp_path: Path) -> None:
    def build() -> Corpus:
        return build_corpus(
            TARGET, asked(4), tmp_path, max_new_tokens=12, taps=(1,), progress=False
        )

    whole = build()
    before = whole.states(0)
    (tmp_path / "00000.safetensors").unlink()
    assert torch.equal(build().states(0), before)
