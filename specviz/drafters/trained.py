"""Drafters from files: what comes with specviz, and what `specviz train` wrote."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from specviz._data_files import data_file
from specviz.cards import drafter_card
from specviz.drafters.bigram import Bigram
from specviz.drafters.block import BlockDrafter
from specviz.drafters.eagle import EagleDrafter
from specviz.drafters.lm import LMDrafter
from specviz.drafters.mtp import MtpDrafter
from specviz.drafters.small_lm import small_lm, trained_part
from specviz.drafters.weights import Weights, check_target, load_weights
from specviz.engine.protocols import Drafter, Target

#: The weights and the card in a folder that `specviz train` wrote.
WEIGHTS, CARD = "drafter.safetensors", "card.json"


class TrainedLM(LMDrafter):
    """A small language model distilled from its target, on the target's frozen embeddings."""

    def __init__(self, weights: Weights, name: str = "lm", max_k: int = 15) -> None:
        self.weights = weights
        self.layers = tuple(weights.settings["layers"])
        super().__init__(
            None, name=name, caption=f"{name}: {len(self.layers)} distilled layers", max_k=max_k
        )
        self._of: Any = None

    def attach(self, target: Target) -> None:
        model = check_target(self.weights, target, self.name)
        if self._of is not model:
            tensors = dict(self.weights.tensors)
            small = small_lm(model, self.layers, tensors.pop("vocabulary").long())
            trained_part(small).load_state_dict(tensors)
            self.model, self._of = small, model
        super().attach(target)


def trained_drafter(file: Path, name: str) -> Drafter:
    """The drafter in a weights file, not yet attached.

    Raises
    ------
    ValueError
        When the file is damaged or of a family this version does not know.
    """
    weights = load_weights(file)
    if weights.family == "lm":
        return TrainedLM(weights, name)
    if weights.family == "eagle":
        return EagleDrafter(weights, name)
    if weights.family == "block":
        return BlockDrafter(weights, name)
    if weights.family == "mtp":
        return MtpDrafter(weights, name)
    if weights.family == "bigram":
        return Bigram.from_tensors(weights.tensors, name=name)
    raise ValueError(f"{file} holds a {weights.family!r} drafter, which this specviz cannot run.")


def shipped_drafter(name: str) -> Drafter:
    """A drafter that comes with specviz, its file checked against its card's SHA-256.

    Raises
    ------
    ValueError
        When the file is not the one the card describes.
    """
    card = drafter_card(name)
    file = data_file(f"drafters/{name}.safetensors")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != card["sha256"]:
        raise ValueError(
            f"{file} is not the file that its card describes (SHA-256 {found[:12]}..., expected "
            f"{card['sha256'][:12]}...): restore it from the repository."
        )
    return trained_drafter(file, name)
