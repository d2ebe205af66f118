"""Traces whose every text tries to leave its place on a page, and smaller ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from specviz.cost import CostModel
from specviz.trace.schema import table_schemas
from specviz.trace.trace import Trace
from tests.synthetic import synthetic_trace

ATTACKS = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    '"><svg onload="window.hit = 1">',
    "' onmouseover='window.hit = 1",
    "{{7*7}}",
    "</script><script>window.hit = 1</script>",
    "\u202egnp.evil\u2066",
    "\\xe2\\x82",
    "%{x}",
    "\n\n\t ",
    "x" * 10_000,
)
#: What a measured cost looks like, one drafter marked as simulated.
MEASURED = CostModel(
    "2 CPU cores",
    "measured here",
    verify=tuple(0.055 + 0.008 * i for i in range(16)),
    draft={
        "ngram": tuple(0.0002 * i for i in range(16)),
        "self-quant": tuple(0.03 * i for i in range(16)),
    },
    simulated=("self-quant",),
)


def tables_of(trace: Trace) -> dict[str, pa.Table]:
    return {name: trace.table(name) for name in table_schemas(1)}


def with_meta(trace: Trace, **changes: object) -> Trace:
    return Trace(dataclasses.replace(trace.meta, **changes), tables_of(trace))


def with_column(trace: Trace, table: str, **columns: list[str]) -> Trace:
    tables = tables_of(trace)
    for name, values in columns.items():
        at = tables[table].column_names.index(name)
        tables[table] = tables[table].set_column(at, name, pa.array(values))
    return Trace(trace.meta, tables)


def hostile_trace() -> Trace:
    """Attacks in token text, prompts, prompt ids, content types, and every caption."""
    script, image = ATTACKS[0], ATTACKS[1]
    trace = synthetic_trace(prompts_per_type=2, drafters=("ngram",), max_new_tokens=24)
    n = len(trace.positions)
    trace = with_column(
        trace,
        "positions",
        text=[ATTACKS[i % (len(ATTACKS) - 1)] for i in range(n - 1)] + [ATTACKS[-1]],
    )
    kinds: Mapping[str, str] = {"code": script, "prose": image, "mixed": "{{7*7}}"}
    trace = with_column(
        trace,
        "sequences",
        prompt=[" ".join(ATTACKS[:-1])] * len(trace.sequences),
        prompt_id=[f"{image}{i}" for i in range(len(trace.sequences))],
        content_type=[kinds[t] for t in trace.sequences["content_type"]],
    )
    return with_meta(
        trace,
        target={"name": script, "caption": image, "dtype": script, "device": script},
        drafters={"ngram": {"k": 15, "caption": script, "simulated_cost": True}},
        software={script: image},
        template={"sha256": script},
        certificate={"note": script},
    )


def live_trace() -> Trace:
    """A live run: rounds and positions, no draft at every anchor."""
    from specviz.analysis import replay
    from specviz.policies import FixedK

    trace = synthetic_trace(prompts_per_type=2, content_types=("code", "prose"))
    rounds = replay(trace, FixedK(4)).rounds
    tables = tables_of(trace)
    schema = table_schemas(trace.meta.k)["rounds"]
    rows = [
        {
            **row,
            "nodes": row["drafted"],
            "draft_seconds": 0.1,
            "verify_seconds": 0.1,
            "other_seconds": 0,
        }
        for row in rounds.to_dict("records")
    ]
    tables["rounds"] = pa.Table.from_pylist(rows, schema=schema)
    tables.pop("drafts")
    return Trace(dataclasses.replace(trace.meta, kind="run", exhaustive=False), tables)
