"""The target contract on the targets that run anywhere."""

from __future__ import annotations

from specviz.engine.protocols import FINAL, Target
from specviz.targets.toy import MarkovModel, ToyTarget
from tests.contract.target_contract import TargetContract
from tests.models import tiny_target


class TestToy(TargetContract):
    tolerance = 0.0

    @classmethod
    def make(cls) -> Target:
        return ToyTarget(MarkovModel.random(8, order=2, seed=3), eos_ids=[7])


class TestTinyLlama(TargetContract):
    taps = (2, FINAL)

    @classmethod
    def make(cls) -> Target:
        return tiny_target()
