"""Figures as data: what is drawn, what the title finds, how many traces."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from specviz import figures
from specviz.analysis import entropy_by, length_by_k, optimal_k, replay, survival_by
from specviz.figures.theme import colours, counts, symbols
from specviz.policies import FixedK
from specviz.presets import free_drafts, t4_like
from specviz.reporting.findings import positions_by_type
from tests.synthetic import synthetic_trace

TYPES = ("code", "prose", "structured", "explanation", "maths", "dialogue", "copy-edit", "mixed")


@pytest.fixture(scope="module")
def trace():
    return synthetic_trace(content_types=TYPES, prompts_per_type=2)


def lengths(**rows):
    return pd.DataFrame(
        [
            {
                "content_type": name,
                "k": k,
                "tokens_per_round": value,
                "low": value - 0.1,
                "high": value + 0.1,
                "n_rounds": 10,
                "n_prompts": 4,
            }
            for name, values in rows.items()
            for k, value in enumerate(values, start=1)
        ]
    )


def test_entropy_picture_holds_mean_interval_and_both_axes():
    positions = pd.DataFrame(
        {"content_type": ["code"] * 5 + ["prose"] * 5, "entropy": [0, 1, 2, 3, 4, 2, 3, 4, 5, 6.0]}
    )
    summary = pd.DataFrame(
        {
            "content_type": ["code", "prose"],
            "entropy": [2.0, 4.0],
            "entropy_low": [1.5, 3.0],
            "entropy_high": [2.75, 4.5],
            "ebf_geometric": np.exp([2.0, 4.0]),
            "n_positions": 5,
            "n_prompts": 3,
        }
    )
    figure = figures.plot_entropy_by_type(positions, summary)
    prose, code, mean = figure.data
    assert (code.q1[0], code.median[0], code.q3[0]) == (1, 2, 3)
    assert prose.median[0] == 4
    assert list(mean.x) == [4, 2]
    assert list(mean.error_x.array) == [0.5, 0.75]
    assert list(mean.error_x.arrayminus) == [1, 0.5]
    assert figure.layout.title.text == (
        "Prose branches 7.4x as widely as code (geometric-mean EBF 54.6 against 7.39)"
    )
    ticks = dict(zip(figure.layout.xaxis2.ticktext, figure.layout.xaxis2.tickvals, strict=True))
    assert ticks["10"] == pytest.approx(np.log(10))
    assert figure.layout.xaxis.range == figure.layout.xaxis2.range


def test_lengths_picture_has_ceiling_bands_and_stops_at_k():
    figure = figures.plot_length_by_k(lengths(code=[1.8, 2.5], prose=[1.4, 1.5]), at=2)
    ceiling, band, code, *_ = figure.data
    assert list(ceiling.x) == [1, 2]
    assert list(ceiling.y) == [2, 3]
    assert list(band.x) == [1, 2, 2, 1]
    assert list(band.y) == pytest.approx([1.9, 2.6, 2.4, 1.7])
    assert list(code.y) == [1.8, 2.5]
    assert figure.layout.title.text == "At k = 2: code 2.50 tokens per round, prose 1.50"
    assert max(max(t.x) for t in figure.data) == 2
    assert figure.layout.yaxis.title.text == "tokens per round (bonus counted)"


def test_lengths_title_uses_the_largest_k_when_the_asked_one_is_beyond():
    assert figures.plot_length_by_k(lengths(code=[1.8, 2.5])).layout.title.text.startswith(
        "At k = 2"
    )


def test_an_interval_that_does_not_exist_is_not_drawn():
    frame = lengths(code=[1.8, 2.5]).assign(low=np.nan, high=np.nan)
    _, band, line = figures.plot_length_by_k(frame).data
    assert len(band.x) == 0
    assert list(line.y) == [1.8, 2.5]


def test_speedup_picture_has_a_panel_per_cost_and_says_whose():
    curves = pd.DataFrame(
        [
            {"content_type": t, "k": k, "speedup": s, "low": s, "high": s, "cost": c}
            for c, t, s, k in [
                ("laptop", "code", 1.0, 0),
                ("laptop", "code", 1.5, 1),
                ("laptop", "prose", 1.0, 0),
                ("laptop", "prose", 0.7, 1),
                ("free drafts", "code", 1.0, 0),
                ("free drafts", "code", 1.9, 1),
                ("free drafts", "prose", 1.0, 0),
                ("free drafts", "prose", 1.3, 1),
            ]
        ]
    )
    best = curves.loc[[1, 2, 5, 7]]
    figure = figures.plot_speedup_by_k(
        curves, best, provenance={"laptop": "measured here"}, drafter="ngram"
    )
    titles = [a.text for a in figure.layout.annotations]
    assert titles == ["<b>laptop</b><br><i>measured here</i>", "<b>free drafts</b>"]
    assert figure.layout.title.text == (
        "Best k, laptop, ngram: code 1 (1.50x), prose 0 (do not draft)"
    )
    marks = [t for t in figure.data if t.name == "best k"]
    assert [list(m.x) for m in marks] == [[1, 0], [1, 1]]
    assert [list(m.y) for m in marks] == [[1.5, 1.0], [1.9, 1.3]]
    assert {s.y0 for s in figure.layout.shapes} == {1}
    assert len(figure.layout.shapes) == 2


def test_speedup_title_says_when_nothing_pays():
    curves = pd.DataFrame(
        {"content_type": ["code", "prose"], "k": 0, "speedup": 1.0, "low": 1.0, "high": 1.0}
    ).assign(cost="laptop")
    title = figures.plot_speedup_by_k(curves, curves).layout.title.text
    assert title == "Best k, laptop: 0 everywhere (do not draft)"


def test_survival_picture_shows_both_measures_and_few_rounds_hollow():
    table = pd.DataFrame(
        {
            "content_type": "code",
            "depth": [1, 2],
            "survival": [0.9, 0.72],
            "hazard_accept": [0.9, 0.8],
            "low": [0.8, 0.6],
            "high": [0.95, 0.8],
            "at_risk": [100, 5],
        }
    )
    band, survival, hazard = figures.plot_survival(table, k=2, drafter="ngram").data
    assert list(survival.y) == [0.9, 0.72]
    assert list(hazard.y) == [0.9, 0.8]
    assert list(band.y) == [0.95, 0.8, 0.6, 0.8]
    assert list(survival.marker.symbol) == ["circle", "circle-open"]


def test_position_picture_colours_tokens_by_their_part_in_the_round():
    positions = pd.DataFrame({"t": range(5), "text": list("abcde"), "entropy": [1, 2, 3, 4, 5.0]})
    rounds = pd.DataFrame({"anchor": [0, 3], "drafted": [4, 0], "accepted": [2, 0]})
    figure = figures.plot_position_entropy(positions, rounds, name="x")
    bars = {t.name.split(",")[0]: list(t.x) for t in figure.data if t.type == "bar"}
    assert bars == {"prefill": [0], "accepted draft token": [1, 2], "the target's own": [3, 4]}
    assert {t.width for t in figure.data if t.type == "bar"} == {0.92}
    lines = figure.data[-1]
    assert [x for x in lines.x if x is not None] == [0.5, 0.5, 3.5, 3.5]
    assert figure.layout.title.text == (
        "x: mean entropy 2.50 nats where drafts held, 4.50 where they ended"
    )


def test_position_picture_escapes_token_text():
    hostile = pd.Series(["<b>\u202e\ud800"], dtype=object)
    positions = pd.DataFrame({"t": [0], "text": hostile, "entropy": [1.0]})
    (bar,) = figures.plot_position_entropy(positions).data
    assert bar.customdata[0] == "&lt;b&gt;‹U+202E›‹U+D800›"


def test_names_from_outside_are_escaped_in_titles_and_legends():
    frame = lengths(**{"<img src=x>": [1.5, 2.0]})
    figure = figures.plot_length_by_k(frame, drafter="<a href='x'>")
    assert "<a" not in figure.layout.title.text
    assert figure.data[-1].name == "&lt;img src=x&gt;"


def test_every_picture_of_every_content_type_stays_small(trace):
    costs = [optimal_k(trace, cost) for cost in (t4_like(), free_drafts())]
    curves = pd.concat([c.curve for c in costs])
    third = curves[curves["cost"] == "T4-like"].assign(cost="third")
    drawn = [
        figures.plot_entropy_by_type(positions_by_type(trace), entropy_by(trace)),
        figures.plot_length_by_k(length_by_k(trace)),
        figures.plot_speedup_by_k(pd.concat([curves, third]), pd.concat([c.table for c in costs])),
        figures.plot_survival(survival_by(replay(trace, FixedK(7)).rounds)),
        figures.plot_position_entropy(
            trace.positions[trace.positions["seq"] == 0],
            replay(trace, FixedK(7)).rounds.query("seq == 0"),
        ),
    ]
    for figure in drawn:
        assert type(figure) is go.Figure
        assert len(figure.data) <= 50
        assert len(figure.to_json()) < 100_000
        assert figure.layout.title.text
        assert figure.layout.height >= 300
        assert figure.layout.paper_bgcolor is None  # the template's, which is transparent
        assert figure.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_colours_are_stable_and_distinct():
    assert len(set(colours(TYPES).values())) == len(TYPES)
    assert len(set(symbols(TYPES).values())) == len(TYPES)
    assert colours(["prose"])["prose"] == colours(TYPES)["prose"]
    mine = colours(["legal", "code", "poem"])
    assert mine == {**colours(["poem", "legal", "code"])}
    assert len(set(mine.values())) == 3


@pytest.mark.parametrize(
    "draw",
    [
        figures.plot_length_by_k,
        figures.plot_speedup_by_k,
        figures.plot_survival,
        figures.plot_position_entropy,
    ],
)
def test_wrong_and_empty_tables_are_refused_with_a_sentence(draw):
    with pytest.raises(ValueError, match="has no column"):
        draw(pd.DataFrame({"x": [1]}))
    columns = ["content_type", "k", "tokens_per_round", "low", "high", "speedup", "cost"]
    columns += ["depth", "survival", "hazard_accept", "t", "text", "entropy"]
    with pytest.raises(ValueError, match="no rows"):
        draw(pd.DataFrame(columns=columns))


def test_positions_of_several_sequences_are_refused(trace):
    with pytest.raises(ValueError, match="choose one `seq`"):
        figures.plot_position_entropy(trace.positions)


def test_tooltips_count_one_in_the_singular():
    row = {"n_rounds": 1, "n_prompts": 1, "n_positions": 1200}
    assert counts(row) == "1 round, 1,200 positions, 1 prompt"


def test_nodes_picture_has_a_line_per_group_and_builder():
    frame = pd.DataFrame(
        [
            {
                "content_type": kind,
                "builder": builder,
                "nodes": n,
                "tokens_per_round": base + n / 10,
                "low": base,
                "high": base + n / 5,
                "n_rounds": 9,
                "n_prompts": 3,
            }
            for kind, base in (("code", 2.0), ("prose", 1.5))
            for builder, sizes in (("chain", (1, 2)), ("best<first>", (1, 8)), ("own-size", (6,)))
            for n in sizes
        ]
    )
    figure = figures.plot_length_by_nodes(frame)
    assert len(figure.data) == 6
    assert {line.line.color for line in figure.data[:3]} == {figure.data[0].line.color}
    assert len({line.line.dash for line in figure.data[:3]}) == 3
    assert figure.data[2].mode == "markers"
    assert list(figure.layout.xaxis.tickvals) == [1, 2, 6, 8]
    assert "code 2.20 with the best chain, 2.80 with 8 nodes" in figure.layout.title.text
    assert "<first>" not in figure.data[1].name
    with pytest.raises(ValueError, match="length_by_nodes"):
        figures.plot_length_by_nodes(frame.drop(columns="builder"))


def test_policies_picture_keeps_the_order_and_marks_the_first():
    frame = pd.DataFrame(
        [
            {
                "content_type": kind,
                "policy": policy,
                "tokens_per_round": value,
                "low": value - 0.1,
                "high": value + 0.2,
                "speedup (x)": 1.5,
                "speedup (x)_low": 1.25,
                "speedup (x)_high": 1.75,
                "n_rounds": 9,
                "n_prompts": 3,
            }
            for kind, values in (("code", (2.0, 3.0)), ("prose", (1.5, 1.4)))
            for policy, value in zip(("chain", "<tree>"), values, strict=True)
        ]
    )
    figure = figures.plot_policies(frame, goal=3.5)
    code, prose = figure.data
    assert list(code.x) == [2.0, 3.0]
    assert list(code.error_x.array) == pytest.approx([0.2, 0.2])
    assert [round(y) for y in prose.y] == [0, 1]
    assert list(figure.layout.yaxis.ticktext) == ["chain", "&lt;tree&gt;"]
    assert sorted(shape.x0 for shape in figure.layout.shapes) == [1.5, 2.0, 3.5]
    assert "code 3.00 with" in figure.layout.title.text
    speeds = figures.plot_policies(frame, "speedup (x)", unit="speed-up")
    assert list(speeds.data[0].error_x.arrayminus) == [0.25, 0.25]
    with pytest.raises(ValueError, match="compare_policies"):
        figures.plot_policies(frame, "nothing")
