"""From what the engine holds in memory to the tables of a trace."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from specviz.engine.observe import RowStats
from specviz.engine.protocols import Codec, Drafter, Drafts, Target
from specviz.engine.rounds import Recorded
from specviz.trace.schema import TraceMeta, drafts_schema, table_schemas
from specviz.trace.trace import Trace

#: A position is `repeated` when it ends a run of this many tokens seen before.
REPEAT = 12
MAX_K = 15


def sequences_table(
    seq: int,
    prompt_id: str,
    content_type: str,
    prompt: str,
    output: str,
    prompt_ids: Sequence[int],
    n_output: int,
    lookahead: Sequence[int],
    max_new_tokens: int,
    finish: str,
    decode_seconds: float,
) -> pa.Table:
    """One row of `sequences`."""
    row = {
        "seq": seq,
        "prompt_id": prompt_id,
        "content_type": content_type,
        "prompt": storable(prompt),
        "output": storable(output),
        "prompt_ids": list(prompt_ids),
        "lookahead": list(lookahead),
        "n_prompt": len(prompt_ids),
        "n_output": n_output,
        "max_new_tokens": max_new_tokens,
        "finish": finish,
        "decode_seconds": decode_seconds,
    }
    return pa.Table.from_pylist([row], schema=table_schemas(1)["sequences"])


def positions_table(
    seq: int,
    tokens: Sequence[int],
    stats: RowStats,
    logp: Sequence[float],
    rank: Sequence[int],
    codec: Codec,
    logp_sampled: Sequence[float],
) -> pa.Table:
    """The `positions` rows of one output; of greedy tokens `logp_sampled` is 0."""
    n = len(tokens)
    columns = {
        "seq": np.full(n, seq),
        "t": np.arange(n),
        "token_id": np.asarray(tokens),
        "text": [storable(codec.token_text(token)) for token in tokens],
        "entropy": stats.entropy,
        "ebf": stats.ebf,
        "ebf2": stats.ebf2,
        "p_max": stats.p_max,
        "log2_moment": stats.log2_moment,
        "n90": stats.n90,
        "margin": stats.margin,
        "tie": stats.tie,
        "top_ids": stats.top_ids,
        "top_logp": stats.top_logp,
        "logp": np.asarray(logp),
        "rank": np.asarray(rank),
        "logp_sampled": np.asarray(logp_sampled),
        "repeated": repeated(tokens),
    }
    return _table("positions", columns, 1)


def drafts_table(seq: int, name: str, drafts: Drafts, matched: np.ndarray, k: int) -> pa.Table:
    """The `drafts` rows of one sequence and drafter, padded to the trace's K."""
    n = len(matched)
    columns: dict[str, Any] = {
        "seq": np.full(n, seq),
        "anchor": np.arange(n),
        "drafter": pa.array([name] * n, pa.string()).dictionary_encode(),
        "drafted": drafts.drafted,
        "matched": matched,
    }
    schema = drafts_schema(k)
    for column in (
        "token",
        "logq",
        "entropy",
        "confidence",
        "path_logq",
        "path_rank",
        "overlap",
        "kl",
        "top4_ids",
    ):
        values = getattr(drafts, column)
        width = schema.field(column).type.list_size
        fill = np.nan if values.dtype.kind == "f" else -1
        columns[column] = np.pad(
            values, ((0, 0), (0, width - values.shape[1])), constant_values=fill
        )
    return _table("drafts", columns, k)


def vocabulary_table(
    seq: int, named: Iterable[int], output: Sequence[int], codec: Codec
) -> pa.Table:
    """Texts of the tokens that were named, as an alternative or in a draft, but not emitted."""
    others = sorted({int(token) for token in named if token >= 0} - set(output))
    columns = {
        "seq": np.full(len(others), seq),
        "token_id": others,
        "text": [storable(codec.token_text(token)) for token in others],
    }
    return _table("vocabulary", columns, 1)


def repeated(tokens: Sequence[int], length: int = REPEAT) -> np.ndarray:
    """True where a position ends a `length`-gram that the output already contains."""
    seen: set[tuple[int, ...]] = set()
    flags = np.zeros(len(tokens), bool)
    for t in range(length - 1, len(tokens)):
        gram = tuple(tokens[t - length + 1 : t + 1])
        flags[t] = gram in seen
        seen.add(gram)
    return flags


