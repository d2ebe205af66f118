"""exllamav3's own Generator, watched, on its Python code with CPU operator stand-ins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from specviz.campaign import capture
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import RunClosed, generate
from specviz.exl3.observe import observe_exl3
from specviz.policies import FixedK
from tests.exl3.conftest import PROMPT, Workshop

pytestmark = pytest.mark.exl3

NEW = 24


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        ("llama", None),
        ("llama", "smaller"),
        ("llama", "dflash2"),
        ("llama", "sliding"),
        ("hybrid", "mtp"),
    ],
)
def test_the_generators_output_is_the_loops(
    workshop: Workshop, name: str, draft: str | None
) -> None:
    target, drafter = workshop.load(name, draft)
    ids = target.codec.encode(PROMPT)
    plain = plain_decode(target, ids, NEW)
    trace = observe_exl3(target, [PROMPT, list(ids)], drafter, max_new_tokens=NEW)
    trace.validate()
    assert len(trace.sequences) == 2
    for seq in (0, 1):
        mine = trace.positions[trace.positions.seq == seq]
        assert mine.token_id.tolist() == plain
        rounds = trace.rounds[trace.rounds.seq == seq]
        assert rounds.anchor.iloc[0] == -1
        assert rounds.emitted.sum() == len(plain)
        assert rounds.stop.iloc[-1] in ("eos", "limit")
    assert (trace.rounds.verify_seconds > 0).all()
    assert (trace.rounds.drafted > 0).any() == (draft is not None)
    if draft is not None:
        assert trace.rounds.accepted.max() >= 2
        assert trace.rounds.accepted.min() == 0
    # Live and watched agree on the distributions, too.
    run = generate(target, drafter or _none(), ids, policy=FixedK(0), max_new_tokens=NEW).finish()
    entropy = trace.positions.entropy[trace.positions.seq == 0]
    assert np.abs(entropy.to_numpy() - run.all_stats().entropy).max() < 0.05
    rows = trace.rows[trace.rows.seq == 0]
    assert rows.on_path.sum() == len(plain)


def _none() -> object:
    from specviz.drafters.ngram import NGram

    return NGram()


def test_counts_are_those_of_the_library_but_for_the_cut_round(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specviz.exl3 import observe

    target, drafter = workshop.load("llama", "smaller")
    said = []
    decode = observe._decode

    def kept(*args: object) -> object:
        said.append(decode(*args))
        return said[-1]

    monkeypatch.setattr(observe, "_decode", kept)
    trace = observe_exl3(target, PROMPT, drafter, draft_tokens=4, max_new_tokens=NEW)
    _, _, last = said[0]
    whole = trace.rounds.iloc[:-1]
    cut = trace.rounds.iloc[-1]
    # In the last round the library counts the tokens that it accepts on the way to the limit.
    assert last["accepted_draft_tokens"] == whole.accepted.sum() + cut.accepted
    assert (whole.drafted == 4).all()
    assert (
        last["accepted_draft_tokens"] + last["rejected_draft_tokens"] == trace.rounds.drafted.sum()
    )


@pytest.mark.parametrize("draft", [None, "smaller", "dflash2"])
def test_an_end_of_text_ends_it_as_in_the_loop(
    workshop: Workshop, draft: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, drafter = workshop.load("llama", draft)
    plain = plain_decode(target, target.codec.encode(PROMPT), NEW)
    ends = {at for at in range(4, NEW) if plain[at] not in plain[:at]}
    assert len(ends) >= 3
    lengths = set()
    for at in sorted(ends)[:6]:
        monkeypatch.setattr(target, "eos_ids", frozenset({plain[at]}))
        policy = FixedK(4 if draft else 0)
        run = generate(target, drafter or _none(), PROMPT, policy=policy, max_new_tokens=NEW)
        live = run.finish().trace
        watched = observe_exl3(
            target, PROMPT, drafter, draft_tokens=4 if draft else None, max_new_tokens=NEW
        )
        watched.validate()
        assert watched.positions.token_id.tolist() == live.positions.token_id.tolist()
        assert watched.sequences.finish.tolist() == live.sequences.finish.tolist() == ["eos"]
        assert watched.rounds.stop.iloc[-1] == "eos"
        assert watched.rounds.emitted.sum() == at + 1
        lengths.add(int(watched.rounds.accepted.iloc[-1]))
    assert draft is None or len(lengths) > 1


def test_ngram_and_dynamic_drafts_are_watched(workshop: Workshop) -> None:
    target, drafter = workshop.load("llama", "smaller")
    repeating = "the quick brown fox. the quick brown fox. the quick"
    trace = observe_exl3(
        target, repeating, ngram_match_min=2, draft_tokens=4, max_new_tokens=NEW, timed=False
    )
    assert set(trace.rounds.drafter) == {"ngram"}
    assert np.isnan(trace.rounds.verify_seconds).all()
    dynamic = observe_exl3(target, repeating, drafter, dynamic=True, max_new_tokens=NEW)
    assert set(dynamic.rounds.policy) == {"exllamav3 dynamic"}
    assert dynamic.positions.token_id.tolist() == trace.positions.token_id.tolist()


def test_an_older_run_is_closed_and_a_newer_one_works(workshop: Workshop) -> None:
    target, drafter = workshop.load("hybrid", "mtp")
    run = generate(target, drafter, PROMPT, policy=FixedK(2), max_new_tokens=NEW)
    observe_exl3(target, PROMPT, drafter, max_new_tokens=4)
    with pytest.raises(RunClosed):
        next(run)
    assert "forward" not in vars(target.model)
    again = generate(target, drafter, PROMPT, policy=FixedK(2), max_new_tokens=8).finish()
    assert len(again.token_ids) == 8


def test_what_cannot_be_watched_is_refused(workshop: Workshop) -> None:
    target, drafter = workshop.load("hybrid", "mtp")
    with pytest.raises(ValueError, match="not both"):
        observe_exl3(target, PROMPT, drafter, ngram_match_min=2)
    with pytest.raises(ValueError, match="prompts must name at least one"):
        observe_exl3(target, [])
    ids = np.random.default_rng(0).integers(0, target.vocab_size, 1000).tolist()
    assert len(observe_exl3(target, [ids], drafter, max_new_tokens=17).positions) == 17
    with pytest.raises(ValueError, match="this text reaches 1,025: load it with tokens=1280"):
        observe_exl3(target, [PROMPT, ids], drafter, max_new_tokens=18)  # it would be cut short
    with pytest.raises(ValueError, match="max_draft=40"):
        observe_exl3(target, PROMPT, drafter, draft_tokens=40)
    with pytest.raises(ValueError, match="between 0 and 1"):
        observe_exl3(target, PROMPT, drafter, confidence=2.0)
    with pytest.raises(ValueError, match="for n-grams give ngram_match_min"):
        observe_exl3(target, PROMPT, _none())
    with pytest.raises(ValueError, match="prompts must be a list"):
        observe_exl3(target, None)


def test_only_what_load_exl3_returned_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    from specviz.exl3 import observe
    from tests.models import tiny_target

    def imported(name: str) -> None:
        raise AssertionError(f"{name} was imported: where it is not compiled that starts a build")

    monkeypatch.setattr(observe, "import_module", imported)
    for target in (None, tiny_target()):
        with pytest.raises(ValueError, match="watches a target that load_exl3 returned"):
            observe_exl3(target, PROMPT)


def test_the_generator_gives_back_what_it_held(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints of recurrent states may be gigabytes; a cycle of references keeps it alive."""
    target, drafter = workshop.load("hybrid", "mtp")
    theirs = workshop.library.Generator.__init__
    made = []

    def init(self: object, **given: object) -> None:
        theirs(self, recurrent_checkpoint_interval=256, **given)
        made.append(self)

    monkeypatch.setattr(workshop.library.Generator, "__init__", init)
    ids = np.random.default_rng(2).integers(0, target.vocab_size, 300).tolist()
    observe_exl3(target, [ids], drafter, max_new_tokens=4)
    (generator,) = made
    assert len(generator.recurrent_cache) == 0
    assert generator.draft_ids_pinned is None
    assert not generator.staging_buffers


