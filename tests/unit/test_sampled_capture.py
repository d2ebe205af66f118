"""Capture at a temperature: the target's own samples, and p and q along them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specviz as sv
from specviz.campaign import capture
from specviz.drafters.block import BlockDrafter
from specviz.drafters.markov import MarkovDrafter
from specviz.drafters.mtp import MtpDrafter
from specviz.drafters.ngram import NGram
from specviz.engine.acceptance import SampleMatch
from specviz.engine.loop import generate
from specviz.engine.sampling import GREEDY, RAW, Sampling
from specviz.policies import FixedK
from specviz.prompt_set import Prompt, prompt_seed
from specviz.targets.toy import MarkovModel
from specviz.trace import Trace, TraceError, load_trace
from tests.block_models import fitted_block, fitted_mtp
from tests.models import tiny_target, toy_pair

PROMPTS = [
    Prompt(f"p{i}", "letters", ({"role": "user", "content": text},))
    for i, text in enumerate(["abca", "hgfe", "aabb"])
]
SHAPED = Sampling(temperature=0.7, top_p=0.8)


def captured(sampling: Sampling, seed: int = 5, **asked: Any) -> Trace:
    target, drafter = toy_pair()
    tokens = asked.pop("max_new_tokens", 40)
    return capture(
        PROMPTS,
        target,
        drafter,
        sampling=sampling,
        seed=seed,
        max_new_tokens=tokens,
        progress=False,
        **asked,
    ).validate()


def outputs(trace: Trace) -> list[list[int]]:
    found = trace.positions.groupby("seq")["token_id"].apply(list)
    return [[*map(int, tokens)] for tokens in found]


@pytest.mark.parametrize("sampling", [RAW, SHAPED])
def test_the_output_is_a_live_run_with_the_same_seed(sampling: Sampling) -> None:
    trace = captured(sampling)
    target, drafter = toy_pair()
    for row, prompt in enumerate(PROMPTS):
        run = generate(
            target,
            drafter,
            prompt.messages,
            policy=FixedK(3),
            acceptance=SampleMatch(sampling),
            max_new_tokens=40,
            seed=prompt_seed(5, prompt.id),
        ).finish()
        assert list(run.token_ids) == outputs(trace)[row]
        # And its rounds follow the capture's matches: a fixed draft is kept where it is sampled.
        matched = trace.drafts.set_index(["seq", "anchor"]).loc[row, "matched"]
        for each in run.trace.rounds.itertuples():
            room = 40 - 2 - each.anchor
            assert each.accepted == min(3, matched[each.anchor], room)


@pytest.mark.parametrize("sampling", [RAW, SHAPED])
def test_p_and_q_of_the_output_are_the_ones_sampled_from(sampling: Sampling) -> None:
    trace = captured(sampling)
    target, drafter = toy_pair()

    def law(model: MarkovModel, text: list[int]) -> np.ndarray:
        return sampling.probs(model.logits(text)[None])[0].numpy()

    drafts = trace.drafts.set_index(["seq", "anchor"])
    sampled = trace.positions.set_index(["seq", "t"])["logp_sampled"]
    for seq, tokens in enumerate(outputs(trace)):
        for t in range(1, len(tokens)):
            text = [*trace.sequences["prompt_ids"][seq], *tokens[:t]]
            p, q = law(target.model, text), law(drafter.model, text)
            assert sampled[seq, t] == pytest.approx(np.log(p[tokens[t]]), abs=1e-5)
            row = drafts.loc[(seq, t - 1)]
            with np.errstate(divide="ignore"):
                logq = np.log(q[tokens[t]])
            assert row["path_logq"][0] == pytest.approx(logq, rel=2e-3, abs=2e-3)
            assert row["overlap"][0] == pytest.approx(np.minimum(p, q).sum(), abs=1e-3)


def test_acceptance_along_the_output_is_the_overlap_in_the_mean() -> None:
    """E over x ~ p of min(1, q(x) / p(x)) is sum min(p, q): what F7.6 rests on."""
    trace = captured(RAW, max_new_tokens=3000, k=1)
    drafts = trace.drafts.sort_values(["seq", "anchor"])
    logp = trace.positions[trace.positions["t"] > 0].sort_values(["seq", "t"])["logp_sampled"]
    logq = np.stack(drafts["path_logq"])[:, 0].astype(float)
    overlap = np.stack(drafts["overlap"])[:, 0].astype(float)
    kept = np.exp(np.minimum(0, logq - logp.to_numpy()))
    assert 0.2 < overlap.mean() < 0.95
    assert kept.mean() == pytest.approx(overlap.mean(), abs=4 * kept.std() / len(kept) ** 0.5)


def test_another_seed_is_another_text_and_the_order_of_prompts_is_none() -> None:
    first, other = captured(RAW), captured(RAW, seed=6)
    assert outputs(first) != outputs(other)
    target, drafter = toy_pair()
    turned = capture(
        PROMPTS[::-1], target, drafter, sampling=RAW, seed=5, max_new_tokens=40, progress=False
    )
    assert outputs(turned) == outputs(first)[::-1]


def test_greedy_is_the_limit_of_a_low_temperature() -> None:
    assert outputs(captured(GREEDY)) == outputs(captured(Sampling(temperature=1e-4)))


def test_the_trace_says_how_it_was_sampled(tmp_path: Path) -> None:
    trace = captured(SHAPED, out=tmp_path / "t")
    assert trace.meta.sampling == {"temperature": 0.7, "top_k": 0, "top_p": 0.8}
    assert trace.meta.acceptance == "sample-match"
    assert not trace.meta.lossy
    assert "temperature 0.7" in trace._repr_html_()
    with pytest.raises(TraceError, match="sampling"):
        captured(RAW, out=tmp_path / "t")
    assert outputs(captured(SHAPED, out=tmp_path / "t")) == outputs(trace)
    assert len(load_trace(tmp_path / "t").sequences) == len(PROMPTS)


def test_what_is_exact_for_greedy_captures_only_refuses_it() -> None:
    with pytest.raises(ValueError, match="sampled at temperature 1"):
        sv.replay(captured(RAW), FixedK(3))
    with pytest.raises(ValueError, match="Sampling"):
        captured(0.7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make", [NGram, lambda: BlockDrafter(fitted_block()), lambda: MtpDrafter(fitted_mtp())]
)
def test_every_kind_of_drafter_follows_a_sampled_text(make: Any) -> None:
    trace = capture(
        ["one two three"],
        tiny_target(),
        make(),
        sampling=SHAPED,
        k=4,
        max_new_tokens=12,
        progress=False,
    ).validate()
    assert np.isfinite(trace.positions["logp_sampled"]).all()
    assert len(trace.drafts) == 11
    kept = np.stack(trace.drafts["overlap"])[:, 0].astype(float)
    assert ((kept >= 0) & (kept <= 1.001)).all()


def test_a_perfect_drafter_is_always_accepted() -> None:
    target, _ = toy_pair()
    trace = capture(
        PROMPTS,
        target,
        MarkovDrafter(target.model),
        sampling=SHAPED,
        max_new_tokens=30,
        progress=False,
    )
    logp = trace.positions[trace.positions["t"] > 0].sort_values(["seq", "t"])["logp_sampled"]
    logq = np.stack(trace.drafts.sort_values(["seq", "anchor"])["path_logq"])[:, 0]
    np.testing.assert_allclose(logq.astype(float), logp, rtol=2e-3, atol=1e-3)
