"""Explorers: their numbers are replay's, state moves them, and what is missing is a sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import specviz as sv
from specviz.analysis import length_by_nodes, survival_by
from specviz.analysis.anchors import anchors_of
from specviz.analysis.ceilings.tree import tree_ceiling
from specviz.analysis.levers.race import Race
from specviz.analysis.levers.tree_nodes import captured_nodes, target_nodes
from specviz.analysis.levers.tree_sweep import TreeSweep
from specviz.analysis.replays.prepared import PreparedK
from specviz.analysis.replays.tree_rounds import tree_rounds
from specviz.bundled import bundled_target_trees
from specviz.figures.bounds import plot_bounds
from specviz.figures.capacity import plot_capacity
from specviz.figures.k_choice import HELD, plot_k_choice
from specviz.figures.nothing import plot_nothing
from specviz.figures.policy_race import plot_policy_race
from specviz.figures.tree_lab import plot_tree_lab
from specviz.figures.tree_layout import BLANK, heights, labels
from specviz.markup import number
from specviz.policies import CapturedTree, ConfidenceStop, FixedK, FixedTree
from specviz.trace.target_trees import trees_of_rows
from specviz.widgets.bounds_lab import BoundsLab
from specviz.widgets.capacity_planner import CapacityPlanner
from specviz.widgets.claim_audit import ClaimAudit
from specviz.widgets.costs import OWN, Costs
from specviz.widgets.dashboard import dashboard, show
from specviz.widgets.drafter_race import DrafterRace
from specviz.widgets.explorer import DRAWS
from specviz.widgets.k_explorer import KExplorer
from specviz.widgets.policy_race import PolicyRace
from specviz.widgets.strip_data import marked
from specviz.widgets.tree_lab import OWN as OWN_TREES
from specviz.widgets.tree_lab import TreeLab
from tests.hostile import MEASURED, hostile_trace, live_trace, with_meta
from tests.synthetic import synthetic_trace

FEW = 200
ATTACK = "<script>window.hit = 1</script>"
REPLAYED = (KExplorer, PolicyRace, TreeLab, BoundsLab, CapacityPlanner)


@pytest.fixture(scope="module")
def trace():
    made = synthetic_trace(prompts_per_type=3, drafters=("ngram", "self-quant"), max_new_tokens=32)
    return with_meta(made, cost_models=(MEASURED.to_dict(),))


@pytest.fixture(scope="module")
def trees():
    return sv.bundled_trace("smollm2-trees")


def trees_of(trace, follow=None):
    """Two trees of the target, at the fourth tokens of a trace's first texts: 5 nodes each."""
    rows = []
    for row in trace.sequences.head(2).to_dict("records"):
        mine = trace.positions[trace.positions["seq"] == row["seq"]].sort_values("t")
        text = mine["token_id"].tolist()
        rows.append(
            {
                "seq": int(row["seq"]),
                "prompt_id": row["prompt_id"],
                "content_type": row["content_type"],
                "anchor": 3,
                "entropy": 1.0,
                "token": [text[4], 2, 3, text[5], 5],
                "text": [" a", " b", ATTACK, " d", " e"],
                "parent": [-1, 0, -1, 0, 1],
                "chance": [0.6, 0.4, 0.3, 0.15, 0.1],
                "node_entropy": [1.0] * 5,
                "realised": [0, 3],
            }
        )
    target = dict(trace.meta.target)
    meta = {"target": target, "nodes": 5, "depth": 3, "follow": follow, "sampling": {}}
    return trees_of_rows(meta, rows)


@pytest.fixture(scope="module")
def sampled():
    return sv.bundled_trace("smollm2-sampled")


@pytest.fixture(scope="module")
def own(sampled):
    return trees_of(sampled)


# -- KExplorer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["code", "prose"])
def test_prepared_k_is_optimal_k(trace, kind):
    ready = PreparedK(trace, "ngram", draws=FEW, seed=3)
    found = ready.priced(MEASURED, kind)
    same = sv.optimal_k(trace, MEASURED, drafter="ngram", draws=FEW, seed=3)
    row = same.table[same.table["content_type"] == kind].iloc[0]
    for name, value in found.best.items():
        assert value == pytest.approx(row[name]), name
    curve = same.curve[same.curve["content_type"] == kind]
    for name in ("speedup", "low", "high", "tokens_per_round"):
        np.testing.assert_allclose(found.curve[name], curve[name])
    points = ready.points(MEASURED)
    mine = points[points["content_type"] == kind]
    np.testing.assert_allclose(mine["speedup"], curve["speedup"])


