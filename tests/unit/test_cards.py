"""The drafters that come with specviz: files, cards, and what the cards claim."""

from __future__ import annotations

import hashlib

import pytest

from specviz._data_files import data_file
from specviz.cards import drafter_card, drafter_cards, drafter_names, learning_log
from specviz.figures import plot_learning

NAMES = ["bigram", "block", "eagle", "eagle-code", "eagle-mixed", "eagle-prose", "lm", "mtp"]
LEARNED = [name for name in NAMES if name != "bigram"]


def test_every_drafter_has_its_file_and_the_file_its_sum() -> None:
    assert drafter_names() == NAMES
    size = 0
    for name in NAMES:
        content = data_file(f"drafters/{name}.safetensors").read_bytes()
        card = drafter_card(name)
        assert hashlib.sha256(content).hexdigest() == card["sha256"]
        assert len(content) == card["bytes"]
        assert card["licence"].startswith("Apache-2.0")
        size += len(content)
    assert size <= 60e6


@pytest.mark.parametrize("name", LEARNED)
def test_learned_drafters_beat_both_controls(name: str) -> None:
    """Each on what it was trained for; a specialist abroad need not."""
    rows = {row["content_type"]: row for row in drafter_card(name)["measured"]}
    home = name.removeprefix("eagle-")
    for row in [rows[kind] for kind in ([home] if home in rows else ["code", "prose", "all"])]:
        assert row["prompts"] >= 12
        assert row["over_bigram_low"] > 0
        assert row["over_other_text_low"] > 0


def test_specialists_win_at_home_and_lose_abroad() -> None:
    found = {
        kind: {
            row["content_type"]: row["tokens_per_round"]
            for row in drafter_card(f"eagle-{kind}")["measured"]
        }
        for kind in ("code", "prose", "mixed")
    }
    assert found["code"]["code"] > found["mixed"]["code"] > found["prose"]["code"]
    assert found["prose"]["prose"] > found["mixed"]["prose"] > found["code"]["prose"]


def test_specialists_had_the_same_budget() -> None:
    cards = [drafter_card(f"eagle-{kind}") for kind in ("code", "prose", "mixed")]
    for key in ("steps", "batch_tokens", "rate", "seed", "taps"):
        assert len({str(card[key]) for card in cards}) == 1, key
    tokens = [card["corpus"]["tokens"] for card in cards]
    assert max(tokens) < 1.05 * min(tokens)


def test_tables_and_curves_can_be_drawn() -> None:
    table = drafter_cards()
    assert table.groupby("drafter").size().isin([3, 9]).all()  # code, prose, all; or every type
    assert table["tokens_per_round"].between(table["low"], table["high"]).all()
    log = learning_log()
    assert sorted(set(log["drafter"])) == LEARNED
    assert log.groupby("drafter")["step"].min().eq(0).all()
    figure = plot_learning(learning_log("lm", "eagle"))
    assert figure.layout.title.text
    with pytest.raises(ValueError, match="no curve"):
        learning_log("bigram")
    with pytest.raises(ValueError, match="No drafter 'medusa'"):
        drafter_card("medusa")
