"""Model folders, read without loading anything: config, files, what pictures say of the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_config(folder: Path) -> dict[str, Any]:
    """A model's config.json.

    Raises
    ------
    ValueError
        When there is none, or it is no JSON object.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise ValueError(f"{folder} is no model folder: it has no config.json.")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError):
        config = None
    if not isinstance(config, dict):
        raise ValueError(f"{file} is no JSON object: download the model again.")
    return config


def weights_caption(folder: Path) -> str:
    """ "EXL3 4.0 bits per weight", or that the weights are not quantised."""
    config = read_config(folder)
    quantised = config.get("quantization_config")
    if isinstance(quantised, dict) and quantised.get("quant_method") == "exl3":
        return f"EXL3 {quantised.get('bits', 'unknown')} bits per weight"
    return "weights as they are, not EXL3"


def missing_weights(folder: Path) -> str | None:
    """Which weights files are not there, in words; None when all that are named are."""
    there = {file.name for file in folder.glob("*.safetensors")}
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        wanted = set(index["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        wanted = set()
    if wanted - there:
        return f"{len(wanted - there)} of its {len(wanted)} weights files"
    return None if there else "its weights (*.safetensors)"


def check_files(folder: Path, tokenizer: bool) -> None:
    """Refuse a folder that was not downloaded whole, before gigabytes of it are read.

    Raises
    ------
    ValueError
        When weights, or the `tokenizer`, are missing.
    """
    missing = missing_weights(folder)
    if missing is None and tokenizer and not (folder / "tokenizer.json").is_file():
        missing = "its tokenizer.json"
    if missing is not None:
        raise ValueError(f"{folder} lacks {missing}: download the model again.")


def opened(exl3: Any, folder: Path, reader: str | None = None) -> Any:
    """exllamav3's config of a folder; `reader` is its way to read safetensors files.

    Raises
    ------
    ValueError
        When the library does not know the architecture, or misses a size.
    """
    method = {} if reader is None else {"load_method": reader}
    try:
        return exl3.Config.from_directory(str(folder), **method)
    except (AssertionError, ValueError, KeyError) as error:
        raise ValueError(f"exllamav3 cannot read {folder}: {error}.") from None


def folder_fingerprint(folder: Path, *settings: str) -> str:
    """Short hash of a model folder: its config, and size and ends of every weights file."""
    from specviz.engine.inputs import fingerprint_of

    parts: list[object] = [*settings, (folder / "config.json").read_bytes()]
    for file in sorted(folder.glob("*.safetensors")):
        size, ends = file.stat().st_size, 1 << 16
        with file.open("rb") as stream:
            head = stream.read(ends)
            stream.seek(max(size - ends, 0))
            parts += [file.name, size, head, stream.read()]
    return fingerprint_of(*parts)
