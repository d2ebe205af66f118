"""Match at depth, recall ceilings and the gain of drafting anew, against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specviz as sv
from specviz.analysis import depth_match, reanchoring_gain, recall_lengths, replay
from specviz.drafters.bigram import fit_bigram
from specviz.drafters.lm import LMDrafter
from specviz.drafters.ngram import NGram
from specviz.engine.tree_shapes import Cartesian
from specviz.policies import FixedK, FixedTree
from specviz.trace import Trace
from tests.models import near_twin, tiny_target, tokenizer, toy_pair
from tests.synthetic import synthetic_trace, trace_of

DRAWS = 50
WORDS = ["the quick brown fox and the", "a lazy dog"]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(2, drafters=("steady", "fresh"), prompts_per_type=3, k=9)


@pytest.fixture(scope="module")
def bundled() -> Trace:
    return sv.bundled_trace("smollm2-trees")


def rows_of(trace: Trace, drafter: str, content_type: str = "all") -> list[dict[str, Any]]:
    """Drafts with what their sequence is, in order."""
    both = trace.drafts.merge(trace.sequences, on="seq").sort_values(["seq", "anchor"])
    both = both[both["drafter"] == drafter]
    if content_type != "all":
        both = both[both["content_type"] == content_type]
    return cast("list[dict[str, Any]]", both.to_dict("records"))


def with_ranks(trace: Trace, rank: Callable[[dict[str, Any]], list[int]]) -> Trace:
    """The same capture with other ranks of the text's tokens."""
    tables = {name: trace.table(name) for name in ("sequences", "positions", "drafts")}
    drafts = tables["drafts"].to_pylist()
    for row in drafts:
        row["path_rank"] = rank(row)
    tables["drafts"] = pa.Table.from_pylist(drafts, schema=tables["drafts"].schema)
    return Trace(trace.meta, tables)


# -- match at depth -----------------------------------------------------------------------------


def test_match_counts_what_a_loop_counts(trace: Trace) -> None:
    found = depth_match(trace, k=5, draws=DRAWS)
    assert found["content_type"].unique().tolist() == ["code", "prose", "mixed", "all"]
    for row in found.to_dict("records"):
        hits = anchors = 0
        for draft in rows_of(trace, row["drafter"], row["content_type"]):
            if draft["anchor"] + row["depth"] < draft["n_output"] + len(draft["lookahead"]):
                anchors += 1
                hits += int(draft["path_rank"][row["depth"] - 1] == 0)
        assert row["n_anchors"] == anchors
        assert row["match"] == hits / anchors
        assert row["low"] <= row["match"] <= row["high"]
    assert (found[found["content_type"] == "all"]["n_prompts"] == 9).all()


def test_an_output_that_ended_has_no_deeper_tokens() -> None:
    ended, cut = [1, 1, 1, 0], [1, 1, 1, 0]
    trace = trace_of([ended, cut], finish=["eos", "limit"], k=3, max_new_tokens=5)
    found = depth_match(trace, by="prompt_id", draws=DRAWS)
    per_prompt = found.groupby("prompt_id", sort=False)["n_anchors"].apply(list)
    assert per_prompt.tolist() == [[4, 3, 2], [4, 4, 4], [8, 7, 6]]
    assert found["match"].iloc[0] == 3 / 4  # M >= 1 at three of four anchors
    assert found[found["prompt_id"] != "all"]["low"].isna().all()


def test_no_draft_is_a_miss() -> None:
    trace = trace_of([[0] * 6], drafted={"steady": [[0] * 6]}, k=2)
    found = depth_match(trace, draws=DRAWS)
    assert found["match"].tolist() == [0.0] * 4
    assert found["n_anchors"].tolist() == [6] * 4


def test_depths_go_as_far_as_each_drafter_was_captured(bundled: Trace) -> None:
    found = depth_match(bundled, "lm", draws=DRAWS)
    assert found["depth"].max() == bundled.meta.drafters["lm"]["k"]
    # What sees tokens only is as often right at any depth: the places are the same but a few.
    of_code = found[found["content_type"] == "code"]["match"]
    assert of_code.max() - of_code.min() < 0.04


