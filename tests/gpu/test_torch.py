"""The torch target in fp16 on CUDA, on one GPU and split over two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import specviz as sv
from specviz.exl3.checks import gpus
from tests.models import tiny_llama, tokenizer

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("torch") / "tiny"
    tiny_llama(layers=6).float().save_pretrained(where)
    tokenizer().save_pretrained(where)
    return where


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_the_torch_target_in_fp16(folder: Path, device: str, note: dict[str, Any]) -> None:
    if device == "auto" and len(gpus()) < 2:
        pytest.skip("one GPU: nothing to split over")
    target = sv.load_target(folder, device=device)  # checked against independent forwards
    assert target.dtype == "float16"
    run = sv.generate(target, sv.load_drafter("ngram", target), "abc abc abc", max_new_tokens=32)
    run.finish()
    note["certificate"] = str(run.certificate)
    assert run.certificate.certified, run.certificate