def test_prepared_k_of_all_text_and_its_break_even(trace):
    found = PreparedK(trace, "ngram", draws=FEW).priced(MEASURED)
    run = sv.replay(trace, FixedK(5), "ngram", draws=FEW)
    row = found.curve.iloc[5]
    assert row["tokens_per_round"] == pytest.approx(run.tokens_per_round)
    assert (row["tokens_low"], row["tokens_high"]) == pytest.approx(
        (run.interval.low, run.interval.high)
    )
    ratio = run.seconds(MEASURED).mean() / MEASURED.plain_seconds
    assert row["step_ratio"] == pytest.approx(ratio)
    assert row["speedup"] == pytest.approx(row["tokens_per_round"] / ratio)


def test_one_prompt_has_no_interval(trace):
    one = trace.select(prompt_id=str(trace.sequences["prompt_id"].iloc[0]))
    curve = PreparedK(one, "ngram", draws=FEW).priced(MEASURED).curve
    assert curve[["low", "high", "tokens_low", "ratio_high"]].isna().all().all()
    assert KExplorer(one, drafter="ngram", draws=FEW).words()


def test_k_explorer_follows_its_controls(trace):
    widget = KExplorer(trace, drafter="ngram", kind="prose", k=4, draws=FEW)
    assert widget.costs.of(widget.state).name == "2 CPU cores"
    before = widget.figure
    widget.set(k=2)
    found = sv.replay(trace.select(content_type="prose"), FixedK(2), "ngram").tokens_per_round
    assert widget.words()[0].startswith(f"k = 2: {number(found)}")
    assert widget.figure is not before
    sizes = widget.figure.data[-2].marker.size
    assert [k for k, size in enumerate(sizes) if size > 6] == [2]
    widget.clicked({"trace": len(widget.figure.data) - 2, "point": 6, "x": 6, "y": 1.0})
    assert widget["k"] == 6
    widget.set(cost="free drafts")
    row = widget.chances.curve.iloc[6]
    assert row["speedup"] == pytest.approx(row["tokens_per_round"])
    assert "free drafts" in widget.words()[-1]
    widget.set(cost=OWN, per_token=0.5, per_row=0.0)
    assert widget.chances.curve["step_ratio"].iloc[2] == pytest.approx(2.0, abs=0.2)
    assert widget.controls["per_token"].layout.display != "none"


def test_the_title_of_k_says_the_best(trace):
    widget = KExplorer(trace, drafter="ngram", kind="code", cost=sv.t4_like(), draws=FEW)
    best = widget.chances.best
    assert f"best k is {best['k']}" in widget.figure.layout.title.text
    dear = sv.CostModel.from_array([1.0, 3.0], {"ngram": [0.0] * 16}, name="dear")
    widget = KExplorer(trace, drafter="ngram", cost=dear, draws=FEW)
    assert "do not draft" in widget.figure.layout.title.text
    assert "do not draft" in " ".join(widget.words())


def test_costs_are_named_once(trace):
    assert list(Costs(trace).models) == ["2 CPU cores", "T4-like", "free drafts"]
    assert next(iter(Costs(trace, sv.t4_like()).models)) == "T4-like"
    with pytest.raises(ValueError, match="one name"):
        Costs(trace, MEASURED)
    with pytest.raises(ValueError, match="not a cost model"):
        Costs(trace, [3])


# -- the others --------------------------------------------------------------------------------


def test_the_race_is_regret(trace):
    policies = {"fixed": FixedK(4), "stop": ConfidenceStop(0.4, 15)}
    race = Race(trace, "ngram", draws=FEW)
    same = sv.regret(trace, policies, MEASURED, "ngram", draws=FEW)
    for kind in ("code", None):
        found = race.table(policies, MEASURED, kind).set_index("policy")
        wanted = same[same["content_type"] == (kind or "all")].set_index("policy")
        for name in ("fixed", "stop", "oracle"):
            for column in ("tokens_per_second", "tokens_per_round", "regret", "regret_high"):
                assert found.loc[name, column] == pytest.approx(wanted.loc[name, column]), column


