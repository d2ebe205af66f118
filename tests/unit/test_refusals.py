"""What newcomers pass by mistake: every entrance answers in a sentence, and never from inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import specviz as sv
from specviz.analysis import ceiling_by_anchor, drafters_at_anchors, length_by_nodes
from specviz.analysis.hazards.curves import rank_correlation
from specviz.analysis.hazards.model import hazard_model
from specviz.bundled import bundled_target_trees, bundled_trace
from specviz.cost import CostModel
from specviz.refuse import a_path, above_0, listed, one_name, shown, yes_no
from specviz.reporting import report
from specviz.rooflines import T4, Device, ridge
from specviz.trace import Trace, TraceError, need_trace
from specviz.widgets import TokenStrip
from tests.synthetic import synthetic_trace

TRACE = synthetic_trace(0, drafters=("steady",), k=6)
COST = sv.t4_like()
TREES = bundled_target_trees("anchors")
MIX = {"code": 1.0}
CLAIMS = sv.read_claims()
CODE = sv.audit(tokens_per_round=7.4, k=7, speedup=4.0)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Tokens of two prompts of code and two of prose."""
    rng = np.random.default_rng(0)
    n = 80
    prompt = np.arange(n) % 4
    found = pd.DataFrame(
        {
            "seq": prompt,
            "prompt_id": [f"p{each}" for each in prompt],
            "content_type": np.where(prompt % 2, "prose", "code"),
            "drafter": "steady",
            "anchor": np.arange(n),
            "depth": 1 + np.arange(n) % 3,
            "accepted": rng.random(n) < 0.6,
            "repeated": rng.random(n) < 0.5,
        }
    )
    for name in ("entropy", "ln_ebf_inf", "margin", "draft_confidence", "draft_entropy"):
        found[name] = rng.random(n)
    return found


def rounds(**columns: Any) -> pd.DataFrame:
    found = pd.DataFrame(
        {
            "prompt_id": list("abcd"),
            "kind": list("xxyy"),
            "policy": "fixed-3",
            "drafted": 3,
            "accepted": [1, 3, 0, 2],
            "stop": ["reject", "full", "reject", "limit"],
        }
    )
    return found.assign(**columns)


class LikeARun:
    trace = TRACE


# -- no trace ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, "demo", LikeARun(), pd.DataFrame({"a": [1]}), TREES])
@pytest.mark.parametrize(
    "call",
    [
        lambda t: sv.measured_bounds(t),
        lambda t: sv.hazard_table(t, 3),
        lambda t: sv.hazard_table(t, sv.FixedK(3)),
        lambda t: sv.optimal_k_by_ebf(t, COST),
        lambda t: sv.cost_sensitivity(t, COST),
        lambda t: sv.replay_sampled(t, 3),
        lambda t: sv.fit_cost(t),
        lambda t: sv.capacity(t, MIX, COST, sv.FixedK(3)),
        lambda t: sv.capture_tree_ceiling(t, None),  # type: ignore[arg-type]
        lambda t: sv.replay(t, sv.FixedK(3)),
        lambda t: sv.optimal_k(t, COST),
        lambda t: sv.iid_check(t),
        lambda t: sv.family_table(t),
    ],
)
def test_what_is_no_trace(call: Callable[[Any], Any], wrong: object) -> None:
    with pytest.raises(ValueError, match=r"is not a Trace: load one with load_trace"):
        call(wrong)


def test_a_trace_passes() -> None:
    assert need_trace(TRACE) is TRACE
    assert isinstance(TRACE, Trace)


# -- one sentence each ------------------------------------------------------------------------

