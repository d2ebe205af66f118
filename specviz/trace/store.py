"""A trace on disk: written one sequence at a time, each whole or not at all.

While a capture runs, every finished sequence is a folder `parts/<seq>` put in place by one
rename, so that a killed process loses at most the sequence in flight. `finish` gathers the
parts into one Parquet file per table; until then `read_folder` reads the parts.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specviz.trace.checks import validate
from specviz.trace.schema import TraceMeta, table_schemas
from specviz.trace.stored import Stored

META, PARTS, LOCK = "trace.json", "parts", ".writing"
#: Rows above which a table is read column by column, when they are asked for.
LARGE = 1_000_000
#: Tables a captured sequence is not whole without.
CAPTURED = ("sequences", "positions", "drafts")
#: Settings that a folder is resumed with, or not at all.
_SAME = ("target", "drafters", "k", "trees", "max_new_tokens", "seed")
_REMEDY = "restore it from a copy, or capture into another folder"


class TraceError(ValueError):
    """A trace folder that cannot be read, written or resumed; says what to do."""


def write_folder(meta: TraceMeta, tables: Mapping[str, pa.Table], folder: str | Path) -> Path:
    """Write every table, then `trace.json`; each file appears whole or not at all.

    Raises
    ------
    TraceError
        When `folder` is a file or cannot be created.
    """
    folder = made(folder)
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")
    _write_text(meta.to_json(), folder / META)
    return folder


def read_folder(
    folder: str | Path, parts: bool = True, leave: Collection[str] = ()
) -> tuple[TraceMeta, dict[str, pa.Table]]:
    """Description and tables (but those to `leave`) of a trace folder, finished or not.

    Raises
    ------
    TraceError
        When the folder is missing, is not a trace, or a file in it is damaged.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise TraceError(f"A trace is named by its folder, not by {folder!r:.60}.")
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(f"No trace at {folder}: it is not a folder.")
    meta = read_meta(folder)
    tables = {}
    for name, schema in table_schemas(meta.k).items():
        if name in leave:
            continue
        if name == "trees" and not meta.trees:  # optional
            continue
        optional = name == "vocabulary"  # unknown to older traces
        if meta.complete and not optional and not (folder / f"{name}.parquet").exists():
            raise TraceError(f"{folder} has lost {name}.parquet: {_REMEDY}.")
        found = _read_parts(folder, name, parts)
        if found:
            if any(table.column_names != schema.names for table in found):
                raise TraceError(
                    f"{folder / name}.parquet has other columns than this specviz reads: read it "
                    "with the version that wrote it, or capture again."
                )
            whole = pa.concat_tables([t.cast(schema) for t in found]).unify_dictionaries()
            # Workers finish in any order; a trace is ordered by sequence.
            tables[name] = whole.sort_by("seq") if _unsorted(whole) else whole
    return meta, tables