def test_policy_race_races_what_it_is_given(trace):
    widget = PolicyRace(trace, {"mine": FixedK(1)}, drafter="ngram", kind="code", draws=FEW)
    assert "mine" in widget.table["policy"].tolist()
    assert widget.table["policy"].iloc[1].startswith("best fixed k = ")
    assert widget.table["regret"].min() >= -1e-9
    widget.set(k=6)
    found = widget.table.set_index("policy").loc["fixed k = 6", "tokens_per_round"]
    alone = sv.replay(trace.select(content_type="code"), FixedK(6), "ngram").tokens_per_round
    assert found == pytest.approx(alone)
    assert widget.figure.layout.xaxis2.title.text.startswith("more time than the oracle")
    with pytest.raises(ValueError, match="map labels"):
        PolicyRace(trace, [FixedK(1)])


def test_the_tree_sweep_is_length_by_nodes(trees):
    wanted = length_by_nodes(trees, "eagle", (1, 8), draws=FEW)
    wanted = wanted[wanted["content_type"] == "prose"]
    shapes = list(zip(wanted["builder"], wanted["nodes"], strict=True))
    found = TreeSweep(trees, "eagle", draws=FEW).table(shapes, "prose")
    for name in ("tokens_per_round", "low", "high", "rows_per_round", "n_rounds"):
        np.testing.assert_allclose(found[name], wanted[name])
    policies = {
        f"{builder} {nodes}": FixedK(nodes)
        if builder == "chain"
        else FixedTree(CapturedTree(builder, nodes, 7))
        for builder, nodes in shapes
    }
    replayed = sv.compare_policies(trees, policies, drafter="eagle", draws=FEW)
    replayed = replayed[replayed["content_type"] == "prose"]
    for name in ("tokens_per_round", "low", "high", "rows_per_round", "n_rounds"):
        np.testing.assert_allclose(found[name], replayed[name])


def test_tree_lab_shows_a_budget_and_a_tree(trees):
    widget = TreeLab(trees, drafter="lm", kind="code", nodes=20, draws=FEW)
    policy = FixedTree(CapturedTree("best-first-d7", 20, 7))
    run = sv.replay(trees.select(content_type="code"), policy, "lm")
    assert widget.row["tokens_per_round"] == pytest.approx(run.tokens_per_round)
    assert number(run.tokens_per_round) in widget.words()[0]
    widget.set(place=20)
    nodes = widget.nodes
    assert len(nodes) == 20
    assert (nodes["parent"] < np.arange(20)).all()
    assert (nodes["text"] != "").all()
    rows = trees.trees
    mine = rows[
        (rows["seq"] == widget["seq"])
        & (rows["anchor"] == 20)
        & (rows["drafter"] == "lm")
        & (rows["builder"] == "best-first-d7")
    ].iloc[0]
    enter = np.asarray(mine["enter_budget"])
    held = int(((enter > 0) & (enter <= 20)).sum())
    assert nodes["on_path"].sum() == held
    path = nodes[nodes["on_path"]].sort_values("depth")
    assert path["depth"].tolist() == list(range(1, held + 1))
    assert path["chance"].is_monotonic_decreasing
    assert path["chance"].between(0, 1).all()
    widget.set(drafter="ngram")
    assert widget["builder"] == "trie-d7"
    assert widget.nodes["chance"].isna().all()


