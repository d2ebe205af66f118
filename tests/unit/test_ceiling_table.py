"""Which bounds apply in a setting, and what a trace measures of them."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specviz.analysis.ceilings import which as c
from specviz.analysis.ceilings.candidates import depth_match, recall_lengths
from specviz.analysis.ceilings.first_tokens import first_tokens
from specviz.analysis.ceilings.independence import iid_check
from specviz.analysis.ceilings.measured import MeasuredBounds, measured_bounds
from specviz.analysis.ceilings.measured_rows import fewest_rounds
from specviz.analysis.replays.replay import replay
from specviz.analysis.theory.bounds import entropy_sandwich, explicit_bound
from specviz.analysis.theory.divergence import kl_certificate, overlap_certificate
from specviz.bundled import bundled_trace
from specviz.campaign import capture
from specviz.drafters.markov import MarkovDrafter
from specviz.engine.sampling import GREEDY, RAW, Sampling
from specviz.policies import FixedK
from specviz.prompt_set import Prompt
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.trace import Trace
from tests.synthetic import synthetic_trace, trace_of

CHAIN = MarkovModel.random(8, order=2, seed=3)
NEAR = CHAIN.mixed_with(MarkovModel.random(8, order=2, seed=4), 0.2)


@lru_cache(maxsize=4)
def captured(sampling: Sampling, perfect: bool = False) -> Trace:
    """Twelve prompts on an exact target whose drafter is near it, or is it."""
    letters = np.random.default_rng(0).choice(list("abcdefgh"), (12, 4))
    prompts = [
        Prompt(f"p{i}", "ab"[i % 2], ({"role": "user", "content": "".join(row)},))
        for i, row in enumerate(letters)
    ]
    drafter = MarkovDrafter(CHAIN if perfect else NEAR)
    return capture(
        prompts,
        ToyTarget(CHAIN),
        drafter,
        sampling=sampling,
        k=4,
        max_new_tokens=80,
        progress=False,
    )


def values(found: MeasuredBounds, kind: str = "all") -> pd.Series[float]:
    table = found.table[found.table["content_type"] == kind]
    return table.set_index(["quantity", "bound"])["value"]


# ---- which ceiling ------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", c.DRAFTERS)
@pytest.mark.parametrize("acceptance", [*c.LOSSLESS, *c.LOSSY])
@pytest.mark.parametrize("target", c.TARGETS)
def test_every_setting_has_an_answer(target: str, acceptance: str, drafter: str) -> None:
    if (target, acceptance) == ("sampled", "greedy"):
        with pytest.raises(ValueError, match="would not follow p"):
            c.which_ceiling(target=target, acceptance=acceptance, drafter=drafter)
        return
    found = c.which_ceiling(target=target, acceptance=acceptance, drafter=drafter)
    ids = [bound.formula_id for bound in found.bounds]
    assert "F2.5" in ids  # k + 1 always holds
    fixed = drafter == "fixed" or acceptance == "sample-match"
    assert found.lossless == (acceptance in c.LOSSLESS)
    assert found.entropy_binds == (target == "sampled" and found.lossless and fixed)
    # Entropy is spoken of where it binds, and nowhere else.
    assert bool({"T5.2", "T5.3", "T5.4", "T5.5'", "T5.7"} & set(ids)) == found.entropy_binds
    assert ("T6.4" in ids) == (target == "greedy" and found.lossless)
    assert ("LOSSY" in found._repr_html_()) == (not found.lossless)
    assert len(found.table) == len(found.bounds)
    assert found.says in str(found)


def test_the_table_of_the_sheet() -> None:
    def ids(acceptance: str, drafter: str) -> set[str]:
        found = c.which_ceiling(target="sampled", acceptance=acceptance, drafter=drafter)
        return {bound.formula_id for bound in found.bounds}

    assert ids("sample-match", "autoregressive") == ids("rejection", "fixed")
    assert "F3.5" in ids("rejection", "autoregressive")
    assert "T6.1" in ids("rejection", "factorised")
    assert "F3.3" in ids("shared-noise", "autoregressive")
    assert "F3.6" in ids("recursive", "autoregressive")


def test_the_code_a_bound_names_exists() -> None:
    for acceptance in [*c.LOSSLESS, *c.LOSSY]:
        for drafter in c.DRAFTERS:
            target = "greedy" if acceptance == "greedy" else "sampled"
            found = c.which_ceiling(target=target, acceptance=acceptance, drafter=drafter)
            for bound in found.bounds:
                module, name = bound.code.rsplit(".", 1)
                assert callable(getattr(importlib.import_module(module), name))


def test_names_of_rules_as_traces_have_them() -> None:
    for name, family in {
        "top-2": "F3.8",
        "typical-0.09-0.3": "F3.7",
        "lenience-1e-05": "F3.8",
    }.items():
        found = c.which_ceiling(target="greedy", acceptance=name, drafter="fixed")
        assert not found.lossless
        assert found.bounds[-1].formula_id == family
    several = "recursive-without-replacement"
    assert c.which_ceiling(target="sampled", acceptance=several, drafter="fixed").lossless


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"target": "warm"}, "one of greedy, sampled"),
        ({"acceptance": "hope"}, "one of greedy, sample-match, rejection, block"),
        ({"acceptance": "greedy-2"}, "No acceptance 'greedy-2'"),
        ({"acceptance": None}, "No acceptance None"),
        ({"drafter": "eagle"}, "one of fixed, autoregressive, factorised"),
        ({"drafter": ["fixed"]}, "No drafter"),
    ],
)
def test_unknown_words_are_refused(words: dict[str, Any], sentence: str) -> None:
    setting = {"target": "greedy", "acceptance": "greedy", "drafter": "fixed"} | words
    with pytest.raises(ValueError, match=sentence):
        c.which_ceiling(**setting)


# ---- measured: greedy target --------------------------------------------------------------------


def test_greedy_rows_on_the_bundled_trace() -> None:
    trace = bundled_trace("smollm2-trees")
    found = measured_bounds(trace, "lm", top=(1, 2, 16), draws=500)
    assert found.setting == "greedy"
    assert set(found.table["content_type"]) == {"code", "prose", "all"}
    # Nothing about a sampled target's entropy or p_max is on this axis.
    assert not found.table["formula"].isin(["T5.2", "T5.7", "T5.5'", "F1.3", "F3.1"]).any()
    for kind, part in (("code", trace.select(content_type="code")), ("all", trace)):
        tau = values(found, kind)["tokens per round"]
        assert tau["this drafter"] == pytest.approx(replay(part, FixedK(7), "lm").tokens_per_round)
        # This drafter sees tokens only, so that a longer match never leads to a worse anchor.
        assert tau["1 candidates"] == pytest.approx(tau["this drafter"])
        assert tau["this drafter"] < tau["2 candidates"] < tau["16 candidates"] < 8
        first = values(found, kind)["first token kept"]
        assert 0.1 < first["certain from overlap"] < first["matched"] == first["1 candidates"]
        assert first["certain from KL"] == 0  # a reduced vocabulary
        unknown = values(found, kind)["H(Y | F), nats"]
        assert unknown["Feder and Merhav"] < unknown["Fano"]
    assert "infinite at 2,224 of 2,224" in found.remarks[1]
    table = found.table[found.table["bound"] != "length of the draft"]
    inside = (table["low"] <= table["value"]) & (table["value"] <= table["high"])
    assert inside.all()
    assert table.query("content_type == 'code'")["n_prompts"].eq(18).all()
    rounds = table.query("content_type == 'all' and bound == 'this drafter'").iloc[0]
    assert (rounds["unit"], rounds["n"]) == ("rounds", replay(trace, FixedK(7), "lm").n_rounds)


@pytest.mark.parametrize("name", ["lm", "eagle", "ngram"])
def test_what_is_certain_from_p_and_q_did_match(name: str) -> None:
    """A theorem, held against every anchor of a real capture in single precision."""
    frame = first_tokens(bundled_trace("smollm2-trees"), name)
    certain = frame["overlap"] > overlap_certificate(frame["p_max"], frame["second"])
    assert certain.sum() > 200
    assert (frame.loc[certain, "matched"] >= 1).all()


def test_certificates_from_kl_with_a_whole_vocabulary() -> None:
    trace = captured(GREEDY)
    frame = first_tokens(trace, trace.drafters[0])
    certain = frame["kl"] < kl_certificate(frame["p_max"], frame["second"])
    assert 0.2 < certain.mean() < 1
    assert (frame.loc[certain, "matched"] >= 1).all()
    found = measured_bounds(trace, draws=100)
    assert values(found)["first token kept"]["certain from KL"] == pytest.approx(certain.mean())
    assert not any("infinite" in remark for remark in found.remarks)


def test_the_fewest_rounds_are_those_of_a_search() -> None:
    rng = np.random.default_rng(0)
    longest_first = 0
    for _ in range(30):
        n = int(rng.integers(2, 12))
        held = np.minimum(rng.integers(0, 5, n), np.arange(n)[::-1])

        def search(a: int, held: np.ndarray = held, n: int = n) -> int:
            if a >= n:
                return 0
            return 1 + min(search(a + step) for step in range(1, int(held[a]) + 2))

        size = n

        class Two:
            n = np.array([size, size])
            owner = np.repeat([0, 1], size)

        twice = np.concatenate([held, held])
        assert fewest_rounds(Two, twice).tolist() == [search(0)] * 2  # type: ignore[arg-type]
        a = rounds = 0
        while a < n:
            a, rounds = a + int(held[a]) + 1, rounds + 1
        longest_first += rounds > search(0)
    assert longest_first > 0  # the longest step is not always best


# ---- measured: sampled target -------------------------------------------------------------------


def test_sampled_rows_against_the_exact_laws() -> None:
    trace = captured(RAW)
    found = measured_bounds(trace, nodes=10, draws=500)
    assert found.setting == "sampled"
    first, tau = values(found)["first token kept"], values(found)["tokens per round"]
    text = trace.sequences[["seq", "prompt_ids"]].merge(
        trace.positions.groupby("seq")["token_id"].apply(list).reset_index(), on="seq"
    )
    p, q = [], []
    for row in text.itertuples():
        ids = [*row.prompt_ids, *row.token_id]
        for t in range(len(row.prompt_ids) + 1, len(ids)):
            p.append(CHAIN.table[tuple(ids[t - 2 : t])])
            q.append(NEAR.table[tuple(ids[t - 2 : t])])
    p, q = np.array(p), np.array(q)
    assert first["overlap of p and q"] == pytest.approx(np.minimum(p, q).sum(-1).mean(), abs=2e-3)
    assert first["mean of p_max = 1 / EBF_inf"] == pytest.approx(p.max(-1).mean(), abs=1e-5)
    kl = (p * np.log(p / q)).sum(-1)
    each = (1 - np.sqrt(1 - np.exp(-kl))).mean()
    assert first["Bretagnolle-Huber at every position"] == pytest.approx(each, abs=5e-3)
    assert first["Bretagnolle-Huber at every position"] <= each
    h = -(p * np.log(p)).sum(-1).mean()
    model = entropy_sandwich(h, 4, 8)
    assert tau["chain at exp(-mean entropy)"] == pytest.approx(model.crude, abs=1e-3)
    assert tau["chain at the least p_max of the mean entropy"] == pytest.approx(model.low, abs=1e-3)
    assert tau["length of the draft"] == 5
    second = (p * np.log(p) ** 2).sum(-1).mean()
    light = explicit_bound(h, second, 10)
    assert light < 5  # so that k + 1 does not hide it
    assert tau["speed of light, 10 nodes to depth 4"] == pytest.approx(light, abs=2e-3)
    assert (
        measured_bounds(trace, nodes=1, draws=20)
        .table.query('formula == "T5.5\'"')["value"]
        .eq(2)
        .all()
    )  # one node emits 2 at most


def test_sampled_rows_are_in_order() -> None:
    found = measured_bounds(captured(RAW), draws=500)
    for kind in ("a", "b", "all"):
        first, tau = (
            values(found, kind)["first token kept"],
            values(found, kind)["tokens per round"],
        )
        overlap = first["overlap of p and q"]
        assert first["Bretagnolle-Huber at the mean KL"] > 0.05
        assert (
            first["Bretagnolle-Huber at the mean KL"] < first["Bretagnolle-Huber at every position"]
        )
        assert first["Bretagnolle-Huber at every position"] < overlap
        assert 0.3 < first["Pinsker at every position"] < overlap
        # A drafter that draws passes the ceiling of fixed drafts.
        assert overlap > first["mean of p_max = 1 / EBF_inf"]
        assert (
            first["least mean p_max at these entropies"]
            < first["mean of p_max = 1 / EBF_inf"]
            < first["largest mean p_max at these entropies"]
        )
        assert first["argmax draft"] < first["mean of p_max = 1 / EBF_inf"] + 0.05
        assert (
            tau["chain at the mean p_max"] < tau["chain at the largest p_max of the mean entropy"]
        )
        assert tau["chain at the mean p_max"] < tau["speed of light, 4 nodes to depth 4"] <= 5
    assert (found.table["n_prompts"].isin([6, 12])).all()
    assert any("scatter" in remark for remark in found.remarks)


def test_a_perfect_drafter_that_draws_loses_nothing() -> None:
    first = values(measured_bounds(captured(RAW, perfect=True), draws=100))["first token kept"]
    assert first["overlap of p and q"] == pytest.approx(1, abs=2e-3)
    assert first["Bretagnolle-Huber at every position"] > 0.99
    assert first["mean of p_max = 1 / EBF_inf"] < 0.8


def test_a_shaped_target_has_no_rows_from_the_raw_law() -> None:
    found = measured_bounds(captured(Sampling(temperature=0.7, top_p=0.8)), draws=100)
    assert set(found.table["formula"]) == {"F3.1", "F3.2", "T5.1", "F2.5", "F7.6"}
    # The nucleus of q lacks tokens of p's at some anchors: no mean divergence, the rest stands.
    first = values(found)["first token kept"]
    assert first["Bretagnolle-Huber at the mean KL"] == 0
    assert first["Bretagnolle-Huber at every position"] > 0.2
    assert any("infinite at" in remark for remark in found.remarks)
    assert "temperature 0.7, top_k 0, top_p 0.8" in found.remarks[-1]


# ---- independence -------------------------------------------------------------------------------


def test_independent_positions_fail_on_the_bundled_trace() -> None:
    trace = bundled_trace("smollm2-trees")
    table = iid_check(trace, "lm", draws=1000).set_index(["quantity", "content_type"])
    for quantity in ("entropy, lag 1", "matched tokens", "argmax chain"):
        row = table.loc[(quantity, "all")]
        assert row["fails"]
        assert row["low"] > 0
        assert row["gap"] == pytest.approx(row["measured"] - row["model"])
    # The model calls 3.75 the most a chain can win on code; one that exists wins 4.08.
    chain = table.loc[("argmax chain", "code")]
    assert (chain["measured"], chain["model"]) == pytest.approx((4.08, 3.75), abs=5e-3)
    assert chain["setting"] == "sampled target on greedy text"
    matched = table.loc[("matched tokens", "prose")]
    drafts = trace.select(content_type="prose").drafts.query("drafter == 'lm'")["matched"]
    assert matched["measured"] == pytest.approx(1 + drafts.mean())
    assert (matched["n"], matched["n_prompts"]) == (len(drafts), 18)


def test_independent_positions_pass() -> None:
    rng = np.random.default_rng(5)
    hits = rng.random((40, 60)) < 0.6
    runs = np.cumprod(np.lib.stride_tricks.sliding_window_view(hits, 5, axis=1), -1).sum(-1)
    trace = trace_of([row[:50] for row in runs], k=5, max_new_tokens=51)
    table = iid_check(trace, draws=1000).set_index("quantity")
    assert not table.loc["matched tokens", "fails"]
    assert table.loc["matched tokens", "model"] == pytest.approx(2.38, abs=0.1)
    assert table.loc["entropy, lag 1", "gap"] == pytest.approx(0, abs=1e-6)  # all alike


def test_a_sampled_trace_has_no_argmax_chain() -> None:
    table = iid_check(captured(RAW), draws=100)
    assert set(table["quantity"]) == {"entropy, lag 1", "matched tokens"}
    assert set(table["setting"]) == {"sampled"}


# ---- what is let in -----------------------------------------------------------------------------


def test_text_is_escaped_and_one_prompt_has_no_interval() -> None:
    found = measured_bounds(trace_of([[1, 0, 1]], k=2, content_types="<b>x"), draws=50)
    assert "<b>x" not in found._repr_html_()
    assert found.caption in str(found)
    assert found.table["low"].isna().all()
    assert set(found.table["content_type"]) == {"<b>x"}


def test_two_outputs_of_one_prompt_are_one_prompt() -> None:
    """Tokens over rounds of all three outputs, none of them counted twice."""
    streams = [[2, 0, 1, 0, 0], [0, 1, 0, 2, 0], [1, 0, 0, 0, 1]]
    trace = trace_of(streams, k=2, max_new_tokens=20, prompt_ids=["p", "p", "q"])
    table = measured_bounds(trace, draws=50).table.set_index("bound")
    assert set(table["n_prompts"]) == {2}
    assert set(table.loc[table["unit"] == "anchors", "n"]) == {15}
    rounds = replay(trace, FixedK(2))
    own = table.loc["this drafter"]
    assert (own["n"], own["value"]) == (rounds.n_rounds, rounds.tokens_per_round)
    for found in (depth_match(trace, draws=50), recall_lengths(trace, k=2, draws=50)):
        assert set(found["n_prompts"]) == {2}


def test_anchors_without_a_draft_count_as_nothing_kept() -> None:
    found = measured_bounds(synthetic_trace(0), draws=50)
    frame = first_tokens(synthetic_trace(0), "steady")
    assert not frame["drafted"].all()
    assert any("have no draft" in remark for remark in found.remarks)
    assert (
        found.table.query("unit == 'anchors' and content_type == 'all'")["n"].eq(len(frame)).all()
    )


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"drafter": "eagle2"}, "No drafter 'eagle2'"),
        ({"k": 16}, "k = 16 cannot be measured"),
        ({"k": 0}, "k must be"),
        ({"top": (0,)}, "candidates in top"),
        ({"nodes": 0}, "nodes"),
        ({"level": 2}, "level"),
    ],
)
def test_refusals(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        measured_bounds(synthetic_trace(0), **asked)


def test_a_trace_with_visited_anchors_only_is_refused() -> None:
    from specviz.engine.loop import generate

    run = generate(ToyTarget(CHAIN), MarkovDrafter(NEAR), "abc", max_new_tokens=8).finish().trace
    with pytest.raises(ValueError, match="make a capture"):
        measured_bounds(run)
    with pytest.raises(ValueError, match="make a capture"):
        iid_check(run)
    with pytest.raises(ValueError, match="k = 99"):
        iid_check(synthetic_trace(0), k=99)


@pytest.mark.parametrize("name", ["smollm2-trees", "smollm2-sampled"])
def test_one_kind_of_text_has_the_rows_it_has_among_all(name: str) -> None:
    trace = bundled_trace(name)
    every = measured_bounds(trace, "lm", k=4, draws=60).table
    for kind in ("prose", "all"):
        alone = measured_bounds(trace, "lm", k=4, content_type=kind, draws=60).table
        mine = every[every["content_type"] == kind].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, mine)
    with pytest.raises(ValueError, match="no 'verse' text here"):
        measured_bounds(trace, "lm", content_type="verse")
