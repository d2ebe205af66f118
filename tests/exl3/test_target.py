"""The exllamav3 target on the library's Python code with CPU operator stand-ins.

Not a test of exllamav3: its kernels, its quantised weights and any GPU are out of reach here.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from specviz.analysis.serving.model_shape import model_shape
from specviz.campaign import capture
from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import generate
from specviz.engine.observe import row_stats
from specviz.engine.protocols import FINAL, Draft
from specviz.exl3.folders import read_config
from specviz.exl3.load import assemble
from specviz.policies import FixedK
from specviz.targets.exl3_cache import PAGE, Pages, Recurrent
from tests.contract.target_contract import TargetContract
from tests.exl3.conftest import PROMPT, Workshop
from tests.exl3.stand_ins import installed

pytestmark = pytest.mark.exl3

NEW = 24


class TestLlama(TargetContract):
    #: Logits are fp16 and up to 16 in size: four units in the last place there.
    tolerance = 4 * 2**-7
    taps = (1, 3, FINAL)

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, workshop: Workshop) -> Any:
        return workshop.load("llama")[0]


class TestHybrid(TargetContract):
    """Gated DeltaNet layers, rewound by the library's own replay."""

    #: The state is stored in fp16 and the convolution's outputs in bf16.
    tolerance = 0.06
    taps = (1, 4, FINAL)

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, workshop: Workshop) -> Any:
        return workshop.load("hybrid", "mtp")[0]


@pytest.mark.parametrize(("name", "draft"), [("llama", None), ("hybrid", "mtp")])
def test_entropies_and_taps_are_those_of_transformers(
    workshop: Workshop, name: str, draft: str | None
) -> None:
    """Measured gaps: 0.005 at most, for a hybrid too; half of it is bf16 behind its convolution."""
    tolerance = 1e-2
    target, reference = workshop.load(name, draft)[0], workshop.model(name)
    ids = target.codec.encode(PROMPT)
    text = [*ids, *plain_decode(target, ids, NEW)]
    taps = target.prefill(text, (1, 2, FINAL)).taps
    with torch.inference_mode():
        theirs = reference(input_ids=torch.tensor([text]), output_hidden_states=True)
    for tap, number in {1: 1, 2: 2, FINAL: -1}.items():
        wide = theirs.hidden_states[number][0]
        assert taps[tap].shape == wide.shape
        gap = float((taps[tap].float() - wide).abs().max() / wide.abs().max())
        assert gap < tolerance
    ours = row_stats(target.unembed(taps[FINAL])).entropy
    entropy = row_stats(theirs.logits[0, :, : target.vocab_size]).entropy
    assert 1 < entropy.mean() < 4  # neither flat nor certain
    assert np.abs(ours - entropy).max() < tolerance
    target.prefill(text[:10])  # and round by round, a state of recurrent layers carried along
    verified: list[float] = []
    for at in range(10, len(text) - 4, 4):
        rows = target.verify(Draft.chain(text[at], text[at + 1 : at + 5]))
        target.commit(range(3))
        verified.extend(row_stats(rows.logits).entropy[:4])
    assert np.abs(np.array(verified) - entropy[10 : 10 + len(verified)]).max() < tolerance


@pytest.mark.parametrize(("name", "draft"), [("llama", None), ("hybrid", "mtp")])
@pytest.mark.parametrize("match", [1.0, 0.6])
def test_planted_drafts_of_every_accepted_length_keep_the_output(
    workshop: Workshop, name: str, draft: str | None, match: float
) -> None:
    target = workshop.load(name, draft)[0]
    prompt = target.codec.encode(PROMPT)
    plain = plain_decode(target, prompt, NEW)
    accepted: set[int] = set()
    for k in range(5):
        oracle = Oracle(match, seed=k).know(prompt, plain)
        run = generate(target, oracle, prompt, policy=FixedK(k), max_new_tokens=NEW).finish()
        assert run.token_ids == plain or run.certificate.certified, run.certificate
        accepted |= set(run.rounds.accepted)
    assert accepted == set(range(5))


def test_capture_is_what_the_target_says(workshop: Workshop) -> None:
    target = workshop.load("llama")[0]
    trace = capture([PROMPT], target, Oracle(0.7), k=4, max_new_tokens=NEW, progress=False)
    plain = plain_decode(target, target.codec.encode(PROMPT), NEW)
    assert trace.positions.token_id.tolist() == plain
    assert set(trace.drafts.matched) == set(range(5))


