"""Traps of counting, against exact laws; groups compared, and intervals judged, by prompt."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specviz.analysis import resampling
from specviz.analysis.replays.replay import replay
from specviz.analysis.resampling import percentiles, resampled_sums
from specviz.analysis.survival.groups import compare_survival
from specviz.analysis.survival.lengths import kaplan_meier, survival_by
from specviz.analysis.survival.prompt_traps import alike_rounds_trap, interval_coverage
from specviz.analysis.survival.traps import TwoStateText, censoring_trap, selection_trap
from specviz.bundled import bundled_trace
from specviz.policies import FixedK
from tests.synthetic import synthetic_trace


def exactly(text: TwoStateText, k: int, starts_of: int | None = None) -> dict[str, float]:
    """The long run, over the states in which rounds of `starts_of` (k) tokens start."""
    move = np.array(
        [[1 - text.leave_easy, text.leave_easy], [text.leave_hard, 1 - text.leave_hard]]
    )
    hit = np.diag([text.easy, text.hard])
    lead, here = np.zeros((2, 2)), np.eye(2)
    for _ in range(starts_of or k):
        lead = lead + here @ (np.eye(2) - hit) @ move  # rejected there: the next token starts
        here = here @ hit @ move
    lead = lead + here @ move  # the bonus token goes by whatever it is
    always = np.array([text.leave_hard, text.leave_easy]) / (text.leave_easy + text.leave_hard)
    start = np.linalg.matrix_power(lead, 500)[0]

    def survival(first: np.ndarray) -> np.ndarray:
        found = []
        for _ in range(k):
            first = first @ hit
            found.append(first.sum())
            first = first @ move
        return np.array(found)

    s = survival(start)
    return {
        "draft_yield": s.mean(),
        "first_match": s[0],
        "last_hazard": s[-1] / ([1.0, *s][-2]),
        "right_censored": s.sum() / (s.sum() + 1 - s[-1]),
        "tokens_per_round": 1 + s.sum(),
        "all_anchors": 1 + survival(always).sum(),
    }


# -- selection --------------------------------------------------------------------------------


def test_the_text_is_what_it_says() -> None:
    text = TwoStateText(0.9, 0.2, 0.1, 0.3)
    assert text.match == pytest.approx(0.75 * 0.9 + 0.25 * 0.2)
    hits = text.hits(100_000, seed=1)
    assert hits.mean() == pytest.approx(text.match, abs=0.01)
    assert (hits == text.hits(100_000, seed=1)).all()
    # Neighbours are alike: their covariance is that of the states, (1 - .1 - .3) of it.
    gap = np.cov(hits[:-1], hits[1:])[0, 1]
    assert gap == pytest.approx(0.75 * 0.25 * (0.9 - 0.2) ** 2 * 0.6, abs=0.005)


def test_one_drafter_and_every_number_moves_but_one() -> None:
    table = selection_trap().set_index("k")
    for k, row in table.iterrows():
        for name, truth in exactly(TwoStateText(), int(k)).items():
            assert row[name] == pytest.approx(truth, rel=0.015), (k, name)
    # The sheet's simulation, with two states of its own.
    sheet = {1: (0.667, 0.667), 2: (0.552, 0.639), 4: (0.398, 0.6), 8: (0.248, 0.56)}
    for k, (draft_yield, first) in {**sheet, 16: (0.139, 0.534)}.items():
        assert table["draft_yield"][k] == pytest.approx(draft_yield, abs=0.006)
        assert table["first_match"][k] == pytest.approx(first, abs=0.006)
    assert table["last_hazard"][8] == pytest.approx(0.88, abs=0.01)
    assert table["all_anchors"][8] == pytest.approx(4.21, abs=0.06)
    assert table["tokens_per_round"][8] == pytest.approx(2.98, abs=0.03)
    assert table["right_censored"].between(0.66, 0.70).all()
    assert (table["tokens_per_round"] == 1 + table.index * table["draft_yield"]).all()
    for name, falls in {"draft_yield": True, "first_match": True, "last_hazard": False}.items():
        assert (np.diff(table[name]) < 0).all() == falls


def test_the_anchors_of_another_k_mislead_the_other_way() -> None:
    """In kind: k = 3 has 2.278 in truth, 2.645 over all anchors, 1.950 over those of k = 15."""
    text = TwoStateText(0.965, 0.41, 0.06, 0.055)
    row = selection_trap((3, 15), text).set_index("k").loc[3]
    assert row["tokens_per_round"] == pytest.approx(2.278, abs=0.03)
    assert row["all_anchors"] == pytest.approx(2.645, abs=0.03)
    assert row["other_starts"] == pytest.approx(1.950, abs=0.03)
    truth = exactly(text, 3, starts_of=15)["tokens_per_round"]
    assert row["other_starts"] == pytest.approx(truth, rel=0.01)


# -- censoring --------------------------------------------------------------------------------


def test_a_policy_that_knows_makes_kaplan_meier_too_high() -> None:
    table = censoring_trap()
    limit = np.r_[0.675, 0.53125 * 0.95 ** np.arange(7)]
    assert table["kaplan_meier"].to_numpy() == pytest.approx(limit, abs=0.01)
    assert table.attrs["kaplan_meier_tokens"] == pytest.approx(4.88, abs=0.02)
    assert table.attrs["truth_tokens"] == pytest.approx(4.531, abs=5e-4)
    assert 1 + table["truth"].sum() == pytest.approx(table.attrs["truth_tokens"])
    # Kinds apart it is right as deep as both were tried, and silent beyond.
    assert table["stratified"][:2].to_numpy() == pytest.approx(table["truth"][:2], abs=0.005)
    assert table["stratified"][2:].isna().all()
    assert table["at_risk"].is_monotonic_decreasing


def test_now_and_then_a_wide_window_is_the_remedy() -> None:
    table = censoring_trap(wide=0.05)
    assert table["stratified"].to_numpy() == pytest.approx(table["truth"].to_numpy(), abs=0.01)
    assert (table["kaplan_meier"][2:] > table["truth"][2:] + 0.03).all()


def test_where_the_policy_knows_nothing_there_is_no_trap() -> None:
    table = censoring_trap(0.7, 0.7)
    assert table["kaplan_meier"].to_numpy() == pytest.approx(table["truth"].to_numpy(), abs=0.01)


# -- prompts ----------------------------------------------------------------------------------


def test_a_log_rank_test_over_rounds_cries_wolf() -> None:
    table = alike_rounds_trap(trials=60, permutations=99).set_index("test")["false_alarms"]
    assert table["log-rank over rounds"] > 0.25
    assert table["permuted prompts"] < 0.13


def test_intervals_over_prompts_cover_and_over_rounds_do_not() -> None:
    """95 % intervals over 150 prompts hold the truth in 93 to 97 of 100 trials."""
    table = interval_coverage(150, trials=2000, draws=300).set_index("interval")
    assert 0.93 <= table["coverage"]["prompts resampled"] <= 0.97
    assert table["coverage"]["rounds taken as independent"] < 0.6
    narrow = table["mean_width"]["rounds taken as independent"]
    assert 2.5 < table["mean_width"]["prompts resampled"] / narrow < 3.5


@pytest.mark.parametrize("statistic", ["ratio", "paired", "unpaired"])
def test_intervals_over_few_prompts_cover_because_they_are_expanded(
    statistic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 18 prompts 93 to 95 of 100 (4000 trials of 2000 draws: 93.6, 92.6 and 95.4);
    plain percentiles cover some 3 less, in the same trials."""

    def covered() -> float:
        table = interval_coverage(18, statistic=statistic, trials=700, draws=1000, seed=3)
        return float(table.set_index("interval")["coverage"]["prompts resampled"])

    assert 0.925 <= covered() <= 0.97
    monkeypatch.setattr(resampling, "expanded_tail", lambda level, n: (1 - level) / 2)
    assert covered() < 0.925


