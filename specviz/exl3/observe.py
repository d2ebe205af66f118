"""`observe_exl3`: exllamav3's own Generator, its production path, recorded into a trace."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from specviz.engine.acceptance import SampleMatch
from specviz.engine.inputs import check_prompt
from specviz.engine.observe import concatenate
from specviz.engine.record import positions_table, sequences_table, trace_meta, vocabulary_table
from specviz.engine.sampling import Sampling
from specviz.exl3.recorder import Watched, recorder
from specviz.prompt_set import Prompt, prompt_seed
from specviz.refuse import listed, shown, whole
from specviz.trace.schema import table_schemas
from specviz.trace.trace import Trace

if TYPE_CHECKING:
    from specviz.exl3.load import Exl3Drafter
    from specviz.targets.exl3 import Exl3Target

#: The policy's name in the trace's `rounds` when the library chooses the draft's length.
_DYNAMIC = "exllamav3 dynamic"


def observe_exl3(
    target: Exl3Target,
    prompts: Sequence[Any] | str,
    drafter: Exl3Drafter | None = None,
    *,
    draft_tokens: int | None = None,
    dynamic: bool = False,
    confidence: float = 0.4,
    ngram_match_min: int = 0,
    sampling: Sampling = Sampling(0.0),  # noqa: B008 - frozen, and the default is worth showing
    max_new_tokens: int = 96,
    seed: int = 0,
    timed: bool = True,
) -> Trace:
    """Let exllamav3's Generator decode prompts and record every round of it.

    The library's own drafting, dynamic windows and sampler run as they do in production: a
    token is sampled per verified row and drafts are kept while they are equal to it
    (sample-and-match; lossless, and no use of the draft's q). Prompts are run one after another.

    Parameters
    ----------
    target, drafter
        From `load_exl3`; no drafter for plain decoding or the library's n-gram drafts.
    prompts
        From `specviz.prompts`, or texts, messages or token ids; one text may be given alone.
    draft_tokens
        Tokens per draft; by default the library's choice.
    dynamic, confidence
        The library's dynamic draft length, and its target.
    ngram_match_min
        With no drafter: shortest suffix for the library's n-gram drafts, 0 for none.
    sampling
        Greedy by default.
    max_new_tokens
        Output tokens per prompt, at most.
    timed
        Wait for the GPUs around drafting and verifying, so that the seconds mean something;
        this takes away what the library overlaps. Without it seconds are NaN.

    Returns
    -------
    Trace
        Rounds start at anchor -1: the library's first round starts at the prompt's end. Tokens
        of a round cut by an end of text or the limit are neither accepted nor rejected there,
        while the library counts them as rejected. On a hybrid the library ends a round
        where it keeps a checkpoint of the state, thousands of tokens apart, match or no match.

    Raises
    ------
    ValueError
        When a prompt or a number is wrong, or the draft is longer than the target was loaded
        for.

    Notes
    -----
    Not verified on T4: what ran is the library's Python code with CPU operator stand-ins.

    Examples
    --------
    >>> target, drafter = load_exl3(folder, draft="mtp")          # doctest: +SKIP
    >>> trace = observe_exl3(target, sv.prompts(limit=2), drafter) # doctest: +SKIP
    """
    _check_loaded(target, drafter)
    asked = _asked([prompts] if isinstance(prompts, str) else listed("prompts", prompts))
    max_new_tokens = whole("max_new_tokens", max_new_tokens, 1)
    ngram_match_min = whole("ngram_match_min", ngram_match_min, 0)
    if drafter is not None and ngram_match_min:
        raise ValueError("Give a drafter or ngram_match_min, not both.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is a share between 0 and 1, not {confidence}.")
    k = _window(target, drafter, draft_tokens, ngram_match_min)
    for prompt in asked:  # the library would end the answer early, without a word
        target.check_room(len(target.codec.encode(prompt.messages)) + max_new_tokens + 1 + k)
    exl3: Any = import_module("exllamav3")
    if drafter is not None:
        drafter.attach(target)  # it forgets its text: its cache is the generator's from here on
    with target.lent() as model:
        generator = recorder(exl3.Generator)(
            vocab_size=target.vocab_size,
            sampling=sampling,
            wait=target.synchronize if timed else None,
            model=model,
            cache=target.cache,
            tokenizer=exl3.Tokenizer.from_config(model.config),
            draft_model=None if drafter is None else drafter.model,
            draft_cache=None if drafter is None else drafter.cache,
            num_draft_tokens=k or None,
            dynamic_draft_tokens=dynamic,
            draft_confidence=confidence,
            ngram_match_min=ngram_match_min,
            max_chunk_size=-(-target.chunk // 256) * 256,
        )
        try:
            done = [
                _decode(exl3, generator, target, prompt, sampling, max_new_tokens, seed)
                for prompt in asked
            ]
        finally:
            generator.close()
            if drafter is not None and drafter.model.caps.get("recurrent_states"):
                drafter.cache.reset_states()
    name = drafter.name if drafter is not None else ("ngram" if ngram_match_min else "none")
    policy = _DYNAMIC if dynamic else f"exllamav3 k={k}"
    return _trace(target, drafter, name, policy, asked, done, k, sampling, max_new_tokens, seed)


def _check_loaded(target: Any, drafter: Any) -> None:
    """Before exllamav3 is imported, which might start its build on a machine without it."""
    from specviz.drafters.exl3_base import Exl3Drafter
    from specviz.targets.exl3 import Exl3Target

    if not isinstance(target, Exl3Target):
        raise ValueError(
            f"observe_exl3 watches a target that load_exl3 returned, not {shown(target)}: record "
            "another target with generate or capture."
        )
    if drafter is not None and not isinstance(drafter, Exl3Drafter):
        raise ValueError(
            f"exllamav3's generator takes a drafter that load_exl3 returned, not {shown(drafter)}: "
            "for n-grams give ngram_match_min, the library's own."
        )


@dataclasses.dataclass(frozen=True)
class _Own:
    """A prompt of the caller's."""

    id: str
    messages: Any
    content_type: str = "own"


def _asked(prompts: list[Any]) -> list[Any]:
    """Prompts as the prompt set has them; others are numbered."""
    asked = []
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, Prompt):
            check_prompt(prompt)
            prompt = _Own(f"prompt-{number}", prompt)
        asked.append(prompt)
    return asked


