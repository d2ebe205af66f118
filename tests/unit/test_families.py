"""The table of families says what the comparisons it is made of say."""

from __future__ import annotations

import pytest

from specviz.analysis import compare_drafters, family_table, replay, shuffled_control
from specviz.policies import FixedK
from tests.synthetic import synthetic_trace


def test_every_number_is_the_one_of_its_comparison() -> None:
    trace = synthetic_trace(4)
    table = family_table(trace, bigram="steady", k=5, draws=500)
    assert table["content_type"].tolist()[-1] == "all"
    row = table.iloc[-1]
    rounds = replay(trace, FixedK(5)).rounds
    assert row["tokens_per_round"] == rounds["emitted"].sum() / len(rounds)
    assert row["rounds"] == len(rounds)
    assert row["low"] < row["tokens_per_round"] < row["high"]
    assert row["over_bigram"] == row["over_bigram_low"] == row["over_bigram_high"] == 0
    against = compare_drafters(
        trace, "steady", shuffled_control(trace, "steady", 5), 5, draws=500
    ).iloc[-1]
    assert row["over_other_text"] == against["difference"]
    assert row["over_other_text_low"] == against["low"]


def test_without_a_bigram_the_table_has_the_other_control_only() -> None:
    table = family_table(synthetic_trace(3), k=3, draws=200)
    assert "over_other_text" in table
    assert "over_bigram" not in table
    with pytest.raises(ValueError, match="nobody"):
        family_table(synthetic_trace(3), bigram="nobody", k=3)
