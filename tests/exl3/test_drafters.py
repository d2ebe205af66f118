"""exllamav3's drafters on the library's Python code with CPU operator stand-ins.

The checkpoints are made so that they are often right (`tests.exl3.models`): a drafter that is
never accepted would prove nothing about how it is fed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specviz.drafters.exl3 import Exl3Block
from specviz.drafters.oracle import Oracle
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import generate
from specviz.engine.protocols import Drafts, Reference, Rows, Target
from specviz.engine.tree_shapes import BestFirst
from specviz.exl3.load import assemble
from specviz.policies import FixedK, FixedTree, Plan, TreeSpec
from specviz.targets.exl3_cache import PAGE, at
from tests.contract.drafter_contract import DrafterContract, K, always, decoded_reference, ready
from tests.exl3.conftest import PROMPT, Workshop

pytestmark = pytest.mark.exl3

NEW = 32


class Contract(DrafterContract):
    """The protocol's suite; the drafters come from checkpoints of the package's workshop."""

    pair: tuple[str, str]
    tolerance = 2e-2  # fp16 states, fed in other portions

    @pytest.fixture(scope="class")
    @classmethod
    def setting(cls, workshop: Workshop) -> tuple[Target, Any, Reference, Drafts]:
        target, drafter = workshop.load(*cls.pair)
        prompt = list(target.codec.encode(PROMPT))
        reference = decoded_reference(target, prompt, drafter.taps)
        drafts = drafter.propose_all(reference, K)
        drafter.start(prompt, target.prefill(prompt, drafter.taps))
        return target, drafter, reference, drafts


class TestDFlash2(Contract):
    pair = "llama", "dflash2"


class TestSliding(Contract):
    """A DFlash2 whose first layer attends in a window: it keeps a ring, not pages."""

    pair = "llama", "sliding"

    def test_context_decides_not_history(self, setting: Any) -> None:
        """A ring holds the end of the text only: an earlier place cannot be asked for."""
        target, drafter, reference, _ = setting
        early, late = (reference.prompt + reference.output[:n] for n in (4, 12))
        ready(drafter, target, late)
        first = drafter.propose(late, Plan(K), always)
        assert drafter.propose(late, Plan(K), always) == first
        with pytest.raises(RuntimeError, match="start it with what prefill returned"):
            drafter.propose(early, Plan(K), always)


class Chains(Contract):
    """Drafters that have no tree mask to grow a tree with."""

    @classmethod
    def tree(cls, depth: int) -> TreeSpec | None:
        return None

    def test_a_tree_holds_what_chains_would_say(self, setting: Any) -> None:
        _, drafter, reference, _ = setting
        context = reference.prompt + reference.output[:12]
        with pytest.raises(ValueError, match="chains only"):
            drafter.propose(context, Plan(K, tree=BestFirst(4, 4)), always)


class TestSmallerModel(Chains):
    pair = "llama", "smaller"


class TestMtp(Chains):
    pair = "hybrid", "mtp"


def test_the_selector_chooses_as_the_library_does(workshop: Workshop) -> None:
    target, drafter = workshop.load("llama", "dflash2")
    _same_as_the_library(target, drafter)


def test_rows_of_dflash_are_those_of_the_library(workshop: Workshop) -> None:
    target, drafter = workshop.load("llama", "dflash")
    _same_as_the_library(target, drafter)
    prompt = target.codec.encode(PROMPT)
    run = generate(target, drafter, prompt, policy=FixedK(4), max_new_tokens=NEW).finish()
    assert run.certificate.certified, run.certificate


def _same_as_the_library(target: Any, drafter: Any) -> None:
    text = list(target.codec.encode(PROMPT))
    ready(drafter, target, text)
    draft = drafter.propose(text, Plan(drafter.max_k), always)
    with torch.inference_mode():
        params = at(drafter.cache, len(text) - 1, [drafter._table()])
        state = drafter.model.forward(torch.tensor([text[-1:]]), params)
        theirs = drafter.model.sample_from_state(state, params)[0, 1:].tolist()
    # The library may draft a row of the head that is no token; here it is no candidate.
    n = next((i for i, token in enumerate(theirs) if token >= target.vocab_size), len(theirs))
    assert n > 0
    assert list(draft.tokens[:n]) == theirs[:n]


@pytest.mark.parametrize(
    ("name", "draft"), [("llama", "dflash2"), ("hybrid", "mtp"), ("dense-mtp", "mtp")]
)
def test_fed_round_by_round_is_fed_at_once(workshop: Workshop, name: str, draft: str) -> None:
    """After planted rounds of every accepted length the drafter's cache is that of one prefill."""
    target, drafter = workshop.load(name, draft)
    prompt = list(target.codec.encode(PROMPT))
    plain = plain_decode(target, prompt, NEW)
    turns, planted = _Turns("oracle", drafter.name), set()
    for seed in range(12):
        oracle = Oracle(0.7, name="oracle", seed=seed).know(prompt, plain)
        both = {"oracle": oracle, drafter.name: drafter}
        run = generate(target, both, prompt, policy=turns, max_new_tokens=NEW).finish()
        planted |= set(run.rounds.accepted[run.rounds.drafter == "oracle"])
        text = [*prompt, *run.token_ids]
        rounds = _fed(drafter, text)
        ready(drafter, target, text)
        once = _fed(drafter, text)
        assert rounds.shape == once.shape
        assert float((rounds - once).abs().max()) < 0.06
        # It could have failed: positions are far apart in it.
        assert float((once[:, 1:] - once[:, :-1]).abs().amax((0, 2)).min()) > 0.15
        if planted == set(range(5)):
            break
    assert planted == set(range(5))


