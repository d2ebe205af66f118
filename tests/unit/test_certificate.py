"""Certificates: a flip at a near-tie is certified, any other is not."""

from __future__ import annotations

import pytest
import torch

from specviz.drafters.ngram import NGram
from specviz.engine.acceptance import Greedy
from specviz.engine.certificate import first_difference
from specviz.engine.loop import generate
from specviz.engine.protocols import Draft, Rows, Verdict
from specviz.policies import FixedK
from specviz.targets.toy import MarkovModel, ToyTarget


class Noisy(ToyTarget):
    """A toy whose many-row forwards differ from its 1-row forwards by up to `noise`."""

    def __init__(self, model: MarkovModel, noise: float) -> None:
        super().__init__(model)
        self.noise = noise

    def verify(self, draft: Draft) -> Rows:
        rows = super().verify(draft)
        if len(draft) == 0:
            return rows
        sign = torch.where(torch.arange(self.vocab_size) % 2 == 0, -1.0, 1.0)
        return Rows(rows.logits + self.noise * sign, rows.taps)


def tied_chain(gap: float) -> MarkovModel:
    """Tokens 0 and 1 lead, 0 by `gap` nats, in every state."""
    weights = torch.tensor([gap, 0.0, -4.0, -4.0], dtype=torch.float64).exp()
    return MarkovModel((weights / weights.sum()).repeat(4, 1).numpy())


@pytest.mark.parametrize(("gap", "noise"), [(0.001, 0.01), (0.03, 0.01), (0.3, 0.2)])
def test_a_flip_within_the_noise_is_certified(gap: float, noise: float) -> None:
    target = Noisy(tied_chain(gap), noise)
    run = generate(target, NGram(), [0, 0, 0], policy=FixedK(3), max_new_tokens=12).finish()
    certificate = run.certificate
    if gap < 2 * noise:
        assert not certificate.equal
        assert certificate.margin == pytest.approx(gap)
        assert certificate.noise == pytest.approx(noise)
        assert certificate.certified
        assert "near-tie" in str(certificate)
    else:
        assert certificate.equal


def test_a_wrong_loop_is_not_certified() -> None:
    """An acceptance rule that keeps one token too many must not pass for rounding."""

    class Generous(Greedy):
        def __call__(self, draft, rows, rng):
            verdict = super().__call__(draft, rows, rng)
            more = len(verdict.path)
            if more < len(draft):
                return Verdict((*verdict.path, more), int(rows.logits[more + 1].argmax()), False)
            return verdict

    target = ToyTarget(MarkovModel.random(8, order=3, seed=1))
    run = generate(
        target, NGram(), "hgfehgfa", policy=FixedK(4), acceptance=Generous(), max_new_tokens=20
    ).finish()
    certificate = run.certificate
    assert not certificate.equal
    assert not certificate.certified


def test_certifying_needs_a_finished_run() -> None:
    target = ToyTarget(MarkovModel.random(8, seed=3))
    run = generate(target, NGram(), "abc", max_new_tokens=20)
    with pytest.raises(ValueError, match="Finish"):
        _ = run.certificate


def test_first_difference() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == 1
    assert first_difference([1, 2], [1]) == 1


def test_a_certificate_is_made_once_and_kept_with_the_trace() -> None:
    target = ToyTarget(MarkovModel.random(8, seed=3))
    run = generate(target, NGram(), "abc", max_new_tokens=20).finish()
    assert run.trace.meta.certificate is None
    certificate = run.certificate
    session = target.session
    assert run.certificate is certificate
    assert target.session == session
    kept = run.trace.meta.certificate
    assert kept is not None
    assert kept["equal"] is True
    assert run.trace.meta.acceptance == "greedy"