def _window(target: Exl3Target, drafter: Exl3Drafter | None, asked: int | None, ngram: int) -> int:
    """Tokens per draft."""
    if drafter is None and not ngram:
        return 0
    default = 4 if drafter is None else drafter.max_k
    k = default if asked is None else whole("draft_tokens", asked, 1)
    if target.max_draft is not None and k > target.max_draft:
        raise ValueError(
            f"This hybrid target was loaded for drafts of at most {target.max_draft} tokens: load "
            f"it with max_draft={k}."
        )
    return k


def _decode(
    exl3: Any,
    generator: Any,
    target: Exl3Target,
    prompt: Any,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
) -> tuple[tuple[int, ...], list[Watched], Mapping[str, Any]]:
    """Prompt ids, rounds, and the library's own last word on a job."""
    import torch

    ids = target.codec.encode(prompt.messages)
    # Without max_rq_tokens the job is never requeued, which would cut its rounds in two.
    job = exl3.Job(
        input_ids=torch.tensor([ids]),
        max_new_tokens=max_new_tokens,
        stop_conditions=sorted(target.eos_ids),
        sampler=_sampler(exl3, sampling),
        seed=prompt_seed(seed, prompt.id) % (1 << 31),
    )
    generator.enqueue(job)
    last: Mapping[str, Any] = {}
    while generator.num_remaining_jobs():
        for result in generator.iterate():
            if result["stage"] == "error":
                raise RuntimeError(f"exllamav3 gave up on {prompt.id}: {result.get('error')}")
            if result.get("eos"):
                last = result
    return ids, generator.rounds.pop(job.serial_number), last


def _sampler(exl3: Any, sampling: Sampling) -> Any:
    if sampling.greedy:
        return exl3.GreedySampler()
    return exl3.ComboSampler(
        temperature=sampling.temperature, top_k=sampling.top_k or 0, top_p=sampling.top_p or 1.0
    )