def test_at_another_level_it_covers_that_often() -> None:
    table = interval_coverage(100, trials=1000, draws=100, level=0.5).set_index("interval")
    assert 0.43 < table["coverage"]["prompts resampled"] < 0.57


# -- two groups -------------------------------------------------------------------------------


def rounds_of(chances: list[float], names: list[str], kinds: list[str], seed: int) -> pd.DataFrame:
    rng, k = np.random.default_rng(seed), 5
    match = np.concatenate([rng.geometric(1 - chance, 25) - 1 for chance in chances])
    return pd.DataFrame(
        {
            "prompt_id": np.repeat(names, 25),
            "kind": np.repeat(kinds, 25),
            "drafted": k,
            "accepted": np.minimum(match, k),
            "stop": np.where(match < k, "reject", "full"),
        }
    )


def gap(rounds: pd.DataFrame, mine: np.ndarray) -> float:
    curves = [
        kaplan_meier(part["accepted"], part["stop"] == "reject", 5)
        for part in (rounds[mine], rounds[~mine])
    ]
    return float((curves[0] - curves[1]).sum())


def test_the_p_value_is_that_of_all_ways_to_deal_the_prompts() -> None:
    names = [f"p{i}" for i in range(6)]
    rounds = rounds_of([0.7, 0.65, 0.4, 0.6, 0.5, 0.35], names, ["x"] * 3 + ["y"] * 3, 0)
    found = compare_survival(rounds, "kind", permutations=4000, draws=50)
    assert found.depth == 5
    observed = gap(rounds, (rounds["kind"] == "x").to_numpy())
    assert found.difference.estimate == pytest.approx(observed)
    every = [
        gap(rounds, rounds["prompt_id"].isin(chosen).to_numpy())
        for chosen in combinations(names, 3)
    ]
    truth = np.mean(np.abs(every) >= abs(observed) - 1e-12)
    assert 0.05 < truth < 0.95
    assert found.p_value == pytest.approx(truth, abs=0.03)
    assert not found.paired