def test_tree_lab_draws_the_targets_own_tree(trees, sampled, own):
    widget = TreeLab(trees, sampled, trees=own, nodes=4, draws=FEW)
    assert widget.figure.layout.yaxis.title.text == "tokens per round (bonus counted)"
    widget.set(source=OWN_TREES)
    assert widget["nodes"] == 4
    assert widget.row["builder"] == "tree"
    assert widget.row["tokens_per_round"] == pytest.approx(1 + 0.6 + 0.4 + 0.3 + 0.15)
    nodes = widget.nodes
    assert nodes["depth"].tolist() == [1, 2, 1, 2]
    assert nodes["on_path"].tolist() == [True, False, False, True]
    edges = [d for d in widget.figure.data if d.mode == "lines" and d.xaxis == "x2"]
    assert sum(len(d.x) for d in edges) == 3 * 4
    assert target_nodes(own, 0, 3)["text"].tolist() == [" a", " b", ATTACK]
    assert "sampled targets" in " ".join(widget.words())
    # The mean is over random anchors: not one word of it says tokens per round.
    assert widget.words()[0].endswith("tokens expected, at random places")
    assert "not tokens per round" in " ".join(widget.words())
    assert widget.figure.layout.yaxis.title.text == "expected tokens (bonus counted)"
    assert "per round" not in widget.figure.layout.title.text
    texts = sampled.positions[sampled.positions["seq"] == widget["seq"]].sort_values("t")["text"]
    assert f"“{''.join(texts.head(4))}”" in " ".join(widget.words())
    alone = TreeLab(sampled, trees=own, nodes=4, draws=FEW)
    assert alone.row["tokens_per_round"] == widget.row["tokens_per_round"]


def test_the_rounds_of_the_best_tree_are_rounds(sampled):
    widget = TreeLab(sampled, trees=trees_of(sampled, follow=4), nodes=4, draws=FEW)
    assert widget.words()[0].endswith("tokens expected, over its own rounds")
    assert "not tokens per round" not in " ".join(widget.words())
    widget.set(nodes=2)
    assert widget.words()[0].endswith("at the places that rounds of the best tree of 4 visit")


def test_trees_of_other_texts_are_refused(trees, sampled, own):
    with pytest.raises(ValueError, match="this trace is greedy"):
        TreeLab(trees, trees=own)
    other = with_meta(sampled, target={**sampled.meta.target, "fingerprint": "other"})
    with pytest.raises(ValueError, match="of another target"):
        TreeLab(other, trees=own)
    with pytest.raises(ValueError, match="of other prompts"):
        TreeLab(sampled.select(content_type="maths"), trees=own)
    rows = own.anchors.to_dict("records")
    rows[1]["token"] = [rows[1]["token"][0] + 1, 2, 3, 4, 5]
    changed = trees_of_rows(own.meta, rows)
    for make in (TreeLab, BoundsLab):
        with pytest.raises(ValueError, match="of another text of 'code-02'"):
            make(sampled, trees=changed)
    with pytest.raises(ValueError, match="give trees="):
        TreeLab(trees, sampled)
    with pytest.raises(ValueError, match="holds no trees of a target"):
        dashboard(trees, trees=3)


def test_the_dashboard_hands_trees_the_texts_they_are_of(trees, sampled, own):
    lab = dashboard(trees, trees=own, beside=sampled).open("trees")
    assert lab.texts is sampled
    assert lab.holders == ["eagle", "lm", "ngram"]
    assert dashboard(sampled, trees=own).open("trees").texts is sampled
    with pytest.raises(ValueError, match="this trace is greedy"):
        dashboard(trees, trees=own).open("trees")


@pytest.mark.parametrize(("drafter", "builder"), [("lm", "best-first-d7"), ("ngram", "trie-d7")])
def test_tree_lab_says_what_a_round_would_emit(trees, drafter, builder):
    widget = TreeLab(trees, drafter=drafter, nodes=16, draws=FEW)
    accepted = tree_rounds(trees, drafter, builder, 16).accepted
    at = anchors_of(trees, drafter)
    for place in (0, 20, 60, 61, 62):  # near the end, too
        said = widget.set(place=place).words()[-2:]
        emitted = accepted[at.start[0] + place] + 1
        assert any(f"here would emit {emitted}" in each for each in said) or not len(widget.nodes)


def test_tree_lab_has_the_targets_own_tree_of_any_size(sampled):
    lab = TreeLab(sampled, trees=bundled_target_trees("anchors"), draws=FEW)
    for nodes in (14, 100):
        assert lab.set(nodes=nodes).row["nodes"] == nodes == len(lab.nodes)
        assert f"tree, {nodes} nodes" in lab.words()[0]


def test_a_capture_without_the_chosen_text_is_named(trees, sampled):
    lab = BoundsLab(trees, sampled.select(content_type="code"), drafter="lm", kind="prose")
    assert [*lab.panels] == ["greedy target"]
    assert "The sampled capture has no prose text." in lab.words()


