"""exllamav3 on a real GPU, through specviz. Nobody has reported a run of these yet."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import specviz as sv
from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import generate
from specviz.engine.protocols import FINAL, Draft
from specviz.exl3.checks import extension_file, gpus
from specviz.exl3.load import load_exl3
from specviz.exl3.observe import observe_exl3
from specviz.policies import FixedK
from specviz.prompt_set import prompts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]

Folders = tuple[Path, str | None]
NEW = 96


def shares(folder: Path) -> list[float] | None:
    """GB per GPU, so that a model which would fit on the first is split all the same."""
    if len(gpus()) < 2:
        return None
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2**30
    return [round(0.6 * size + 0.3, 2), round(size + 4, 2)]


@pytest.fixture(scope="module")
def pair(folders: Folders) -> Any:
    """Split over two GPUs where there are two."""
    target, draft = folders
    split = shares(target)
    devices = 1 if split is None else 2
    loaded = load_exl3(target, draft, devices=devices, tokens=4096, use_per_device=split)
    yield loaded
    for each in loaded:
        if each is not None:
            each.model.unload()
    del loaded, each
    gc.collect()
    torch.cuda.empty_cache()


def test_the_extension_is_there(folders: Folders, note: dict[str, Any]) -> None:
    note["extension"] = str(extension_file())
    assert extension_file() is not None


def test_layers_are_split_over_the_devices(pair: Any, note: dict[str, Any]) -> None:
    target, _ = pair
    note["devices"] = target.device
    note["caption"] = target.caption
    note["logits_on"] = str(target.prefill(target.codec.encode("The cat")).logits.device)
    if len(gpus()) > 1:
        assert target.device == "cuda:0, cuda:1"


def test_final_states_of_both_devices_give_the_logits(pair: Any, note: dict[str, Any]) -> None:
    """Hidden states stay where their layer is; the head is elsewhere."""
    target, _ = pair
    taps = (1, target.model.config.num_hidden_layers, FINAL)
    ids = target.codec.encode("The cat sat on the mat.")
    target.prefill(ids[:-4], taps)
    rows = target.verify(Draft.chain(ids[-4], ids[-3:]))
    note["taps_on"] = {str(tap): str(states.device) for tap, states in rows.taps.items()}
    for device in {states.device for states in rows.taps.values()}:
        again = target.unembed(rows.taps[FINAL].to(device)).to(rows.logits.device)
        assert float((again.float() - rows.logits.float()).abs().max()) < 0.25


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


@pytest.mark.parametrize("drafted", [12, 13, 14, 15])
def test_a_long_verification_can_be_undone(pair: Any, drafted: int, note: dict[str, Any]) -> None:
    """Of a hybrid: the inputs of a long draft come close to the convolution's window."""
    target, _ = pair
    text = (list(target.codec.encode("The cat sat on the mat. ")) * 8)[:45]
    target.prefill(text[:20])
    first = target.verify(Draft.chain(text[20], text[21:25])).logits.float()
    target.verify(Draft.chain(text[20], text[25 : 25 + drafted]))
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
    for seq in (0, 1):
        ids = target.codec.encode(chosen[seq].messages)
        mine = trace.positions.token_id[trace.positions.seq == seq].tolist()
        run = generate(target, drafter, ids, policy=FixedK(0), max_new_tokens=NEW).finish()
        both = zip(mine, run.token_ids, strict=False)
        same = next((i for i, (a, b) in enumerate(both) if a != b), len(mine))
        note[f"same_as_plain_{seq}"] = f"{same} of {len(run.token_ids)} tokens"


def test_the_generator_is_watched_with_sampling(pair: Any, note: dict[str, Any]) -> None:
    """The library's fused sampler; what it emits has the probability that the trace gives it."""
    target, drafter = pair
    sampling = sv.Sampling(temperature=0.8, top_k=50, top_p=0.9)
    trace = observe_exl3(
        target, prompts(limit=2), drafter, sampling=sampling, max_new_tokens=NEW, seed=3
    )
    trace.validate()
    note["summary"] = trace.summary().to_dict()
    # Outside the top k or the nucleus ln p is -inf; at its edge rounding may decide otherwise.
    note["outside"] = int((~np.isfinite(trace.positions.logp_sampled)).sum())
    assert note["outside"] <= 0.02 * len(trace.positions)


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