def test_the_same_prompts_twice_are_swapped_prompt_by_prompt() -> None:
    names = [f"p{i}" for i in range(5)]
    sides = [
        rounds_of([0.7, 0.3, 0.5, 0.6, 0.4], names, ["x"] * 5, 1),
        rounds_of([0.6, 0.32, 0.4, 0.45, 0.42], names, ["y"] * 5, 2),
    ]
    rounds = pd.concat(sides, ignore_index=True)
    found = compare_survival(rounds, "kind", permutations=4000, draws=80, seed=5)
    assert found.paired
    assert found.difference.n_prompts == 5
    first = (rounds["kind"] == "x").to_numpy()
    place = rounds["prompt_id"].map({name: i for i, name in enumerate(names)}).to_numpy()
    every = [
        gap(rounds, first ^ np.array(swap)[place]) for swap in product([False, True], repeat=5)
    ]
    truth = np.mean(np.abs(every) >= abs(gap(rounds, first)) - 1e-12)
    assert found.p_value == pytest.approx(truth, abs=0.03)
    # Pairs stay together in the interval, too.
    counts = resampled_sums(np.eye(5), 80, 5).astype(int)
    drawn = []
    for count in counts:
        times = count[place]
        drawn.append(gap(rounds.loc[rounds.index.repeat(times)], np.repeat(first, times)))
    ends = percentiles(np.array(drawn), 0.95, 5)
    assert (found.difference.low, found.difference.high) == pytest.approx(ends)


def test_the_log_rank_statistic() -> None:
    """Against its definition: rejections less those expected, over depths."""
    rounds = rounds_of([0.8, 0.7, 0.4, 0.3], ["a", "b", "c", "d"], ["x", "x", "y", "y"], 3)
    found = compare_survival(rounds, "kind", statistic="log-rank", permutations=999, draws=20)

    def expected(mine: np.ndarray) -> float:
        a, event = rounds["accepted"].to_numpy(), (rounds["stop"] == "reject").to_numpy()
        total = 0.0
        for j in range(1, 6):
            risk, failed = a + event >= j, event & (a + 1 == j)
            total += failed[mine].sum() - risk[mine].sum() * failed.sum() / risk.sum()
        return total

    observed = expected((rounds["kind"] == "x").to_numpy())
    every = [
        expected(rounds["prompt_id"].isin(pair).to_numpy()) for pair in combinations("abcd", 2)
    ]
    truth = np.mean(np.abs(every) >= abs(observed) - 1e-9)
    assert found.p_value == pytest.approx(truth, abs=0.05)


