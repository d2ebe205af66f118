"""Pictures of drafter families as data: what is drawn, what the title finds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from specviz import figures
from specviz.analysis import depth_match, reanchoring_gain, recall_lengths
from specviz.trace import Trace
from tests.synthetic import synthetic_trace

TYPES = ("code", "prose", "structured", "explanation", "maths", "dialogue", "copy-edit", "mixed")


def matches(**rows: list[float]) -> pd.DataFrame:
    """Match of "lm" and, 0.1 lower, of "eagle", per content type."""
    return pd.DataFrame(
        [
            {
                "drafter": drafter,
                "content_type": kind,
                "depth": depth,
                "match": value - less,
                "low": value - less - 0.05,
                "high": value - less + 0.05,
                "n_anchors": 100,
                "n_prompts": 4,
            }
            for kind, values in rows.items()
            for drafter, less in (("lm", 0.0), ("eagle", 0.1))
            for depth, value in enumerate(values, start=1)
        ]
    )


def recalls(k: int = 7) -> pd.DataFrame:
    rows = [
        ("lm", "code", 2.0, {1: 2.0, 4: 3.0, 16: 4.0}),
        ("lm", "prose", 1.5, {1: 1.5, 4: 2.0, 16: 2.5}),
        ("ngram", "code", 1.25, {1: 1.25, 4: 1.25, 16: 1.25}),
        ("lm", "all", 1.75, {1: 1.75, 4: 2.5, 16: 3.5}),
    ]
    return pd.DataFrame(
        [
            {
                "drafter": drafter,
                "content_type": kind,
                "k": k,
                "top": top,
                "tokens_per_round": chain,
                "low": chain - 0.25,
                "high": chain + 0.5,
                "recall": recall,
                "recall_low": recall - 0.5,
                "recall_high": recall + 0.25,
                "share": chain / recall,
                "share_low": chain / recall - 0.1,
                "share_high": chain / recall + 0.1,
                "n_rounds": 40,
                "n_rounds_recall": 20,
                "n_prompts": 4,
            }
            for drafter, kind, chain, tops in rows
            for top, recall in tops.items()
        ]
    )


def lines(figure: go.Figure) -> dict[tuple[str, str], Any]:
    """Lines with markers by drafter and axis."""
    return {(t.name, t.xaxis): t for t in figure.data if "markers" in t.mode}


def test_match_has_a_panel_per_type_and_a_line_per_drafter() -> None:
    table = matches(code=[0.5, 0.4], prose=[0.3, 0.2], all=[0.4, 0.3])
    figure = figures.plot_depth_match(table)
    drawn = lines(figure)
    assert set(drawn) == {(d, x) for d in ("lm", "eagle") for x in ("x", "x2")}
    assert list(drawn["lm", "x"].y) == [0.5, 0.4]
    assert list(drawn["eagle", "x2"].y) == pytest.approx([0.2, 0.1])
    band = figure.data[0]
    assert list(band.x) == [1, 2, 2, 1]
    assert list(band.y) == pytest.approx([0.55, 0.45, 0.35, 0.45])
    assert [a.text for a in figure.layout.annotations] == ["code (4 prompts)", "prose (4 prompts)"]
    assert figure.layout.title.text.replace("<br>", " ") == (
        "Most often right at depth 1: code 50 % (lm), prose 30 % (lm); "
        "at depth 2: code 40 % (lm), prose 20 % (lm)"
    )
    assert "100 anchors" in drawn["lm", "x"].customdata[0]
    assert [t.showlegend for t in drawn.values()] == [True, True, False, False]


def test_all_is_drawn_when_it_is_alone() -> None:
    figure = figures.plot_depth_match(matches(all=[0.4, 0.3]))
    assert [a.text for a in figure.layout.annotations] == ["all (4 prompts)"]


def test_what_rests_on_little_is_hollow_and_has_no_band() -> None:
    table = matches(code=[0.5, 0.4, 0.3]).query("drafter == 'lm'").assign(n_anchors=[90, 20, 19])
    band, line = figures.plot_depth_match(table).data
    assert [symbol.endswith("-open") for symbol in line.marker.symbol] == [False, False, True]
    assert max(band.x) == 2


def test_gain_picture_leaves_the_sum_to_the_title() -> None:
    table = pd.DataFrame(
        {
            "drafter": ["block"] * 3 + ["lm"] * 3,
            "content_type": "prose",
            "k": 3,
            "j": [1, 2, "all"] * 2,
            "gain": [0.3, -0.1, 0.2, 0, 0, 0],
            "low": [0.2, -0.3, 0.1, 0, 0, 0],
            "high": [0.4, 0.2, 0.3, 0, 0, 0],
            "n_pairs": [30, 20, 50] * 2,
            "n_prompts": 4,
        }
    )
    figure = figures.plot_reanchoring(table)
    drawn = lines(figure)
    assert list(drawn["block", "x"].x) == [1, 2]
    assert list(drawn["block", "x"].y) == [0.3, -0.1]
    assert "30 pairs, 4 prompts" in drawn["block", "x"].customdata[0]
    assert {shape.y0 for shape in figure.layout.shapes} == {0}
    assert figure.layout.title.text == (
        "Tokens a fresh draft gains over the old tail, over all j: prose 0.200 (block)"
    )
    still = figures.plot_reanchoring(table[table["drafter"] == "lm"])
    assert still.layout.title.text == "A fresh draft only repeats the tail of the old one"
    unsummed = figures.plot_reanchoring(table[table["j"] != "all"])
    assert unsummed.layout.title.text == "Tokens a fresh draft gains over the old tail"


def test_ceilings_stand_beside_the_chain() -> None:
    figure = figures.plot_ceilings(recalls())
    chain, four, sixteen = figure.data
    assert [t.name for t in figure.data] == ["the chain", "first 4 allowed", "first 16 allowed"]
    assert list(chain.x) == [2.0, 1.5, 1.25]
    assert list(chain.y) == [0, 1, 2]
    assert list(chain.error_x.array) == [0.5] * 3
    assert list(chain.error_x.arrayminus) == [0.25] * 3
    assert list(four.x) == [3.0, 2.0]  # ngram's lies on its chain
    assert list(sixteen.text) == ["50 %", "60 %"]
    assert "20 rounds, 4 prompts" in sixteen.customdata[0]
    assert "40 rounds, 4 prompts" in chain.customdata[0]
    assert list(figure.layout.yaxis.ticktext) == ["lm, code", "lm, prose", "ngram, code"]
    assert 8 in {shape.x0 for shape in figure.layout.shapes}
    assert figure.layout.title.text.replace("<br>", " ") == (
        "Of what the first 16 candidates allow, the chain reaches: lm prose 60 %, lm code 50 %"
    )
    only = figures.plot_ceilings(recalls().query("drafter == 'ngram'"))
    assert only.layout.title.text == "No candidate beyond the first would carry a draft further"
    with pytest.raises(ValueError, match="one k at a time"):
        figures.plot_ceilings(pd.concat([recalls(7), recalls(5)], ignore_index=True))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(content_types=TYPES, prompts_per_type=2, drafters=("<b>x", "y"))


def test_every_picture_of_every_content_type_is_sound(trace: Trace) -> None:
    drawn = [
        figures.plot_depth_match(depth_match(trace, k=7, draws=50)),
        figures.plot_reanchoring(reanchoring_gain(trace, draws=50)),
        figures.plot_ceilings(recall_lengths(trace, draws=50)),
    ]
    for figure in drawn:
        assert type(figure) is go.Figure
        assert len(figure.data) <= 50
        assert len(figure.to_json()) < 100_000
        assert figure.layout.title.text
        assert figure.layout.paper_bgcolor is None  # the template's, which is transparent
        written = repr(json.loads(figure.to_json()))  # plotly's own escapes undone
        assert "&lt;b&gt;x" in written
        assert "<b>x" not in written
    assert len([a for a in drawn[0].layout.annotations if "prompts" in a.text]) == len(TYPES)


def test_missing_intervals_are_no_obstacle() -> None:
    table = matches(code=[0.5, 0.4]).assign(low=np.nan, high=np.nan)
    figure = figures.plot_depth_match(table)
    assert [len(t.x) for t in figure.data] == [0, 2, 0, 2]


@pytest.mark.parametrize(
    ("draw", "table"),
    [
        (figures.plot_depth_match, matches(code=[0.5])),
        (figures.plot_ceilings, recalls()),
        (
            figures.plot_reanchoring,
            pd.DataFrame(
                columns=[
                    *("drafter", "content_type", "k", "j", "gain", "low", "high"),
                    *("n_pairs", "n_prompts"),
                ]
            ),
        ),
    ],
)
def test_wrong_and_empty_tables_are_refused(draw: Any, table: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="has no column"):
        draw(table.drop(columns="drafter"))
    with pytest.raises(ValueError, match="no rows"):
        draw(table[:0])
