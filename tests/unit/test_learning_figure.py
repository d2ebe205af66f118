"""The learning curve as data: lines, references, hover, title."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from specviz.figures.learning import plot_learning
from specviz.figures.theme import colours


def log(**curves):
    """`drafter={content_type: [tokens per round at 0, 1000, 2000, ... tokens]}`."""
    return pd.DataFrame(
        [
            {
                "drafter": drafter,
                "step": 10 * i,
                "tokens": 1000 * i,
                "hours": 0.25 * i,
                "content_type": content_type,
                "tokens_per_round": value,
                "loss": 6.0 - i,
                "prompts": 8,
                "rounds": 400,
            }
            for drafter, types in curves.items()
            for content_type, values in types.items()
            for i, value in enumerate(values)
        ]
    )


LM = {"code": [1.0, 1.5, 2.41], "prose": [1.0, 1.2, 1.8], "all": [1.0, 1.3, 2.0]}
EAGLE = {"code": [1.1, 1.6, 2.2], "prose": [1.0, 1.1, 1.6]}


def test_a_line_per_drafter_and_content_type():
    figure = plot_learning(log(lm=LM, eagle=EAGLE))
    assert [line.name for line in figure.data] == [
        "lm, code",
        "lm, prose",
        "eagle, code",
        "eagle, prose",
    ]
    lm_code, lm_prose, eagle_code, _ = figure.data
    assert list(lm_code.x) == [0, 1000, 2000]
    assert list(lm_code.y) == [1.0, 1.5, 2.41]
    tint = colours(["code", "prose"])
    assert lm_code.line.color == eagle_code.line.color == tint["code"]
    assert lm_prose.line.color == tint["prose"]
    assert lm_code.marker.symbol == lm_prose.marker.symbol != eagle_code.marker.symbol
    assert figure.layout.yaxis.title.text == "tokens per round (bonus counted)"
    assert figure.layout.xaxis.title.text == "training tokens seen"


def test_order_of_the_rows_does_not_matter():
    rows = log(lm=LM)
    mixed = rows.iloc[np.random.default_rng(0).permutation(len(rows))]
    assert list(plot_learning(mixed).data[0].y) == LM["code"]


def test_tooltips_give_the_definition_and_n():
    point = plot_learning(log(lm=LM)).data[0]
    assert "greedy, k = 7, held-out prompts, bonus counted" in point.hovertemplate
    assert point.customdata[1] == (
        "1,000 training tokens, 10 steps, 0.250 hours<br>"
        "held-out loss 5.00 nats; 400 rounds, 8 prompts"
    )


@pytest.mark.parametrize(
    ("curves", "title"),
    [
        (
            {"lm": LM},
            "After 2,000 training tokens lm emits 2.41 tokens per round on code and 1.80 on prose",
        ),
        (
            {"lm": LM, "eagle": EAGLE},
            "Tokens per round at the last evaluation: lm 2.41 on code and 1.80 on prose; eagle "
            "2.20 on code and 1.60 on prose",
        ),
        (
            {"a": EAGLE, "b": LM, "c": EAGLE, "d": EAGLE},
            "Of 4 drafters b stands highest on code: 2.41 tokens per round",
        ),
    ],
)
def test_the_title_is_the_finding(curves, title):
    assert plot_learning(log(**curves)).layout.title.text.replace("<br>", " ") == title


def test_content_types_are_chosen():
    figure = plot_learning(log(lm=LM, eagle=EAGLE), content_types=["all"])
    assert [line.name for line in figure.data] == ["lm, all"]
    with pytest.raises(ValueError, match=r"evaluations of code, prose, all, so .*\['maths'\]"):
        plot_learning(log(lm=LM), content_types=["maths"])
    with pytest.raises(ValueError, match="cannot be"):
        plot_learning(log(lm=LM), content_types=[])


def test_baselines_are_dashed_over_the_whole_width():
    figure = plot_learning(log(lm=LM), baselines={"bigram": {"code": 1.25, "maths": 1.1}})
    (line,) = [line for line in figure.data if line.line.dash == "dash"]
    assert line.name == "bigram, code"
    assert list(line.x) == [0, 2000]
    assert list(line.y) == [1.25, 1.25]
    assert line.line.color == colours(["code"])["code"]


def test_the_highest_line_is_inside_the_picture():
    figure = plot_learning(log(lm=LM), baselines={"ceiling": {"prose": 7.5}})
    assert figure.layout.yaxis.range[1] > 7.5


def test_an_evaluation_without_a_number_is_left_out():
    figure = plot_learning(log(lm={"code": [1.0, np.nan, 2.0], "prose": [1.0, 1.1, np.nan]}))
    assert list(figure.data[0].x) == [0, 2000]
    assert figure.layout.title.text.endswith("2.00 tokens per round on code and 1.10 on prose")
    with pytest.raises(ValueError, match="evaluations of no content type"):
        plot_learning(log(lm={"code": [np.nan], "prose": [np.nan]}))


def test_names_from_outside_are_escaped():
    figure = plot_learning(log(**{"<img src=x>": EAGLE}), baselines={"<b>": {"code": 1.2}})
    assert figure.data[0].name == "&lt;img src=x&gt;, code"
    assert figure.data[-1].name == "&lt;b&gt;, code"
    assert "<img" not in figure.layout.title.text


def test_wrong_and_empty_logs_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="no column 'hours': make it with"):
        plot_learning(log(lm=LM).drop(columns="hours"))
    with pytest.raises(ValueError, match="no rows"):
        plot_learning(log(lm=LM)[:0])
