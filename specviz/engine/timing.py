"""What drafting and verifying cost on this machine, measured side by side in one run."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from tqdm.auto import tqdm

from specviz.cost import CostModel, tree_key
from specviz.engine.loop import generate
from specviz.engine.protocols import Draft, Drafter, Target, check_drafter
from specviz.engine.tree_drafts import Trie
from specviz.engine.tree_shapes import Shape
from specviz.policies import FixedK, Plan
from specviz.refuse import whole

#: Draft lengths and row counts that are timed; the ones between are interpolated.
_LENGTHS = (1, 2, 4, 8, 15)
_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_TREE_ROWS = (24, 32, 48, 64, 96, 129)


def measure_cost(
    target: Target,
    drafters: Drafter | Sequence[Drafter],
    *,
    trees: Sequence[Shape | Trie] | Mapping[str, Sequence[Shape | Trie]] = (),
    context: int = 160,
    repeats: int = 7,
    progress: bool = True,
) -> CostModel:
    """Time drafts of 1..K tokens, trees and verifications of 1..16 rows or more here.

    Parameters
    ----------
    target, drafters
        As for `capture`.
    trees
        Tree shapes to time, for every drafter or by its name: several budgets of one builder
        make its curve over nodes, straight between them. Verifications are then timed for as
        many rows, over the chain that has them: a tree's mask makes no difference here.
    context
        Tokens in the text that the rounds are timed after.
    repeats
        Each size is timed this often, all sizes once per pass, so that a slow moment of the
        machine touches them alike; the medians are kept.

    Returns
    -------
    CostModel
        Seconds; `overhead` is the median time of a live round outside drafting and
        verification, instrumentation included.

    Examples
    --------
    >>> cost = sv.measure_cost(target, drafter)                  # doctest: +SKIP
    >>> cost.verify_seconds(8) / cost.plain_seconds              # doctest: +SKIP
    """
    context, repeats = whole("context", context, least=2), whole("repeats", repeats, least=1)
    several = list(drafters) if isinstance(drafters, Sequence) else [drafters]
    if not several:
        raise ValueError("Give at least one drafter.")
    for drafter in several:
        check_drafter(drafter)
    shapes = {
        drafter.name: tuple(trees.get(drafter.name, ()) if isinstance(trees, Mapping) else trees)
        for drafter in several
    }
    largest = max((shape.nodes + 1 for each in shapes.values() for shape in each), default=0)
    if largest and getattr(target, "trees_as_paths", False):
        raise ValueError(
            f"{target.name} verifies a tree as a batch of its paths, whose cost is not that of as "
            "many rows: time chains only, or trees on a target with a tree mask."
        )
    most = getattr(target, "max_draft", None)  # recurrent layers set one
    rows = [n for n in _ROWS if most is None or n <= most + 1]
    sizes = (*rows, *(n for n in _TREE_ROWS if n < largest)) + (largest,) * (largest > _ROWS[-1])
    rng = np.random.default_rng(0)
    # A text that repeats itself, so that an n-gram drafter has something to copy.
    phrase = rng.integers(0, target.vocab_size, max(context // 4, 1)).tolist()
    text = (phrase * 5)[:context]
    taps = sorted({tap for drafter in several for tap in drafter.taps})
    for drafter in several:
        drafter.attach(target)
    begun = target.prefill(text[:-1], taps)
    for drafter in several:
        drafter.start(text[:-1], begun)

    jobs: dict[tuple[str, int], Callable[[], object]] = {
        ("verify", n): _verify_job(target, text[-1], n) for n in sizes
    }
    for drafter in several:
        for k in _lengths(drafter):
            jobs[drafter.name, k] = _draft_job(drafter, text, Plan(k))
        for shape in shapes[drafter.name]:
            key = tree_key(drafter.name, shape.builder), shape.nodes
            jobs[key] = _draft_job(drafter, text, Plan(shape.depth, tree=shape))
    seconds: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
    with tqdm(
        total=(repeats + 1) * len(jobs), unit="timing", desc="measure cost", disable=not progress
    ) as bar:
        for repeat in range(repeats + 1):
            for job, work in jobs.items():
                target.synchronize()
                began = time.perf_counter()
                work()
                target.synchronize()
                if repeat:  # the first pass warms caches up
                    seconds[job].append(time.perf_counter() - began)
                bar.update(1)
    median = {job: float(np.median(times)) for job, times in seconds.items()}
    verify = _interpolated(median, "verify", sizes)
    low, high = np.percentile(seconds["verify", 1], [25, 75])
    timed = {d.name: _lengths(d) for d in several} | {
        tree_key(name, builder): sorted(s.nodes for s in each if s.builder == builder)
        for name, each in shapes.items()
        for builder in {shape.builder for shape in each}
    }
    draft = {name: (0.0, *_interpolated(median, name, at)) for name, at in timed.items()}
    return CostModel(
        name="this machine",
        provenance="measured here",
        verify=tuple(verify),
        draft=draft,
        overhead=_overhead(target, several[0], text),
        simulated=tuple(drafter.name for drafter in several if drafter.simulated_cost),
        note=(
            f"{target.name}, {target.dtype} on {target.device} ({platform.machine()}, "
            f"{torch.get_num_threads()} thread(s)), medians of {repeats} after {context} tokens; "
            f"the middle half of the plain steps took {1e3 * low:.3g} to {1e3 * high:.3g} ms"
        ),
    )


def _verify_job(target: Target, anchor: int, rows: int) -> Callable[[], object]:
    draft = Draft.chain(anchor, [anchor] * (rows - 1))
    return lambda: target.verify(draft)


def _draft_job(drafter: Drafter, text: Sequence[int], plan: Plan) -> Callable[[], object]:
    return lambda: drafter.propose(text, plan, lambda view: True)


def _lengths(drafter: Drafter) -> list[int]:
    longest = min(drafter.max_k, _LENGTHS[-1])
    return sorted({k for k in _LENGTHS if k < longest} | {longest})


def _interpolated(
    median: dict[tuple[str, int], float], what: str, sizes: Sequence[int]
) -> list[float]:
    every = np.arange(1, sizes[-1] + 1)
    return np.interp(every, sizes, [median[what, size] for size in sizes]).tolist()


def _overhead(target: Target, drafter: Drafter, text: Sequence[int]) -> float:
    """Median seconds of a live round outside drafting and verification."""
    if drafter.name.startswith("oracle"):
        return 0.0  # it would have to be told the answer first
    run = generate(target, drafter, text, policy=FixedK(min(4, drafter.max_k)), max_new_tokens=32)
    times = [each.other_seconds for each in run.finish().log]
    return float(np.median(times)) if times else 0.0