class _Turns:
    """Every other round from one drafter."""

    name, replayable = "turns", False

    def __init__(self, *drafters: str) -> None:
        self.drafters = drafters

    def plan(self, past: Any) -> Plan:
        return Plan(4, self.drafters[len(past.rounds) % len(self.drafters)])

    def more(self, view: Any) -> bool:
        return True


def _fed(drafter: Any, text: list[int]) -> torch.Tensor:
    """Keys and values of every token before the anchor, [layers, tokens, width]."""
    drafter.propose(text, Plan(1), always)  # chains catch up when they are asked
    layers = [
        torch.cat([layer.k, layer.v], -1).flatten(0, 1).flatten(1)[: len(text) - 1].float()
        for layer in drafter.cache.layers.values()
    ]
    return torch.stack(layers)


def test_a_window_is_a_mask_over_pages(workshop: Workshop) -> None:
    """The ring, moved along by whole pages over a long text, against the library's other way."""
    exl3, target = workshop.library, workshop.load("llama")[0]
    drafter = workshop.load("llama", "sliding")[1]
    config = exl3.Config.from_directory(str(workshop.path("sliding")), load_method="python")
    paged = exl3.Model.from_config(config, swa_full=True)
    cache = exl3.Cache(paged, max_num_tokens=1024)
    paged.load(device="cpu")
    other = Exl3Block(paged, cache, "paged")
    other.attach(target)
    drafter.attach(target)
    text = np.random.default_rng(3).integers(0, target.vocab_size, 1010).tolist()
    rows = target.prefill(text, drafter.taps)
    first = 700
    begun = Rows(rows.logits, {tap: states[:first] for tap, states in rows.taps.items()})
    for each in (drafter, other):
        each.start(text[:first], begun)
    assert drafter._rings is not None
    assert other._rings is None
    shifted = set()
    for place in range(first, 1000, 5):
        context = text[: place + 1]
        mine, theirs = (each._block(context).float() for each in (drafter, other))
        assert float((mine - theirs).abs().max()) < 0.02
        shifted.add(drafter._rings.window_beg)
        more = Rows(rows.logits, {tap: s[place : place + 5] for tap, s in rows.taps.items()})
        for each in (drafter, other):
            each.observe(more, range(4))
    assert len(shifted) > 1  # pages have dropped out of the ring


def test_a_tree_of_dflash2_is_verified_by_paths(workshop: Workshop) -> None:
    target, drafter = workshop.load("llama", "dflash2")
    prompt = target.codec.encode(PROMPT)
    policy = FixedTree(BestFirst(6, 3))
    run = generate(target, drafter, prompt, policy=policy, max_new_tokens=20).finish()
    assert run.certificate.certified, run.certificate
    assert run.rounds.accepted.max() >= 2
    assert run.rounds.nodes.max() > run.rounds.drafted.max()
    hybrid, head = workshop.load("hybrid", "mtp")
    with pytest.raises(ValueError, match="chains only"):
        generate(hybrid, head, PROMPT, policy=policy).finish()


