"""`Trace`: immutable tables with their description, and the identities they must satisfy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from specviz.refuse import shown
from specviz.trace.checks import validate
from specviz.trace.schema import TraceMeta, table_schemas
from specviz.trace.store import first_of_each, open_folder, write_folder
from specviz.trace.stored import Stored
from specviz.trace.summary import summary_html, summary_table

Names = str | Sequence[str] | None


class Trace:
    """Tables of one capture, one live run or one imported log.

    Parameters
    ----------
    meta
        What was captured, how, and with which software.
    tables
        Arrow tables by name (`sequences`, `positions`, `drafts`, `trees`, `rounds`, `rows`,
        `vocabulary`); a table that is left out is empty.

    Notes
    -----
    `.sequences`, `.positions`, `.drafts`, `.trees`, `.rounds` and `.rows` are pandas frames, with
    the columns of `specviz.trace.schema`. `.matrix("logq", drafter="ngram")` gives a list column
    as an array without building a frame. Of a large trace, `.column` and `.table` with columns
    named read no other column from disk.

    Examples
    --------
    >>> import specviz as sv                                     # doctest: +SKIP
    >>> trace = sv.load_trace("out/demo")                        # doctest: +SKIP
    >>> trace.select(content_type="code").summary()              # doctest: +SKIP
    """

    def __init__(self, meta: TraceMeta, tables: Mapping[str, pa.Table | Stored]) -> None:
        schemas = table_schemas(max(meta.k, 1))
        unknown = sorted(set(tables) - set(schemas))
        if unknown:
            raise ValueError(f"A trace has no table {unknown[0]!r}; its tables: {list(schemas)}.")
        self.meta = meta
        self._tables: dict[str, pa.Table | Stored] = {
            name: _cast(name, tables[name], schema) if name in tables else schema.empty_table()
            for name, schema in schemas.items()
        }
        self._tables["vocabulary"] = first_of_each(self.table("vocabulary"))

    # -- tables ---------------------------------------------------------------------------

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The Arrow table `name`, or these columns of it."""
        if name not in self._tables:
            raise KeyError(f"A trace has no table {name!r}; its tables: {list(self._tables)}.")
        held = self._tables[name]
        if columns is None and isinstance(held, pa.Table):
            return held
        try:
            return held.select(table_schemas(1)[name].names if columns is None else list(columns))
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(
                f"The `{name}` table cannot be read from its file any more "
                f"({str(error).splitlines()[0]}): restore the trace from a copy."
            ) from None

    @cached_property
    def sequences(self) -> pd.DataFrame:
        return _frame(self.table("sequences"))

    @cached_property
    def positions(self) -> pd.DataFrame:
        return _frame(self.table("positions"))

    @cached_property
    def drafts(self) -> pd.DataFrame:
        return _frame(self.table("drafts"))

    @cached_property
    def trees(self) -> pd.DataFrame:
        return _frame(self.table("trees"))

    @cached_property
    def rounds(self) -> pd.DataFrame:
        return _frame(self.table("rounds"))

    @cached_property
    def rows(self) -> pd.DataFrame:
        return _frame(self.table("rows"))

    @cached_property
    def texts(self) -> dict[int, str]:
        """Text of every token id of the outputs, and of those that were named beside them."""
        known: dict[int, str] = {}
        for name in ("vocabulary", "positions"):
            table = self.table(name, ["token_id", "text"])
            ids, first = np.unique(table["token_id"].to_numpy(), return_index=True)
            known |= zip(ids.tolist(), table["text"].take(first).to_pylist(), strict=True)
        return known

    @property
    def drafters(self) -> list[str]:
        """Names of the drafters, in the order they were given."""
        return list(self.meta.drafters)

    @property
    def content_types(self) -> list[str]:
        """Content types in the order they first appear."""
        return list(dict.fromkeys(self.table("sequences")["content_type"].to_pylist()))

    def require(self, *tables: str) -> None:
        """Raise a sentence naming the first of `tables` that this trace does not have."""
        for name in tables:
            if self._tables[name].num_rows == 0:
                raise ValueError(
                    f"This needs the `{name}` table, which this {self.meta.kind} trace does not "
                    f"have: it holds {', '.join(n for n, t in self._tables.items() if t.num_rows)}."
                )

    def column(self, table: str, name: str) -> np.ndarray[Any, Any]:
        """One scalar column as a NumPy array."""
        values = self.table(table, [name])[name]
        return np.asarray(values.combine_chunks().to_numpy(zero_copy_only=False))

    def draft_table(
        self, drafter: str | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows of `drafts` of one drafter, ordered by sequence and anchor; or columns of them.

        `drafter` may be left out when the trace has only one.
        """
        self.require("drafts")
        name = self.drafter_name(drafter)
        drafts = self.table("drafts", columns)
        if len(self.drafters) == 1:
            return drafts
        mine = self.table("drafts", ["drafter"])["drafter"]
        return drafts.filter(pc.equal(mine, pa.scalar(name)))

    def matrix(self, name: str, drafter: str | None = None) -> np.ndarray[Any, Any]:
        """A list column of `drafts` as an array [anchors, K] (or [anchors, 4 K] for top4_ids)."""
        column = self.draft_table(drafter, [name])[name].combine_chunks()
        if not pa.types.is_fixed_size_list(column.type):
            raise ValueError(
                f"{name!r} is not a list column: use trace.column('drafts', {name!r})."
            )
        width = column.type.list_size
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat).reshape(len(column), width)

    def drafter_name(self, name: str | None = None) -> str:
        """`name` if the trace has that drafter; None stands for the only one.

        Raises
        ------
        ValueError
            When there is no such drafter, or None could be several.
        """
        if name is None:
            if len(self.drafters) == 1:
                return self.drafters[0]
            raise ValueError(f"Say which drafter: this trace has {', '.join(self.drafters)}.")
        if name not in self.drafters:
            raise ValueError(f"No drafter {name!r} in this trace; it has {self.drafters}.")
        return name

    # -- selection ------------------------------------------------------------------------

    def select(
        self, content_type: Names = None, drafter: Names = None, prompt_id: Names = None
    ) -> Trace:
        """The part of the trace with these content types, drafters and prompts.

        Raises
        ------
        ValueError
            When a name is not in the trace; the sentence lists those that are.
        """
        keep = sequences = self.table("sequences")
        for column, wanted in (("content_type", content_type), ("prompt_id", prompt_id)):
            if wanted is not None:
                names = _names(wanted, column, sequences[column].to_pylist())
                keep = keep.filter(pc.is_in(keep[column], pa.array(names)))
        tables = {
            name: table.filter(pc.is_in(table["seq"], keep["seq"].combine_chunks()))
            for name, table in self._whole().items()
        }
        tables["vocabulary"] = self.table("vocabulary")  # of no one sequence
        meta = self.meta
        if drafter is not None:
            kept = _names(drafter, "drafter", self.drafters)
            for name in ("drafts", "trees", "rounds"):
                column = tables[name]["drafter"].cast(pa.string())
                tables[name] = tables[name].filter(pc.is_in(column, pa.array(kept)))
            meta = dataclasses.replace(
                meta,
                drafters={n: meta.drafters[n] for n in kept},
                trees={n: meta.trees[n] for n in kept if n in meta.trees},
            )
        return Trace(meta, tables)

    # -- reading --------------------------------------------------------------------------

    def summary(self, by: str | None = "content_type") -> pd.DataFrame:
        """What was captured, one row per value of `by` (a column of `sequences`, or None).

        Columns: prompts, tokens, mean entropy (nats), geometric-mean EBF (exp of that mean),
        arithmetic-mean EBF, mean p_max, share of repeated positions; live rounds add rounds,
        tokens per round (bonus counted) and draft yield (accepted / drafted).
        """
        return summary_table(self._tables, by)

    def validate(self) -> Trace:
        """Check every identity a trace must satisfy; return the trace.

        Raises
        ------
        ValueError
            Naming the first identity that fails, the table, and the rows.
        """
        validate(self.meta, self._whole())
        return self

    def save(self, folder: str | Path) -> Path:
        """Write the trace to `folder` (created); each file appears whole or not at all."""
        return write_folder(self.meta, self._whole(), folder)

    def _whole(self) -> dict[str, pa.Table]:
        return {name: self.table(name) for name in self._tables}

    def __repr__(self) -> str:
        counts = ", ".join(f"{t.num_rows:,} {n}" for n, t in self._tables.items() if t.num_rows)
        return f"Trace({self.meta.kind} of {self.meta.target.get('name')}: {counts or 'empty'})"

    def _repr_html_(self) -> str:
        return summary_html(self.meta, self._tables)


def _cast(name: str, table: pa.Table | Stored, schema: pa.Schema) -> pa.Table | Stored:
    missing = [column for column in schema.names if column not in table.column_names]
    if missing:
        raise ValueError(f"The `{name}` table lacks the column {missing[0]!r}.")
    return table if isinstance(table, Stored) else table.select(schema.names).cast(schema)


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _names(wanted: str | Iterable[str], column: str, present: list[str]) -> list[str]:
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if not names:
        raise ValueError(f"No {column} was named: leave it out to keep all of them.")
    for name in names:
        if name not in present:
            options = ", ".join(dict.fromkeys(present))
            raise ValueError(f"No {column} {name!r} in this trace; it has {options}.")
    return names


def need_trace(value: object) -> Trace:
    """`value`, if it is a trace; else a ValueError that says how to come by one."""
    if not isinstance(value, Trace):
        raise ValueError(
            f"{shown(value)} is not a Trace: load one with load_trace(folder), or capture prompts; "
            "a Run has its own as .trace."
        )
    return value


def load_trace(folder: str | Path) -> Trace:
    """Read a trace folder, finished or not.

    Parameters
    ----------
    folder
        What `specviz.capture(..., out=)` or `Trace.save` wrote.

    Returns
    -------
    Trace
        With `meta.complete` False when the capture was interrupted: it then holds the
        sequences finished so far. Tables of up to a million rows are read at once; larger ones
        by columns, when these are asked for, from files that stay open.

    Raises
    ------
    TraceError
        When the folder is missing, is not a trace, or a file in it is damaged.

    Examples
    --------
    >>> trace = load_trace("out/demo")                           # doctest: +SKIP
    """
    return Trace(*open_folder(folder))