def open_folder(folder: str | Path) -> tuple[TraceMeta, dict[str, pa.Table | Stored]]:
    """As `read_folder`, with large tables left in their files, where these are in order."""
    stored: dict[str, Stored] = {}
    if isinstance(folder, (str, os.PathLike)) and (Path(folder) / META).is_file():
        meta = read_meta(Path(folder))
        for name, schema in table_schemas(meta.k).items():
            file = Path(folder) / f"{name}.parquet"
            if meta.complete and file.exists() and not finished_parts(Path(folder)):
                with _refusing(file):
                    table = Stored(file, schema)
                    if table.num_rows > LARGE and not _unsorted(table.select(["seq"])):
                        stored[name] = table
    meta, tables = read_folder(folder, leave=stored)
    return meta, {**tables, **stored}


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
        with, apart from software versions, dates and cost models: those are added to.
    resume
        Continue a folder that already has sequences; False refuses such a folder.

    Raises
    ------
    TraceError
        When the folder holds a trace of something else or is damaged, when another process
        is writing to it, or when `resume` is False and it holds any trace at all.
    """

    def __init__(self, folder: str | Path, meta: TraceMeta, resume: bool = True) -> None:
        self.folder = made(folder)
        self.meta = dataclasses.replace(meta, complete=False)
        if (self.folder / META).exists():
            if not resume:
                raise TraceError(
                    f"{self.folder} already holds a trace: pass resume=True to continue it, "
                    "or choose another folder."
                )
            old = read_meta(self.folder)
            self._check_same(old)
            read_folder(self.folder, parts=False)  # nothing is decoded onto a damaged trace
            kept = {cost["name"]: cost for cost in (*old.cost_models, *meta.cost_models)}
            self.meta = dataclasses.replace(self.meta, cost_models=tuple(kept.values()))
        elif any(file.name != LOCK for file in self.folder.iterdir()):
            raise TraceError(f"{self.folder} is not empty and not a trace: choose another folder.")

    def _check_same(self, old: TraceMeta) -> None:
        new = self.meta
        for what in (*_SAME, "sampling", "template"):
            before, now = getattr(old, what), getattr(new, what)
            if before != now:
                raise TraceError(
                    f"{self.folder} was captured with another {what} ({_short(before)}), not "
                    f"{_short(now)}: choose another folder, or the same settings to resume."
                )

    @contextmanager
    def writing(self) -> Iterator[TraceWriter]:
        """Hold the folder; sequences that are not whole are dropped, to be made again."""
        _lock(self.folder)
        try:
            for stale in (self.folder / PARTS).glob(".*"):
                shutil.rmtree(stale, ignore_errors=True)
            for part in finished_parts(self.folder):
                needed = (*CAPTURED, "vocabulary", *(["trees"] if self.meta.trees else []))
                files = {*part.glob("*.parquet"), *(part / f"{name}.parquet" for name in needed)}
                if not all(_readable(file) for file in files):
                    shutil.rmtree(part)
            _write_text(self.meta.to_json(), self.folder / META)
            yield self
        finally:
            (self.folder / LOCK).unlink(missing_ok=True)

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
        temporary = parts / f".{seq}-{uuid.uuid4().hex}"
        try:
            temporary.mkdir(parents=True)
            for name, table in tables.items():
                pq.write_table(table, temporary / f"{name}.parquet", compression="zstd")
            os.replace(temporary, parts / f"{seq:06d}")
        except OSError as error:
            raise TraceError(f"Cannot write to {parts}: {error.strerror}.") from None

    def finish(self) -> None:
        """Gather the parts into one file per table and mark the trace complete.

        Raises
        ------
        ValueError
            When the gathered tables break an identity; the parts then stay as they are.
        """
        _, tables = read_folder(self.folder)
        schemas = table_schemas(self.meta.k)
        whole = {name: tables.get(name, schema.empty_table()) for name, schema in schemas.items()}
        whole["vocabulary"] = first_of_each(whole["vocabulary"])
        meta = dataclasses.replace(self.meta, complete=True)
        validate(meta, whole)
        # The parts go last: killed in between, a part that a table already has is skipped.
        write_folder(meta, whole, self.folder)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)


def _lock(folder: Path) -> None:
    """Mark the folder as being written to by this process; refuse where another one is."""
    holder = _holder(folder / LOCK)
    if holder is not None:
        raise TraceError(
            f"Another capture (process {holder}) is writing to {folder}: wait for it, or choose "
            "another folder."
        )
    _write_text(f"{socket.gethostname()} {os.getpid()}", folder / LOCK)


def _holder(lock: Path) -> int | None:
    """The other live process of this machine that a lock names, if there is one."""
    try:
        host, text = lock.read_text(encoding="utf-8").split()
        pid = int(text)
    except (OSError, ValueError):
        return None
    if host != socket.gethostname() or pid == os.getpid():
        return None
    try:
        os.kill(pid, 0)  # sends nothing: asks whether it is there
    except ProcessLookupError:
        return None
    except PermissionError:  # it is there, and somebody else's
        pass
    return pid


def _readable(file: Path) -> bool:
    try:
        pq.read_table(file)
    except (pa.ArrowInvalid, OSError):
        return False
    return True


def made(folder: str | Path) -> Path:
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise TraceError(f"{folder} is a file, and a folder is needed.") from None
    except OSError as error:
        raise TraceError(f"Cannot create {folder}: {error.strerror}.") from None
    return folder


def write_table(table: pa.Table, file: Path) -> None:
    """Write one Parquet file; it appears whole or not at all."""
    with placed(file) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _write_text(text: str, file: Path) -> None:
    with placed(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def placed(file: Path) -> Iterator[Path]:
    """A temporary file that takes its place once it is written."""
    temporary = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, file)
    except OSError as error:
        raise TraceError(f"Cannot write {file}: {error.strerror}.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _read_table(file: Path) -> pa.Table:
    with _refusing(file):
        return pq.read_table(file)


@contextmanager
def _refusing(file: Path) -> Iterator[None]:
    """Errors of reading a file become a sentence."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        remedy = "resume the capture, which makes it again" if _in_part(file) else _REMEDY
        raise TraceError(f"{file} is damaged ({str(error).splitlines()[0]}): {remedy}.") from None


def _in_part(file: Path) -> bool:
    return file.parent.parent.name == PARTS


def _read_parts(folder: Path, name: str, parts: bool = True) -> list[pa.Table]:
    """The gathered table and the parts it does not hold yet."""
    gathered = folder / f"{name}.parquet"
    found = [_read_table(gathered)] if gathered.exists() else []
    have = set(found[0]["seq"].to_pylist()) if found else set()
    for part in finished_parts(folder) if parts else []:
        file = part / f"{name}.parquet"
        if int(part.name) not in have and file.exists():
            found.append(_read_table(file))
    return found


def first_of_each(vocabulary: pa.Table) -> pa.Table:
    """One row per token: a text does not depend on who named it."""
    _, first = np.unique(vocabulary["token_id"].to_numpy(), return_index=True)
    return vocabulary.take(np.sort(first))


def _unsorted(table: pa.Table) -> bool:
    seq = table["seq"].to_numpy()
    return bool((seq[1:] < seq[:-1]).any())


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
