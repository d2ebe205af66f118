"""Code that widgets carry to the browser."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def script(name: str) -> str:
    """One of the scripts beside this file, after the one that keeps keys from the notebook."""
    return "".join((_HERE / file).read_text(encoding="utf-8") for file in ("keys.js", name))
