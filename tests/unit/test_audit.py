"""Audits: F2.5 with figures put in, the report that specviz starts from, and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specviz.analysis.audits.audit import Audit, audit
from specviz.analysis.audits.ranges import Range, stated
from specviz.analysis.audits.together import audit_together
from specviz.analysis.theory.tau import tau

some = settings(max_examples=60, deadline=None)
amounts = st.floats(0.01, 1000)
BASE = (18, 19)


def code(**more: object) -> Audit:
    return audit(
        tokens_per_round=7.4,
        k=7,
        tokens_per_second=154,
        baseline_tokens_per_second=BASE,
        **more,  # type: ignore[arg-type]
    )


def prose() -> Audit:
    return audit(
        tokens_per_round=2.5, k=7, tokens_per_second=(35, 37), baseline_tokens_per_second=BASE
    )


def near(found: Range | None, low: float, high: float, digits: int = 3) -> bool:
    assert found is not None
    return round(found.low, digits) == low and round(found.high, digits) == high


# -- the report that specviz starts from ------------------------------------------------------


def test_code_is_faster_than_its_tokens_allow() -> None:
    found = code()
    assert not found.consistent
    assert found.verdict == "inconsistent"
    assert near(found.speedup, 8.11, 8.56, 2)
    assert near(found.step_ratio, 0.865, 0.913)
    assert found.bonus_counted is True  # 8.4 tokens do not come out of a round of 7 + 1
    assert found.extra_per_token is None
    assert any("other text" in way or "context length" in way for way in found.reconcile)


def test_the_worked_example_in_one_number() -> None:
    """Speed-up 8.32 > k + 1 and a step ratio of .889 < 1, both in the sentence that fails."""
    found = audit(tokens_per_round=7.4, k=7, tokens_per_second=154, baseline_tokens_per_second=18.5)
    failed = [finding for finding in found.findings if not finding.ok]
    assert [finding.formula for finding in failed] == ["F2.5"]
    for words in ("8.32", "above k + 1 = 8", "0.889"):
        assert words in failed[0].sentence
    assert any("20.8 tokens/s or more" in way for way in found.reconcile)
    assert any("137 tokens/s or less" in way for way in found.reconcile)
    assert any("drafts of 8 tokens or more" in way for way in found.reconcile)


def test_prose_by_itself_is_consistent() -> None:
    found = prose()
    assert found.verdict == "consistent"
    assert near(found.step_ratio, 1.216, 1.357)
    assert near(found.extra_per_token, 0.0309, 0.0510, 4)
    assert found.bonus_counted is None  # 2.5 and 3.5 are both possible
    assert found.reconcile == ()


def test_the_two_have_no_cost_model_in_common() -> None:
    both = audit_together({"code": code(), "prose": prose()})
    assert not both.one_cost_model
    assert not both.consistent
    assert both.compared == "round_seconds"  # one baseline: it cancels
    ends = both.table.set_index("claim")[["low", "high"]] * 1000
    assert ends.loc["code"].tolist() == pytest.approx([48.05, 48.05], abs=0.01)
    assert ends.loc["prose"].tolist() == pytest.approx([67.57, 71.43], abs=0.01)
    # At least: 2.45 / 37 s against 7.45 / 153.5 s.
    assert both.factor == pytest.approx((2.45 / 37) / (7.45 / 153.5))
    assert "a round costs the same whatever text" in both.reason
    assert "With the rounds of prose, code would run at 104 to 110 tokens/s." in both.reconcile
    assert "inconsistent" in str(both)


def test_one_ratio_would_reconcile_them() -> None:
    """Code at the rounds of prose: consistent together and alone."""
    slower = audit(
        tokens_per_round=7.4, k=7, tokens_per_second=106, baseline_tokens_per_second=BASE
    )
    both = audit_together({"code": slower, "prose": prose()})
    assert both.consistent
    assert both.factor == 1.0
    assert "can be of one cost model" in both.reason


def test_7_4_of_7_accepted_must_count_the_bonus() -> None:
    found = audit(accepted_per_round=7.4, k=7)
    assert found.consistent
    assert found.bonus_counted is True
    assert near(found.tokens_per_round, 7.4, 7.4)
    assert "must count the bonus token" in found.convention
    assert not audit(accepted_per_round=7.4, k=7, bonus_counted=False).consistent


@pytest.mark.parametrize(
    ("tokens", "alpha"),
    [(7.4, 0.977595), (2.5, 0.607412), (2.45, 0.598562), (2.62, 0.627495), (3.5, 0.739968)],
)
def test_f2_2_match_at_k_7(tokens: float, alpha: float) -> None:
    found = audit(tokens_per_round=tokens, k=7, bonus_counted=True).token_match
    assert found is not None
    assert (found.low, found.high) == pytest.approx((alpha, alpha), abs=1e-6)


# -- logs of engines --------------------------------------------------------------------------


def test_llama_cpp_log() -> None:
    found = audit(
        tokens_per_round=1 + 167 / 87,
        draft_yield=0.6448,
        drafted_per_round=259 / 87,
        survival=[0.805, 0.632, 0.483],
        k=3,
    )
    assert found.verdict == "consistent"
    assert found.bonus_counted is True
    assert {finding.formula for finding in found.findings} == {"F2.1", "F2.5"}
    assert near(found.tokens_per_round, 2.9195, 2.9195, 4)


def test_sglang_histogram_and_its_older_rate() -> None:
    figures = {"tokens_per_round": 106 / 43, "k": 5, "drafted_per_round": 5}
    survival = [0.744, 0.419, 0.163, 0.0698, 0.0698]
    new = audit(**figures, draft_yield=0.293023, survival=survival)  # type: ignore[arg-type]
    assert new.verdict == "consistent"
    old = audit(**figures, draft_yield=0.410853)  # type: ignore[arg-type]
    assert old.verdict == "inconsistent"
    assert any("PR #23530" in way and "0.293" in way for way in old.reconcile)


def test_vllm_log_without_the_bonus() -> None:
    """Before May 2025 the mean left the bonus out: survival says which it is."""
    found = audit(tokens_per_round=1.92, survival=[0.805, 0.632, 0.483], k=3)
    assert found.consistent
    assert found.bonus_counted is False
    assert near(found.tokens_per_round, 2.92, 2.92)


def test_more_requests_share_the_speed() -> None:
    """64k context, 10 requests: k from 7 to 5 at 2.6 tokens per round, a round a fifth shorter."""
    seconds = [
        audit(tokens_per_round=2.6, k=k, tokens_per_second=speed, requests=10).round_seconds
        for k, speed in ((7, 234.7), (5, 290.6))
    ]
    assert seconds[0] is not None
    assert seconds[1] is not None
    assert seconds[0].low == pytest.approx(26 / 234.7)
    assert seconds[1].low / seconds[0].low == pytest.approx(0.81, abs=0.005)


# -- single identities ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"draft_yield": 1.06, "k": 3}, "above 1"),
        ({"tokens_per_round": 0.8, "bonus_counted": True}, "fewer than 1"),
        ({"tokens_per_round": 9.2, "k": 7}, "do not lie between 1 and k + 1 = 8"),
        ({"tokens_per_round": 3.0, "accepted_per_round": 3.0}, "are not accepted + 1"),
        ({"tokens_per_round": 4.5, "draft_yield": 0.3, "k": 7}, "more than 1 + k x draft yield"),
        ({"drafted_per_round": 8.2, "k": 7}, "more than k = 7"),
        ({"survival": [0.5, 0.7], "k": 2}, "rises with depth"),
        ({"speedup": 4, "tokens_per_second": 154, "baseline_tokens_per_second": BASE}, "is not"),
        ({"speedup": 9, "k": 7}, "above k + 1 = 8"),
        ({"speedup": 3.2, "tokens_per_round": 2.1, "bonus_counted": True}, "above 2.10 tokens"),
        (
            {"tokens_per_round": 2.5, "tokens_per_second": 36, "round_seconds": 0.2},
            "exceed",
        ),
        ({"round_seconds": 0.04, "plain_seconds": 0.06}, "less than 1"),
    ],
)
def test_what_cannot_be_is_said(figures: dict[str, object], words: str) -> None:
    found = audit(**figures)  # type: ignore[arg-type]
    assert found.verdict == "inconsistent"
    sentences = [f.sentence for reading in found.readings for f in reading.findings if not f.ok]
    assert any(words in sentence for sentence in sentences)


@pytest.mark.parametrize(
    "figures",
    [{"tokens_per_round": 2.6}, {"speedup": 10}, {"tokens_per_second": 50}, {"draft_yield": 0.3}],
)
def test_too_little_is_not_called_consistent(figures: dict[str, float]) -> None:
    assert audit(**figures).verdict == "not enough said"  # type: ignore[arg-type]


def test_a_yield_alone_gives_the_most_tokens_per_round() -> None:
    found = audit(draft_yield=0.834, k=1)
    assert near(found.tokens_per_round, 1.834, 1.834)
    assert "every round" in found.convention


def test_a_short_survival_list_bounds_the_rest() -> None:
    found = audit(survival=[0.762], k=8)
    assert near(found.tokens_per_round, 1.762, 1 + 8 * 0.762)
    without_k = audit(survival=[0.5]).tokens_per_round
    assert without_k is not None
    assert without_k.high == np.inf


def test_stated_seconds_give_the_ratio() -> None:
    found = audit(tokens_per_round=7.4, k=7, round_seconds=(0.131, 0.153), plain_seconds=0.079)
    assert near(found.step_ratio, 1.658, 1.937)
    assert near(found.speedup, 3.82, 4.46, 2)


def test_an_author_who_ruled_out_the_right_reading_is_told() -> None:
    found = audit(tokens_per_round=7.6, k=7, bonus_counted=False)
    assert not found.consistent
    assert any("with the bonus token" in way for way in found.reconcile)


# -- several claims ---------------------------------------------------------------------------


def test_own_baselines_compare_ratios() -> None:
    one = audit(tokens_per_round=3.0, k=7, tokens_per_second=60, baseline_tokens_per_second=30)
    two = audit(tokens_per_round=4.0, k=7, tokens_per_second=40, baseline_tokens_per_second=15)
    both = audit_together({"short context": one, "long context": two})
    assert both.compared == "step_ratio"
    assert both.consistent


def test_one_convention_for_all_claims() -> None:
    """Only with the bonus left out do the seconds agree; one reading is used for both."""
    a = audit(tokens_per_round=2.0, k=7, tokens_per_second=30.0)
    b = audit(tokens_per_round=3.0, k=7, tokens_per_second=40.0)
    both = audit_together({"a": a, "b": b}, tolerance=0.0)
    assert both.one_cost_model
    assert both.bonus_counted is False


def test_tolerance_is_a_share() -> None:
    claims = {
        name: audit(tokens_per_round=2.50, k=7, speedup=speed, bonus_counted=True)
        for name, speed in (("a", 1.500), ("b", 1.800))
    }
    assert not audit_together(claims, 0.05).one_cost_model
    assert audit_together(claims, 0.25).one_cost_model


def test_a_cost_in_common_does_not_excuse_a_claim() -> None:
    claims = {
        "a": audit(tokens_per_round=2.0, k=7, speedup=3.0, bonus_counted=True),
        "b": audit(tokens_per_round=4.0, k=7, speedup=6.0, bonus_counted=True),
    }
    both = audit_together(claims)
    assert both.one_cost_model
    assert not both.consistent
    assert "inconsistent" in both.reason


# -- properties -------------------------------------------------------------------------------

systems = st.tuples(
    st.lists(st.floats(0, 1), min_size=1, max_size=15),  # alphas
    st.floats(0.001, 0.2),  # a plain step
    st.floats(0, 3),  # what a round takes beyond it, in plain steps
)


def truth(alphas: list[float], plain: float, extra: float) -> dict[str, object]:
    k, tokens = len(alphas), tau(alphas)
    seconds = plain * (1 + extra)
    return {
        "tokens_per_round": tokens,
        "draft_yield": (tokens - 1) / k,
        "drafted_per_round": k,
        "survival": np.cumprod(alphas).tolist(),
        "k": k,
        "tokens_per_second": tokens / seconds,
        "baseline_tokens_per_second": 1 / plain,
        "speedup": tokens / (1 + extra),
        "round_seconds": seconds,
        "plain_seconds": plain,
    }


@some
@given(systems, st.data())
def test_what_a_true_system_says_is_consistent(system: tuple, data: st.DataObject) -> None:
    said = truth(*system)
    some_of_it = data.draw(st.lists(st.sampled_from(sorted(said)), min_size=1, unique=True))
    figures = {name: said[name] for name in some_of_it if name != "k"}
    assume(figures)
    if "k" in some_of_it:
        figures["k"] = said["k"]
    found = audit(**figures)  # type: ignore[arg-type]
    assert found.consistent, str(found)
    if "tokens_per_round" in figures:
        counted = next(r for r in found.readings if r.bonus_counted)
        assert counted.possible
        if "speedup" in figures and counted.step_ratio is not None:
            assert counted.step_ratio.low == pytest.approx(1 + system[2])


@some
@given(systems, st.integers(1, 4))
def test_rounding_makes_no_contradiction(system: tuple, digits: int) -> None:
    said = truth(*system)
    figures = {
        name: round(value, digits)  # type: ignore[call-overload]
        for name, value in said.items()
        if name in ("tokens_per_round", "draft_yield", "tokens_per_second", "speedup")
    }
    figures["baseline_tokens_per_second"] = round(1 / system[1], digits)
    assume(all(value > 0 for name, value in figures.items() if name != "draft_yield"))
    found = audit(**figures, k=len(system[0]))  # type: ignore[arg-type]
    assert found.consistent, str(found)


@some
@given(systems, st.floats(0.01, 5))
def test_more_than_k_plus_1_is_inconsistent(system: tuple, beyond: float) -> None:
    said = truth(*system)
    k = len(system[0])
    said["tokens_per_round"] = k + 1 + beyond
    assert not audit(tokens_per_round=k + 1 + beyond, k=k).consistent
    assert not audit(**said).consistent  # type: ignore[arg-type]


@some
@given(systems, st.floats(1.01, 5))
def test_faster_than_its_tokens_is_inconsistent(system: tuple, beyond: float) -> None:
    said = truth(*system)
    tokens = float(said["tokens_per_round"])  # type: ignore[arg-type]
    fast = beyond * tokens  # pairs: nothing is rounded away
    found = audit(
        tokens_per_round=(tokens, tokens),
        speedup=(fast, fast),
        k=len(system[0]),
        bonus_counted=True,
    )
    assert not found.consistent
    assert found.step_ratio is not None
    assert found.step_ratio.low == pytest.approx(1 / beyond)


@some
@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.floats(0, 3), st.floats(1.2, 4))
def test_one_system_has_one_cost_model(matches: list[float], extra: float, faster: float) -> None:
    def claims(factor: float) -> dict[str, Audit]:
        made = {}
        for i, match in enumerate(matches):
            tokens = tau([match] * 7)
            speed = tokens / (1 + extra) * (factor if i == 0 else 1)
            made[f"text {i}"] = audit(
                tokens_per_round=(tokens, tokens), k=7, speedup=(speed, speed), bonus_counted=True
            )
        return made

    assert audit_together(claims(1.0), tolerance=1e-6).consistent
    apart = audit_together(claims(faster))
    assert not apart.one_cost_model
    assert apart.factor == pytest.approx(faster)


@some
@given(amounts, amounts, amounts, amounts, st.floats(0, 1), st.floats(0, 1))
def test_ranges_hold_every_result(
    a: float, b: float, c: float, d: float, s: float, t: float
) -> None:
    x, y = Range.of(min(a, b), max(a, b)), Range.of(min(c, d), max(c, d))
    inside = x.low + s * (x.high - x.low), y.low + t * (y.high - y.low)
    for found, value in (
        (x + y, inside[0] + inside[1]),
        (x * y, inside[0] * inside[1]),
        (x / y, inside[0] / inside[1]),
    ):
        assert found.low <= value * (1 + 1e-12)
        assert value <= found.high * (1 + 1e-12)


def test_as_written() -> None:
    assert stated("x", 7.4) == Range(7.4, 7.4, 7.35, 7.45)
    assert stated("x", 154) == Range(154, 154, 153.5, 154.5)
    assert stated("x", np.float64(0.1)).most == pytest.approx(0.15)
    assert stated("x", (35, 37)) == Range.of(35, 37)
    assert stated("x", 0.02).least == pytest.approx(0.015)
    assert stated("x", 0).least == 0


# -- refusals and pages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ({}, "nothing to audit"),
        ({"k": 0, "tokens_per_round": 2.0}, "k must be a whole number"),
        ({"k": 7.0, "tokens_per_round": 2.0}, "k must be a whole number"),
        ({"tokens_per_round": -1}, "must be a number, 0 or more"),
        ({"tokens_per_round": "7.4"}, "must be a number, 0 or more"),
        ({"tokens_per_round": float("nan")}, "must be a number, 0 or more"),
        ({"tokens_per_round": True}, "must be a number, 0 or more"),
        ({"tokens_per_second": (37, 35)}, "higher end first"),
        ({"tokens_per_second": (35, 36, 37)}, "a pair of them"),
        ({"speedup": 0}, "more than 0"),
        ({"survival": 0.8}, "must list"),
        ({"survival": ["x"]}, "survival must be a number"),
        ({"speedup": 2.0, "requests": 0}, "requests must be a whole number"),
        ({"speedup": 2.0, "bonus_counted": 1}, "True, False or None"),
        (
            {"tokens_per_round": 2.0, "accepted_per_round": 1.0, "bonus_counted": True},
            "leave bonus_counted out",
        ),
    ],
)
def test_refusals(figures: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        audit(**figures)  # type: ignore[arg-type]


def test_refusals_of_several() -> None:
    fine = prose()
    for claims, sentence in (
        ({"a": fine}, "two or more"),
        ([fine, fine], "must map labels"),
        ({"a": fine, "b": 3}, "must map labels"),
        ({"a": fine, "b": audit(tokens_per_round=2.5, k=5, speedup=2.0)}, "different k"),
        ({"a": fine, "b": audit(tokens_per_round=2.5, k=7)}, "does not say what a round costs"),
    ):
        with pytest.raises(ValueError, match=sentence):
            audit_together(claims)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance, a share"):
        audit_together({"a": fine, "b": fine}, -0.1)


def test_pages_are_escaped_and_say_the_verdict() -> None:
    page = code()._repr_html_()
    assert "<b>inconsistent</b>" in page
    assert "What would reconcile" in page
    both = audit_together({"<script>x</script>": code(), "prose": prose()})
    assert "<script>" not in both._repr_html_()
    assert "&lt;script&gt;" in both._repr_html_()
    assert "holds (F2.5)" in str(prose())
    assert "FAILS (F2.5)" in str(code())


def test_a_plain_step_and_plain_tokens_per_second_must_agree() -> None:
    figures = {"tokens_per_round": 2.5, "k": 7, "baseline_tokens_per_second": (18, 19)}
    assert audit(**figures, plain_seconds=0.054).consistent
    found = audit(**figures, plain_seconds=0.0208)
    assert not found.consistent
    assert "A plain step of 20.8 ms is not the 52.6 to 55.6 ms of 18 to 19 plain" in str(found)


def test_rounds_must_be_short_enough_for_the_speed_up() -> None:
    figures = {"tokens_per_round": 3.001, "k": 7, "speedup": 2.001, "plain_seconds": 0.05001}
    figures["bonus_counted"] = True
    assert audit(**figures, round_seconds=0.07501).consistent
    assert not audit(**figures, round_seconds=0.10001).consistent


def test_a_rounded_draft_length_is_no_more_than_k() -> None:
    figures = {"tokens_per_round": 2.03125, "drafted_per_round": 1, "draft_yield": 1.0}
    assert not audit(**figures, k=1).consistent