# -- recall ceilings ----------------------------------------------------------------------------


def walked(trace: Trace, drafter: str, content_type: str, m: int, k: int) -> tuple[int, int]:
    """Tokens and rounds when the text's token only has to be among the first m."""
    tokens = rounds = 0
    by_place = {(d["seq"], d["anchor"]): d for d in rows_of(trace, drafter, content_type)}
    for seq, n in {d["seq"]: d["n_output"] for d in by_place.values()}.items():
        a = 0
        while a < n - 1:
            draft, accepted = by_place[seq, a], 0
            room = min(k, draft["drafted"], draft["max_new_tokens"] - 2 - a, n - 2 - a)
            while accepted < room and 0 <= draft["path_rank"][accepted] < m:
                accepted += 1
            a, rounds = a + accepted + 1, rounds + 1
        tokens += n - 1
    return tokens, rounds


def test_ceilings_are_walked_from_round_to_round(trace: Trace) -> None:
    found = recall_lengths(trace, tops=(1, 2, 5), k=6, draws=DRAWS)
    assert len(found) == 2 * 4 * 3
    for row in found.to_dict("records"):
        which = row["drafter"], row["content_type"]
        tokens, rounds = walked(trace, *which, row["top"], 6)
        part = trace if which[1] == "all" else trace.select(which[1])
        chain = replay(part, FixedK(6), which[0], draws=DRAWS)
        assert row["recall"] == tokens / rounds
        assert row["n_rounds_recall"] == rounds
        assert row["tokens_per_round"] == pytest.approx(chain.tokens_per_round)
        assert row["n_rounds"] == chain.n_rounds
        assert (row["low"], row["high"]) == pytest.approx((chain.interval.low, chain.interval.high))
        assert row["share"] == pytest.approx(row["tokens_per_round"] / row["recall"])
        assert row["ceiling"] == 7


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 999), k=st.integers(1, 8))
def test_the_first_candidate_is_the_chain(seed: int, k: int) -> None:
    made = synthetic_trace(seed, prompts_per_type=1, drafters=("steady", "fresh"), k=8)
    found = recall_lengths(made, tops=(1, 400), k=k, draws=2)
    first, all_of_them = found[found["top"] == 1], found[found["top"] == 400]
    assert (first["recall"] == first["tokens_per_round"]).all()
    assert (first["share"] == 1).all()
    assert (all_of_them["recall"] <= k + 1).all()


def test_the_first_candidate_is_the_chain_of_every_real_drafter(bundled: Trace) -> None:
    found = recall_lengths(bundled, tops=(1,), draws=DRAWS)
    assert found["drafter"].unique().tolist() == bundled.drafters
    assert (found["n_rounds"] == found["n_rounds_recall"]).all()


def test_ceilings_of_real_drafters_rise_but_for_points(bundled: Trace) -> None:
    found = recall_lengths(bundled, draws=DRAWS).set_index(["drafter", "content_type", "top"])
    rising = found["recall"].unstack()
    assert (np.diff(rising.loc[["lm", "eagle"]]) > 0).all()
    assert (np.diff(rising.loc[["ngram"]]) == 0).all()


def test_the_toy_stream_of_replay() -> None:
    stream = [3, 2, 1, 0, 0, 2, 1, 0, 4, 3, 2, 1, 0, 0, 1, 0]
    for k, steps in enumerate((10, 8, 7, 6), start=1):
        assert recall_lengths(trace_of([stream], k=4), tops=(1,), k=k)["n_rounds"].iloc[0] == steps