def test_code_survives_longer_than_prose_in_the_synthetic_trace() -> None:
    rounds = replay(synthetic_trace(0, prompts_per_type=8), FixedK(7)).rounds
    found = compare_survival(rounds, groups=["code", "prose"], permutations=999, draws=300)
    assert found.p_value < 0.01
    assert found.difference.low > 0.3
    table = survival_by(rounds, draws=10).set_index(["content_type", "depth"])
    for kind, column in {"code": "survival_a", "prose": "survival_b"}.items():
        known = table.loc[kind]["survival"].loc[1 : found.depth]
        assert found.table[column].to_numpy() == pytest.approx(known.to_numpy())
    assert found.table["difference"].sum() == pytest.approx(found.difference.estimate)
    assert found.n_prompts == (8, 8)
    assert "bonus counted" in str(found)
    shallow = compare_survival(rounds, groups=["code", "prose"], depth=2, permutations=9, draws=9)
    assert len(shallow.table) == 2
    assert shallow.p_value >= 0.1  # of 9 permutations no less can be said


def test_on_the_bundled_trace_drafters_differ_and_kinds_of_text_do_not_surely() -> None:
    trace = bundled_trace("smollm2-trees")
    lm, eagle = (replay(trace, FixedK(7), name).rounds for name in ("lm", "eagle"))
    kinds = compare_survival(lm, permutations=999, draws=500)
    assert kinds.p_value > 0.05
    assert kinds.difference.low < 0 < kinds.difference.high
    drafters = compare_survival(pd.concat([lm, eagle]), "drafter", permutations=999, draws=500)
    assert drafters.paired
    assert drafters.p_value < 0.005
    assert drafters.difference.low > 0.2


TWO = rounds_of([0.7, 0.6, 0.5, 0.4], ["a", "b", "c", "d"], ["x", "x", "y", "y"], 0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: compare_survival(TWO, "colour"), "lack the column 'colour'"),
        (lambda: compare_survival(TWO, "prompt_id"), "Name two groups"),
        (lambda: compare_survival(TWO, "kind", ["x", "x"]), "Name two groups"),
        (lambda: compare_survival(TWO, "kind", "xy"), "must be a list"),
        (lambda: compare_survival(TWO, "kind", ["x", "z"]), "No kind 'z'"),
        (lambda: compare_survival(TWO, "kind", statistic="t"), "statistic must be one of"),
        (lambda: compare_survival(TWO, "kind", depth=9), "tried to depth 5 only"),
        (lambda: compare_survival(TWO, "kind", permutations=0), "permutations must be"),
        (lambda: compare_survival(TWO.assign(stop="full"), "kind", depth=6), "depth 5 only"),
        (
            lambda: compare_survival(TWO.assign(accepted=0, stop="full"), "kind"),
            "tried to depth 0 only",
        ),
        (lambda: compare_survival(TWO[TWO["prompt_id"] != "a"], "kind"), "two prompts or more"),
        (
            lambda: compare_survival(TWO.replace({"prompt_id": {"c": "a"}}), "kind"),
            "in both groups and others in one",
        ),
        (lambda: selection_trap((0,)), "Every one of ks"),
        (lambda: selection_trap(()), "must name a length"),
        (lambda: selection_trap((16,), tokens=1000), "at least 1600"),
        (lambda: TwoStateText(easy=1.5), "easy must be"),
        (lambda: TwoStateText(leave_easy=0, leave_hard=0), "left now and then"),
        (lambda: censoring_trap(wide=2), "wide must be"),
        (lambda: interval_coverage(1), "prompts must be"),
        (lambda: interval_coverage(statistic="mean"), "statistic must be"),
        (lambda: alike_rounds_trap(trials=0), "trials must be"),
    ],
)
def test_refusals(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
