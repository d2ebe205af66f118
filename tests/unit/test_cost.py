"""CostModel: what a round costs, beyond the measured rows too, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from specviz.cost import CostModel, need_cost
from specviz.presets import PRESETS, free_drafts, preset, t4_like
from specviz.rooflines import H100, T4, Device, ridge, roofline


@pytest.fixture
def cost() -> CostModel:
    return CostModel(
        "bench",
        "measured here",
        verify=(0.050, 0.056, 0.060),
        draft={"ngram": (0.0, 0.001, 0.001), "lm": (0.0, 0.010, 0.020)},
        overhead=0.002,
        simulated=("lm",),
        note="two <cores>",
    )


def test_parts_add_up(cost: CostModel) -> None:
    assert cost.plain_seconds == pytest.approx(0.052)
    assert cost.round_seconds("lm", 2) == pytest.approx(0.020 + 0.060 + 0.002)
    assert cost.round_seconds("lm", 2, rows=1) == pytest.approx(0.020 + 0.050 + 0.002)
    assert cost.round_seconds("lm", 0) == pytest.approx(cost.plain_seconds)
    assert cost.speedup(10, 10 * cost.plain_seconds) == pytest.approx(1)


def test_arrays_equal_scalars(cost: CostModel) -> None:
    k = np.arange(3)
    assert cost.draft_seconds("lm", k).tolist() == [cost.draft_seconds("lm", i) for i in range(3)]
    many = cost.round_seconds("ngram", k)
    assert many.tolist() == [cost.round_seconds("ngram", i) for i in range(3)]
    assert isinstance(cost.round_seconds("ngram", 1), float)


def test_verification_beyond_the_measured_rows_goes_on_in_a_line() -> None:
    rising = CostModel("a", "given", verify=(1.0, 1.5, 1.7), draft={})
    assert rising.verify_seconds([3, 4, 6]).tolist() == pytest.approx([1.7, 1.9, 2.3])
    noisy = CostModel("b", "given", verify=(1.0, 1.5, 1.4), draft={})
    assert noisy.verify_seconds(9) == pytest.approx(1.4)  # never downwards
    with pytest.raises(ValueError, match="verifications of 1 row only, not of 2"):
        CostModel("c", "given", verify=(1.0,), draft={}).verify_seconds(2)


def test_free_drafts_make_speedup_equal_tokens_per_round(cost: CostModel) -> None:
    for free in (free_drafts(), free_drafts(cost)):
        assert free.provenance == "free drafts"
        rounds, tokens = 40, 130
        seconds = rounds * free.round_seconds("any", 7)
        assert free.speedup(tokens, seconds) == pytest.approx(tokens / rounds)
    assert free_drafts(cost).plain_seconds == pytest.approx(cost.plain_seconds)


def test_t4_like_gives_the_report_back_and_says_it_was_not_measured() -> None:
    cost = t4_like()
    assert 1 / cost.plain_seconds == pytest.approx(18.5)
    assert 2.5 / cost.round_seconds("dflash2", 7) == pytest.approx(36)
    each = np.diff(cost.round_seconds("x", np.arange(8)))
    assert each == pytest.approx(np.full(7, each[0]))
    assert "not measured" in cost.note
    # The report's code figures, 7.4 tokens at 154 a second, do not fit: the round they imply
    # is cheaper than a plain step.
    assert 7.4 / 154 < cost.plain_seconds < cost.round_seconds("x", 7)


def test_both_ends_of_the_report_give_its_figures_back() -> None:
    prose, code = preset("t4-prose"), preset("t4-code")
    assert prose == t4_like()
    assert 7.4 / code.round_seconds("any", 7) == pytest.approx(154)
    assert code.plain_seconds == pytest.approx(prose.plain_seconds)
    assert code.verify_seconds(8) < code.plain_seconds < prose.round_seconds("any", 7)
    assert code.verify_seconds(20) == code.verify_seconds(8)  # beyond the report it stays


@pytest.mark.parametrize(
    ("name", "rows", "milliseconds"),
    [
        ("rtx5090", 1, 14.76),
        ("rtx5090", 8, 14.76 + 7 * 0.7),
        ("h100-8b", 1, 30.0611),
        ("h100-8b", 64, 30.04 + 0.0211 * 64),
        ("gb10", 8, 142.0),
        ("cpu-eager", 8, 121.5),
        ("cpu-compiled", 1, 23.0),
        ("cpu-4bit", 4, 23.1),
        ("cpu-4bit", 3, (14.4 + 23.1) / 2),
        ("cpu-4bit", 17, 76.3 + (76.3 - 39.9) / 8),
    ],
)
def test_presets(name: str, rows: int, milliseconds: float) -> None:
    assert 1e3 * preset(name).verify_seconds(rows) == pytest.approx(milliseconds)


def test_every_preset_says_that_it_was_derived_and_from_what() -> None:
    for name in PRESETS:
        cost = preset(name)
        assert cost.provenance == "preset"
        assert "Derived" in cost.note
        assert cost.draft_seconds("any", 15) >= 0
        if "taken as free" in cost.note:
            assert cost.draft_seconds("any", 7) == 0
    with pytest.raises(ValueError, match="there are t4-prose"):
        preset("tpu")


def test_f4_5_ridges() -> None:
    assert ridge(T4) == pytest.approx(203, abs=0.5)
    assert ridge(T4, 0.5) == pytest.approx(51, abs=0.5)
    assert ridge(H100) == pytest.approx(295, abs=0.5)


def test_f4_5_roofline_is_flat_and_then_linear() -> None:
    cost = roofline(8e9, H100)
    read = 8e9 * 2 / 3.35e12
    assert cost.verify_seconds(np.array([1, 100, 295])) == pytest.approx(np.full(3, read))
    for rows in (300, 1000):  # beyond the ridge, and beyond what the curve lists
        assert cost.verify_seconds(rows) == pytest.approx(rows * 2 * 8e9 / 989e12)
    assert cost.draft_seconds("any", 15) == 0
    assert "from memory" in cost.note
    slow = Device("slow", flops=1e9, bandwidth=4e9)  # a ridge below one row: always linear
    assert roofline(1e6, slow).verify_seconds(7) == pytest.approx(7 * 2e-3)


def test_f4_5_a_drafter_that_goes_token_by_token_reads_its_weights_for_each() -> None:
    cost = roofline(8e9, H100, drafter_parameters=1e9)
    assert cost.draft_seconds("any", 7) == pytest.approx(7 * 1e9 * 2 / 3.35e12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: roofline(0, T4), "parameters must be"),
        (lambda: roofline(1e9, T4, bytes_per_parameter=-1), "bytes_per_parameter must be"),
        (lambda: roofline(1e9, T4, drafter_parameters=0), "drafter_parameters must be"),
        (lambda: Device("x", float("inf"), 1.0), "flops"),
        (lambda: Device("x", 1.0, True), "bandwidth"),
    ],
)
def test_a_roofline_of_nothing_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_round_trip_through_json(cost: CostModel) -> None:
    for model in (cost, free_drafts(), t4_like()):
        again = CostModel.from_dict(json.loads(json.dumps(model.to_dict())))
        assert again == model
        assert again.round_seconds("lm", 2) == model.round_seconds("lm", 2)
    with pytest.raises(ValueError, match="lacks 'verify'"):
        CostModel.from_dict({"name": "x", "provenance": "given", "draft": {}})
    with pytest.raises(ValueError, match="unknown entry 'colour'"):
        CostModel.from_dict({**cost.to_dict(), "colour": "red"})


def test_from_array() -> None:
    cost = CostModel.from_array(np.array([1, 2]), {"lm": np.array([0, 0.5])}, overhead=0.1)
    assert cost.round_seconds("lm", 1) == pytest.approx(2.6)
    assert cost.provenance == "given"
    assert CostModel.from_array([1, 2], [0, 0.5]).draft_seconds("anyone", 1) == 0.5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"verify": ()}, "verify must be a list of seconds"),
        ({"verify": (0.0, 1.0)}, "must take more than 0 seconds"),
        ({"verify": (1.0, -1.0)}, "0 or more"),
        ({"verify": (1.0, float("nan"))}, "finite"),
        ({"draft": {"lm": (0.1, 0.2)}}, "must start with 0.0"),
        ({"overhead": -1.0}, "overhead must be 0 seconds or more"),
    ],
)
def test_refuses_bad_seconds(changes: dict[str, object], sentence: str) -> None:
    good: dict[str, object] = {
        "name": "x", "provenance": "given", "verify": (1.0, 1.1), "draft": {"lm": (0.0, 0.1)},
    }  # fmt: skip
    CostModel(**good)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=sentence):
        CostModel(**{**good, **changes})  # type: ignore[arg-type]


def test_refuses_what_it_does_not_price(cost: CostModel) -> None:
    with pytest.raises(ValueError, match="does not price the drafter 'eagle'"):
        cost.draft_seconds("eagle", 1)
    with pytest.raises(ValueError, match="at most 2 tokens by 'lm', not 3"):
        cost.round_seconds("lm", 3)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        cost.verify_seconds(0)
    with pytest.raises(ValueError, match="whole number"):
        cost.draft_seconds("lm", 1.5)
    with pytest.raises(ValueError, match="took time"):
        cost.speedup(3, 0.0)


def test_notebook_form_escapes_and_marks_simulated_cost(cost: CostModel) -> None:
    html = cost._repr_html_()
    assert "two &lt;cores&gt;" in html
    assert "simulated cost" in html
    assert "<td" in html


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"simulated": "markov"}, "simulated must be a list of drafter names"),
        ({"simulated": None}, "simulated must be a list of drafter names"),
        ({"simulated": (3,)}, "simulated must be a list of drafter names"),
        ({"draft": None}, "draft must map drafter names"),
        ({"draft": (0.0, 0.1)}, "draft must map drafter names"),
        ({"draft": {"ngram": None}}, "draft['ngram'] must be a list of seconds"),
        ({"overhead": "x"}, "overhead must be 0 seconds or more, not 'x'"),
        ({"overhead": None}, "overhead must be 0 seconds or more, not None"),
        ({"verify": ("0.05", "x")}, "verify must be a list of seconds (numbers)"),
        ({"verify": "0.05"}, "verify must be a list of seconds (numbers)"),
        ({"verify": ((0.1,), (0.1, 0.2))}, "verify must be a list of seconds (numbers)"),
        ({"verify": None}, "verify must be a list of seconds (numbers)"),
        ({"name": None}, "name must be text"),
    ],
)
def test_a_part_of_the_wrong_kind_gets_a_sentence(change: dict[str, Any], sentence: str) -> None:
    parts = {"name": "x", "provenance": "given", "verify": (0.1,), "draft": {"ngram": (0.0,)}}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        CostModel(**{**parts, **change})


def test_a_cost_model_is_read_from_a_dictionary() -> None:
    with pytest.raises(ValueError, match="read from a dictionary"):
        CostModel.from_dict(None)  # type: ignore[arg-type]


def test_what_is_no_cost_model_is_refused(cost: CostModel) -> None:
    assert need_cost(cost) is cost
    with pytest.raises(ValueError, match="None is not a cost model"):
        need_cost(None)