def test_a_tree_that_crosses_a_page_is_a_batch_of_its_paths(workshop: Workshop) -> None:
    target = workshop.load("llama")[0]
    text = np.random.default_rng(1).integers(0, target.vocab_size, PAGE + 20).tolist()
    prompt, rest = text[: PAGE - 3], text[PAGE - 3 :]
    # Two branches of six and of four below the anchor, across the end of the first page.
    tree = Draft(rest[0], tuple(rest[1:11]), (-1, 0, 1, 2, 3, 4, -1, 6, 7, 8), (0.0,) * 10)
    target.prefill(prompt)
    rows = target.verify(tree)
    assert rows.logits.shape == (11, target.vocab_size)
    assert target.memory()["verified_rows"] == 2 * 7  # two paths, filled up to seven rows
    target.commit((6, 7, 8, 9))
    after = target.verify(Draft(rest[12])).logits[0].float()
    alone = target.prefill([*prompt, rest[0], *rest[7:11], rest[12]]).logits[0].float()
    assert float((after - alone).abs().max()) < TestLlama.tolerance
    wide = Draft(rest[0], tuple(rest[1:8]), (-1,) * 7, (0.0,) * 7)
    target.prefill(prompt)
    with pytest.raises(ValueError, match="7 paths needs 6 free pages"):
        target.verify(wide)
    narrower = Draft(rest[0], tuple(rest[1:4]), (-1,) * 3, (0.0,) * 3)
    assert len(target.verify(narrower).logits) == 4  # usable after the refusal