@pytest.mark.parametrize(
    ("name", "draft"),
    [("llama", "smaller"), ("llama", "dflash2"), ("llama", "sliding"), ("hybrid", "mtp")],
)
def test_the_librarys_own_drafts_are_those_of_a_capture(
    workshop: Workshop, name: str, draft: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its drafter, fed its own way, drafts what specviz's adapter of it drafts at that place."""
    from specviz.exl3 import observe

    target, drafter = workshop.load(name, draft)
    captured = capture([PROMPT], target, drafter, k=5, max_new_tokens=64, progress=False)
    drafts = captured.drafts.set_index("anchor")
    kept, decode = [], observe._decode
    monkeypatch.setattr(observe, "_decode", lambda *given: kept.append(decode(*given)) or kept[-1])
    ids, lengths, compared = list(target.codec.encode(PROMPT)), set(), 0
    for k in (1, 3, 5):
        watched = observe_exl3(target, PROMPT, drafter, draft_tokens=k, max_new_tokens=64)
        assert watched.positions.token_id.tolist() == captured.positions.token_id.tolist()
        # The first round starts before the output, the last one is cut.
        for anchor, round_ in list(zip(watched.rounds.anchor, kept.pop()[1], strict=True))[1:-1]:
            said = list(round_.draft)
            # The library may draft a row of the head that is no token; specviz does not.
            n = next((i for i, token in enumerate(said) if token >= target.vocab_size), k)
            own = drafts.token.loc[anchor].tolist()
            same = next((i for i in range(n) if said[i] != own[i]), n)
            if same < n:
                context = [*ids, *captured.positions.token_id[: anchor + 1]]
                assert _tied(target, drafter, context, own[:same], said[same], own[same])
            assert len(round_.tokens) - 1 == min(drafts.matched.loc[anchor], same)
            lengths.add(len(round_.tokens) - 1)
            compared += same
    assert compared > 50
    assert len(lengths) > 2


def _tied(target: Any, drafter: Any, context: list[int], before: list[int], *two: int) -> bool:
    """Whether a drafter of single tokens gives two tokens the same logit, to fp16's last place."""
    drafter.start(context[:-1], target.prefill(context[:-1], drafter.taps))
    with torch.inference_mode():
        row = drafter._rows(context, len(before) + 1, (*before, two[0]))[-1]
    return float((row[two[0]] - row[two[1]]).abs()) <= 2 * 2**-8
