"""Whether large traces stay quick: ten million positions from disk, 100,000 anchors in memory.

Every measurement runs in a process of its own, so that its peak memory is its own. Seconds are
given by the clock and of the processor: on a busy machine only the second say anything.
`python -m tests.bench.scale` runs both, and `make bench` does too.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import specviz as sv
from specviz.analysis import entropy_by, speedup_by_k
from specviz.trace.schema import TOP_TARGET, TraceMeta, table_schemas
from specviz.trace.store import META
from tests.synthetic import trace_of

POSITIONS, LENGTH, KINDS = 10_000_000, 1_000, ("code", "prose", "json", "mixed")
ANCHORS, K = 100_000, 15
#: What reading the columns that are needed takes, and no more.
NEEDED = ["seq", "entropy", "ebf2", "p_max", "repeated"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder), POSITIONS)
        size = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
        print(f"{POSITIONS:,} positions on disk: {size:,.0f} MiB")
        bare = child("bare", folder)
        print(f"reading five of their columns with pyarrow alone: {report(bare)}")
        for job, what in (("entropy_by", "entropy and EBF by type"), ("summary", "summary")):
            found = child(job, folder)
            times = found["processor"] / bare["processor"]
            print(f"load_trace, {what}: {report(found)}, {times:.1f}x that (aim: 10 s, 3 GB)")
    found = child("change_k", "")
    print(
        f"{found['anchors']:,} anchors, a change of k: {1e3 * found['bare']:.1f} ms of processor "
        f"for length and speed-up, {1e3 * found['sure']:.1f} ms for the speed-up of every kind of "
        "text with intervals (aim: 50 ms)"
    )


def report(found: dict[str, Any]) -> str:
    return (
        f"{found['clock']:.2f} s ({found['processor']:.2f} s of processor), "
        f"{found['peak'] / 2**30:.2f} GiB at the peak"
    )


def child(job: str, folder: str) -> dict[str, Any]:
    """What one job took, in a new process."""
    command = [sys.executable, "-m", "tests.bench.scale", job, folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run(job: str, folder: str) -> dict[str, Any]:
    clock, processor = time.perf_counter(), time.process_time()
    if job == "bare":
        table = pq.read_table(Path(folder) / "positions.parquet", columns=NEEDED)
        for name in NEEDED:
            table[name].to_numpy()
    elif job == "entropy_by":
        assert len(entropy_by(sv.load_trace(folder))) == len(KINDS)
    elif job == "summary":
        assert len(sv.load_trace(folder).summary()) == len(KINDS)
    else:
        return change_k()
    return {
        "clock": time.perf_counter() - clock,
        "processor": time.process_time() - processor,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def change_k() -> dict[str, Any]:
    """Seconds from one k to another, as a slider asks: medians over k = 1..K."""
    rng = np.random.default_rng(0)
    few = trace_of(
        [np.minimum(rng.geometric(0.4, 500) - 1, K) for _ in range(20)],
        content_types=[KINDS[i % len(KINDS)] for i in range(20)],
    )
    trace = repeated_trace(few, ANCHORS // len(few.drafts))
    cost = sv.t4_like()
    sv.replay(trace, sv.FixedK(1))  # the anchors are read once
    bare, sure = [], []
    for k in range(1, K + 1):
        began = time.process_time()
        found = sv.replay(trace, sv.FixedK(k))
        tokens = found.tokens_per_round * found.n_rounds
        cost.speedup(tokens, found.seconds(cost).sum())
        bare.append(time.process_time() - began)
        began = time.process_time()
        speedup_by_k(trace, cost, ks=[k])
        sure.append(time.process_time() - began)
    return {
        "bare": statistics.median(bare),
        "sure": statistics.median(sure),
        "anchors": len(trace.drafts),
    }


def repeated_trace(trace: sv.Trace, times: int) -> sv.Trace:
    """The same sequences many times over, renumbered, each of a prompt of its own."""
    n = len(trace.sequences)
    tables = {}
    for name in table_schemas(1):
        parts = []
        for i in range(times):
            part = trace.table(name)
            if part.num_rows:
                renewed = {"seq": pa.array(part["seq"].to_numpy() + i * n, pa.int32())}
                if name == "sequences":
                    ids = part["prompt_id"].to_pylist()
                    renewed["prompt_id"] = pa.array([f"{each}/{i}" for each in ids])
                for column, values in renewed.items():
                    at = part.schema.get_field_index(column)
                    part = part.set_column(at, column, values)
            parts.append(part)
        tables[name] = pa.concat_tables(parts).combine_chunks()
    return sv.Trace(trace.meta, tables)


def write_trace(folder: Path, positions: int) -> None:
    """A trace of sequences of `LENGTH` tokens, one row group per million positions."""
    schemas = table_schemas(K)
    many = positions // LENGTH
    for name, schema in schemas.items():
        with pq.ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd") as writer:
            for part in sequences(many) if name == "sequences" else row_groups(name, many):
                writer.write_table(part)
    meta = TraceMeta("capture", True, {"name": "made up"}, {"none": {"k": K}}, K, LENGTH, 0)
    (folder / META).write_text(meta.to_json(), encoding="utf-8")


def sequences(many: int) -> Iterator[pa.Table]:
    names = [f"{KINDS[i % len(KINDS)]}-{i:05d}" for i in range(many)]
    made: dict[str, Any] = {
        "seq": np.arange(many),
        "prompt_id": names,
        "content_type": [name.split("-")[0] for name in names],
        "prompt": ["..."] * many,
        "output": ["..."] * many,
        "prompt_ids": [[1]] * many,
        "lookahead": [[1]] * many,
        "n_prompt": np.ones(many),
        "n_output": np.full(many, LENGTH),
        "max_new_tokens": np.full(many, LENGTH),
        "finish": ["limit"] * many,
        "decode_seconds": np.full(many, np.nan),
    }
    schema = table_schemas(K)["sequences"]
    columns = [pa.array(made[field.name]).cast(field.type) for field in schema]
    yield pa.table(columns, schema=schema)


def row_groups(name: str, many: int) -> Iterator[pa.Table]:
    """Positions; every other table is empty."""
    if name != "positions":
        return
    rng, schema = np.random.default_rng(0), table_schemas(K)["positions"]
    per_group = 1_000_000 // LENGTH
    for first in range(0, many, per_group):
        seq = np.repeat(np.arange(first, min(first + per_group, many)), LENGTH)
        n = len(seq)
        entropy = rng.gamma(0.6, 1.0 + seq % len(KINDS)).astype(np.float32)
        token = rng.integers(0, 50_000, n)
        words = pa.array([f" word{i}" for i in range(200)])
        best = (rng.integers(0, 50_000, n * TOP_TARGET), -rng.gamma(1.0, 3.0, n * TOP_TARGET))
        made: dict[str, Any] = {
            "seq": seq,
            "t": np.tile(np.arange(LENGTH), n // LENGTH),
            "token_id": token,
            "text": words.take(pa.array(token % 200)),
            "entropy": entropy,
            "ebf": np.exp(entropy),
            "ebf2": np.exp(0.8 * entropy),
            "p_max": np.exp(-0.6 * entropy),
            "log2_moment": entropy**2,
            "n90": token % 100,
            "margin": entropy,
            "tie": token % 1000 == 0,
            "logp": -entropy,
            "logp_sampled": -entropy,
            "rank": token % 3,
            "repeated": token % 11 == 0,
            "top_ids": pa.FixedSizeListArray.from_arrays(
                pa.array(best[0].astype(np.int32)), TOP_TARGET
            ),
            "top_logp": pa.FixedSizeListArray.from_arrays(
                pa.array(best[1].astype(np.float16)), TOP_TARGET
            ),
        }
        yield pa.table([pa.array(made[f.name]).cast(f.type) for f in schema], schema=schema)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(run(sys.argv[1], sys.argv[2])))
    else:
        main()