def test_a_block_behind_an_earlier_place_leaves_the_text_alone(workshop: Workshop) -> None:
    """Across the end of a page, too."""
    target, drafter = workshop.load("llama", "dflash2")
    text = np.random.default_rng(3).integers(0, target.vocab_size, PAGE + 12).tolist()
    ready(drafter, target, text)
    late = drafter.propose(text, Plan(7), always)
    early = drafter.propose(text[: PAGE - 3], Plan(7), always)
    assert drafter.propose(text, Plan(7), always) == late
    ready(drafter, target, text[: PAGE - 3])
    assert drafter.propose(text[: PAGE - 3], Plan(7), always).tokens == early.tokens


@pytest.mark.parametrize(
    ("name", "draft"),
    [("llama", "dflash2"), ("llama", "sliding"), ("llama", "smaller"), ("hybrid", "mtp")],
)
def test_a_draft_behind_the_caches_end_is_refused(
    workshop: Workshop, name: str, draft: str
) -> None:
    """On a GPU it would be written to whatever lies there."""
    target, drafter = workshop.load(name, draft)
    text = np.random.default_rng(9).integers(0, target.vocab_size, 1024).tolist()
    fits = 1024 - 7 if isinstance(drafter, Exl3Block) else 1024 - 2
    ready(drafter, target, text[:fits])
    assert len(drafter.propose(text[:fits], Plan(2), always)) == 2
    ready(drafter, target, text[: fits + 1])
    with pytest.raises(ValueError, match="this draft reaches 1,025: load it with more tokens"):
        drafter.propose(text[: fits + 1], Plan(2), always)


def test_a_shortened_blocks_pages_are_its_own(workshop: Workshop) -> None:
    """A drafter that drafts two of seven tokens still computes the block of eight."""
    target, whole = workshop.load("llama", "dflash2")
    short = Exl3Block(whole.model, whole.cache, "short", max_k=2)
    short.attach(target)
    text = np.random.default_rng(3).integers(0, target.vocab_size, PAGE + 12).tolist()
    ready(short, target, text)
    late = short.propose(text, Plan(2), always)
    short.propose(text[: PAGE - 3], Plan(2), always)
    assert short.propose(text, Plan(2), always) == late


def test_drafters_refuse_what_does_not_fit(workshop: Workshop) -> None:
    from tests.models import tiny_target

    target, drafter = workshop.load("llama", "dflash2")
    with pytest.raises(ValueError, match="load both with load_exl3"):
        drafter.attach(tiny_target())
    with pytest.raises(ValueError, match="blocks of 7"):
        Exl3Block(drafter.model, drafter.cache, max_k=8)
    late = workshop.library.Cache(drafter.model, max_num_tokens=256)
    with pytest.raises(ValueError, match="before the model's weights"):
        Exl3Block(drafter.model, late)
    late.detach_from_model()
    drafter.attach(target)
    with pytest.raises(RuntimeError, match="has the target's states of 0 tokens"):
        drafter.propose([1, 2, 3], Plan(2), always)


def test_a_pair_that_does_not_fit_is_refused_before_weights_are_read(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def loaded(*args: object, **options: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(workshop.library.Model, "load", loaded)

    def load(target: str, draft: Path, k: int | None = None) -> None:
        assemble(
            workshop.library,
            workshop.path(target),
            draft,
            placing={"device": "cpu"},
            draft_tokens=k,
            reader="python",
        )

    with pytest.raises(ValueError, match="as a drafter of single tokens only"):
        load("llama", workshop.path("hybrid"))
    with pytest.raises(ValueError, match="blocks of 7 tokens"):
        load("llama", workshop.path("dflash2"), 9)
    with pytest.raises(ValueError, match="no MTP head"):
        load("llama", "mtp")
    other = tmp_path / "other"
    shutil.copytree(workshop.path("smaller"), other)
    read = json.loads((other / "tokenizer.json").read_text())
    ids = read["model"]["vocab"]
    first, second = list(ids)[5:7]
    ids[first], ids[second] = ids[second], ids[first]
    (other / "tokenizer.json").write_text(json.dumps(read))
    with pytest.raises(ValueError, match="2 tokens have other ids"):
        load("llama", other)
    narrow = tmp_path / "narrow"
    shutil.copytree(workshop.path("dflash2"), narrow)
    config = json.loads((narrow / "config.json").read_text())
    (narrow / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))
    with pytest.raises(ValueError, match="does not fit llama: DFlash2 hidden size 64"):
        load("llama", narrow)
    (narrow / "config.json").write_text(json.dumps(config | {"architectures": ["Nobody"]}))
    with pytest.raises(ValueError, match=r"exllamav3 cannot read .*: Unknown architecture Nobody"):
        load("llama", narrow)