@pytest.mark.parametrize("make", ["toy", "lm"])
def test_the_ceiling_is_the_full_tree_of_that_width(make: str) -> None:
    shape = Cartesian((2, 2, 2))
    target, drafter = (
        toy_pair() if make == "toy" else (tiny_target(), LMDrafter(near_twin(), tokenizer()))
    )
    words = ["abcabc", "hgfehg"] if make == "toy" else WORDS
    trace = sv.capture(
        words, target, drafter, k=3, trees=[shape], max_new_tokens=24, progress=False
    )
    found = recall_lengths(trace, tops=(1, 2), k=3, draws=DRAWS)
    pooled = found[found["content_type"] == "all"]
    assert pooled["recall"].iloc[0] == replay(trace, FixedK(3)).tokens_per_round
    assert pooled["recall"].iloc[1] == replay(trace, FixedTree(shape)).tokens_per_round
    assert pooled["recall"].iloc[1] > pooled["recall"].iloc[0]


def test_no_round_is_longer_than_what_the_drafter_offers() -> None:
    """Ranks are known beyond the draft, but no verifier sees tokens that were not drafted."""
    short = trace_of([[0] * 12], drafted={"steady": [[1] * 12]}, k=3)
    found = recall_lengths(with_ranks(short, lambda row: [0, 0, 0]), tops=(4,), k=3)
    assert found["recall"].tolist() == [2.0, 2.0]
    assert found["tokens_per_round"].tolist() == [1.0, 1.0]


def test_the_share_is_resampled_on_the_same_prompts() -> None:
    """Two prompts of different difficulty, the chain at one half of its ceiling on both."""
    plain = trace_of([[0] * 12, [1] * 12], k=3, max_new_tokens=13)
    reach = {0: [1, -1, -1], 1: [0, 1, 1]}  # among the first two: 1 token, and 3
    trace = with_ranks(plain, lambda row: reach[row["seq"]])
    found = recall_lengths(trace, tops=(2,), k=3).iloc[-1]
    assert (found["n_rounds"], found["n_rounds_recall"]) == (18, 9)
    assert found["low"] < found["high"]
    assert found["share"] == found["share_low"] == found["share_high"] == 0.5


# -- drafting anew ------------------------------------------------------------------------------


def gains(trace: Trace, drafter: str, content_type: str, k: int) -> pd.DataFrame:
    """One row per pair of drafts."""
    rows = []
    at = {(d["seq"], d["anchor"]): d for d in rows_of(trace, drafter, content_type)}

    def cut(d: dict[str, Any], values: int) -> int:
        a, n = d["anchor"], d["n_output"]
        return min(values, d["drafted"], k, n - 2 - a, d["max_new_tokens"] - 2 - a)

    for (seq, t), old in at.items():
        for j in range(1, min(cut(old, old["matched"]), k - 1) + 1):
            new = at[seq, t + j]
            both = min(cut(old, k) - j, cut(new, k))
            if both > 0:
                fresh = min(cut(new, new["matched"]), both)
                tail = min(cut(old, old["matched"]) - j, both)
                rows.append((j, fresh, tail))
    return pd.DataFrame(rows, columns=["j", "fresh", "tail"])


def test_the_gain_is_what_a_loop_finds(trace: Trace) -> None:
    found = reanchoring_gain(trace, "fresh", k=6, draws=DRAWS)
    assert found["j"].tolist() == [1, 2, 3, 4, 5, "all"] * 4
    for row in found.to_dict("records"):
        pairs = gains(trace, "fresh", row["content_type"], 6)
        pairs = pairs if row["j"] == "all" else pairs[pairs["j"] == row["j"]]
        assert row["n_pairs"] == len(pairs)
        assert row["fresh"] == pytest.approx(pairs["fresh"].mean())
        assert row["tail"] == pytest.approx(pairs["tail"].mean())
        assert row["gain"] == pytest.approx((pairs["fresh"] - pairs["tail"]).mean())
        assert row["differs"] == pytest.approx((pairs["fresh"] != pairs["tail"]).mean())


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 999), k=st.integers(2, 9))
def test_a_drafter_of_tokens_gains_exactly_nothing(seed: int, k: int) -> None:
    """Whatever lengths it offers, and wherever the output ends."""
    found = reanchoring_gain(synthetic_trace(seed, prompts_per_type=2, k=9), k=k, draws=2)
    assert found["n_pairs"].iloc[-1] > 0
    assert (found[["gain", "low", "high", "differs"]].fillna(0) == 0).all().all()


