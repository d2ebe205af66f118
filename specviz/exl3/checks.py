"""Whether exllamav3 can run on this machine, in one sentence when it cannot.

Nothing here imports exllamav3 before it is known to be there, in the right version and
compiled: its import would otherwise start a build of many minutes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from specviz.exl3.images import images, named, runs_on

#: The release whose names, arguments and parameters specviz uses; tests hold it to them.
VERSION = "1.6.5"
#: Turing (T4, RTX 20) is the oldest that exllamav3's sources provide for.
MINIMUM = (7, 5)
EXTENSION = "exllamav3_ext"


def why_not(devices: int = 1) -> str | None:
    """Why exllamav3 cannot run here on so many GPUs, in one sentence; None when it can."""
    version = installed_version()
    if version is None:
        return (
            f"exllamav3 is not installed: pip install exllamav3=={VERSION} (see docs/dual_t4.md)."
        )
    if version != VERSION:
        return (
            f"exllamav3 {version} is installed and specviz is held to {VERSION}, whose internals "
            f"it uses: pip install exllamav3=={VERSION}."
        )
    found = gpus()
    if not found:
        build = "" if _torch_has_cuda() else ", being a build without CUDA"
        return (
            f"exllamav3 needs a CUDA GPU and torch sees none here{build}: use a machine with one, "
            "or load_target(...) with weights that are not EXL3."
        )
    old = [gpu for gpu in found if gpu["capability"] < MINIMUM]
    if old:
        least = ".".join(map(str, MINIMUM))
        return (
            f"{old[0]['name']} has compute capability {'.'.join(map(str, old[0]['capability']))}; "
            f"exllamav3 needs {least} (Turing) or newer: leave it out by CUDA_VISIBLE_DEVICES."
        )
    if len(found) < devices:
        return (
            f"{devices} GPUs were asked for and torch sees {len(found)}: use devices={len(found)}."
        )
    if not has_triton():
        return "exllamav3 cannot be imported without Triton: pip install triton."
    file = extension_file()
    if file is None:
        return (
            f"exllamav3's CUDA extension is not compiled yet: build it once with "
            f"{build_command(found)} (12 to 30 minutes were reported) and keep the folder of "
            "TORCH_EXTENSIONS_DIR."
        )
    held = images(file)
    for gpu in found[:devices]:
        if not runs_on(held, gpu["capability"]):
            built = file.parent.name == EXTENSION  # by torch, not part of an installed wheel
            remove = (
                f"delete the folder {file.parent}"
                if built
                else f"pip uninstall exllamav3, pip install exllamav3=={VERSION}"
            )
            return (
                f"exllamav3's CUDA extension {file} holds code for {named(held)} and "
                f"{gpu['name']} has compute capability {'.'.join(map(str, gpu['capability']))}: "
                f"{remove}, and build it again with {build_command(found)}."
            )
    return None


def build_command(found: Sequence[Mapping[str, Any]]) -> str:
    """The line that compiles the extension, for these GPUs and no others."""
    each = sorted({tuple(gpu["capability"]) for gpu in found} or {MINIMUM})
    wanted = ";".join(f"{major}.{minor}" for major, minor in each)
    wanted = wanted if len(each) == 1 else f"'{wanted}'"
    return f'TORCH_CUDA_ARCH_LIST={wanted} MAX_JOBS=4 python -c "import exllamav3"'


def library(devices: int = 1) -> Any:
    """exllamav3, imported.

    Raises
    ------
    ImportError
        With the one sentence of `why_not`.
    """
    reason = why_not(devices)
    if reason is not None:
        raise ImportError(reason)
    return importlib.import_module("exllamav3")


def installed_version() -> str | None:
    """exllamav3's version, None when it is not installed; imports nothing."""
    if importlib.util.find_spec("exllamav3") is None:
        return None
    try:
        return importlib.metadata.version("exllamav3")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _torch_has_cuda() -> bool:
    import torch

    return torch.version.cuda is not None


def has_triton() -> bool:
    """Whether Triton is installed: the library's kernels are written in it, and it says so late."""
    return importlib.util.find_spec("triton") is not None


def gpus() -> list[dict[str, Any]]:
    """Per CUDA GPU: name, capability, and bytes in all and free."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        found.append(
            {
                "name": torch.cuda.get_device_name(index),
                "capability": torch.cuda.get_device_capability(index),
                "total_bytes": total,
                "free_bytes": free,
            }
        )
    return found


def extension_file() -> Path | None:
    """The compiled extension, installed or built at an earlier import; None where there is none."""
    spec = importlib.util.find_spec(EXTENSION)
    if spec is not None and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
        return Path(spec.origin)
    file = _build_root() / EXTENSION / f"{EXTENSION}.so"
    return file if file.is_file() else None


def _build_root() -> Path:
    """Where torch builds extensions. Its own function for this makes the folder; this does not."""
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    if given is not None:
        return Path(given)
    import torch
    from torch.utils.cpp_extension import get_default_build_root

    abi = getattr(sys, "abiflags", "")
    cuda = f"cu{torch.version.cuda.replace('.', '')}" if torch.version.cuda else "cpu"
    version = f"py{sys.version_info.major}{sys.version_info.minor}{abi}"
    return Path(get_default_build_root()) / f"{version}_{cuda}"
