"""A large table that stays in its Parquet file: its columns are read when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


class Stored:
    """One finished Parquet file, as much of a `pyarrow.Table` as reading by columns needs.

    Parameters
    ----------
    file
        It stays open, so that a file put in its place later changes nothing here.
    schema
        What the columns are cast to.

    Raises
    ------
    OSError, pyarrow.ArrowInvalid
        Here when the file is damaged at its end, and from `select` when a column is.
    """

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        self._file = pq.ParquetFile(file)
        self._schema = schema
        self._known: dict[str, pa.ChunkedArray] = {}

    @property
    def num_rows(self) -> int:
        return int(self._file.metadata.num_rows)

    @property
    def column_names(self) -> list[str]:
        return list(self._file.schema_arrow.names)

    def select(self, names: Sequence[str]) -> pa.Table:
        """These columns; each is read once and then kept."""
        new = [name for name in names if name not in self._known]
        if new:
            schema = pa.schema([self._schema.field(name) for name in new])
            table = self._file.read(columns=new).select(new).cast(schema).unify_dictionaries()
            self._known |= dict(zip(new, table.columns, strict=True))
        fields = [self._schema.field(name) for name in names]
        return pa.table([self._known[name] for name in names], schema=pa.schema(fields))