TABLE = "no table of drafted tokens"
ROUNDS = "no table of rounds"
CLAIM = "no table of claims"
REFUSED: list[tuple[Callable[[pd.DataFrame], Any], str]] = [
    # what is no table
    *[(lambda t, x=x: sv.hazard_curve(x), TABLE) for x in (None, TRACE, "demo")],
    *[(lambda t, x=x: hazard_model(x), TABLE) for x in (None, TRACE)],
    *[(lambda t, x=x: sv.compare_survival(x), ROUNDS) for x in (None, TRACE, "demo")],
    *[(lambda t, x=x: sv.audit_claims(x), CLAIM) for x in ("x", TRACE, 5)],
    (
        lambda t: sv.compare_survival(sv.replay(TRACE, sv.FixedK(3))),  # type: ignore[arg-type]
        r"pass its \.rounds",
    ),
    (lambda t: sv.audit_claims(CLAIMS.drop(columns="k")), "no column 'k'"),
    (lambda t: sv.audit_claims(CLAIMS.assign(k=7.0)), "'k' must hold text"),
    (lambda t: sv.audit_claims(CLAIMS.iloc[:0]), "no claim in this table"),
    (lambda t: sv.audit_groups(CLAIMS.assign(k=7)), "'k' must hold text"),
    # what is no SLA, no mapping, no device, no number
    *[
        (lambda t, x=x: sv.capacity(TRACE, MIX, COST, sv.FixedK(3), sla=x), "sla must be an SLA")
        for x in (5, "x", {"tokens_per_second": 20})
    ],
    (
        lambda t: sv.capacity_from_figures(MIX, {"code": 2}, COST, 3, sla=5),  # type: ignore[arg-type]
        "sla must be an SLA",
    ),
    (
        lambda t: sv.capacity_from_figures(MIX, 2.5, COST, 3),  # type: ignore[arg-type]
        "tokens_per_round must map",
    ),
    (lambda t: sv.capacity(TRACE, {"code": 1e308, "prose": 1e308}, COST, sv.FixedK(3)), "mix must"),
    (lambda t: sv.roofline(27e9, "T4"), r"specviz\.rooflines\.T4"),  # type: ignore[arg-type]
    (lambda t: sv.roofline(27e9, T4, 1e12), "beyond 100,000"),
    (lambda t: ridge(T4, 0), "bytes_per_parameter must be a number above 0"),
    (lambda t: Device("x", -1, 1), "flops, operations per second, must be"),
    *[
        (lambda t, x=x: sv.audit_together({"a": CODE, "b": CODE}, x), "tolerance")
        for x in ("a", None)
    ],
    *[(lambda t, x=x: sv.load_target_trees(x), "path of a file") for x in (None, 5, "")],
    # one thing where a list is wanted, and empty lists
    (lambda t: sv.tree_ceiling(TREES, 7), r"budgets must be a list, such as \[7\]"),  # type: ignore[arg-type]
    (lambda t: sv.tree_ceiling(TREES, []), "budgets must name at least one"),
    (lambda t: sv.measured_bounds(TRACE, top=4), "top must be a list"),  # type: ignore[arg-type]
    (lambda t: sv.cost_sensitivity(TRACE, COST, factors=2), "factors must be a list"),  # type: ignore[arg-type]
    (lambda t: sv.cost_sensitivity(TRACE, COST, factors=()), "factors must name at least one"),
    (lambda t: hazard_model(t, 5), "terms must be a list"),  # type: ignore[arg-type]
    (lambda t: hazard_model(t, []), "terms must name at least one"),
    (lambda t: sv.residual_type_effect(t, None), "conditions must be a list, not None"),  # type: ignore[arg-type]
    (lambda t: sv.residual_type_effect(t, []), "conditions must name at least one"),
    (lambda t: sv.residual_type_effect(t, ["entropy"]), r"such as \['entropy'\]"),
    (lambda t: sv.compare_survival(rounds(), "kind", 5), "groups .* must be a list"),  # type: ignore[arg-type]
    (lambda t: sv.break_even_tokens(COST, "lm", []), "k must name at least one"),
    # what cannot be looked up
    (lambda t: sv.hazard_curve(t, ["entropy"]), "x must be one name"),  # type: ignore[arg-type]
    (lambda t: sv.hazard_curve(t, by=["drafter"]), "by must be one name"),  # type: ignore[arg-type]
    (lambda t: rank_correlation(t, by=None), "by must be one name"),  # type: ignore[arg-type]
    (lambda t: sv.preset(["gb10"]), "name must be one name"),  # type: ignore[arg-type]
    (lambda t: sv.break_even_tokens(COST, ["lm"]), "drafter must be one name"),  # type: ignore[arg-type]
    (lambda t: hazard_model(t, [["entropy"]]), "No term"),  # type: ignore[list-item]
    # what is in a table of tokens
    *[
        (lambda t, x=x, call=call: call(t.assign(accepted=x)), "accepted must be True or False")
        for x in (np.nan, -1, 3, "y")
        for call in (sv.hazard_curve, hazard_model, sv.residual_type_effect)
    ],
    (lambda t: hazard_model(t.assign(accepted=0.5)), "a logit is of single fates"),
    (lambda t: sv.hazard_curve(t.assign(prompt_id=None)), "no prompt_id"),
    (lambda t: sv.hazard_curve(t.assign(kind=None), by="kind"), "Some rows have no kind"),
    (lambda t: sv.residual_type_effect(t.assign(content_type=None)), "have no content_type"),
    (lambda t: hazard_model(t.assign(entropy=np.nan), ["entropy"]), "has no value"),
    (lambda t: hazard_model(t.assign(entropy="low")), "'entropy' must hold numbers"),
    (lambda t: hazard_model(t.iloc[:0]), "has no row"),
    *[
        (lambda t, call=call: call(mixed(t)), "mixes the drafters steady, lm: take one at a time")
        for call in (sv.hazard_curve, hazard_model, sv.residual_type_effect)
    ],
    # what is in a table of rounds
    (lambda t: sv.compare_survival(rounds(), "nope"), r"'nope'; they have \['prompt_id'"),
    (lambda t: sv.compare_survival(rounds(), ["kind"]), "by must be one name"),  # type: ignore[arg-type]
    (
        lambda t: sv.compare_survival(rounds(), "kind", statistic=["tokens"]),  # type: ignore[arg-type]
        "statistic must be one name",
    ),
    *[
        (lambda t, x=x: sv.compare_survival(rounds(accepted=x), "kind"), "from 0 to drafted")
        for x in (np.nan, -1, 4, 1.5, "y")
    ],
    (lambda t: sv.compare_survival(rounds(drafted="3"), "kind"), "from 0 to drafted"),
    (lambda t: sv.compare_survival(rounds(stop="bored"), "kind"), "not for 'bored'"),
    (lambda t: sv.compare_survival(rounds(prompt_id=None), "kind"), "no prompt_id"),
    (lambda t: sv.compare_survival(rounds(policy=list("ppqq")), "kind"), "mix the policies p, q"),
    # the rest
    (lambda t: sv.optimal_k_by_ebf(TRACE, COST, monotone="no"), "monotone must be True or False"),  # type: ignore[arg-type]
    *[
        (lambda t, x=x: sv.which_ceiling(target="greedy", acceptance=x, drafter="fixed"), "not '")
        for x in ("top-0", "top-1.5", "typical-0-0.3", "lenience-2")
    ],
]


