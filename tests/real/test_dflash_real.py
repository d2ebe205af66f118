"""z-lab's loop and specviz from one folder: the trained block on the embedded target."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from specviz.drafters.block import BlockDrafter
from specviz.drafters.dflash_files import write_dflash
from specviz.engine.loop import generate
from specviz.policies import FixedK
from specviz.prompt_set import Prompt, prompts
from specviz.targets.torch_lm import TorchTarget
from specviz.zoo import load_drafter, load_target

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("dflash")]
TOKENS, WIDEST = 32, 7


@pytest.fixture(scope="module")
def target() -> TorchTarget:
    target = load_target("smollm2-135m")
    assert isinstance(target, TorchTarget)
    return target


@pytest.fixture(scope="module")
def folder(target: TorchTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shipped = load_drafter("block", target)
    assert isinstance(shipped, BlockDrafter)
    return write_dflash(shipped.weights, tmp_path_factory.mktemp("dflash") / "block-z", target)


@pytest.fixture(scope="module")
def referee() -> Any:
    return pytest.importorskip(
        "dflash.model", reason="the referee is missing: pip install --no-deps dflash==0.1.0"
    )


@pytest.fixture(scope="module")
def theirs(referee: Any, folder: Path) -> Any:
    return referee.DFlash2DraftModel.from_pretrained(folder, dtype=torch.float32).eval()


def chosen() -> list[Any]:
    """Ten prompts, five of each kind; one is enough for every run of the tests."""
    found = [*prompts(content_type="code", limit=5), *prompts(content_type="prose", limit=5)]
    slow = [pytest.mark.slow if i else () for i in range(10)]
    return [
        pytest.param(prompt, id=prompt.id, marks=marks)
        for prompt, marks in zip(found, slow, strict=True)
    ]


@pytest.mark.parametrize("prompt", chosen())
def test_z_labs_loop_drafts_and_accepts_the_same(
    prompt: Prompt,
    target: TorchTarget,
    folder: Path,
    referee: Any,
    theirs: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(referee, "_cuda_time", time.perf_counter)
    ids = target.codec.encode(prompt.messages)
    with torch.inference_mode():
        found = referee.dflash_generate(
            theirs,
            target.model,
            torch.tensor([ids]),
            TOKENS,
            sorted(target.eos_ids),
            return_stats=True,
        )
    drafter = load_drafter(folder, target)
    run = generate(target, drafter, ids, policy=FixedK(WIDEST), max_new_tokens=TOKENS).finish()
    assert list(run.token_ids) == found.output_ids[0, len(ids) :].tolist()
    # z-lab's loop narrows its block near the limit, which changes what it says.
    mine = [round_.emitted for round_ in run.log if round_.anchor + WIDEST + 1 < TOKENS]
    assert len(mine) > 3
    assert found.acceptance_lengths[: len(mine)] == mine
