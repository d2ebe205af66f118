"""Widgets without a browser: their numbers, their state, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest

import specviz as sv
from specviz.drafters.markov import MarkovDrafter
from specviz.figures.round_steps import STEPS, RoundPicture, plot_round_chain, plot_round_tree
from specviz.figures.strip_heat import plot_strip_heat
from specviz.figures.theme import titled
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.widgets import base
from specviz.widgets.base import Widget
from specviz.widgets.controls import choice, label, options_of, slider
from specviz.widgets.entropy_lens import EntropyLens
from specviz.widgets.live_run import LiveRun
from specviz.widgets.plot_view import PlotView
from specviz.widgets.round_stepper import RoundStepper
from specviz.widgets.strip_data import Strips
from specviz.widgets.token_strip import TokenStrip
from tests.hostile import ATTACKS, hostile_trace, live_trace
from tests.synthetic import synthetic_trace


@pytest.fixture(scope="module")
def trace():
    return synthetic_trace(prompts_per_type=3, drafters=("steady", "fresh"), k=7)


@pytest.fixture(scope="module")
def trees():
    return sv.bundled_trace("smollm2-trees")


class Doubler(Widget):
    """2 n, as a bar; 5 is refused."""

    title = "Doubler"

    def __init__(self, *, n=1):
        self.drawn = 0
        super().__init__({"n": slider("n", n, 0, 9), "kind": choice("kind", ["a", "b"])})

    def draw(self):
        self.drawn += 1
        if self["n"] == 5:
            raise ValueError("5 is <b>refused</b>.")
        return titled(go.Figure(go.Bar(y=[2 * self["n"]])), "doubled")

    def words(self):
        return [f"2 n = {2 * self['n']}", "a < b"]


# -- the base ---------------------------------------------------------------------------------


def test_state_lives_in_the_controls():
    widget = Doubler(n=3)
    assert widget.state == {"n": 3, "kind": "a"}
    assert widget.figure.data[0].y == (6,)
    widget.controls["n"].value = 4
    assert widget.figure.data[0].y == (8,)


def test_one_redraw_for_one_event():
    widget = Doubler()
    _ = widget.view, widget.figure
    before = widget.drawn
    widget.set(n=2, kind="b")
    assert widget.drawn == before + 1
    shown = json.loads(widget.plot.figure)
    assert shown["data"][0]["y"] == [4]
    assert "2 n = 4" in widget.text.value


def test_nothing_is_drawn_before_it_is_shown():
    widget = Doubler()
    widget.set(n=7)
    assert widget.drawn == 0


def test_unknown_names_are_refused():
    with pytest.raises(TypeError, match="colour"):
        Doubler(colour="red")
    with pytest.raises(ValueError, match="no 'm' to set; it has n, kind"):
        Doubler().set(m=1)
    with pytest.raises(ValueError, match="kind cannot be 'z'"):
        Doubler().set(kind="z")


def test_an_error_is_raised_outside_a_kernel():
    widget = Doubler()
    _ = widget.view
    with pytest.raises(ValueError, match="refused"):
        widget.controls["n"].value = 5


def test_an_error_is_shown_inside_a_kernel(monkeypatch):
    monkeypatch.setattr(base, "in_kernel", lambda: True)
    widget = Doubler(n=2)
    _ = widget.view
    widget.controls["n"].value = 5
    assert 'role="alert"' in widget.alert.value
    assert "5 is &lt;b&gt;refused&lt;/b&gt;." in widget.alert.value
    assert json.loads(widget.plot.figure)["data"][0]["y"] == [4]  # the picture stays
    widget.controls["n"].value = 3
    assert widget.alert.value == ""


def test_a_click_reaches_the_widget():
    class Clicked(Doubler):
        def clicked(self, point):
            self.set(n=point["x"])

        def brushed(self, points):
            self.points = points

    widget = Clicked()
    widget.plot.clicked = {"trace": 0, "point": 0, "x": 8, "y": 1}
    assert widget["n"] == 8
    widget.plot.brushed = [[0, 2]]
    assert widget.points == [(0, 2)]


def test_the_bundle_has_something_for_every_front_end():
    bundle = Doubler()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["application/vnd.plotly.v1+json"]["data"][0]["type"] == "bar"
    assert "a &lt; b" in bundle["text/html"]
    assert sum(len(json.dumps(part)) for part in bundle.values()) < 100_000


def test_a_page_holds_plotly_once_and_loads_nothing(tmp_path):
    page = Doubler(n=2).to_html(tmp_path / "page.html")
    assert page.count("plotly.js v") == 1
    assert '"modeBarButtons": [["toImage", "resetScale2d"]]' in page
    assert "default-src 'none'" in page
    assert "<script src" not in page
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_plotly_travels_once(monkeypatch):
    monkeypatch.setattr(PlotView, "_carried", False)
    first, second = PlotView(go.Figure()), PlotView(go.Figure())
    assert len(first.code) > 1_000_000
    assert second.code == ""


def test_labels_are_plain_text():
    assert label("a\n <b>\u202e") == "a <b>‹U+202E›"
    assert len(label("x" * 10_000)) < 100
    assert options_of({"x\n": 1, "x ": 2}) == [("x", 1), ("x (2)", 2)]


# -- the strip --------------------------------------------------------------------------------


def test_strip_and_replay_agree(trace):
    strip = TokenStrip(trace, drafter="fresh", k=5)
    rounds = sv.replay(trace, sv.FixedK(5), "fresh").rounds
    mine = rounds[rounds["seq"] == 0]
    paint = strip.paint
    assert paint["starts"] == (mine["anchor"] + 1).tolist()
    assert paint["roles"].count(1) == mine["accepted"].sum()
    assert paint["roles"][0] == 0
    assert sum(role in (2, 3, 4) for role in paint["roles"]) == len(mine)
    expected = (mine["accepted"].sum() + len(mine)) / len(mine)
    assert strip.words()[0] == f"{expected:.2f} tokens per round in this text, k = 5"
    strip.set(k=1)
    assert max(np.diff(strip.paint["starts"])) <= 2


def test_strip_knows_q_where_a_token_was_drafted(trace):
    strip = TokenStrip(trace, k=4)
    paint, rounds = strip.paint, strip.rounds
    drafted = np.zeros(len(paint["q"]), bool)
    for row in rounds.itertuples():
        reach = min(row.accepted + 1, row.drafted)
        drafted[row.anchor + 1 : row.anchor + 1 + reach] = True
    assert [q is not None for q in paint["q"]] == drafted.tolist()
    column = Strips(trace).drafts(0, "steady")["path_logq"]
    first = int(np.flatnonzero(drafted)[0])
    owner = rounds[rounds["anchor"] < first]["anchor"].iloc[-1]
    expected = np.exp(column[owner, first - owner - 1])
    assert paint["q"][first] == pytest.approx(float(expected), abs=1e-3)


def test_strip_colours(trace):
    strip = TokenStrip(trace)
    entropy = strip.strips.positions(0)["entropy"].to_numpy()
    assert strip.paint["steps"] == [int(sum(h >= e for e in (0.1, 0.5, 1, 2, 3))) for h in entropy]
    assert strip.set(colour="role").paint["by_role"]
    assert strip.set(colour="ebf").paint["key"][0][0].startswith("EBF")
    for colour in ("entropy", "ebf", "role"):
        assert strip.set(colour=colour).figure.data[0].type == "heatmap"


def test_strip_of_a_live_run_and_of_a_sample():
    live = TokenStrip(live_trace())
    assert "k" not in live.controls
    assert live.paint["roles"].count(1) == live.rounds["accepted"].sum()
    sampled = TokenStrip(sv.bundled_trace("smollm2-sampled"))
    assert sampled.rounds is None
    assert "expectation" in sampled.paint["names"][0]


def test_the_strip_is_copied_as_it_was(trace):
    strip = TokenStrip(trace)
    assert "".join(strip.strips.tokens(0)["text"]) == "".join(
        trace.positions.loc[trace.positions["seq"] == 0, "text"]
    )


@pytest.mark.parametrize("make", [TokenStrip, RoundStepper, EntropyLens])
def test_hostile_text_stays_text(make):
    widget = make(hostile_trace())
    _ = widget.view
    page = widget.to_html()
    for attack in ATTACKS[:3]:
        assert attack not in page
    assert "\u202e" not in page
    assert "window.hit = 1</script>" not in page
    bundle = widget._repr_mimebundle_()
    assert "<script" not in bundle["text/html"]
    assert "<img" not in bundle["text/html"]
    json.dumps(bundle).encode()


def test_strip_refuses(trace):
    with pytest.raises(ValueError, match="no sequence 99"):
        TokenStrip(trace, seq=99)
    with pytest.raises(ValueError, match="colour must be one of"):
        TokenStrip(trace, colour="red")
    with pytest.raises(ValueError, match="at most 7"):
        TokenStrip(trace, k=8)
    with pytest.raises(ValueError, match="No drafter"):
        TokenStrip(trace, drafter="nobody")
    with pytest.raises(ValueError, match="one entropy"):
        plot_strip_heat(["a"], [])


# -- rounds -----------------------------------------------------------------------------------


def test_stepping_through_every_round(trace):
    stepper = RoundStepper(trace, k=3)
    rounds = sv.replay(trace, sv.FixedK(3), "steady").rounds
    mine = rounds[rounds["seq"] == 0].reset_index(drop=True)
    text = [stepper.picture.anchor]
    for i, row in mine.iterrows():
        stepper.set(round=i + 1, step="accept")
        assert stepper.picture.accepted == row["accepted"]
        assert (stepper.picture.closing == "bonus") == (row["stop"] == "full")
        text += stepper.picture.emitted
    own = trace.positions.loc[trace.positions["seq"] == 0, "text"].tolist()
    assert text == own[mine["anchor"].iloc[0] :]


def test_next_goes_over_the_end_of_a_round(trace):
    stepper = RoundStepper(trace, k=2)
    for _ in STEPS:
        stepper.advance()
    assert (stepper["round"], stepper["step"]) == (2, "draft")
    stepper.advance(-1)
    assert (stepper["round"], stepper["step"]) == (1, "rewind")
    stepper.advance(-99)
    assert (stepper["round"], stepper["step"]) == (1, "draft")
    stepper.advance(9999)
    assert (stepper["round"], stepper["step"]) == (len(stepper.rounds), "rewind")


def test_a_tree_step_shows_the_path_that_replay_accepts(trees):
    from specviz.policies import CapturedTree, FixedTree

    stepper = RoundStepper(trees, drafter="lm", builder="best-first-d7", budget=20)
    policy = FixedTree(CapturedTree("best-first-d7", 20, 7), "lm")
    rounds = sv.replay(trees, policy, "lm").rounds
    mine = rounds[rounds["seq"] == 0].reset_index(drop=True)
    for i, row in mine.iterrows():
        picture = stepper.set(round=i + 1).picture
        assert len(picture.nodes) == row["nodes"]
        path = picture.nodes.iloc[picture.path]
        assert path["depth"].tolist() == [*range(1, row["accepted"] + 1)]
        assert path["text"].tolist() == list(picture.emitted[:-1])
        assert path["parent"].tolist() == [-1, *picture.path][: len(path)]
    assert stepper.set(drafter="ngram")["builder"] == "chain"


def test_the_chain_has_one_input_more_than_drafts():
    picture = RoundPicture("a", ["b", "x"], [0.9, 0.5], ["b", "c"], [0.8, 0.6])
    drafted = len(plot_round_chain(picture, "draft").layout.shapes)
    verified = len(plot_round_chain(picture, "verify").layout.shapes)
    assert (drafted, verified) == (3, 6)  # three inputs, three rows
    with pytest.raises(ValueError, match="step must be one of"):
        plot_round_tree(picture, "jump")
    with pytest.raises(ValueError, match="drafted a chain"):
        plot_round_tree(picture, "draft")


def test_rounds_need_a_capture():
    for make in (RoundStepper, EntropyLens):
        with pytest.raises(ValueError, match="greedy capture"):
            make(live_trace())


# -- the lens ---------------------------------------------------------------------------------


def test_lens_means_are_those_of_the_anchors(trace):
    lens = EntropyLens(trace, drafter="fresh", k=4)
    matched = trace.drafts[trace.drafts["drafter"] == "fresh"]
    assert len(lens.table) == len(matched)
    curve = lens.curve
    for kind, part in lens.table.groupby("content_type"):
        mine = curve[curve["content_type"] == kind]
        assert mine["n_anchors"].sum() == len(part)
        mean = (mine["accepted"] * mine["n_anchors"]).sum() / len(part)
        assert mean == pytest.approx(part["accepted"].mean())
    known = curve.dropna(subset=["low"])
    assert ((known["low"] <= known["accepted"]) & (known["accepted"] <= known["high"])).all()


def test_brushing_one_shows_in_the_other(trace):
    lens = EntropyLens(trace)
    _ = lens.view
    last = len(lens.figure.data) - 1
    lens.plot.brushed = [[last, 0], [last, 2], [0, 0]]
    assert lens.strip.marked == [1, 3]
    lens.strip.span = [2, 4]
    assert lens.strip.marked == [2, 3, 4]
    opacity = lens.figure.data[last].marker.opacity
    assert [i for i, o in enumerate(opacity) if o > 0.5] == [1, 2, 3]
    own = lens.own
    expected = own[own["t"].isin([2, 3, 4])]["accepted"].mean()
    assert lens.words()[0].startswith(f"{expected:.2f} accepted where brushed")
    page = lens.to_html()
    assert page.index('<div class="plot">') < page.index('class="sv-strip-here"')
    lens.set(kind="prose")
    assert lens.strip.marked == []
    assert set(lens.curve["content_type"]) == {"prose"}


# -- live -------------------------------------------------------------------------------------


def start(prompt):
    model, drafter = MarkovModel.random(8, seed=1), MarkovModel.random(8, seed=2)
    return sv.generate(ToyTarget(model), MarkovDrafter(drafter), prompt, max_new_tokens=30)


def test_a_live_run_shows_its_rounds():
    live = LiveRun(start, prompt="abc")
    _ = live.view
    live.start()
    rounds = live.trace.rounds
    assert not live.trace.meta.exhaustive
    assert live.strip.paint["roles"].count(1) == rounds["accepted"].sum()
    assert (live.progress.value, live.progress.max) == (30, 30)
    assert live.words()[0].startswith(f"{29 / len(rounds):.2f} tokens per round")
    assert "sv.capture" in live.words()[-1]
    assert live.figure.data[0].type == "heatmap"
    assert "rejected" in live.to_html()


def test_a_live_run_stops_after_a_round():
    live = LiveRun(start, prompt="abc")

    class Stopping:
        def __init__(self, run):
            self.run, self.max_new_tokens = run, run.max_new_tokens

        trace = property(lambda self: self.run.trace)
        finished = property(lambda self: self.run.finished)

        def __iter__(self):
            for each in self.run:
                live.stop()
                yield each

    live._start = lambda prompt: Stopping(start(prompt))
    live.start()
    assert len(live.trace.rounds) == 1
    assert "sv.capture" in live.words()[-1]


def test_a_live_run_refuses():
    with pytest.raises(ValueError, match="start must be"):
        LiveRun(3)
    with pytest.raises(ValueError, match="start must be"):
        LiveRun({})
    with pytest.raises(ValueError, match="Type a prompt"):
        LiveRun(start).start()
    with pytest.raises(ValueError, match="Nothing has run"):
        _ = LiveRun(start).trace
    both = LiveRun({"one": start, "two": start}, prompt="ab")
    assert both.set(models=start).start().run.finished
