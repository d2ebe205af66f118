"""What is on this machine, what can run on it, and the next command: `specviz doctor`.

It loads no model, starts no build and downloads nothing. No version of specviz has been seen
to run on a T4; what it says of GPUs is read from drivers, files and shapes.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

from specviz.analysis.serving.plan import T4_BYTES, plan_memory
from specviz.embedded import CARD, FOLDER
from specviz.exl3.checks import (
    MINIMUM,
    VERSION,
    build_command,
    extension_file,
    gpus,
    installed_version,
    why_not,
)
from specviz.exl3.images import images, named, runs_on
from specviz.fetch import cache_dir
from specviz.markup import escape

UNVERIFIED = (
    "Not verified on T4: no version of specviz has been run on T4 hardware, or with exllamav3 on "
    "any GPU. What its tests run is exllamav3's Python code with CPU operator stand-ins."
)
#: A hybrid of 27B parameters, in the shapes that its family has published.
CONFIG_27B: dict[str, Any] = {
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 248320,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mtp_num_hidden_layers": 1,
    "quantization_config": {"quant_method": "exl3", "bits": 4.0, "head_bits": 6},
}
INSTALL = 'pip install -c constraints.txt -e ".[all]"'
PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "anywidget",
    "ipywidgets",
    "plotly",
    "jupyterlab",
)


@dataclass(frozen=True)
class Doctor:
    """What was found. Text by `str()`, JSON by `to_dict()`.

    Attributes
    ----------
    exllamav3
        version, Triton's version, the extension's file, which GPUs it was compiled for, whether
        a T4 (sm_75) is among them, and why it cannot be used here (None when it can).
    plan_27b
        Whether a 27B target in 4.0 bits per weight with its MTP head would fit.
    next
        The command to run now.
    """

    python: str
    packages: dict[str, str | None]
    torch_cuda: str | None
    driver: str | None
    cuda_toolkit: str | None
    gpus: list[dict[str, Any]]
    exllamav3: dict[str, Any]
    free_memory_bytes: int | None
    plan_27b: str
    embedded_target: str | None
    next: str
    note: str = UNVERIFIED

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        there = [f"{name} {version}" for name, version in self.packages.items() if version]
        missing = [name for name, version in self.packages.items() if not version]
        exl3 = self.exllamav3
        compiled = "not compiled"
        if exl3["extension"]:
            compiled = f"compiled for {exl3['built_for']}"
        lines = [
            f"python          {self.python}",
            f"packages        {', '.join(there) or 'none'}",
            *([f"missing         {', '.join(missing)}"] if missing else []),
            f"torch's CUDA    {self.torch_cuda or 'none (a CPU build)'}",
            f"NVIDIA driver   {self.driver or 'none found'}",
            f"CUDA toolkit    {self.cuda_toolkit or 'no nvcc found'}",
            *(
                f"GPU {number}           {gpu['name']}, compute capability "
                f"{'.'.join(map(str, gpu['capability']))}, {gpu['free_bytes'] / 1e9:.1f} of "
                f"{gpu['total_bytes'] / 1e9:.1f} GB free"
                for number, gpu in enumerate(self.gpus)
            ),
            *([] if self.gpus else ["GPUs            none that torch sees"]),
            f"exllamav3       {exl3['version'] or 'not installed'}, extension {compiled}, "
            f"{'no Triton' if exl3['triton'] is None else 'Triton ' + exl3['triton']}",
            *([f"                {exl3['why_not']}"] if exl3["why_not"] else []),
            f"memory          {_gb(self.free_memory_bytes)} free",
            f"27B, 4.0 bpw    {self.plan_27b}",
            f"SmolLM2-135M    {self.embedded_target or 'not fetched yet (93 MB)'}",
            f"note            {self.note}",
            f"next            {self.next}",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def doctor() -> Doctor:
    """Look at this machine.

    Examples
    --------
    >>> found = doctor()                                         # doctest: +SKIP
    >>> found.exllamav3["why_not"]                               # doctest: +SKIP
    """
    versions = {name: _version(name) for name in PACKAGES}
    found = gpus() if versions["torch"] else []
    extension = extension_file() if versions["torch"] else None
    held = None if extension is None else images(extension)
    exl3 = {
        "version": installed_version(),
        "triton": _version("triton"),
        "extension": None if extension is None else str(extension),
        "built_for": None if held is None else named(held),
        "sm_75": None if held is None else runs_on(held, MINIMUM),
        "why_not": why_not() if versions["torch"] else "torch is not installed.",
    }
    kept = cache_dir() / FOLDER / CARD
    embedded = str(kept.parent) if kept.is_file() else None
    return Doctor(
        python=platform.python_version(),
        packages=versions,
        torch_cuda=_torch_cuda() if versions["torch"] else None,
        driver=_driver(),
        cuda_toolkit=_toolkit(),
        gpus=found,
        exllamav3=exl3,
        free_memory_bytes=free_memory(),
        plan_27b=_plan_27b(found),
        embedded_target=embedded,
        next=_next(versions, found, exl3, embedded),
    )


def _next(
    versions: dict[str, str | None],
    found: list[dict[str, Any]],
    exl3: dict[str, Any],
    embedded: str | None,
) -> str:
    if not versions["torch"] or not versions["transformers"]:
        return INSTALL
    if found and exl3["version"] != VERSION:
        return f"pip install exllamav3=={VERSION}"
    if found and exl3["triton"] is None:
        return "pip install triton"
    if found and (exl3["extension"] is None or "holds code for" in (exl3["why_not"] or "")):
        return build_command(found)
    if found and exl3["why_not"] is None:
        return (
            "specviz doctor --target FOLDER, then notebooks/07_dual_t4.ipynb; see docs/dual_t4.md"
        )
    return "specviz demo" if embedded else "specviz fetch"


def _plan_27b(found: list[dict[str, Any]]) -> str:
    sizes = [float(gpu["free_bytes"]) for gpu in found if gpu["free_bytes"] > 2e9]
    if sizes:
        return plan_memory(CONFIG_27B, draft="mtp", gpus=sizes[:2]).sentence
    two = plan_memory(CONFIG_27B, draft="mtp", gpus=(T4_BYTES, T4_BYTES)).sentence
    return f"No GPU here. On two T4s: {two}"


def free_memory() -> int | None:
    """Bytes of the computer's own memory that are free, None where the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch_cuda() -> str | None:
    import torch

    version: str | None = torch.version.cuda
    return version


def _driver() -> str | None:
    """The version of NVIDIA's driver, as nvidia-smi says it; torch built for a newer CUDA fails."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    asked = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.split("\n")[0].strip() or None if said.returncode == 0 else None


def _toolkit() -> str | None:
    """What nvcc says of itself, and where it is."""
    home = os.environ.get("CUDA_HOME")
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin" if home else "/nowhere")
    if nvcc is None:
        return None
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return f"{nvcc}, which does not answer"
    lines = [line for line in said.stdout.splitlines() if "release" in line]
    return f"{lines[0].strip() if lines else 'of unknown version'} ({nvcc})"


def _gb(size: float | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"
