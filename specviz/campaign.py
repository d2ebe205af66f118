"""A capture of many prompts: resumed, spread over workers, written as it goes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm.auto import tqdm

from specviz.cost import CostModel
from specviz.engine.acceptance import Greedy, SampleMatch
from specviz.engine.capture import Tables, capture_one
from specviz.engine.inputs import check_prompt
from specviz.engine.protocols import Drafter, Target, check_drafter
from specviz.engine.record import MAX_K, storable, trace_meta
from specviz.engine.sampling import GREEDY, Sampling
from specviz.engine.tree_capture import Shapes, shapes_of, trees_meta
from specviz.engine.tree_drafts import Trie
from specviz.engine.tree_shapes import Shape
from specviz.prompt_set import Prompt
from specviz.refuse import whole
from specviz.trace import Trace, TraceError, load_trace
from specviz.trace.store import TraceWriter
from specviz.zoo import load_drafter, load_target

TargetSource = Target | str | Callable[[], Target]
DrafterSource = Drafter | str | Callable[[], Drafter]
#: k, max_new_tokens, the tree shapes of each drafter, how the target's tokens are chosen, seed.
Asked = tuple[int, int, dict[str, tuple[Shape | Trie, ...]], Sampling, int]


def capture(
    prompts: Iterable[Prompt] | Sequence[Any],
    target: TargetSource,
    drafters: DrafterSource | Sequence[DrafterSource],
    *,
    k: int = MAX_K,
    trees: Shapes | Mapping[str, Shapes] = (),
    sampling: Sampling = GREEDY,
    max_new_tokens: int = 96,
    out: str | Path | None = None,
    resume: bool = True,
    seed: int = 0,
    cost_models: CostModel | Sequence[CostModel] = (),
    executor: Executor | None = None,
    progress: bool = True,
) -> Trace:
    """Decode every prompt and record the target and every drafter at every position.

    Parameters
    ----------
    prompts
        From `specviz.prompts()`, or anything `generate` takes as a prompt.
    target, drafters
        Models from `load_target` and `load_drafter`. With an `executor`: names known to
        them, or picklable functions without arguments, loaded once per worker.
    k
        Longest draft asked for; a drafter with a smaller `max_k` is asked for that.
    trees
        Shapes of token trees to grow at every anchor, such as `BestFirst(64, depth=7)`; for
        every drafter, or as a mapping from drafter names to shapes. A nested shape replays at
        every smaller budget, too: give the largest.
    sampling
        How the target's tokens are chosen: greedily, or drawn, as `Sampling()` (temperature 1).
        p and q are then both shaped by it in the columns that follow the output (`path_logq`,
        `overlap`, `kl`, and `logp_sampled` of positions), as F7.6 wants them; drafts stay the
        drafter's likeliest tokens.
    max_new_tokens
        Output tokens at most. Decoding goes on for k tokens past it, so that no draft is cut.
    out
        Folder to write to, one sequence at a time; a killed capture loses at most the
        sequence in flight. None keeps the trace in memory.
    resume
        Continue what `out` already holds; sequences are recognised by prompt id, and the
        trace returned is everything the folder then holds.
    seed
        Recorded; a sampled output is drawn with `prompt_seed(seed, prompt id)`.
    cost_models
        From `measure_cost`; kept in `trace.json` for the report.
    executor
        Any concurrent.futures.Executor (process pools must spawn, not fork); results are
        written here, in this process.

    Returns
    -------
    Trace
        Validated, with the tables `sequences`, `positions`, `drafts` and, if asked, `trees`.

    Raises
    ------
    ValueError
        For an empty prompt list, two prompts with one id, k below 1, a tree that a drafter
        cannot grow, or models given as objects together with an executor.
    TraceError
        When `out` holds a capture with other settings.

    Notes
    -----
    Source: F7.5 (exhaustive replay, of greedy captures), F7.6 (of sampled ones).

    Examples
    --------
    >>> from specviz.drafters.markov import MarkovDrafter
    >>> from specviz.targets.toy import MarkovModel, ToyTarget
    >>> chain = MarkovModel.random(8, seed=1)
    >>> trace = capture(["abc"], ToyTarget(chain), MarkovDrafter(chain), progress=False)
    >>> bool((trace.drafts.matched == 15).all())                 # a perfect drafter
    True
    """
    tasks = named_prompts(prompts)
    sources = _listed(drafters)
    k = whole("k", k, least=1)
    max_new_tokens = whole("max_new_tokens", max_new_tokens, least=1)
    seed = whole("seed", seed, least=0)
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling is a Sampling, as Sampling(temperature=1), not {sampling!r}.")
    costs = [cost_models] if isinstance(cost_models, CostModel) else list(cost_models)
    if executor is not None:
        _check_travels(executor, (target, *sources))
    models = _Models.load(target, sources)
    shapes = shapes_of(trees, models.drafters, k)
    meta = dataclasses.replace(
        trace_meta("capture", models.target, models.drafters, max_new_tokens, seed, k),
        trees=trees_meta(shapes),
        sampling=dataclasses.asdict(sampling),
        acceptance=Greedy.name if sampling.greedy else SampleMatch.name,
        cost_models=tuple(cost.to_dict() for cost in costs),
    )

    asked = (k, max_new_tokens, shapes, sampling, seed)

    def make(todo: list[tuple[int, Prompt]], keep: Callable[[int, Tables], None]) -> None:
        total = len(todo) * max_new_tokens
        with tqdm(total=total, unit="pos", desc="capture", disable=not progress) as bar:
            if executor is None:
                for seq, task in todo:
                    keep(seq, models.capture(seq, task, asked, bar.update))
            else:
                _spread(executor, target, sources, todo, asked, keep, bar)

    if out is None:
        parts: dict[int, Tables] = {}
        make(list(enumerate(tasks)), parts.__setitem__)
        ordered = [parts[seq] for seq in sorted(parts)]
        tables = {
            name: pa.concat_tables([part[name] for part in ordered]).unify_dictionaries()
            for name in ordered[0]
        }
        return Trace(meta, tables).validate()
    with TraceWriter(out, meta, resume).writing() as writer:
        make(prompts_left(tasks, writer, models.target), writer.add)
        writer.finish()
    return load_trace(out)


def prompts_left(
    tasks: list[Prompt], writer: TraceWriter, target: Target
) -> list[tuple[int, Prompt]]:
    """What the folder does not hold yet, numbered after what it does."""
    done = writer.done()
    for task in tasks:
        if task.id in done and storable(target.codec.render(task.messages)) != done[task.id][1]:
            raise TraceError(
                f"{writer.folder} holds another prompt under the id {task.id!r}: rename one of "
                "the two, or choose another folder."
            )
    first = max((seq for seq, _ in done.values()), default=-1) + 1
    return list(enumerate((task for task in tasks if task.id not in done), first))


@dataclasses.dataclass
class _Models:
    """A target with its drafters attached."""

    target: Target
    drafters: dict[str, Drafter]

    @classmethod
    def load(cls, target: Any, sources: Sequence[Any]) -> _Models:
        if isinstance(target, str):
            target = load_target(target)
        elif _factory(target):
            target = target()
        if not isinstance(target, Target):
            raise ValueError(f"{target!r:.60} is not a target: load one with load_target(name).")
        drafters: dict[str, Drafter] = {}
        for source in sources:
            if isinstance(source, str):
                source = load_drafter(source, target)
            elif _factory(source):
                source = source()
            check_drafter(source)
            if source.name in drafters:
                raise ValueError(f"Two drafters are called {source.name!r}: rename one (name=).")
            source.attach(target)
            drafters[source.name] = source
        return cls(target, drafters)

    def capture(
        self,
        seq: int,
        prompt: Prompt,
        asked: Asked,
        tick: Callable[[int], Any] = lambda n: None,
    ) -> Tables:
        return capture_one(self.target, self.drafters, seq, prompt, *asked, tick)


def _listed(drafters: Any) -> tuple[Any, ...]:
    several = isinstance(drafters, Sequence) and not isinstance(drafters, str)
    sources = tuple(drafters) if several else (drafters,)
    if not sources:
        raise ValueError("Give at least one drafter.")
    return sources


def _check_travels(executor: Executor, sources: tuple[Any, ...]) -> None:
    """Refuse what would fail, or hang, in a worker."""
    if not all(isinstance(source, str) or _factory(source) for source in sources):
        raise ValueError(
            "With an executor, name the target and drafters or give picklable functions that "
            "load them: a loaded model cannot travel to a worker."
        )
    context: Any = getattr(executor, "_mp_context", None)
    if isinstance(executor, ProcessPoolExecutor) and context.get_start_method() == "fork":
        raise ValueError(
            "A forked worker hangs inside torch: make the pool with "
            "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))."
        )


def _factory(source: Any) -> bool:
    return callable(source) and not hasattr(source, "name")


_loaded: dict[Any, _Models] = {}  # one worker process keeps its models


def _worker(
    target: Any, sources: tuple[Any, ...], seq: int, prompt: Prompt, asked: Asked
) -> tuple[int, Tables]:
    key = (target, sources)
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = _Models.load(target, sources)
    return seq, _loaded[key].capture(seq, prompt, asked)


def _spread(
    executor: Executor,
    target: Any,
    sources: tuple[Any, ...],
    todo: list[tuple[int, Prompt]],
    asked: Asked,
    keep: Callable[[int, Tables], None],
    bar: Any,
) -> None:
    """Hand one prompt to a worker at a time; write what comes back as it comes."""
    waiting: set[Future[tuple[int, Tables]]] = {
        executor.submit(_worker, target, sources, seq, prompt, asked) for seq, prompt in todo
    }
    try:
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                keep(*future.result())
                bar.update(asked[1])
    finally:
        for future in waiting:
            future.cancel()


def _id_of(prompt: object) -> str:
    """An id that stays with the prompt, wherever it stands in the list."""
    return f"prompt-{hashlib.sha256(repr(prompt).encode()).hexdigest()[:10]}"


def named_prompts(prompts: Iterable[Any]) -> list[Prompt]:
    """Prompts with unique ids; plain text, messages or ids get one and the type "user"."""
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        raise ValueError("prompts is a list of prompts: put a single one in brackets.")
    named = [
        each if isinstance(each, Prompt) else Prompt(_id_of(each), "user", each) for each in prompts
    ]
    if not named:
        raise ValueError("No prompts to capture.")
    for prompt in named:
        check_prompt(prompt.messages)
    ids = [prompt.id for prompt in named]
    twice = next((i for i in ids if ids.count(i) > 1), None)
    if twice is not None:
        raise ValueError(f"Two prompts have the id {twice!r}: ids name sequences in the trace.")
    return named
