"""The drafter contract on the drafters that say several tokens from one pass of the target."""

from __future__ import annotations

from specviz.drafters.block import BlockDrafter
from specviz.drafters.mtp import MtpDrafter
from specviz.engine.protocols import Drafter, Target
from tests.block_models import fitted_block, fitted_mtp
from tests.contract.drafter_contract import DrafterContract
from tests.contract.test_drafters import words
from tests.models import tiny_target


class TestDFlash2(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        return target, BlockDrafter(fitted_block()), words(target)


class TestDFlash(DrafterContract):
    """Without a selector every row is drafted by itself."""

    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        return target, BlockDrafter(fitted_block(second=False)), words(target)


class TestMtp(DrafterContract):
    @classmethod
    def make(cls) -> tuple[Target, Drafter, list[int]]:
        target = tiny_target()
        return target, MtpDrafter(fitted_mtp()), words(target)