def matched_lengths(drafts: Drafts, realised: Sequence[int]) -> np.ndarray:
    """M(a): leading draft tokens equal to y[a+1], y[a+2], ..."""
    anchors, k = drafts.token.shape
    if anchors == 0:
        return np.zeros(0, np.int64)
    where = np.arange(anchors)[:, None] + 1 + np.arange(k)
    inside = where < len(realised)
    y = np.where(inside, np.asarray(realised)[np.minimum(where, len(realised) - 1)], -2)
    agree = (drafts.token == y) & (np.arange(k) < drafts.drafted[:, None])
    return np.cumprod(agree, axis=1).sum(axis=1)


def trace_meta(
    kind: str,
    target: Target,
    drafters: Mapping[str, Drafter],
    max_new_tokens: int,
    seed: int,
    k: int = MAX_K,
    exhaustive: bool = True,
) -> TraceMeta:
    """Describe a capture or a run of these models."""
    limits = {name: min(k, drafter.max_k) for name, drafter in drafters.items()}
    return TraceMeta(
        kind=kind,
        exhaustive=exhaustive,
        target=target_meta(target),
        drafters={
            name: {
                "k": limits[name],
                "caption": drafter.caption,
                "simulated_cost": drafter.simulated_cost,
                "fingerprint": drafter.fingerprint,
            }
            for name, drafter in drafters.items()
        },
        k=max(limits.values(), default=1),
        max_new_tokens=max_new_tokens,
        seed=seed,
        template=dict(target.codec.template),
        software=software(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def target_meta(target: Target) -> dict[str, Any]:
    """What a trace says of its target."""
    return {
        "name": target.name,
        "caption": target.caption,
        "dtype": target.dtype,
        "device": target.device,
        "vocab_size": target.vocab_size,
        "fingerprint": target.fingerprint,
    }


def software() -> dict[str, str]:
    """Versions of what computed the numbers."""
    versions = {}
    for name in ("specviz-decoding", "torch", "transformers", "numpy", "exllamav3"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def run_trace(run: Recorded, certificate: Mapping[str, Any] | None = None) -> Trace:
    """What a run has generated so far, as a trace of visited anchors."""
    described = trace_meta(
        "run", run.target, run.drafters, run.max_new_tokens, run.seed, exhaustive=False
    )
    meta = dataclasses.replace(
        described,
        sampling=dataclasses.asdict(run.acceptance.sampling),
        acceptance=run.acceptance.name,
        lossy=not run.acceptance.lossless,
        certificate=certificate,
        memory=dict(run.target.memory()),
    )
    tables = {
        "sequences": sequences_table(
            0,
            "run",
            "run",
            run.prompt_text,
            run.text,
            run.prompt_ids,
            len(run.token_ids),
            [],
            run.max_new_tokens,
            run.finish_reason,
            float("nan"),
        )
    }
    if run.instrument:
        logp, sampled, rank = zip(*run.position_tokens, strict=True)
        stats = run.all_stats()
        tables["positions"] = positions_table(
            0, run.token_ids, stats, logp, rank, run.target.codec, sampled
        )
        tables["vocabulary"] = vocabulary_table(
            0, stats.top_ids.flatten(), run.token_ids, run.target.codec
        )
    if run.log:
        tables["rounds"] = _rounds_table(run)
        if run.instrument:
            tables["rows"] = _rows_table(run)
    return Trace(meta, tables)


def _rounds_table(run: Recorded) -> pa.Table:
    log = run.log
    columns: dict[str, Any] = {
        "seq": [0] * len(log),
        "round": [r.number for r in log],
        "anchor": [r.anchor for r in log],
    }
    for name in (
        "nodes",
        "policy",
        "drafter",
        "drafted",
        "accepted",
        "emitted",
        "stop",
        "draft_seconds",
        "verify_seconds",
        "other_seconds",
    ):
        columns[name] = [getattr(r, name) for r in log]
    return _table("rounds", columns, 1)


def _rows_table(run: Recorded) -> pa.Table:
    parts = []
    for each in run.log:
        frame = each.rows.assign(seq=0, round=each.number)
        parts.append(_table("rows", {str(name): frame[name] for name in frame}, 1))
    return pa.concat_tables(parts)


def _table(name: str, columns: Mapping[str, Any], k: int) -> pa.Table:
    schema = table_schemas(k)[name]
    return pa.table([_array(columns[f.name], f.type) for f in schema], schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        flat = np.asarray(values).reshape(-1).astype(kind.value_type.to_pandas_dtype())
        return pa.FixedSizeListArray.from_arrays(pa.array(flat, kind.value_type), kind.list_size)
    if isinstance(values, pa.Array):
        return values
    return (
        pa.array(values, kind)
        if not isinstance(values, np.ndarray)
        else pa.array(values).cast(kind)
    )


def storable(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become \\udXXX."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
