"""Figures of the science as data: what is drawn, at which place, and what the title finds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from specviz import figures
from specviz.analysis import hazard_curve, hazard_table, optimal_k_by_ebf
from specviz.presets import t4_like
from tests.synthetic import synthetic_trace

RISING = pd.DataFrame(
    {
        "content_type": ["code", "code", "prose"],
        "x_mean": [0.1, math.log(20), 1.0],
        "accepted": [0.9, 0.3, 0.5],
        "low": [0.8, 0.2, 0.4],
        "high": [1.0, 0.4, 0.6],
        "n_tokens": [50, 12, 60],
        "n_prompts": 6,
    }
)


@pytest.fixture(scope="module")
def trace():
    return synthetic_trace(content_types=("code", "prose"), prompts_per_type=3)


def test_hazard_curve_has_bands_points_and_axes_read_as_branching_factors():
    figure = figures.plot_hazard_curve(RISING, drafter="lm")
    band, code, _, prose = figure.data
    assert list(code.x) == pytest.approx([0.1, math.log(20)])
    assert list(code.y) == [0.9, 0.3]
    assert list(code.marker.symbol) == ["circle", "circle-open"]  # 12 tokens are few
    assert list(band.y) == [1.0, 0.4, 0.2, 0.8]
    assert list(prose.y) == [0.5]
    assert "EBF 20" in code.customdata[1]
    assert "12 tokens" in code.customdata[1]
    ticks = dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))
    assert ticks["1"] == 0
    assert ticks["10"] == pytest.approx(math.log(10))
    assert figure.layout.title.text == (
        "lm: accepted from the lowest to the highest<br>EBF: code 90 % to 30 %, prose 50 % to 50 %"
    )


def test_hazard_curve_has_a_panel_per_covariate_and_one_legend():
    both = pd.concat(
        [RISING.assign(covariate="margin"), RISING.assign(covariate="depth", accepted=0.5)]
    )
    figure = figures.plot_hazard_curve(both)
    assert figure.layout.xaxis.title.text == "top-2 margin of the target there (nats)"
    assert figure.layout.xaxis2.title.text == "depth in the draft (tokens)"
    assert figure.layout.xaxis.tickvals is None
    lines = [t for t in figure.data if t.mode == "lines+markers"]
    assert [t.xaxis for t in lines] == ["x", "x", "x2", "x2"]
    assert [t.showlegend for t in lines] == [True, True, False, False]


def test_hazard_curve_takes_what_the_analysis_gives_and_escapes_it(trace):
    table = hazard_table(trace, 3)
    table["content_type"] = "<b>code</b>"
    figure = figures.plot_hazard_curve(hazard_curve(table, by="content_type", bins=4, draws=20))
    assert figure.data[1].name == "&lt;b&gt;code&lt;/b&gt;"
    assert len(figure.data[1].x) <= 4


def test_calibration_has_the_diagonal_intervals_and_the_mean_miss():
    table = pd.DataFrame(
        {
            "predicted": [0.8, 0.2],
            "accepted": [0.7, 0.2],
            "low": [0.6, 0.15],
            "high": [0.75, 0.3],
            "n_tokens": [30, 10],
            "n_prompts": 5,
        }
    )
    figure = figures.plot_calibration(table)
    diagonal, points = figure.data
    assert list(diagonal.x) == list(diagonal.y)
    assert list(points.x) == [0.2, 0.8]
    assert list(points.error_y.array) == pytest.approx([0.1, 0.05])
    assert list(points.error_y.arrayminus) == pytest.approx([0.05, 0.1])
    assert list(points.marker.symbol) == ["circle-open", "circle"]
    # (10 points x 30 tokens + 0 x 10) / 40 tokens
    assert figure.layout.title.text == (
        "Predicted chances miss by 7.5 points on average, by 10.0 at most"
    )


def effects(**changes):
    table = pd.DataFrame(
        {
            "drafter": ["a", "a", "b", "b"],
            "given": ["nothing", "entropy"] * 2,
            "contrast": "prose against code",
            "difference": [-0.1, 0.2, 0.0, 0.1],
            "difference_low": [-0.2, 0.1, -0.1, -0.05],
            "difference_high": [0.0, 0.3, 0.1, 0.25],
            "n_tokens": 100,
            "n_prompts": 6,
        }
    )
    return table.assign(**changes)


def test_type_effect_is_in_points_a_row_per_drafter_and_counts_what_is_clear():
    figure = figures.plot_type_effect(effects())
    nothing, entropy = figure.data
    assert (nothing.name, entropy.name) == ("given nothing", "given entropy")
    assert list(entropy.x) == pytest.approx([20, 10])
    assert list(entropy.error_x.arrayminus) == pytest.approx([10, 15])
    assert list(np.round(entropy.y)) == [0, 1]
    assert (nothing.y < entropy.y).all()
    assert list(figure.layout.yaxis.ticktext) == ["a", "b"]
    assert figure.layout.title.text == (
        "Prose against code, given entropy: accepted more with 2 of 2 drafters (1 clear of 0)"
    )


def test_type_effect_says_less_where_most_are_below_zero():
    less = effects(difference=-0.2, difference_low=-0.3, difference_high=-0.1)
    assert "less with 2 of 2 drafters (2 clear of 0)" in (
        figures.plot_type_effect(less).layout.title.text.replace("<br>", " ")
    )


def test_type_effect_draws_one_contrast_at_a_time():
    two = effects(contrast=["prose against code", "maths against code"] * 2)
    with pytest.raises(ValueError, match="one of them at a time"):
        figures.plot_type_effect(two)


def test_k_by_ebf_draws_steps_of_both_readings(trace):
    table = optimal_k_by_ebf(trace, t4_like(), bins=2, folds=2, draws=20).table
    figure = figures.plot_k_by_ebf(table)
    causal, hindsight = (t for t in figure.data if t.mode == "lines+markers")
    mine = table[table["reading"] == "causal"]
    assert list(causal.y) == list(np.repeat(mine["k"], 2))
    assert list(causal.x)[:2] == list(mine[["ebf_low", "ebf_high"]].iloc[0])
    assert (causal.xaxis, hindsight.xaxis) == ("x", "x2")
    assert "no policy knows" in figure.layout.annotations[1].text
    assert figure.layout.xaxis.type == "log"
    ks = ", ".join(str(k) for k in mine["k"])
    assert figure.layout.title.text.endswith(f"to the highest: {ks}")


def test_k_by_ebf_tells_drafters_apart_and_refuses_other_readings():
    row = {"ebf_low": 1.0, "ebf_high": 9.0, "k_low": 1, "k_high": 4, "n_rounds": 5}
    table = pd.DataFrame(
        [
            {"reading": "causal", "drafter": name, "k": k, "tokens_per_round": 2.0, **row}
            for name, k in (("a", 3), ("b", 2))
        ]
    )
    figure = figures.plot_k_by_ebf(table, by="drafter")
    band, line, *_ = figure.data
    assert list(band.y) == [4, 4, 1, 1]
    assert line.name == "a"
    assert list(line.y) == [3, 3]
    assert figure.layout.title.text.endswith("to the highest: a 3; b 2")
    with pytest.raises(ValueError, match="causal or hindsight"):
        figures.plot_k_by_ebf(table.assign(reading="later"))


@pytest.mark.parametrize(
    ("draw", "table", "maker"),
    [
        (figures.plot_hazard_curve, RISING.drop(columns="accepted"), "hazard_curve"),
        (figures.plot_calibration, RISING, "hazard_model"),
        (figures.plot_type_effect, effects().drop(columns="given"), "residual_type_effect"),
        (figures.plot_k_by_ebf, RISING, "optimal_k_by_ebf"),
        (figures.plot_hazard_curve, RISING[:0], "hazard_curve"),
    ],
)
def test_a_table_that_does_not_fit_names_its_maker(draw, table, maker):
    with pytest.raises(ValueError, match=maker):
        draw(table)
