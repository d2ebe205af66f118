"""Trained weights on disk: int8 rows in safetensors, with what they were trained for.

A file says which family it is, which tokens it can say, and of which target it is: a sample of
the target's own weights lies in it, so that a drafter meets the target it belongs to or refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from specviz.engine.protocols import Target
from specviz.trace.store import placed

_FORMAT = "specviz drafter 1"
_SAMPLED = 16  # embedding rows that identify a target
_CLOSE = 4e-3  # of a weight's size: fp16 rounds by 5e-4, another training moves more


@dataclass(frozen=True)
class Weights:
    """A trained drafter before it meets its target.

    Attributes
    ----------
    family
        "lm", "eagle", "block", "mtp" or "bigram".
    settings
        What the family needs besides tensors (layers, taps), as JSON can hold it.
    tensors
        Trained tensors by name, "vocabulary" (token ids) among them.
    sample
        Some of the target's weights.
    """

    family: str
    settings: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]
    sample: torch.Tensor


def sample_of(model: Any) -> torch.Tensor:
    """Weights that tell one target from another: its final norm and some embedding rows, fp32."""
    embedding = model.get_input_embeddings().weight.detach()
    rows = torch.linspace(0, len(embedding) - 1, _SAMPLED).long()
    parts = [*model.get_decoder().norm.parameters(), embedding[rows.to(embedding.device)]]
    return torch.cat([part.detach().float().cpu().reshape(-1) for part in parts])


def check_target(weights: Weights, target: Target, name: str) -> Any:
    """The target's transformers model, if the drafter was trained for it.

    Raises
    ------
    ValueError
        Otherwise, saying how far they are apart.
    """
    model = getattr(target, "model", None)
    if model is None or not hasattr(model, "get_decoder"):
        raise ValueError(f"{name} drafts from a torch target's weights; {target.name} has none.")
    theirs = sample_of(model)
    if theirs.shape != weights.sample.shape:
        raise ValueError(
            f"{name} was trained for a target of another size than {target.name}: train one for "
            "it with `specviz train`."
        )
    size = float(weights.sample.abs().mean())
    apart = float((theirs - weights.sample).abs().mean()) / max(size, 1e-12)
    if not apart <= _CLOSE:
        raise ValueError(
            f"{name} was trained for another target than {target.name}: their weights differ by "
            f"{apart:.1%} on average. Train a drafter for this one with `specviz train`."
        )
    return model


def save_weights(weights: Weights, file: Path) -> None:
    """Write a drafter; matrices as int8 with a scale per row."""
    tensors = {"target.sample": weights.sample.half()}
    for name, tensor in weights.tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        if tensor.dim() < 2 or not tensor.is_floating_point():
            tensors[name] = tensor.float() if tensor.dtype == torch.float64 else tensor
            continue
        scale = tensor.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        tensors[name] = (tensor / scale).round().to(torch.int8)
        tensors[f"{name}.scale"] = scale.float()
    said = {"format": _FORMAT, "family": weights.family, "settings": json.dumps(weights.settings)}
    with placed(file) as temporary:
        save_file(tensors, temporary, said)
        temporary.chmod(0o644)  # safetensors writes for the owner only


def load_weights(file: Path) -> Weights:
    """Read a drafter's file.

    Raises
    ------
    ValueError
        When the file is damaged, or is not a drafter of specviz.
    """
    try:
        with safe_open(file, "pt") as kept:
            said = kept.metadata() or {}
            tensors = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged: {str(error).splitlines()[0]}.") from None
    if said.get("format") != _FORMAT:
        raise ValueError(f"{file} is not a drafter that `specviz train` wrote.")
    sample = tensors.pop("target.sample").float()
    full = {}
    for name, tensor in tensors.items():
        scale = tensors.get(f"{name}.scale")
        if not name.endswith(".scale"):
            full[name] = tensor if scale is None else tensor.float() * scale
    return Weights(said["family"], json.loads(said["settings"]), full, sample)
