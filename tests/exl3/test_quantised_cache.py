"""A target with a quantised cache, on the library's Python code with CPU operator stand-ins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from specviz.analysis.serving.plan import plan_memory
from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import generate
from specviz.engine.observe import row_stats
from specviz.engine.protocols import Draft
from specviz.exl3.folders import read_config
from specviz.exl3.observe import observe_exl3
from specviz.policies import FixedK
from specviz.targets.exl3_cache import PAGE
from tests.contract.target_contract import TargetContract
from tests.exl3.conftest import PROMPT, Workshop
from tests.exl3.quantised_stand_ins import pack, unpacked

pytestmark = pytest.mark.exl3

NEW = 24


class TestEightBits(TargetContract):
    #: Keys that differ in their last fp16 place may be rounded to neighbouring levels.
    tolerance = 0.15

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, workshop: Workshop) -> Any:
        return workshop.load("llama", cache_bits=8)[0]


@pytest.mark.parametrize("bits", range(2, 9))
def test_the_stand_in_rounds_to_a_level(bits: int) -> None:
    values = torch.randn(5, 64, generator=torch.Generator().manual_seed(bits))
    packed, scales = pack(values, 2 * bits)
    assert packed.shape == (5, 2 * bits)
    back = unpacked(packed, scales, bits)
    assert float((back - values).square().mean()) < 0.9 * 4.0 ** (2 - bits)
    again = unpacked(*pack(back, 2 * bits), bits)
    assert float((again - back).abs().max()) < 2.0 ** (2 - bits)


def test_fewer_bits_move_the_distributions_further(workshop: Workshop) -> None:
    whole = workshop.load("llama")[0]
    text = np.random.default_rng(4).integers(0, whole.vocab_size, 60).tolist()

    def entropies(target: Any) -> np.ndarray:
        target.prefill(text[:40])
        return row_stats(target.verify(Draft.chain(text[40], text[41:50])).logits).entropy

    reference = entropies(whole)
    eight, four, two = (
        float(np.abs(entropies(workshop.load("llama", cache_bits=bits)[0]) - reference).max())
        for bits in (8, 4, 2)
    )
    assert 0 < eight < four < two
    assert eight < 0.03


@pytest.mark.parametrize(("name", "draft"), [("llama", "dflash2"), ("hybrid", "mtp")])
def test_planted_drafts_keep_the_output(workshop: Workshop, name: str, draft: str) -> None:
    target, drafter = workshop.load(name, draft, cache_bits=6)
    assert "6-bit cache" in target.caption
    prompt = target.codec.encode(PROMPT)
    plain, accepted = plain_decode(target, prompt, NEW), set()
    for k in range(5):
        oracle = Oracle(0.6, seed=k).know(prompt, plain)
        run = generate(target, oracle, prompt, policy=FixedK(k), max_new_tokens=NEW).finish()
        assert run.token_ids == plain or run.certificate.certified, run.certificate
        accepted |= set(run.rounds.accepted)
    assert accepted == set(range(5))
    trace = observe_exl3(target, PROMPT, drafter, max_new_tokens=NEW)
    trace.validate()
    assert trace.positions.token_id.tolist()[:4] == plain[:4]


def test_a_tree_copies_packed_pages(workshop: Workshop) -> None:
    target = workshop.load("llama", cache_bits=8)[0]
    text = np.random.default_rng(1).integers(0, target.vocab_size, PAGE + 20).tolist()
    prompt, rest = text[: PAGE - 3], text[PAGE - 3 :]
    tree = Draft(rest[0], tuple(rest[1:11]), (-1, 0, 1, 2, 3, 4, -1, 6, 7, 8), (0.0,) * 10)
    target.prefill(prompt)
    target.verify(tree)
    target.commit((6, 7, 8, 9))
    after = target.verify(Draft(rest[12])).logits[0].float()
    alone = target.prefill([*prompt, rest[0], *rest[7:11], rest[12]]).logits[0].float()
    assert float((after - alone).abs().max()) < TestEightBits.tolerance


def test_the_planner_counts_its_bytes(workshop: Workshop) -> None:
    target = workshop.load("llama", cache_bits=4)[0]
    target.prefill(target.codec.encode(PROMPT))
    memory = target.memory()
    plan = plan_memory(
        read_config(workshop.path("llama")), cache_bits=4, tokens=1000, nodes=0, gpus=[16e9]
    )
    assert plan.gpus[0].cache == 1000 * memory["peak_cache_bytes"] / memory["peak_slots"]
