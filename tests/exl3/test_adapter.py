"""specviz's protocols on exllamav3's Python code with CPU operator stand-ins.

Not a test of exllamav3: its kernels, its quantised weights and any GPU are out of reach here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from specviz.campaign import capture
from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import Run, generate
from specviz.engine.observe import row_stats
from specviz.engine.protocols import FINAL, Draft, Drafter
from specviz.policies import FixedK, Plan
from tests.contract.target_contract import TargetContract
from tests.exl3.stand_ins import installed, why_not

pytestmark = [
    pytest.mark.exl3,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

PROMPT = "the quick brown fox jumps over the lazy dog"
NEW = 48


class Loaded(NamedTuple):
    """The adapter's models, the same Llama in transformers, and where the files are."""

    target: Any
    drafter: Any
    llama: Any
    folder: Path
    library: Any


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    from tests.exl3 import adapter, models

    folder = tmp_path_factory.mktemp("exl3")
    llama = models.write_target(folder / "tiny-llama")
    models.write_dflash2(folder / "dflash2")
    modules = set(sys.modules)
    with installed() as library:
        target, drafter = adapter.load(folder / "tiny-llama", folder / "dflash2")
        yield Loaded(target, drafter, llama, folder, library)
    left = {name.partition(".")[0] for name in set(sys.modules) - modules}
    assert not left & {"exllamav3", "exllamav3_ext", "triton"}, "the stand-ins were left behind"


@pytest.fixture(scope="module")
def plain(loaded: Loaded) -> list[int]:
    """The target's own greedy output."""
    tokens = plain_decode(loaded.target, loaded.target.codec.encode(PROMPT), NEW)
    assert len(tokens) == NEW
    return tokens


@pytest.fixture(scope="module")
def run(loaded: Loaded) -> Run:
    """A finished run with the DFlash2 drafter."""
    return generate(loaded.target, loaded.drafter, PROMPT, max_new_tokens=NEW).finish()


@pytest.fixture(scope="module")
def wide(loaded: Loaded, run: Run) -> Any:
    """transformers' fp32 logits and hidden states over the run's text."""
    with torch.inference_mode():
        ids = torch.tensor([[*run.prompt_ids, *run.token_ids]])
        return loaded.llama(ids, output_hidden_states=True)


class TestContract(TargetContract):
    #: Logits are fp16 and up to 12 in size: four units in the last place there.
    tolerance = 4 * 2**-7
    taps = (1, 3, FINAL)

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, loaded: Loaded) -> Any:
        return loaded.target


def test_taps_are_the_hidden_states_of_transformers(loaded: Loaded, run: Run, wide: Any) -> None:
    taps = loaded.target.prefill([*run.prompt_ids, *run.token_ids], (1, 2, FINAL)).taps
    for tap, number in {1: 1, 2: 2, FINAL: -1}.items():
        theirs = wide.hidden_states[number][0]
        assert taps[tap].shape == theirs.shape
        assert float((taps[tap].float() - theirs).abs().max()) < 0.01 * float(theirs.abs().max())


def test_entropies_are_those_of_transformers(loaded: Loaded, run: Run, wide: Any) -> None:
    rows = wide.logits[0, -NEW - 1 : -1, : loaded.target.vocab_size]
    theirs = row_stats(rows).entropy
    assert 1 < theirs.mean() < 4  # neither flat nor certain
    assert np.abs(run.all_stats().entropy - theirs).max() < 1e-2


def test_dflash2_is_a_drafter_and_keeps_the_output(loaded: Loaded, run: Run) -> None:
    assert isinstance(loaded.drafter, Drafter)
    assert run.certificate.certified, run.certificate
    rounds = run.rounds[run.rounds.anchor < NEW - 9]  # not cut by the limit
    assert set(rounds.drafted) >= {0, 7}  # whole blocks, and blocks cut at a row without a token


@pytest.mark.parametrize("match", [1.0, 0.7])
def test_planted_drafts_keep_the_output(loaded: Loaded, plain: list[int], match: float) -> None:
    prompt = loaded.target.codec.encode(PROMPT)
    accepted: set[int] = set()
    for k in range(6):
        oracle = Oracle(match, seed=k).know(prompt, plain)
        planted = generate(
            loaded.target, oracle, prompt, policy=FixedK(k), max_new_tokens=NEW
        ).finish()
        assert planted.token_ids == plain or planted.certificate.certified, planted.certificate
        accepted |= set(planted.rounds.accepted)
    assert accepted == set(range(6))


