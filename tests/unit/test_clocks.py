"""What a GPU has queued belongs to the part of a round that queued it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specviz.drafters.oracle import Oracle
from specviz.engine import decoded, loop
from specviz.engine.certificate import plain_decode
from specviz.engine.decoded import Decoded
from specviz.engine.loop import generate
from specviz.engine.sampling import Sampling
from specviz.policies import FixedK
from tests.models import tiny_target


class Queue:
    """A clock that moves on when the work queued before it is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
        self.monkeypatch, self.now, self.queued = monkeypatch, 0.0, 0.0
        self.after(target, "prefill", 100.0)
        self.after(target, "verify", 10.0)
        monkeypatch.setattr(target, "synchronize", self.wait)
        for module in (loop, decoded):
            monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)

    def after(self, owner: Any, name: str, seconds: float) -> None:
        work = getattr(owner, name)

        def queue(*given: Any, **options: Any) -> Any:
            self.queued += seconds
            return work(*given, **options)

        self.monkeypatch.setattr(owner, name, queue)

    def wait(self) -> None:
        self.now, self.queued = self.now + self.queued, 0.0


def test_seconds_of_a_round_are_those_of_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target()
    prompt = target.codec.encode("abc abc abc")
    oracle = Oracle(0.6).know(prompt, plain_decode(target, prompt, 20))
    queue = Queue(monkeypatch, target)
    queue.after(oracle, "propose", 3.0)
    queue.after(oracle, "observe", 5.0)
    run = generate(target, oracle, prompt, policy=FixedK(3), max_new_tokens=20)
    log = list(run)
    assert len(log) > 4
    assert {(r.draft_seconds, r.verify_seconds, r.other_seconds) for r in log} == {(3.0, 10.0, 5.0)}


def test_seconds_of_plain_decoding_leave_the_prompt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target()
    Queue(monkeypatch, target)
    made = Decoded(
        target, target.codec.encode("abc abc"), (), 9, 0, Sampling(0.0), 0, lambda step: None
    )
    assert len(made.tokens) == 9
    assert np.isclose(made.seconds, 8 * 10.0)
