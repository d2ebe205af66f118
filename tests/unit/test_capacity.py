"""Capacity: speeds add up as times, waits are counted as they are met, drafting pays or not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.replays.by_k import speedup_by_k
from specviz.analysis.replays.replay import replay
from specviz.analysis.serving.capacity import SLA, Capacity, capacity, capacity_from_figures
from specviz.analysis.serving.loads import Load, Sums, measures
from specviz.analysis.serving.memory import KVShape, speculation_memory
from specviz.cost import CostModel
from specviz.policies import FixedK
from specviz.presets import free_drafts, t4_like
from specviz.trace import Trace
from tests.synthetic import synthetic_trace, trace_of

some = settings(max_examples=30, deadline=None)
FEW = 400  # draws
TIGHT = CostModel.from_array(1 + 0.05 * np.arange(16), 0.12 * np.arange(16), name="tight")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(0, prompts_per_type=6)


def rows(found: Capacity) -> pd.DataFrame:
    return found.table.set_index("content_type")


# -- by hand ----------------------------------------------------------------------------------


def test_by_hand() -> None:
    """Rounds of 2 tokens: 3 + 3 + 1 emitted by one answer, 1 + 2 + 1 + 3 by the other.

    A plain step is 1 s, a full round of k = 2 takes 1.5 s, and shorter last drafts less.
    """
    trace = trace_of([[2, 0, 0, 2, 0, 0, 0], [0, 1, 0, 0, 2, 0, 0]], k=2, max_new_tokens=20)
    cost = CostModel.from_array([1.0, 1.0, 1.0], [0.0, 0.25, 0.5])
    run = replay(trace, FixedK(2)).rounds
    assert run["emitted"].tolist() == [3, 3, 1, 1, 2, 1, 3]
    found = capacity(trace, {"code": 1}, cost, FixedK(2), draws=FEW)
    row = rows(found).loc["code"]
    assert row["tokens_per_round"] == pytest.approx(14 / 7)
    assert row["tokens_per_second"] == pytest.approx(14 / (7 * 1.5))
    assert row["speedup"] == pytest.approx(14 / (7 * 1.5))
    assert row["latency_mean"] == pytest.approx(7 * 1.5 / 14)
    # 3 of 14 tokens come alone and take 1.5 s: more than 5 %.
    assert row["latency_p95"] == pytest.approx(1.5)
    assert row["wait_p95"] == pytest.approx(1.5)
    assert (row["n_rounds"], row["n_prompts"]) == (7, 2)
    assert np.isnan(row["break_even"])  # nothing to mix with


def test_every_token_counts_once_in_the_p95() -> None:
    """One token in 41 comes alone; a p95 of tokens does not see it, a p95 of rounds does."""
    trace = trace_of([[9, *[0] * 9] * 4 + [0]], k=9, max_new_tokens=60)
    cost = CostModel.from_array([1.0] * 10, [0.0] * 10)
    row = rows(capacity(trace, {"code": 1}, cost, FixedK(9))).loc["code"]
    assert row["latency_p95"] == pytest.approx(0.1)
    assert row["wait_p95"] == 1.0
    assert row["latency_mean"] == pytest.approx(5 / 41)


def test_seconds_add_up_and_speeds_do_not() -> None:
    found = capacity_from_figures(
        {"code": 1, "prose": 1}, {"code": 7.4, "prose": 2.5}, t4_like(), k=7
    )
    speed = rows(found)["tokens_per_second"]
    assert speed["prose"] == pytest.approx(36)
    assert speed["code"] == pytest.approx(7.4 * 36 / 2.5)
    assert speed["mix"] == pytest.approx(2 / (1 / speed["code"] + 1 / speed["prose"]))
    assert rows(found)["speedup"]["mix"] == pytest.approx(speed["mix"] / 18.5)
    assert rows(found)["latency_p95"].isna().all()  # no rounds to take it from
    assert rows(found)["wait_p95"].tolist() == pytest.approx([2.5 / 36] * 3)
    assert rows(found)["tokens_per_second_low"].isna().all()


# -- the trace --------------------------------------------------------------------------------


def test_a_kind_is_what_replay_and_the_sweep_say(trace: Trace) -> None:
    found = rows(capacity(trace, {"code": 2, "prose": 1}, TIGHT, FixedK(4), draws=FEW))
    sweep = speedup_by_k(trace, TIGHT, ks=[4], draws=FEW).set_index("content_type")
    lengths = replay(trace, FixedK(4)).by().set_index("content_type")
    for kind in ("code", "prose"):
        assert found["speedup"][kind] == pytest.approx(sweep["speedup"][kind])
        assert found["tokens_per_round"][kind] == pytest.approx(lengths["tokens_per_round"][kind])
        assert found["n_rounds"][kind] == lengths["n_rounds"][kind]
        assert found["n_prompts"][kind] == 6
        for name in ("tokens_per_round", "tokens_per_second", "speedup", "latency_mean"):
            low, high = found[f"{name}_low"][kind], found[f"{name}_high"][kind]
            assert low < found[name][kind] < high
    # The first kind is resampled with the seed itself, as the sweep does.
    assert found["speedup_low"]["code"] == pytest.approx(sweep["low"]["code"])
    assert found["share"].tolist() == pytest.approx([2 / 3, 1 / 3, 1])
    code, prose, mix = (found["latency_mean"][kind] for kind in ("code", "prose", "mix"))
    assert mix == pytest.approx((2 * code + prose) / 3)
    assert found["latency_mean_low"]["mix"] < mix < found["latency_mean_high"]["mix"]


def test_the_p95_is_that_of_the_tokens_written_out(trace: Trace) -> None:
    run = replay(trace, FixedK(6))
    rounds = run.rounds.assign(seconds=run.seconds(TIGHT))
    found = rows(capacity(trace, {"code": 1, "prose": 1}, TIGHT, FixedK(6), draws=FEW))
    for kind in ("code", "prose"):
        mine = rounds[rounds["content_type"] == kind]
        each = np.repeat(mine["seconds"] / mine["emitted"], mine["emitted"])
        expected = np.quantile(each, 0.95, method="inverted_cdf")
        assert found["latency_p95"][kind] == pytest.approx(expected)
        waits = np.quantile(mine["seconds"], 0.95, method="inverted_cdf")
        assert found["wait_p95"][kind] == pytest.approx(waits)
        assert found["latency_p95_low"][kind] <= found["latency_p95"][kind]
        assert found["latency_p95"][kind] <= found["latency_p95_high"][kind]
    ends = found["latency_p95"]
    assert min(ends["code"], ends["prose"]) <= ends["mix"] <= max(ends["code"], ends["prose"])


def test_a_policy_for_every_kind(trace: Trace) -> None:
    mixed = {"code": FixedK(4), "prose": FixedK(0)}
    found = capacity(trace, {"code": 1, "prose": 1}, TIGHT, mixed, draws=FEW)
    table = rows(found)
    assert table["policy"].tolist() == ["fixed-4", "fixed-0", "fixed-4, fixed-0"]
    assert table["speedup"]["prose"] == pytest.approx(1)
    assert table["latency_p95"]["prose"] == pytest.approx(TIGHT.plain_seconds)
    alone = rows(capacity(trace, {"code": 1}, TIGHT, FixedK(4), draws=FEW))
    assert table["speedup"]["code"] == pytest.approx(alone["speedup"]["code"])
    assert "That is plain decoding" in found.sentences[1]
    assert table["break_even"]["prose"] == 1.0  # nothing is lost on it


def test_free_drafts_give_tokens_per_round(trace: Trace) -> None:
    found = rows(capacity(trace, {"mixed": 1}, free_drafts(), FixedK(5), draws=FEW))
    assert found["speedup"]["mixed"] == pytest.approx(found["tokens_per_round"]["mixed"])


def test_one_prompt_gives_no_interval() -> None:
    trace = trace_of(
        [[1, 0, 2, 0], [0, 0, 0, 0]], prompt_ids=["p", "q"], k=3, content_types=["code", "prose"]
    )
    found = rows(capacity(trace, {"code": 1, "prose": 1}, TIGHT, FixedK(2), draws=FEW))
    assert found["speedup_low"].isna().all()
    assert found["speedup"].notna().all()


# -- break-even -------------------------------------------------------------------------------


@some
@given(st.floats(0.1, 3), *[st.floats(0.05, 0.95)] * 4)
def test_at_the_break_even_share_the_mix_gains_nothing(
    extra: float, hard: float, one: float, two: float, weight: float
) -> None:
    cost = CostModel.from_array([1.0] * 8, np.r_[0, np.full(7, extra)])
    figures = {"hard": 1 + hard * extra}  # a round costs 1 + extra plain steps
    figures |= {name: 1 + extra + u * (7 - extra) for name, u in (("one", one), ("two", two))}
    mix = {"hard": 1.0, "one": weight, "two": 1 - weight}
    turn = rows(capacity_from_figures(mix, figures, cost, 7))["break_even"]["hard"]
    assert 0 < turn < 1
    for share, sign in ((turn, 0), ((1 + turn) / 2, -1), (turn / 2, 1)):
        rest = {"one": (1 - share) * weight, "two": (1 - share) * (1 - weight)}
        at = rows(capacity_from_figures({"hard": share, **rest}, figures, cost, 7))
        gain = at["speedup"]["mix"] - 1
        assert abs(gain) < 1e-9 if sign == 0 else gain * sign > 0


def test_break_even_at_its_ends() -> None:
    dear = CostModel.from_array([1.0] * 8, np.r_[0, np.full(7, 2.0)])
    both = {"a": 1, "b": 1}
    never = rows(capacity_from_figures(both, {"a": 2.0, "b": 2.5}, dear, 7))
    assert never["break_even"][["a", "b"]].tolist() == [0, 0]
    always = rows(capacity_from_figures(both, {"a": 4.0, "b": 5.0}, dear, 7))
    assert always["break_even"][["a", "b"]].tolist() == [1, 1]
    # a loses 1/2 s a token, b gains 1/4 s: a may have a third of the tokens.
    some_of_it = capacity_from_figures(both, {"a": 2.0, "b": 4.0}, dear, 7)
    assert rows(some_of_it)["break_even"]["a"] == pytest.approx(1 / 3)
    assert "33 %" in some_of_it.sentences[0]
    assert np.isnan(rows(some_of_it)["break_even"]["mix"])


# -- promises ---------------------------------------------------------------------------------


def test_an_average_hides_the_kind_that_misses() -> None:
    found = capacity_from_figures(
        {"code": 1, "prose": 1},
        {"code": 7.4, "prose": 2.5},
        t4_like(),
        k=7,
        sla=SLA(tokens_per_second=50),
    )
    assert rows(found)["sla"].tolist() == ["meets", "misses", "meets"]


@pytest.mark.parametrize(
    ("sla", "row", "word"),
    [
        (SLA(tokens_per_second=10), (11, 10.5, 12), "meets"),
        (SLA(tokens_per_second=10), (11, 9.5, 12), "not sure"),
        (SLA(tokens_per_second=10), (9, 8, 9.9), "misses"),
        (SLA(tokens_per_second=10), (11, np.nan, np.nan), "meets"),
        (SLA(wait_p95=0.1), (0.09, 0.08, 0.1), "meets"),
        (SLA(wait_p95=0.1), (0.09, 0.08, 0.11), "not sure"),
        (SLA(latency_p95=0.1), (np.nan, np.nan, np.nan), "not enough said"),
        (SLA(latency_p95=0.1, tokens_per_second=100), (0.05, 0.04, 0.06), "misses"),
    ],
)
def test_verdicts(sla: SLA, row: tuple[float, float, float], word: str) -> None:
    figures = {}
    for name in ("tokens_per_second", "latency_p95", "wait_p95"):
        for end, value in zip(("", "_low", "_high"), row, strict=True):
            figures[name + end] = value
    assert sla.verdict(figures) == word


def test_servers(trace: Trace) -> None:
    found = capacity(trace, {"code": 1, "prose": 1}, TIGHT, FixedK(4), draws=FEW)
    row = rows(found).loc["mix"]
    likely, safe = found.servers(100)
    assert likely == np.ceil(100 / row["tokens_per_second"])
    assert safe == np.ceil(100 / row["tokens_per_second_low"])
    assert safe >= likely
    given = capacity_from_figures({"prose": 1}, {"prose": 2.5}, t4_like(), 7)
    assert given.servers(72) == (2, 2)


# -- numbers of a mix -------------------------------------------------------------------------


@some
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from([0.05, 0.1, 0.2, 0.4])),
        min_size=1,
        max_size=40,
    )
)
def test_quantiles_by_writing_everything_out(made: list[tuple[int, float]]) -> None:
    rounds = pd.DataFrame(made, columns=["emitted", "seconds"]).assign(prompt_id="p")
    found = measures([Sums.of(Load.of_rounds("code", 1.0, "p", 1.0, rounds))])
    each = np.repeat(rounds["seconds"] / rounds["emitted"], rounds["emitted"])
    expected = np.quantile(each, 0.95, method="inverted_cdf")
    assert found["latency_p95"][0] == pytest.approx(expected)
    assert found["latency_mean"][0] == pytest.approx(each.mean())
    waits = np.quantile(rounds["seconds"], 0.95, method="inverted_cdf")
    assert found["wait_p95"][0] == pytest.approx(waits)


@pytest.mark.parametrize(("share", "latency"), [(0.04, 0.25), (0.06, 1.0)])
def test_a_kind_weighs_its_share_in_the_p95_of_the_mix(share: float, latency: float) -> None:
    """Prose, a token a round, is the slow one; how many of its prompts there are says nothing."""
    code = pd.DataFrame({"prompt_id": "a", "emitted": [4] * 3, "seconds": 1.0})
    prose = pd.DataFrame({"prompt_id": "b", "emitted": [1] * 50, "seconds": 1.0})
    loads = [
        Load.of_rounds("code", 1 - share, "p", 1.0, code),
        Load.of_rounds("prose", share, "p", 1.0, prose),
    ]
    found = measures([Sums.of(load) for load in loads])
    assert found["latency_p95"][0] == latency
    # Of every 100 tokens, 96 or 94 are of code and make a quarter as many rounds.
    slow = Load.of_rounds("prose", share, "p", 1.0, prose.assign(seconds=2.0))
    waits = measures([Sums.of(loads[0]), Sums.of(slow)])["wait_p95"][0]
    assert waits == 2.0
    few = Load.of_rounds("prose", share / 10, "p", 1.0, prose.assign(seconds=2.0))
    assert measures([Sums.of(loads[0]), Sums.of(few)])["wait_p95"][0] == 1.0


# -- memory -----------------------------------------------------------------------------------


def test_memory_of_the_embedded_target() -> None:
    """30 layers, 3 key-value heads of 64, float32: 46 kB a token, 2.9 MB for 64 nodes."""
    target = KVShape(30, 3, 64, bytes_per_value=4)
    assert target.bytes_per_token == 46_080
    six = KVShape(6, 3, 64, bytes_per_value=4)
    found = speculation_memory(
        target, context=500, nodes=64, drafter_bytes=20e6, drafter=six, requests=3
    )
    assert found.draft_rows == 3 * 64 * 46_080
    assert found.drafter_cache == 3 * 564 * 9_216
    assert found.total == pytest.approx(20e6 + found.draft_rows + found.drafter_cache)
    assert found.requests_displaced == pytest.approx(found.total / (500 * 46_080))
    assert "3 request(s)" in found._repr_html_()
    nothing = speculation_memory(target, context=500, nodes=0)
    assert nothing.total == 0


# -- refusals and pages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda t: capacity(t, {}, TIGHT, FixedK(2)), "mix must map content types"),
        (lambda t: capacity(t, {"code": -1}, TIGHT, FixedK(2)), "mix must map content types"),
        (lambda t: capacity(t, {"code": 0}, TIGHT, FixedK(2)), "mix must map content types"),
        (lambda t: capacity(t, ["code"], TIGHT, FixedK(2)), "mix must map content types"),
        (lambda t: capacity(t, {"verse": 1}, TIGHT, FixedK(2)), "has no 'verse'"),
        (lambda t: capacity(t, {"code": 1}, TIGHT, {"prose": FixedK(2)}), "no policy for 'code'"),
        (lambda t: capacity(t, {"code": 1}, "t4", FixedK(2)), "not a cost model"),
        (lambda t: capacity(t, {"code": 1}, TIGHT, 7), "not a policy"),
        (lambda t: capacity(t, {"code": 1}, TIGHT, FixedK(2), draws=0), "draws"),
        (lambda t: capacity_from_figures({"a": 1}, {}, t4_like(), 7), "between 1 and k"),
        (lambda t: capacity_from_figures({"a": 1}, {"a": 8.4}, t4_like(), 7), "between 1 and k"),
        (lambda t: SLA(), "promises something"),
        (lambda t: SLA(wait_p95=0), "above 0"),
        (lambda t: SLA(wait_p95="fast"), "above 0"),
        (
            lambda t: capacity_from_figures({"a": 1}, {"a": 2.0}, t4_like(), 7).servers(0),
            "above 0",
        ),
        (lambda t: KVShape(0, 3, 64), "layers must be"),
        (lambda t: KVShape(1, 3, 64, 0), "bytes_per_value must be"),
        (lambda t: speculation_memory(4, context=10, nodes=1), "target must be a KVShape"),
        (
            lambda t: speculation_memory(KVShape(1, 1, 1), context=10, nodes=1, drafter=3),
            "drafter must be a KVShape",
        ),
        (
            lambda t: speculation_memory(KVShape(1, 1, 1), context=10, nodes=1, drafter_bytes=-1),
            "drafter_bytes must be",
        ),
    ],
)
def test_refusals(trace: Trace, call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        call(trace)


def test_pages_are_escaped() -> None:
    hostile = trace_of([[1, 0, 0], [0, 1, 0]], k=2, content_types="<img src=x>")
    found = capacity(hostile, {"<img src=x>": 1}, TIGHT, FixedK(2), draws=FEW)
    page = found._repr_html_()
    assert "<img" not in page
    assert "tight (given)" in page
    assert "resample" in page
    assert str(found).startswith("<img src=x> (100 % of the tokens)")
