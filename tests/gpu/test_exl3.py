"""exllamav3 on a real GPU, through specviz. Nobody has reported a run of these yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import generate
from specviz.engine.protocols import Draft
from specviz.exl3.checks import extension_file, gpus
from specviz.exl3.load import load_exl3
from specviz.exl3.observe import observe_exl3
from specviz.policies import FixedK
from specviz.prompt_set import prompts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]

Folders = tuple[Path, str | None]
NEW = 96


@pytest.fixture(scope="module")
def pair(folders: Folders) -> Any:
    """Split over all GPUs of the machine, two at most."""
    target, draft = folders
    return load_exl3(target, draft, devices=min(len(gpus()), 2), tokens=4096)


def test_the_extension_is_there(folders: Folders, note: dict[str, Any]) -> None:
    note["extension"] = str(extension_file())
    assert extension_file() is not None


def test_layers_are_split_over_the_devices(pair: Any, note: dict[str, Any]) -> None:
    target, _ = pair
    note["devices"] = target.device
    note["caption"] = target.caption
    if len(gpus()) > 1:
        assert "cuda:1" in target.device


@pytest.mark.parametrize("kept", range(6))
def test_rewind_is_prefill(pair: Any, kept: int, note: dict[str, Any]) -> None:
    """Of attention and of recurrent layers, for every accepted length."""
    target, _ = pair
    text = list(target.codec.encode("def fibonacci(n):\n    if n < 2:\n        return n\n"))
    text = (text * 3)[:40]
    target.prefill(text[:20])
    target.verify(Draft.chain(text[20], text[21:26]))
    target.commit(range(kept))
    after = target.verify(Draft(text[30])).logits[0].float()
    alone = target.prefill([*text[: 21 + kept], text[30]]).logits[0].float()
    note["largest_gap"] = float((after - alone).abs().max())
    note["largest_logit"] = float(alone.abs().max())
    # Kernels differ by the number of rows; a wrong state is off by whole logits.
    assert note["largest_gap"] < 0.5


def test_a_verification_can_be_undone(pair: Any, note: dict[str, Any]) -> None:
    target, _ = pair
    text = (list(target.codec.encode("The cat sat on the mat. ")) * 8)[:30]
    target.prefill(text[:20])
    first = target.verify(Draft.chain(text[20], text[21:25])).logits.float()
    target.verify(Draft.chain(text[20], text[25:28]))
    again = target.verify(Draft.chain(text[20], text[21:25])).logits.float()
    note["largest_gap"] = float((first - again).abs().max())
    assert note["largest_gap"] < 0.25


def test_planted_drafts_keep_the_output(pair: Any, note: dict[str, Any]) -> None:
    target, _ = pair
    prompt = target.codec.encode(prompts(limit=1)[0].messages)
    plain = plain_decode(target, prompt, 64)
    oracle = Oracle(0.6).know(prompt, plain)
    run = generate(target, oracle, prompt, policy=FixedK(5), max_new_tokens=64).finish()
    note["accepted"] = run.rounds.accepted.tolist()
    note["certificate"] = str(run.certificate)
    assert run.certificate.certified, run.certificate


def test_the_generators_counts(pair: Any, note: dict[str, Any]) -> None:
    target, drafter = pair
    if drafter is None:
        pytest.skip("EXL3_DRAFT names no drafter")
    chosen = prompts(content_type=["code", "prose"], limit=2)
    trace = observe_exl3(target, chosen, drafter, max_new_tokens=NEW)
    trace.validate()
    note["summary"] = trace.summary().to_dict()
    assert (trace.rounds.accepted <= trace.rounds.drafted).all()


@pytest.mark.parametrize("kind", ["code", "prose"])
def test_a_run_with_the_drafter(pair: Any, kind: str, note: dict[str, Any]) -> None:
    """Throughput as measured here, instrumented; seven drafted tokens, or all the drafter has."""
    target, drafter = pair
    if drafter is None:
        pytest.skip("EXL3_DRAFT names no drafter")
    prompt = prompts(content_type=kind, limit=1)[0].messages
    policy = FixedK(min(7, drafter.max_k))
    run = generate(target, drafter, prompt, policy=policy, max_new_tokens=NEW).finish()
    rounds = run.rounds
    seconds = rounds[["draft_seconds", "verify_seconds", "other_seconds"]].sum().sum()
    note["tokens_per_second"] = float(rounds.emitted.sum() / seconds)
    note["mean_accepted"] = float(rounds.accepted.mean())
    note["rounds"] = len(rounds)
    note["memory"] = dict(run.trace.meta.memory)
    note["certificate"] = str(run.certificate)
    assert run.certificate.certified, run.certificate
