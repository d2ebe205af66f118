"""Benchmarks as ratios, each measured side by side in this one run: `make bench`.

Machines are noisy, so nothing here passes or fails; every line says what it is compared with.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import specviz as sv
from specviz.analysis.replays.replay import replay
from specviz.engine.loop import generate
from tests.bench import scale, widgets
from tests.bench.scale import repeated_trace
from tests.synthetic import trace_of

TOKENS, K, REPEATS = 64, 15, 3


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def line(what: str, ratio: float, aim: str) -> None:
    print(f"{what:<66} {ratio:6.2f}   (aim: {aim})", flush=True)


def capture_against_generate() -> None:
    """Capture's seconds over transformers' plain greedy decoding of the same tokens."""
    target = sv.load_target("smollm2-135m")
    drafters = {name: sv.load_drafter(name, target) for name in ("ngram", "self-quant")}
    prompts = sv.prompts(content_type=["code", "prose"], limit=1)
    ids = [target.codec.encode(prompt.messages) for prompt in prompts]
    # The lookahead is part of the work: plain decoding is given the same tokens to make.
    lengths = [
        s.n_output + len(s.lookahead)
        for s in sv.capture(
            prompts, target, drafters["ngram"], max_new_tokens=TOKENS, progress=False
        ).sequences.itertuples()
    ]

    def plain() -> None:
        for prompt, n in zip(ids, lengths, strict=True):
            target.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt)),
                max_new_tokens=n,
                min_new_tokens=n,
                do_sample=False,
            )

    def ours(name: str) -> Callable[[], object]:
        return lambda: sv.capture(
            prompts, target, drafters[name], k=K, max_new_tokens=TOKENS, progress=False
        )

    jobs = {"plain": plain, "ngram": ours("ngram"), "self-quant": ours("self-quant")}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(REPEATS):
        for name, job in jobs.items():
            seconds[name].append(timed(job))
    median = {name: statistics.median(times) for name, times in seconds.items()}
    print(f"plain decoding by transformers: {sum(lengths) / median['plain']:.1f} tokens/s")
    line("capture with ngram / plain", median["ngram"] / median["plain"], "<= 1.2")
    line(
        "capture with self-quant to K = 15 / plain",
        median["self-quant"] / median["plain"],
        "<= 2.5",
    )


def instrumentation() -> None:
    """Seconds of a live round with and without instrumentation, alternating."""
    target = sv.load_target("smollm2-135m")
    prompt = sv.prompts(content_type="code", limit=1)[0].messages
    for name in ("ngram", "self-quant"):
        drafter = sv.load_drafter(name, target)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(REPEATS + 2):
            for instrument in (True, False):
                run = generate(target, drafter, prompt, max_new_tokens=48, instrument=instrument)
                seconds[instrument].append(timed(run.finish) / len(run.log))
        ratio = statistics.median(seconds[True]) / statistics.median(seconds[False])
        line(f"instrumented / bare live round, {name}, k = 7", ratio, "<= 1.05")


def replay_of_a_million() -> None:
    """Seconds to replay 1M positions for k = 1..15: no ratio, an absolute budget."""
    rng = np.random.default_rng(0)
    trace = trace_of([np.minimum(rng.geometric(0.4, 96) - 1, K) for _ in range(200)])
    many = repeated_trace(trace, 53)
    n = len(many.positions)

    def sweep() -> None:
        for k in range(1, K + 1):
            _ = replay(many, sv.FixedK(k)).tokens_per_round

    line(f"seconds to replay {n:,} positions for k = 1..15", timed(sweep), "<= 2")


def saving() -> None:
    """Seconds to write and read a trace, per million positions."""
    rng = np.random.default_rng(0)
    trace = repeated_trace(
        trace_of([np.minimum(rng.geometric(0.4, 96) - 1, K) for _ in range(100)]), 10
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        write, read = timed(lambda: trace.save(path)), timed(lambda: sv.load_trace(path))
        size = sum(file.stat().st_size for file in path.iterdir())
    line("seconds to read a trace / seconds to write it", read / write, "below 1")
    print(f"bytes on disk per anchor: {size / len(trace.drafts):.0f}")


if __name__ == "__main__":
    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} torch thread(s)")
    replay_of_a_million()
    saving()
    scale.main()
    widgets.main()
    instrumentation()
    capture_against_generate()
