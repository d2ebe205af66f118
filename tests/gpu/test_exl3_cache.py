"""A quantised cache on a real GPU: its operators have stand-ins in tier 2, its kernels have not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specviz.engine.protocols import Draft
from specviz.exl3.checks import gpus
from specviz.exl3.load import load_exl3
from specviz.prompt_set import prompts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module", params=[8, 4])
def quantised(request: pytest.FixtureRequest, folders: tuple[Path, str | None]) -> Any:
    target, _ = load_exl3(
        folders[0], devices=min(len(gpus()), 2), tokens=4096, cache_bits=request.param
    )
    yield target
    target.model.unload()
    torch.cuda.empty_cache()


def test_its_rows_are_near_those_without_a_cache(quantised: Any, note: dict[str, Any]) -> None:
    ids = list(quantised.codec.encode(prompts(limit=1)[0].messages))[:200]
    cached = quantised.prefill(ids).logits[0].float().log_softmax(-1)
    params = {"attn_mode": "flash_attn_nc", "last_tokens_only": 1}
    whole = quantised.model.forward(torch.tensor([ids]), params)[0, -1, : quantised.vocab_size]
    whole = whole.float().log_softmax(-1)
    note["caption"] = quantised.caption
    note["kl"] = float((whole.exp() * (whole - cached)).sum())
    assert note["kl"] < 0.2


def test_rewind_is_prefill(quantised: Any, note: dict[str, Any]) -> None:
    text = (list(quantised.codec.encode("The cat sat on the mat. ")) * 8)[:40]
    quantised.prefill(text[:20])
    quantised.verify(Draft.chain(text[20], text[21:26]))
    quantised.commit(range(2))
    after = quantised.verify(Draft(text[30])).logits[0].float()
    alone = quantised.prefill([*text[:23], text[30]]).logits[0].float()
    note["largest_gap"] = float((after - alone).abs().max())
    assert note["largest_gap"] < 0.5
