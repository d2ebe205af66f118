"""The target's own most probable continuations below anchors of a capture: one Parquet file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from specviz.markup import counted
from specviz.refuse import a_path, shown
from specviz.trace.store import TraceError, made, write_table

_KEY = b"specviz.target_trees"
#: How every Parquet file begins.
_MAGIC = b"PAR1"
_SCHEMA = pa.schema(
    [
        ("seq", pa.int32()),
        ("prompt_id", pa.string()),
        ("content_type", pa.string()),
        ("anchor", pa.int32()),
        ("entropy", pa.float32()),
        ("token", pa.list_(pa.int32())),
        ("text", pa.list_(pa.string())),
        ("parent", pa.list_(pa.int16())),
        ("chance", pa.list_(pa.float32())),
        ("node_entropy", pa.list_(pa.float32())),
        ("realised", pa.list_(pa.int16())),
    ]
)


@dataclass(frozen=True, eq=False)
class TargetTrees:
    """The best trees of fixed tokens for a sampled target, measured on the target itself (T5.3).

    Attributes
    ----------
    meta
        How they were made: target, sampling, nodes, depth, per_prompt or follow, seed, software.
    table
        One row per anchor: seq, prompt_id, content_type, anchor, entropy (nats, of the
        distribution after the anchor), and lists over the nodes, the most probable first and
        parents before children: token, text, parent (-1: the anchor), chance (of the path from the
        anchor, P(the text goes on with it)), node_entropy (nats, after the node; NaN after an
        end of text). The first n nodes are the best tree of n nodes. `realised` are the nodes
        on the recorded output, from the anchor down.

    Notes
    -----
    Entropies and chances are of p as the tokens were drawn from it: after `meta["sampling"]`.
    """

    meta: Mapping[str, Any]
    table: pa.Table

    @cached_property
    def anchors(self) -> pd.DataFrame:
        """The table as a pandas frame."""
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def save(self, file: str | Path) -> Path:
        """Write one Parquet file; it appears whole or not at all."""
        file = Path(file)
        made(file.parent)
        text = json.dumps(dict(self.meta), sort_keys=True).encode()
        write_table(self.table.replace_schema_metadata({_KEY: text}), file)
        return file

    def __repr__(self) -> str:
        anchors = counted(self.table.num_rows, "anchor")
        return (
            f"TargetTrees({self.meta['target'].get('name')}: {anchors}, "
            f"{self.meta['nodes']} nodes to depth {self.meta['depth']})"
        )


def need_trees(value: object) -> TargetTrees:
    """`value`, if it holds trees of a target; else a ValueError that says what makes them."""
    if not isinstance(value, TargetTrees):
        raise ValueError(
            f"{shown(value)} holds no trees of a target: capture_tree_ceiling makes them."
        )
    return value


def trees_of_rows(meta: Mapping[str, Any], rows: list[dict[str, Any]]) -> TargetTrees:
    """From one dictionary per anchor, with the columns of `TargetTrees.table`."""
    ordered = sorted(rows, key=lambda row: (row["seq"], row["anchor"]))
    return TargetTrees(meta, pa.Table.from_pylist(ordered, _SCHEMA))


def load_target_trees(file: str | Path) -> TargetTrees:
    """Read what `capture_tree_ceiling(..., out=)` or `TargetTrees.save` wrote.

    Raises
    ------
    TraceError
        When the file is missing, damaged, or of another kind.
    ValueError
        When `file` is no path.

    Examples
    --------
    >>> load_target_trees("out/ceiling.parquet")                 # doctest: +SKIP
    """
    file = a_path("file", file)
    other = f"{file} holds no trees of a target: name a file that capture_tree_ceiling wrote."
    if file.exists() and not _is_parquet(file):
        raise TraceError(other)
    try:
        table = pq.read_table(file)
        meta = json.loads((table.schema.metadata or {})[_KEY])
        return TargetTrees(meta, table.select(_SCHEMA.names).cast(_SCHEMA))
    except FileNotFoundError:
        raise TraceError(f"No trees of the target at {file}: no such file.") from None
    except KeyError:
        raise TraceError(other) from None
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise TraceError(
            f"{file} is damaged ({str(error).splitlines()[0]}): make it again."
        ) from None


def _is_parquet(file: Path) -> bool:
    """Whether a path is a file that begins as a Parquet file does, damaged later or not."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_MAGIC)) == _MAGIC