def test_the_longest_draft_can_be_undone_and_interrupted(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hybrid: its inputs fill the ring from which the convolution's window comes back."""
    target = workshop.load("hybrid", "mtp")[0]
    text = np.random.default_rng(5).integers(0, target.vocab_size, 40).tolist()
    longest, other = Draft.chain(text[20], text[21:36]), Draft.chain(text[20], text[24:39])
    target.prefill(text[:20])
    whole = target.verify(longest).logits.clone()
    target.verify(other)
    assert float((whole - target.verify(longest).logits).abs().max()) < TestHybrid.tolerance
    with monkeypatch.context() as patch:  # when some layers have gone on and others have not
        patch.setattr(target.model.modules[-3], "forward", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.verify(other)
    assert float((whole - target.verify(longest).logits).abs().max()) < TestHybrid.tolerance
    target.commit(range(15))
    assert target._recurrent._state.position == 36
    after = target.verify(Draft(text[36])).logits[0].float()
    alone = target.prefill(text[:37]).logits[0].float()
    assert float((after - alone).abs().max()) < TestHybrid.tolerance


def test_a_prompt_that_was_not_read_to_its_end_is_none(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = workshop.load("hybrid", "mtp")[0]
    before = target.prefill([5, 6, 7]).logits.clone()
    with monkeypatch.context() as patch:
        patch.setattr(target.model.modules[-3], "forward", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.prefill([8, 9, 10])
    with pytest.raises(RuntimeError, match="prefill a prompt first"):
        target.verify(Draft(5))
    assert torch.equal(target.prefill([5, 6, 7]).logits, before)


def _interrupted(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt


def test_drafts_longer_than_recurrent_layers_can_undo_are_refused(workshop: Workshop) -> None:
    target = workshop.load("hybrid", "mtp")[0]
    target.prefill(target.codec.encode(PROMPT))
    with pytest.raises(ValueError, match="max_draft=16"):
        target.verify(Draft.chain(5, [6] * 16))
    assert len(target.verify(Draft.chain(5, [6] * 15)).logits) == 16
    with pytest.raises(ValueError, match="load it with tokens=1280"):
        target.prefill([5] * 1024)


def test_what_cannot_be_used_is_refused(workshop: Workshop) -> None:
    from specviz.targets.exl3 import Exl3Target

    target = workshop.load("llama")[0]
    late = workshop.library.Cache(target.model, max_num_tokens=256)
    with pytest.raises(ValueError, match="before the model's weights"):
        Exl3Target(target.model, late, target.codec.tokenizer, "late")
    late.detach_from_model()

    class Sliding:
        caps: dict[str, bool] = {"recurrent_states": True}  # noqa: RUF012
        max_history = 16
        recurrent_state_cls = type("SWAState", (), {})
        recurrent_layers: dict[int, Any] = {  # noqa: RUF012
            0: type("SWALayerState", (), {"storage_size": lambda self: 0, "module": None})()
        }

    with pytest.raises(ValueError, match="SWALayerState"):
        Recurrent(Sliding, Sliding, "a model with windows").start()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (RuntimeError("Insufficient VRAM in split for model and cache"), MemoryError),
        (torch.OutOfMemoryError("CUDA out of memory"), MemoryError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value))[:20],
)
def test_a_load_that_fails_gives_its_memory_back(
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    becomes: type[BaseException],
    number: int,
) -> None:
    library, loaded = workshop.library, []
    target, drafter = workshop.load("llama", "dflash2")
    whole = library.Model.load

    def load(self: Any, **options: Any) -> None:
        loaded.append(self)
        whole(self, **options)
        if len(loaded) == number:  # the drafter is loaded first, then the target
            raise error

    for each in (target, drafter):
        monkeypatch.setattr(type(each.model), "load", load)
    with pytest.raises(becomes) as told:
        assemble(
            library,
            workshop.path("llama"),
            workshop.path("dflash2"),
            placing={"device": "cpu"},
            reader="python",
        )
    if becomes is MemoryError:
        assert "llama does not fit on the GPUs with a cache of 1,024 tokens" in str(told.value)
    assert len(loaded) == number
    for model in loaded:
        caches = [reference() for reference in model.cache_weakrefs.values()]
        assert not any(cache.initialized for cache in caches if cache is not None)
        assert all(module.device is None for module in model.modules)


def test_pages_of_a_kept_branch_are_exchanged_not_lost() -> None:
    class Cache:
        max_num_tokens = 7 * PAGE
        copied: list[tuple[int, int, int]] = []  # noqa: RUF012

        def copy_page(self, other: Any, source: int, target: int, tokens: int) -> None:
            self.copied.append((source, target, tokens))

    cache = Cache()
    pages = Pages(cache)
    tables = pages.branch(PAGE + 250, 10, 3)  # each branch needs pages 1 and 2
    assert [table[:3] for table in tables] == [[0, 1, 2], [0, 3, 4], [0, 5, 6]]
    assert cache.copied == [(1, 3, 250), (1, 5, 250)]
    pages.keep(2)
    assert pages.table == [0, 5, 6, 3, 4, 1, 2]


def test_an_operator_without_a_stand_in_names_itself(workshop: Workshop) -> None:
    with pytest.raises(NotImplementedError, match="exl3_gemm"):
        sys.modules["exllamav3_ext"].exl3_gemm()
    with pytest.raises(RuntimeError, match="already imported"), installed():
        pass


@pytest.mark.parametrize("name", ["llama", "hybrid"])
def test_the_planner_counts_what_the_library_takes(workshop: Workshop, name: str) -> None:
    target = workshop.load(name, "mtp" if name == "hybrid" else None)[0]
    shape = model_shape(read_config(workshop.path(name)))
    target.prefill(target.codec.encode(PROMPT))
    memory = target.memory()
    recurrent = shape.attends.count(False)
    assert memory["recurrent_bytes"] == recurrent * (shape.recurrent_bytes(16) if recurrent else 0)
    per_token = memory["peak_cache_bytes"] / memory["peak_slots"]
    kv = shape.kv(2.0)
    assert kv is not None
    assert per_token == kv.bytes_per_token
    weights = sum(
        parameter.numel()
        for part, parameter in workshop.model(name).named_parameters()
        if "visual" not in part and parameter.dim() > 1
    )
    assert shape.params == weights


@pytest.mark.parametrize("drafted", range(11, 16))
def test_a_verification_that_was_not_committed_leaves_nothing_behind(
    workshop: Workshop, drafted: int
) -> None:
    """Of every length: a long one's inputs reach the convolution's window in the library's ring."""
    target = workshop.load("hybrid", "mtp")[0]
    text = np.random.default_rng(drafted).integers(0, target.vocab_size, 60).tolist()
    target.prefill(text[:20])
    first = target.verify(Draft.chain(text[20], text[21:24])).logits.clone()
    for _ in range(2):
        target.verify(Draft.chain(text[40], text[41 : 41 + drafted]))
    again = target.verify(Draft.chain(text[20], text[21:24])).logits
    assert torch.equal(first, again)
    target.verify(Draft.chain(text[40], text[41 : 41 + drafted]))
    target.commit(range(drafted))
    after = target.verify(Draft(text[5])).logits[0].float()
    alone = target.prefill([*text[:20], *text[40 : 41 + drafted], text[5]]).logits[0].float()
    assert float((after - alone).abs().max()) < TestHybrid.tolerance