@pytest.mark.parametrize("name", ["markov", "ngram", "bigram", "lm"])
def test_captured_drafters_of_tokens_gain_exactly_nothing(name: str) -> None:
    target: Any
    drafter: Any
    (target, drafter), words = toy_pair(), ["abcabc", "hgfehg", "aabbaabb"]
    if name == "ngram":
        drafter = NGram()
    elif name == "bigram":
        drafter = fit_bigram([([0, 4, 1], [2, 1, 3, 5, 1, 2]), ([3], [2, 6, 4])], 8)
    elif name == "lm":
        target, drafter, words = tiny_target(), LMDrafter(near_twin(), tokenizer()), WORDS
    trace = sv.capture(words, target, drafter, k=5, max_new_tokens=40, progress=False)
    found = reanchoring_gain(trace, k=5, draws=DRAWS)
    assert found["n_pairs"].iloc[-1] > 0
    assert (found[found["n_pairs"] > 0][["gain", "differs"]] == 0).all().all()


def test_only_the_drafter_of_states_gains_on_real_text(bundled: Trace) -> None:
    found = reanchoring_gain(bundled, draws=1000)
    over = found[(found["j"] == "all") & (found["content_type"] == "all")].set_index("drafter")
    assert over["low"]["eagle"] > 0
    assert over["gain"][["lm", "ngram"]].tolist() == [0, 0]
    assert over["differs"][["lm", "ngram"]].tolist() == [0, 0]


def test_gains_and_losses_by_hand() -> None:
    """M(0) = 1 and M(1) = 3: the new draft has three right tokens where the old had none."""
    better = reanchoring_gain(trace_of([[1, 3, 2, 1, *[0] * 8]], k=4), k=4).iloc[:4]
    assert better["gain"].tolist() == [3 / 4, 0, 0, 3 / 7]
    assert better["n_pairs"].tolist() == [4, 2, 1, 7]
    assert better["differs"].iloc[-1] == 1 / 7
    assert better["low"].isna().all()  # one prompt
    worse = reanchoring_gain(trace_of([[2, *[0] * 11]], k=4), k=4).iloc[:4]
    assert worse["gain"].tolist()[:2] == [-1, 0]
    assert np.isnan(worse["gain"].iloc[2])  # no draft was right for three tokens
    assert worse["gain"].iloc[3] == -1 / 2
    # In the window of k = 2 the two drafts share one token.
    short = reanchoring_gain(trace_of([[1, 3, 2, 1, *[0] * 8]], k=4), k=2).iloc[0]
    assert (short["gain"], short["n_pairs"]) == (1 / 4, 4)


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", [depth_match, recall_lengths, reanchoring_gain])
def test_what_cannot_be_measured_is_refused(measure: Any, trace: Trace) -> None:
    for wrong, sentence in (
        ({"k": 0}, "k must be a whole number"),
        ({"k": 10}, "K = 9"),
        ({"by": "drafter", "k": 3}, "'content_type' or 'prompt_id'"),
        ({"drafter": "nobody"}, "No drafter 'nobody'"),
        ({"level": 2, "k": 3}, "share between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            measure(trace, **wrong)


def test_ceilings_need_candidates_and_gains_two_tokens(trace: Trace) -> None:
    for tops in ((), "12", 4, (0,), (2.5,)):
        with pytest.raises(ValueError, match="tops"):
            recall_lengths(trace, tops=tops)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 2"):
        reanchoring_gain(trace, k=1)


def test_what_cannot_be_said_is_no_candidate() -> None:
    """block chooses among sixteen tokens: a seventeenth candidate would be none."""
    found = recall_lengths(sv.bundled_trace("smollm2-greedy"), "block", (16, 17, 10_000), draws=50)
    assert found.groupby("content_type")["recall"].nunique().eq(1).all()
