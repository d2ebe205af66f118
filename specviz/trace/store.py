"""A trace on disk: written one sequence at a time, each whole or not at all.

While a capture runs, every finished sequence is a folder `parts/<seq>` put in place by one
rename, so that a killed process loses at most the sequence in flight. `finish` gathers the
parts into one Parquet file per table; until then `read_folder` reads the parts.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specviz.trace.schema import TraceMeta, table_schemas

META, PARTS = "trace.json", "parts"


class TraceError(ValueError):
    """A trace folder that cannot be read, written or resumed; says what to do."""


def write_folder(meta: TraceMeta, tables: Mapping[str, pa.Table], folder: str | Path) -> Path:
    """Write every table that has rows, then `trace.json`; each file appears whole or not at all.

    Raises
    ------
    TraceError
        When `folder` is a file or cannot be created.
    """
    folder = _made(folder)
    for name, table in tables.items():
        if table.num_rows:
            _write_table(table, folder / f"{name}.parquet")
        else:
            (folder / f"{name}.parquet").unlink(missing_ok=True)
    _write_text(meta.to_json(), folder / META)
    return folder


def read_folder(folder: str | Path) -> tuple[TraceMeta, dict[str, pa.Table]]:
    """Description and tables of a trace folder, finished or not.

    Raises
    ------
    TraceError
        When the folder is missing, is not a trace, or a file in it is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(f"No trace at {folder}: it is not a folder.")
    meta = read_meta(folder)
    tables = {}
    for name, schema in table_schemas(max(meta.k, 1)).items():
        found = _read_parts(folder, name)
        if found:
            whole = pa.concat_tables([t.cast(schema) for t in found]).unify_dictionaries()
            # Workers finish in any order; a trace is ordered by sequence.
            tables[name] = whole.sort_by("seq") if _unsorted(whole) else whole
    return meta, tables


def read_meta(folder: Path) -> TraceMeta:
    """`trace.json` of a folder, as a TraceError when it is missing or damaged."""
    try:
        return TraceMeta.from_json((folder / META).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TraceError(f"{folder} has no {META}: it is not a trace folder.") from None
    except (ValueError, TypeError, OSError) as error:
        raise TraceError(f"{folder / META} cannot be read: {error}") from None


def finished_parts(folder: Path) -> list[Path]:
    """Folders of sequences that are whole, in sequence order."""
    parts = folder / PARTS
    if not parts.is_dir():
        return []
    return sorted(part for part in parts.iterdir() if part.name.isdigit())


class TraceWriter:
    """Writes a capture sequence by sequence.

    Parameters
    ----------
    folder
        Where the trace goes; created if missing.
    meta
        Description of the capture. On resume it must equal what the folder was started
        with, apart from software versions and dates.
    resume
        Continue a folder that already has sequences; False refuses such a folder.

    Raises
    ------
    TraceError
        When the folder holds a trace of something else, or `resume` is False and it holds
        any trace at all.
    """

    def __init__(self, folder: str | Path, meta: TraceMeta, resume: bool = True) -> None:
        self.folder = _made(folder)
        self.meta = dataclasses.replace(meta, complete=False)
        if (self.folder / META).exists():
            if not resume:
                raise TraceError(
                    f"{self.folder} already holds a trace: pass resume=True to continue it, "
                    "or choose another folder."
                )
            self._check_same(read_meta(self.folder))
        elif any(self.folder.iterdir()):
            raise TraceError(f"{self.folder} is not empty and not a trace: choose another folder.")
        for stale in (self.folder / PARTS).glob(".*"):
            shutil.rmtree(stale, ignore_errors=True)
        _write_text(self.meta.to_json(), self.folder / META)

    def _check_same(self, old: TraceMeta) -> None:
        new = self.meta
        for what in ("target", "drafters", "k", "max_new_tokens", "seed", "sampling", "template"):
            before, now = getattr(old, what), getattr(new, what)
            if before != now:
                raise TraceError(
                    f"{self.folder} was captured with another {what} ({_short(before)}), not "
                    f"{_short(now)}: choose another folder, or the same settings to resume."
                )

    def done(self) -> dict[str, tuple[int, str]]:
        """Number and prompt text of every finished sequence, by prompt id."""
        done: dict[str, tuple[int, str]] = {}
        for table in _read_parts(self.folder, "sequences"):
            for row in table.select(["prompt_id", "seq", "prompt"]).to_pylist():
                done[row["prompt_id"]] = row["seq"], row["prompt"]
        return done

    def add(self, seq: int, tables: Mapping[str, pa.Table]) -> None:
        """Put one finished sequence in place; whole or not at all."""
        parts = self.folder / PARTS
        parts.mkdir(exist_ok=True)
        temporary = parts / f".{seq}-{uuid.uuid4().hex}"
        temporary.mkdir()
        for name, table in tables.items():
            pq.write_table(table, temporary / f"{name}.parquet", compression="zstd")
        os.replace(temporary, parts / f"{seq:06d}")

    def finish(self, meta: TraceMeta) -> None:
        """Gather the parts into one file per table and mark the trace complete."""
        _, tables = read_folder(self.folder)
        # The parts go last: killed in between, a part that a table already has is skipped.
        write_folder(dataclasses.replace(meta, complete=True), tables, self.folder)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)


def _made(folder: str | Path) -> Path:
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise TraceError(f"{folder} is a file: a trace needs a folder.") from None
    except OSError as error:
        raise TraceError(f"Cannot create {folder}: {error.strerror}.") from None
    return folder


def _write_table(table: pa.Table, file: Path) -> None:
    temporary = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    pq.write_table(table, temporary, compression="zstd")
    os.replace(temporary, file)


def _write_text(text: str, file: Path) -> None:
    temporary = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, file)


def _read_table(file: Path) -> pa.Table:
    try:
        return pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceError(
            f"{file} is damaged ({str(error).splitlines()[0]}): remove it and capture again."
        ) from None


def _read_parts(folder: Path, name: str) -> list[pa.Table]:
    """The gathered table and the parts it does not hold yet."""
    gathered = folder / f"{name}.parquet"
    found = [_read_table(gathered)] if gathered.exists() else []
    have = set(found[0]["seq"].to_pylist()) if found else set()
    for part in finished_parts(folder):
        file = part / f"{name}.parquet"
        if int(part.name) not in have and file.exists():
            found.append(_read_table(file))
    return found


def _unsorted(table: pa.Table) -> bool:
    seq = table["seq"].to_numpy()
    return bool((seq[1:] < seq[:-1]).any())


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
