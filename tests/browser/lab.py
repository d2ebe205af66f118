"""JupyterLab in a real browser: one server, one notebook, one kernel for many tests."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SCREENSHOTS = Path("out/screenshots")
#: What a page may load: this machine, and what is already in the page.
LOCAL = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "file:", "about:")


def missing() -> str:
    """What this machine lacks for these tests, or ""."""
    if CHROMIUM is None:
        return "no chromium on this machine: install it, and run these tests again"
    for module in ("playwright", "jupyterlab", "ipykernel"):
        if not _importable(module):
            return f"{module} is not installed: pip install -e '.[lab,dev]'"
    return ""


def _importable(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def notebook(cells: Sequence[str]) -> dict[str, Any]:
    """A notebook of these code cells."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{i}",
                "metadata": {},
                "source": source,
                "outputs": [],
                "execution_count": None,
            }
            for i, source in enumerate(cells)
        ],
    }


def _settings(folder: Path, dark: bool) -> None:
    """User settings of a quiet Lab: no windowing of cells, no news, the theme asked for."""
    for name, value in {
        "apputils-extension/themes": {"theme": f"JupyterLab {'Dark' if dark else 'Light'}"},
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "notebook-extension/tracker": {"windowingMode": "none"},
    }.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")


@contextmanager
def server(home: Path, dark: bool = False) -> Iterator[str]:
    """JupyterLab on a free port of this machine, its files under `home`; gives its address."""
    files = home / "files"
    files.mkdir(parents=True, exist_ok=True)
    _settings(home / "user-settings", dark)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "user-settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": files,
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    log = home / "lab.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *(f"--{n}={v}" for n, v in options.items())],
            env=env,
            cwd=files,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(f"{address}/api/status", process, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def expect(locator: Any) -> Any:
    """Playwright's expectation, which waits: views follow the kernel by a moment."""
    from playwright.sync_api import expect as waiting

    return waiting(locator)


def watch(page: Any, complaints: list[str]) -> None:
    """Collect console errors, exceptions and requests that leave this machine."""
    page.on(
        "console",
        lambda m: complaints.append(f"console: {m.text}") if m.type == "error" else None,
    )
    page.on("pageerror", lambda e: complaints.append(f"error: {e}"))
    page.on(
        "request",
        lambda r: None if r.url.startswith(LOCAL) else complaints.append(f"request: {r.url}"),
    )
    page.on(
        "websocket",
        lambda w: None if w.url.startswith(LOCAL) else complaints.append(f"socket: {w.url}"),
    )


class Lab:
    """A notebook open in JupyterLab, its cells run."""

    complaints: list[str]

    def __init__(self, page: Any, address: str, home: Path, name: str, cells: Sequence[str]):
        self.page = page
        (home / "files" / name).write_text(json.dumps(notebook(cells)), encoding="utf-8")
        page.goto(f"{address}/lab/tree/{name}")
        page.wait_for_function(
            "window.jupyterapp?.shell?.currentWidget?.context?.isReady"
            " && jupyterapp.shell.currentWidget.sessionContext?.session?.kernel",
            timeout=60_000,
        )
        page.evaluate("jupyterapp.commands.execute('application:toggle-left-area')")
        for cell, source in enumerate(cells):  # one by one, as a reader would
            self.run(cell, source)
            page.wait_for_function(  # its widget's code has started
                "c => { const box = document.querySelectorAll('.jp-Notebook .jp-Cell')[c]"
                "?.querySelector('.specviz-widget'); return !box || [...box.children].every("
                "each => !each.classList.contains('lm-Widget') || each.children.length); }",
                arg=cell,
                timeout=60_000,
            )

    def settle(self, timeout: int = 20_000) -> None:
        """Wait until the kernel has nothing left to do."""
        self.page.wait_for_function(
            "(() => { const n = jupyterapp.shell.currentWidget;"
            " return n.sessionContext.session.kernel.status === 'idle'"
            " && n.content.widgets.every(c => c.prompt !== '*' && c.promptNode?.textContent"
            " !== '[*]:'); })()",
            timeout=timeout,
        )

    def output(self, cell: int) -> Any:
        """The output area of a cell, in view."""
        found = self.page.locator(".jp-Notebook-cell, .jp-Cell").nth(cell)
        area = found.locator(".jp-OutputArea").first
        area.scroll_into_view_if_needed()
        return area

    def run(self, cell: int, source: str) -> None:
        """Give a cell new code and run it."""
        self.page.evaluate(
            "([cell, source]) => { const n = jupyterapp.shell.currentWidget.content;"
            " n.widgets[cell].model.sharedModel.setSource(source);"
            " n.activeCellIndex = cell; return jupyterapp.commands.execute('notebook:run-cell'); }",
            [cell, source],
        )
        self.settle(120_000)

    def shot(self, cell: int, name: str) -> None:
        """A picture of a cell's output under out/screenshots."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.output(cell).screenshot(path=SCREENSHOTS / f"{name}.png")


@contextmanager
def opened(home: Path, cells: Sequence[str]) -> Iterator[Lab]:
    """A Lab with these cells run in it, in a browser; `.complaints` collects what went wrong."""
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    with server(home) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        watch(page, complaints)
        lab = Lab(page, address, home, "widgets.ipynb", cells)
        lab.complaints = complaints
        yield lab
        browser.close()