def test_a_rejected_draft_shows_its_whitespace():
    assert marked("\n") == "↵"
    assert marked(" a\tb") == "␣a→b"
    assert marked("x" * 99) == "x" * 30 + "…"


def test_every_tab_starts_with_one_drafter(trees):
    board = dashboard(trees)
    for tab in ("the text", "rounds", "entropy", "draft length"):
        assert board.open(tab)["drafter"] == "lm", tab


def test_a_tree_that_is_not_there_is_refused(trees):
    with pytest.raises(ValueError, match="no sequoia tree"):
        captured_nodes(trees, "lm", "sequoia", 0, 0, 8)
    with pytest.raises(ValueError, match="no trees here"):
        TreeLab(trees, drafter="bigram")
    with pytest.raises(ValueError, match="nodes must be from 1 to 64"):
        TreeLab(trees, nodes=65)


def test_drafter_race_counts_as_replay(trace):
    widget = DrafterRace(trace, kind="code", k=5, draws=FEW)
    rows = widget.lengths.set_index(["drafter", "content_type"])
    for name in trace.drafters:
        run = sv.replay(trace, FixedK(5), name, draws=FEW).by("content_type")
        found = run.set_index("content_type").loc["code"]
        for column in ("tokens_per_round", "low", "high"):
            assert rows.loc[(name, "code"), column] == pytest.approx(found[column])
    rounds = sv.replay(trace.select(content_type="code"), FixedK(5), "ngram").rounds
    wanted = survival_by(rounds, None, draws=FEW)["survival"].to_numpy()
    found = widget.survival
    np.testing.assert_allclose(found[found["drafter"] == "ngram"]["survival"], wanted)
    widget.set(k=2)
    assert "k = 2" in widget.figure.layout.title.text


def test_drafter_race_of_rounds_that_ran():
    ran = live_trace()
    widget = DrafterRace(ran, draws=FEW)
    assert "k" not in widget.controls
    found = widget.lengths.set_index("content_type").loc["all", "tokens_per_round"]
    assert found == pytest.approx(ran.rounds["emitted"].mean())
    assert "as they ran" in widget.figure.layout.title.text
    with pytest.raises(ValueError, match="k cannot be chosen"):
        DrafterRace(ran, k=3)


def test_bounds_lab_keeps_settings_apart():
    greedy, sampled = (sv.bundled_trace(f"smollm2-{name}") for name in ("trees", "sampled"))
    greedy = greedy.select(content_type="code", drafter="lm")
    sampled = sampled.select(content_type="code", drafter="lm")
    widget = BoundsLab(greedy, sampled, k=3, draws=50)
    assert list(widget.panels) == ["greedy target", "sampled target"]
    measured = widget.panels["greedy target"].iloc[0]
    assert measured["value"] == pytest.approx(sv.replay(greedy, FixedK(3)).tokens_per_round)
    kept = widget.panels["sampled target"].set_index("bound").loc["this drafter's argmax", "value"]
    wanted = sv.replay_sampled(sampled, 3, rule="argmax-match").tokens_per_round
    assert kept == pytest.approx(wanted)
    assert {d.xaxis for d in widget.figure.data} == {"x", "x2"}
    words = " ".join(widget.words())
    assert f"{number(float(measured['value']))} (" in widget.words()[0]
    assert f"{int(measured['n']):,} rounds of 18 prompts" in words
    assert "its entropy sets no ceiling" in words
    assert "path probabilities are the ceiling" in words
    ticks = " ".join(widget.figure.layout.yaxis.ticktext)
    assert "theorem (no assumption)" in ticks
    with pytest.raises(ValueError, match="drafted 7 tokens"):
        BoundsLab(greedy, k=8)


