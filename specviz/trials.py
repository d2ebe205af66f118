"""Live runs of many prompts in one trace: what no replay of a greedy capture can tell.

A lossy rule, or a sampled one, writes a text of its own, so that every setting has to be run:
one `run_prompts` per setting, and `specviz.analysis.drift_table` for what it gained and gave up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm.auto import tqdm

from specviz.campaign import named_prompts, prompts_left
from specviz.engine.acceptance import Greedy
from specviz.engine.capture import Tables
from specviz.engine.loop import Run, generate
from specviz.engine.protocols import Acceptance, Drafter, Target
from specviz.policies import FixedK, Policy
from specviz.prompt_set import Prompt, prompt_seed
from specviz.refuse import whole
from specviz.trace import Trace, TraceError, TraceMeta, load_trace
from specviz.trace.schema import table_schemas
from specviz.trace.store import META, TraceWriter, read_folder


def run_prompts(
    prompts: Iterable[Prompt] | Sequence[Any],
    target: Target,
    drafter: Drafter | Mapping[str, Drafter],
    *,
    policy: Policy = FixedK(7),  # noqa: B008 - frozen, and the default is worth showing
    acceptance: Acceptance = Greedy(),  # noqa: B008
    max_new_tokens: int = 96,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = True,
    progress: bool = True,
) -> Trace:
    """Generate an answer to every prompt, live, and return all of them as one trace.

    Parameters
    ----------
    prompts
        From `specviz.prompts()`, or anything `generate` takes as a prompt.
    target, drafter, policy, acceptance, max_new_tokens
        As for `generate`: the same for all prompts.
    seed
        Recorded in the trace. Every prompt is generated with a seed of its own, made of this
        one and the prompt's id: see `prompt_seed`.
    out
        Folder to write to, one sequence at a time; a killed run loses at most the sequence in
        flight. None keeps the trace in memory.
    resume
        Continue what `out` already holds; sequences are recognised by prompt id, and the
        trace returned is everything the folder then holds.
    progress
        Show a bar; its unit is the prompt.

    Returns
    -------
    Trace
        Validated, of kind "run", with the tables `sequences`, `positions`, `rounds` and `rows`:
        each sequence is what `generate` gives for that prompt and its seed.

    Raises
    ------
    ValueError
        For an empty prompt list, two prompts with one id, and as `generate`.
    TraceError
        When `out` holds something else than these runs: another trace, or other settings.

    Notes
    -----
    Same seed, same output: order and number of the prompts do not matter, and an interrupted
    run ends with the trace of an uninterrupted one. Only the seconds differ.

    Examples
    --------
    >>> from specviz.drafters.markov import MarkovDrafter
    >>> from specviz.engine.lossy import TopM
    >>> from specviz.targets.toy import MarkovModel, ToyTarget
    >>> chain = MarkovModel.random(8, seed=1)
    >>> other = MarkovDrafter(MarkovModel.random(8, seed=2))
    >>> rule = TopM(8)                                           # whatever is drafted is kept
    >>> trace = run_prompts(
    ...     ["abc", "hgf"], ToyTarget(chain), other, acceptance=rule, max_new_tokens=17,
    ...     progress=False,
    ... )
    >>> trace.rounds.emitted.tolist(), trace.meta.acceptance, trace.meta.lossy
    ([8, 8, 8, 8], 'top-8', True)
    """
    tasks = named_prompts(prompts)
    seed = whole("seed", seed, least=0)
    run = partial(
        generate,
        target,
        drafter,
        policy=policy,
        acceptance=acceptance,
        max_new_tokens=max_new_tokens,
    )
    # A run that has only been started says all there is to say of the settings.
    meta = dataclasses.replace(run(tasks[0].messages).trace.meta, seed=seed)

    def make(todo: list[tuple[int, Prompt]], keep: Callable[[int, Tables], None]) -> None:
        for seq, task in tqdm(todo, unit="prompt", desc=acceptance.name, disable=not progress):
            done = run(task.messages, seed=prompt_seed(seed, task.id)).finish()
            keep(seq, _tables(done, seq, task))

    if out is None:
        parts: dict[int, Tables] = {}
        make(list(enumerate(tasks)), parts.__setitem__)
        tables = {
            name: pa.concat_tables([part[name] for part in parts.values()])
            for name in table_schemas(meta.k)
        }
        return Trace(meta, tables).validate()
    _check_same(Path(out), meta, policy)
    with TraceWriter(out, meta, resume).writing() as writer:
        make(prompts_left(tasks, writer, target), writer.add)
        writer.finish()
    return load_trace(out)


def _tables(run: Run, seq: int, prompt: Prompt) -> Tables:
    """Every table of one finished run, empty ones too, under the prompt's number and name."""
    trace = run.trace
    tables = {name: trace.table(name) for name in table_schemas(trace.meta.k)}
    named = {"seq": seq, "prompt_id": prompt.id, "content_type": prompt.content_type}
    for name, table in tables.items():
        for column, value in named.items():
            place = table.schema.get_field_index(column)
            if place >= 0:
                field = table.schema.field(column)
                values = pa.array([value] * table.num_rows, field.type)
                tables[name] = table = table.set_column(place, field, values)
    return tables


def _check_same(folder: Path, meta: TraceMeta, policy: Policy) -> None:
    """Refuse a folder whose runs had another rule or policy; the writer checks the rest."""
    if not (folder / META).exists():
        return
    old, tables = read_folder(folder)
    if old.kind != meta.kind:
        raise TraceError(f"{folder} holds a {old.kind}, not live runs: choose another folder.")
    rounds = tables["rounds"]["policy"].to_pylist() if "rounds" in tables else []
    for what, before, now in (
        ("acceptance rule", {old.acceptance}, meta.acceptance),
        ("policy", set(rounds), policy.name),
    ):
        if before - {now}:
            raise TraceError(
                f"{folder} was run with another {what} ({', '.join(sorted(before))}), not {now}: "
                "choose another folder, or the same settings to resume."
            )