def test_fed_round_by_round_is_fed_at_once(loaded: Loaded, plain: list[int]) -> None:
    """After rounds of every accepted length the drafter's cache is that of one prefill."""
    target, drafter = loaded.target, loaded.drafter
    prompt = target.codec.encode(PROMPT)
    oracle = Oracle(0.7, seed=1).know(prompt, plain)
    both = generate(
        target,
        {oracle.name: oracle, drafter.name: drafter},
        prompt,
        policy=FixedK(4, oracle.name),
        max_new_tokens=NEW,
    ).finish()
    assert set(both.rounds.accepted) == set(range(5))
    rounds = _fed(drafter)
    text = [*prompt, *both.token_ids[:-1]]
    drafter.start(text, target.prefill(text, drafter.taps))
    once = _fed(drafter)
    assert rounds.shape == once.shape
    assert float((rounds - once).abs().max()) < 0.02
    # It could have failed: positions are far apart in it.
    assert float((once[:, 1:] - once[:, :-1]).abs().amax((0, 2)).min()) > 0.2


def _fed(drafter: Any) -> torch.Tensor:
    """Keys and values of every token before the anchor, [layers, tokens, width]."""
    layers = [
        torch.cat([layer.k, layer.v], -1).flatten(0, 1).flatten(1)[: drafter._length].float()
        for layer in drafter.cache.layers.values()
    ]
    return torch.stack(layers)


def test_a_policy_may_cut_the_block(loaded: Loaded) -> None:
    target, drafter = loaded.target, loaded.drafter
    prompt = target.codec.encode(PROMPT)
    drafter.attach(target)
    drafter.start(prompt, target.prefill(prompt, drafter.taps))
    whole = drafter.propose([*prompt, 5], Plan(7), lambda view: True)
    cut = drafter.propose([*prompt, 5], Plan(7), lambda view: len(view.logq) < 2)
    assert len(whole) > 2
    assert cut == Draft.chain(
        5, whole.tokens[:2], whole.logq[:2], whole.entropy[:2], whole.confidence[:2]
    )
    assert drafter.propose([*prompt, 5], Plan(0), lambda view: True) == Draft(5)


def test_capture_runs_on_the_target(loaded: Loaded, plain: list[int]) -> None:
    trace = capture([PROMPT], loaded.target, Oracle(0.7), k=4, max_new_tokens=NEW, progress=False)
    assert trace.positions.token_id.tolist() == plain
    assert set(trace.drafts.matched) == set(range(5))


def test_caches_come_before_weights_and_the_drafter_first(loaded: Loaded) -> None:
    from tests.exl3.adapter import DFlash2Drafter, Exl3Target

    late = loaded.library.Cache(loaded.target.model, max_num_tokens=256)
    with pytest.raises(ValueError, match="before the model's weights"):
        Exl3Target(loaded.target.model, late, loaded.target.codec.tokenizer, "late")
    late = loaded.library.Cache(loaded.drafter.model, max_num_tokens=256)
    with pytest.raises(ValueError, match="before the model's weights"):
        DFlash2Drafter(loaded.drafter.model, late)


def test_a_drafter_refuses_another_target(loaded: Loaded) -> None:
    from tests.models import tiny_target

    with pytest.raises(ValueError, match="exllamav3 target"):
        loaded.drafter.attach(tiny_target())


def test_codec_speaks_text_messages_and_ids(loaded: Loaded) -> None:
    codec = loaded.target.codec
    ids = codec.encode(PROMPT)
    assert codec.decode(ids) == codec.render(ids) == PROMPT
    assert codec.encode(ids) == ids
    chat = [{"role": "user", "content": "hello"}]
    assert codec.render(chat) == "<user>hello\n<assistant>"
    assert codec.decode(codec.encode(chat)) == codec.render(chat)
    assert codec.token_text(ids[0]) == "t"
    assert codec.decode(()) == ""
    assert codec.template["text"]


def test_an_operator_without_a_stand_in_names_itself(loaded: Loaded) -> None:
    with pytest.raises(NotImplementedError, match="gated_delta_net"):
        sys.modules["exllamav3_ext"].gated_delta_net()
    with pytest.raises(RuntimeError, match="already imported"), installed():
        pass