def test_the_ceiling_of_k_tokens_is_of_k(sampled):
    code = sampled.select(content_type="code", drafter="lm")
    trees = sv.bundled.bundled_target_trees("anchors-16")
    widget = BoundsLab(code, trees=trees, k=10, kind="code", draws=20)
    wanted = tree_ceiling(trees, [10], draws=20)
    wanted = wanted[wanted["content_type"] == "code"].set_index("shape")["at_most"]
    for k, left in ((10, wanted), (3, None)):
        rows = widget.set(k=k).panels["sampled target"].set_index("bound")["value"]
        found = {name: rows[name] for name in rows.index if name.startswith("best ")}
        names = [f"best {shape} of {k} fixed tokens, at random places" for shape in wanted.index]
        assert list(found) == names
        if left is not None:
            np.testing.assert_allclose(list(found.values()), left)
    assert "at random places)" in widget.words()[0]
    assert "at random places)" in widget.figure.layout.title.text.replace("<br>", " ")
    assert "begin elsewhere" in " ".join(widget.words())
    few = BoundsLab(code, trees=trees_of(code), k=4, draws=20)  # 5 nodes to depth 3
    names = few.panels["sampled target"]["bound"].tolist()
    assert [n for n in names if n.startswith("best ")] == [
        "best tree of 4 fixed tokens, at random places of 2 of 18 prompts"
    ]
    assert "3 tokens deep" in " ".join(few.words())
    few.set(k=6)
    assert not [n for n in few.panels["sampled target"]["bound"] if n.startswith("best ")]
    assert "have 5 nodes" in " ".join(few.words())


def test_bounds_need_a_panel():
    with pytest.raises(ValueError, match="no panel"):
        plot_bounds({})


def test_capacity_planner_is_capacity(trace):
    widget = CapacityPlanner(
        trace, drafter="ngram", mix={"code": 3, "prose": 1}, k=4, cost=sv.t4_like(), draws=50
    )
    wanted = sv.capacity(trace, {"code": 3, "prose": 1}, sv.t4_like(), FixedK(4), "ngram", draws=50)
    pd.testing.assert_frame_equal(widget.plan.table, wanted.table)
    mix = wanted.table.iloc[-1]["tokens_per_second"]
    assert f"The mix: {number(float(mix))}" in widget.words()[0]
    widget.set(speed=1.0)
    assert widget.plan.table.iloc[-1]["sla"] == "meets"
    assert "meets the SLA" in widget.figure.layout.title.text
    widget.set(policy="the best k of each kind")
    best = {
        kind: PreparedK(trace, "ngram", draws=50).priced(sv.t4_like(), kind).best["k"]
        for kind in ("code", "prose")
    }
    assert {kind: policy.k for kind, policy in widget.policies.items()} == best
    with pytest.raises(ValueError, match="The mix is empty"):
        widget.set(**dict.fromkeys(widget.weights, 0)).figure  # noqa: B018
    with pytest.raises(ValueError, match="mix must be one of"):
        CapacityPlanner(trace, mix={"verse": 1})


def test_claim_audit_reads_the_fields():
    widget = ClaimAudit("t4-code")
    assert widget.audit.verdict == "inconsistent"
    assert widget.words()[0].startswith("Inconsistent: ")
    star = widget.figure.data[-1]
    assert (star.name, star.x[0]) == ("your claim", 7.4)
    widget.set(tokens_per_second="120")
    assert widget.audit.verdict == "consistent"
    assert str(widget.audit.speedup) in widget.extra()
    widget.set(k="seven")
    assert widget.audit is None
    assert widget.words() == ["k is a whole number or empty, not 'seven'."]
    assert widget.figure.data[-1].name != "your claim"
    widget.set(claim="")
    assert "at least one figure" in widget.words()[0]
    widget.set(speedup=ATTACK)
    assert "<script>window" not in widget.to_html()
    widget.set(speedup="", tokens_per_second="x")
    assert widget.words()[0].startswith("tokens per second is a number")
    for claim in widget.claims["id"]:
        said = " ".join(widget.set(claim=claim).words()) + widget.extra()
        assert not [name for name in widget.state if "_" in name and name in said], claim
        assert widget.extra().startswith("<details>")
    with pytest.raises(ValueError, match="no public claim"):
        ClaimAudit("nobody")


# -- what all share ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REPLAYED)
def test_what_a_trace_lacks_is_one_sentence(kind):
    widget = kind(live_trace())
    assert len(widget.words()) == 1
    assert "capture" in widget.words()[0]
    assert widget.controls == {}
    assert widget.figure.layout.title.text
    assert widget.words()[0][:40] in widget.to_html().replace("&#39;", "'")
    assert widget.view.children