def mixed(table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([table, table.assign(drafter="lm")], ignore_index=True)


@pytest.mark.parametrize(("call", "sentence"), REFUSED)
def test_a_sentence(table: pd.DataFrame, call: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        call(table)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


# -- files ------------------------------------------------------------------------------------


def test_files_of_another_kind(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("# Claims\n\na, b\nc, d, e, f\n")
    for wrong in (page, tmp_path):
        with pytest.raises(TraceError, match="holds no trees of a target"):
            sv.load_target_trees(wrong)
    with pytest.raises(ValueError, match="is no table of claims"):
        sv.read_claims(page)
    with pytest.raises(ValueError, match="is a folder"):
        sv.read_claims(tmp_path)
    with pytest.raises(ValueError, match="path must be the path of a file"):
        sv.read_claims(5)  # type: ignore[arg-type]


def test_where_trees_cannot_be_written(tmp_path: Path) -> None:
    from specviz.campaign import capture
    from specviz.drafters.markov import MarkovDrafter
    from specviz.targets.toy import MarkovModel, ToyTarget

    chain = MarkovModel.random(6)
    target = ToyTarget(chain)
    trace = capture(
        ["ab"], target, MarkovDrafter(chain), sampling=sv.Sampling(), k=2, progress=False
    )
    page = tmp_path / "README.md"
    page.write_text("# Trees\n")
    with pytest.raises(TraceError, match="holds no trees of a target"):
        sv.capture_tree_ceiling(trace, target, nodes=4, out=page, progress=False)
    with pytest.raises(ValueError, match="out must be the path of a file, not 5"):
        sv.capture_tree_ceiling(trace, target, nodes=4, out=5, progress=False)  # type: ignore[arg-type]


# -- what is understood -----------------------------------------------------------------------


def test_repeated_budgets_count_once() -> None:
    found = sv.tree_ceiling(TREES, [7, np.int64(7), 2], draws=20)  # type: ignore[list-item]
    again = sv.tree_ceiling(TREES, [7, 2], draws=20)
    pd.testing.assert_frame_equal(found, again)


def test_there_are_no_more_bins_than_rows(table: pd.DataFrame) -> None:
    for shape in ("binned", "isotonic"):
        found = sv.hazard_curve(table, shape=shape, bins=10**9, draws=20)
        assert len(found) <= len(table)
        assert found["n_tokens"].sum() == len(table)
    model = hazard_model(table, ["depth", "entropy"], folds=2, bins=10**6, draws=20)
    assert model.calibration["n_tokens"].sum() == len(table)


def test_drafters_that_are_told_apart_pass(table: pd.DataFrame) -> None:
    found = sv.hazard_curve(mixed(table), by="drafter", bins=2, draws=20)
    assert list(dict.fromkeys(found["drafter"])) == ["steady", "lm"]


def test_policies_that_are_compared_pass() -> None:
    two = pd.concat([rounds(), rounds(policy="fixed-1", drafted=3)])
    assert sv.compare_survival(two, "policy", permutations=9, draws=9).paired


def test_names_of_replayed_rules_are_sample_match() -> None:
    plain = sv.which_ceiling(target="sampled", acceptance="sample-match", drafter="fixed")
    argmax = sv.which_ceiling(target="sampled", acceptance="argmax-match", drafter="autoregressive")
    drawn = sv.which_ceiling(target="sampled", acceptance="drawn-match", drafter="autoregressive")
    assert argmax.bounds == drawn.bounds == plain.bounds
    assert (argmax.drafter, drawn.drafter) == ("fixed", "autoregressive")
    assert argmax.lossless


def test_a_count_beyond_all_text_stays_short() -> None:
    found = sv.audit(tokens_per_round=1e300, k=7)
    assert len(str(found)) < 500
    assert found.verdict == "inconsistent"


def test_an_audit_says_that_k_was_not_given() -> None:
    said = {"tokens_per_round": 7.4, "tokens_per_second": 154}
    open_ = sv.audit(**said, baseline_tokens_per_second=(18, 19))  # type: ignore[arg-type]
    assert open_.verdict == "consistent"
    assert "k was not given, so" in str(open_)
    assert "k was not given, so" in open_._repr_html_()
    assert "k was not given" not in str(CODE)
    listed_ = sv.audit_claims().set_index("id")
    no_k = listed_[listed_["k"].isna() & (listed_["verdict"] == "consistent")]
    assert no_k["reason"].str.contains("k was not given").all()
    assert not str(listed_.loc["t4-prose", "reason"]).endswith("emit.")


# -- the checks themselves --------------------------------------------------------------------


def test_shared_checks_return_what_they_pass() -> None:
    assert listed("ks", np.array([1, 2])) == [1, 2]
    assert listed("ks", (), empty=True) == []
    assert above_0("speed", np.float32(2)) == 2.0
    assert a_path("file", "a/b") == Path("a/b")
    assert one_name("by", "x") == "x"
    assert yes_no("flag", False) is False
    assert shown(pd.DataFrame({"a": range(9)})) == "a DataFrame"


@pytest.mark.parametrize("wrong", [None, "ab", {"a": 1}, 5, np.array(5)])
def test_what_is_no_list(wrong: object) -> None:
    with pytest.raises(ValueError, match="ks must be a list"):
        listed("ks", wrong)


def test_a_cost_model_prices_names_only() -> None:
    cost = CostModel("laptop", "given", verify=(0.05, 0.06), draft={"lm": (0.0, 0.001)})
    with pytest.raises(ValueError, match="drafter must be one name"):
        cost.draft_seconds(None, 1)  # type: ignore[arg-type]


def test_a_ceiling_by_anchor_asks_for_no_more_than_there_is() -> None:
    trees = bundled_target_trees("anchors")
    with pytest.raises(ValueError, match="have 128 nodes, and 200 were asked for"):
        ceiling_by_anchor(trees, [200])
    with pytest.raises(ValueError, match="budgets must be a list"):
        ceiling_by_anchor(trees, 7)  # type: ignore[arg-type]
    for call in (ceiling_by_anchor, drafters_at_anchors):
        with pytest.raises(ValueError, match="holds no trees of a target"):
            call(None, bundled_trace("smollm2-sampled") if call is drafters_at_anchors else [7])


def test_budgets_of_trees_are_a_list() -> None:
    trace = bundled_trace("smollm2-trees")
    for budgets in (7, "7", ()):
        with pytest.raises(ValueError, match="budgets must"):
            length_by_nodes(trace, "lm", budgets)  # type: ignore[arg-type]


def test_a_report_and_a_strip_are_of_a_trace(tmp_path: Path) -> None:
    for call in (lambda: report(None, tmp_path / "x.html"), lambda: TokenStrip("x")):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="is not a Trace"):
            call()
