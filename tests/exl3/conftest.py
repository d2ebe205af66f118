"""exllamav3's Python code with CPU operator stand-ins, loaded once for all its tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.exl3.stand_ins import installed, why_not

PROMPT = "the quick brown fox jumps over the lazy dog"


class Workshop:
    """Checkpoints on disk, made when first asked for, and the library to load them with."""

    def __init__(self, folder: Path, library: Any) -> None:
        self.folder, self.library = folder, library
        self.reference: dict[str, Any] = {}  # by folder name: the same model in transformers
        self._loaded: dict[tuple[str, str | None, int | None], tuple[Any, Any]] = {}

    def path(self, name: str) -> Path:
        from tests.exl3 import hybrid_models, models

        where = self.folder / name
        if name not in self.reference and not where.exists():
            writers: dict[str, Callable[[], Any]] = {
                "llama": lambda: models.write_target(where),
                "smaller": lambda: models.write_target(where, noise=0.15),
                "hybrid": lambda: hybrid_models.write_hybrid(where),
                "dense-mtp": lambda: hybrid_models.write_hybrid(where, hybrid=False),
                "dflash2": lambda: models.write_dflash(where, self.model("llama")),
                "sliding": lambda: models.write_dflash(where, self.model("llama"), window=12),
                "dflash": lambda: models.write_dflash(where, self.model("llama"), second=False),
            }
            self.reference[name] = writers[name]()
        return where

    def model(self, name: str) -> Any:
        self.path(name)
        return self.reference[name]

    def load(
        self, target: str, draft: str | None = None, cache_bits: int | None = None
    ) -> tuple[Any, Any]:
        """A target and its drafter, loaded once each; the drafter attached."""
        from specviz.exl3.load import assemble

        key = target, draft, cache_bits
        if key not in self._loaded:
            where = draft if draft in (None, "mtp") else self.path(draft)
            self._loaded[key] = assemble(
                self.library,
                self.path(target),
                where,
                placing={"device": "cpu"},
                cache_bits=cache_bits,
                draft_tokens=None if draft in (None, "dflash2", "dflash", "sliding") else 6,
                reader="python",
            )
        pair = self._loaded[key]
        if pair[1] is not None:
            pair[1].attach(pair[0])
        return pair


@pytest.fixture(scope="package")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    if why_not() is not None:
        pytest.skip(str(why_not()))
    from tests.exl3 import hybrid_models  # noqa: F401 - what it imports must not meet a fake triton

    modules = set(sys.modules)
    with installed() as library:
        yield Workshop(tmp_path_factory.mktemp("exl3"), library)
    left = {name.partition(".")[0] for name in set(sys.modules) - modules}
    assert not left & {"exllamav3", "exllamav3_ext", "triton"}, "the stand-ins were left behind"