def test_a_capture_without_trees_says_so(trace):
    assert "no token trees" in TreeLab(trace).words()[0]


@pytest.mark.parametrize("kind", [*REPLAYED, DrafterRace, ClaimAudit])
def test_an_unknown_keyword_is_refused(trace, kind):
    with pytest.raises(TypeError, match="colour"):
        kind(trace, colour="red")


@pytest.mark.parametrize("kind", [*REPLAYED, DrafterRace])
def test_an_unknown_kind_or_drafter_is_refused(trees, kind):
    if kind is not CapacityPlanner:
        with pytest.raises(ValueError, match="kind must be one of"):
            kind(trees, kind="verse")
    if kind is not DrafterRace:
        with pytest.raises(ValueError, match="nobody"):
            kind(trees, drafter="nobody")


@pytest.mark.parametrize("kind", [*REPLAYED, DrafterRace])
def test_what_is_no_trace_is_refused(trace, kind):
    with pytest.raises(ValueError, match="is not a Trace"):
        kind("out/demo")
    with pytest.raises(ValueError, match="draws must be a whole number"):
        kind(trace, draws=0)


def test_hostile_text_stays_text():
    hostile = hostile_trace()
    assert "vocab_size" in BoundsLab(hostile).words()[0]
    hostile = with_meta(hostile, target={**hostile.meta.target, "vocab_size": 50})
    drawn = with_meta(hostile, sampling={"temperature": 1.0, "top_k": 0, "top_p": 1.0})
    made = [
        KExplorer(hostile, draws=20),
        PolicyRace(hostile, {ATTACK: FixedK(1)}, draws=20),
        DrafterRace(hostile, draws=20),
        CapacityPlanner(hostile, draws=20),
        BoundsLab(hostile, draws=20),
        TreeLab(drawn, trees=trees_of(drawn), draws=20, nodes=5),
    ]
    for widget in made:
        page = widget.to_html()
        for attack in (ATTACK, "<img src=x", "onerror='"):
            assert attack not in page.replace("\\u003c", "<"), (widget, attack)
        assert not widget.missing


def test_the_dashboard_makes_a_tab_when_it_is_opened(trace):
    board = dashboard(trace)
    assert board.made == {}
    view = board.view
    assert list(board.made) == [board.tabs[0]]
    view.selected_index = board.tabs.index("draft length")
    assert isinstance(board.made["draft length"], KExplorer)
    assert len(view.children[view.selected_index].children) == 1
    view.selected_index = 0
    assert len(board.made) == 2
    with pytest.raises(ValueError, match="no tab"):
        board.open("tea")


def test_the_dashboard_of_a_log_says_what_is_missing():
    board = dashboard(live_trace())
    view = board.view
    for place in range(len(board.tabs)):
        view.selected_index = place
        assert view.children[place].children


def test_show_takes_the_obvious_picture(trace):
    assert isinstance(show(trace), KExplorer)
    assert isinstance(show(live_trace()), DrafterRace)
    assert isinstance(show(sv.bundled_trace("smollm2-sampled")), BoundsLab)
    with pytest.raises(ValueError, match="is not a Trace"):
        show("out/demo")


def test_a_widget_starts_with_the_drafter_that_gets_furthest(trees):
    assert KExplorer(trees, draws=FEW)["drafter"] == "lm"
    assert TreeLab(trees, draws=FEW)["drafter"] == "lm"
    assert KExplorer(trees, drafter="eagle", draws=FEW)["drafter"] == "eagle"


# -- figures -----------------------------------------------------------------------------------


def test_k_choice_holds_out_one_k(trace):
    ready = PreparedK(trace, "ngram", draws=FEW)
    found = ready.priced(MEASURED, "code")
    figure = plot_k_choice(found.curve, found.best, 3, ready.points(MEASURED), kind="code")
    star = next(d for d in figure.data if d.name == "best k")
    on_top = plot_k_choice(found.curve, found.best, found.best["k"]).data[-1]
    assert on_top.name == "best k"
    assert on_top.marker.size > HELD
    assert (star.x[0], star.y[0]) == (found.best["k"], found.best["speedup"])
    even = next(d for d in figure.data if d.name.startswith("break-even"))
    np.testing.assert_allclose(even.y, found.curve["step_ratio"])
    assert len(figure.data) < 12
    with pytest.raises(ValueError, match="no k = 16"):
        plot_k_choice(found.curve, found.best, 16)