def _trace(
    target: Exl3Target,
    drafter: Exl3Drafter | None,
    name: str,
    policy: str,
    asked: list[Any],
    done: list[tuple[tuple[int, ...], list[Watched], Mapping[str, Any]]],
    k: int,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
) -> Trace:
    drafters = {} if drafter is None else {drafter.name: drafter}
    described = trace_meta(
        "run", target, drafters, max_new_tokens, seed, max(k, 1), exhaustive=False
    )
    names = dict(described.drafters)
    if drafter is None:
        said = "exllamav3's n-gram drafts" if name == "ngram" else "no drafts"
        names[name] = {"k": max(k, 1), "caption": said, "simulated_cost": False, "fingerprint": ""}
    meta = dataclasses.replace(
        described,
        drafters=names,
        sampling=dataclasses.asdict(sampling),
        acceptance="greedy" if sampling.greedy else SampleMatch.name,
    )
    kinds = ("sequences", "positions", "rounds", "rows", "vocabulary")
    parts: dict[str, list[pa.Table]] = {table: [] for table in kinds}
    for seq, (prompt, (ids, rounds, last)) in enumerate(zip(asked, done, strict=True)):
        tokens = [token for each in rounds for token in each.tokens]
        ended = last.get("eos_reason") == "stop_token"
        spent = sum(sum(each.seconds) for each in rounds)
        parts["sequences"].append(
            sequences_table(
                seq,
                prompt.id,
                prompt.content_type,
                target.codec.render(prompt.messages),
                target.codec.decode(tokens),
                ids,
                len(tokens),
                [],
                max_new_tokens,
                "eos" if ended else "limit",
                spent if k == 0 else math.nan,
            )
        )
        stats = concatenate(each.stats.take(range(len(each.tokens))) for each in rounds)
        logp, sampled, rank = (
            [value for each in rounds for value in getattr(each, column)]
            for column in ("logp", "sampled", "rank")
        )
        parts["positions"].append(
            positions_table(seq, tokens, stats, logp, rank, target.codec, sampled)
        )
        named = {*stats.top_ids.ravel().tolist(), *(t for each in rounds for t in each.draft)}
        parts["vocabulary"].append(vocabulary_table(seq, named, tokens, target.codec))
        parts["rounds"].append(_rounds(seq, rounds, name, policy, "eos" if ended else "limit"))
        parts["rows"].append(_rows(seq, rounds))
    return Trace(meta, {table: pa.concat_tables(made) for table, made in parts.items()})


def _rounds(seq: int, rounds: list[Watched], name: str, policy: str, finish: str) -> pa.Table:
    emitted = np.array([len(each.tokens) for each in rounds])
    drafted = np.array([len(each.draft) for each in rounds])
    stops = np.where(emitted - 1 == drafted, "full", "reject").tolist()
    stops[-1] = finish
    draft, verify, other = zip(*(each.seconds for each in rounds), strict=True)
    columns = {
        "seq": [seq] * len(rounds),
        "round": range(len(rounds)),
        "anchor": np.r_[0, np.cumsum(emitted)[:-1]] - 1,
        "policy": [policy] * len(rounds),
        "drafter": [name] * len(rounds),
        "drafted": drafted,
        "accepted": emitted - 1,
        "emitted": emitted,
        "stop": stops,
        "nodes": drafted,
        "draft_seconds": draft,
        "verify_seconds": verify,
        "other_seconds": other,
    }
    return _table("rounds", pd.DataFrame(columns))


def _rows(seq: int, rounds: list[Watched]) -> pa.Table:
    frames = []
    for number, each in enumerate(rounds):
        n = len(each.stats)
        frames.append(
            pd.DataFrame(
                {
                    "seq": seq,
                    "round": number,
                    "node": range(-1, n - 1),
                    "depth": range(n),
                    "on_path": [depth < len(each.tokens) for depth in range(n)],
                    "entropy": each.stats.entropy,
                    "p_max": each.stats.p_max,
                    "margin": each.stats.margin,
                }
            )
        )
    return _table("rows", pd.concat(frames))


def _table(name: str, frame: pd.DataFrame) -> pa.Table:
    schema = table_schemas(1)[name]
    columns = [pa.array(frame[part.name].tolist()).cast(part.type) for part in schema]
    return pa.table(columns, schema=schema)