def test_the_race_puts_the_fastest_on_top():
    table = pd.DataFrame(
        {
            "policy": ["oracle", "slow", "quick"],
            "tokens_per_round": [3.0, 1.0, 2.0],
            "tokens_per_second": [30.0, 10.0, 20.0],
            "tokens_per_second_low": [29.0, 9.0, 19.0],
            "tokens_per_second_high": [31.0, 11.0, 21.0],
            "regret": [0.0, 2.0, 0.5],
            "regret_low": [0.0, 1.9, 0.4],
            "regret_high": [0.0, 2.1, 0.6],
            "cost": "mine",
        }
    )
    figure = plot_policy_race(table)
    assert figure.layout.yaxis.ticktext == ("oracle", "quick", "slow")
    assert list(figure.data[1].x) == [0.0, 50.0, 200.0]
    assert figure.layout.xaxis2.ticksuffix == " %"
    assert figure.layout.title.text.startswith(
        "all text, mine: quick is the fastest, and takes 50 %"
    )


def test_a_tree_is_laid_out_without_crossings():
    lengths = pd.DataFrame(
        {
            "builder": "tree",
            "nodes": [1, 5],
            "tokens_per_round": [1.5, 2.0],
            "low": 1.0,
            "high": 3.0,
        }
    )
    nodes = pd.DataFrame(
        {
            "depth": [1, 2, 1, 2, 3],
            "parent": [-1, 0, -1, 0, 1],
            "on_path": [True, False, False, True, False],
            "chance": [0.6, 0.4, 0.3, 0.15, 0.1],
            "text": ["a", ATTACK, "c", "d", "x" * 99],
        }
    )
    figure = plot_tree_lab(lengths, nodes, ("tree", 5))
    path = next(d for d in figure.data if d.name == "the text's own next tokens")
    others = next(d for d in figure.data if d.name == "other nodes")
    assert list(path.x) == [1, 2]
    assert list(others.x) == [2, 1, 3]
    leaves = [others.y[2], path.y[1], others.y[1]]  # nodes 5, 4, 3 from top to bottom
    assert leaves == sorted(leaves)
    assert len(set(leaves)) == 3
    assert all("<" not in text for text in others.text)
    assert max(len(text) for text in others.text) < 80


def test_labels_cover_neither_labels_nor_nodes():
    lines = 40  # as many branches, one below the other
    nodes = pd.DataFrame({"depth": 1, "parent": -1, "on_path": False}, index=range(lines))
    nodes["chance"], nodes["text"] = np.linspace(0.1, 0.01, lines), [f"t{i}" for i in range(lines)]
    height = heights(nodes["parent"])
    assert labels(nodes, height, tall=30 * lines) == [*nodes["text"]]  # room for all
    crowded = labels(nodes, height, tall=4 * lines)
    assert [text for text in crowded if text != BLANK] == ["t0"]  # the others would stand on a node
    nodes["on_path"] = nodes.index == 0
    nodes["chance"] = nodes["chance"][::-1].to_numpy()
    assert labels(nodes, height, tall=30 * lines)[0] == "t0"
    assert labels(nodes.head(0), height[:0]) == []


def test_capacity_draws_its_promises(trace):
    plan = sv.capacity(trace, {"code": 1}, sv.t4_like(), FixedK(2), "ngram", draws=20)
    plain = sv.t4_like().plain_seconds
    figure = plot_capacity(plan.table, plain, speed=20.0, wait=0.1)
    lines = [(shape.xref, shape.x0) for shape in figure.layout.shapes]
    assert lines == [("x", 1 / plain), ("x2", 1000 * plain), ("x", 20.0), ("x2", 100.0)]
    named = [shape.name for shape in figure.layout.shapes if shape.showlegend]
    assert named == ["plain decoding", "promised (SLA)"]
    assert figure.data[-2].x[0] == pytest.approx(plan.table["tokens_per_second"].iloc[-1])


def test_nothing_says_why():
    assert plot_nothing("a < b").layout.title.text == "a &lt; b"
    assert DRAWS >= 1000
