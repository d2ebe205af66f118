"""What the drafters of exllamav3 share: a model with a cache, and a target of the same library."""

from __future__ import annotations

from typing import Any

from specviz.engine.protocols import Target
from specviz.policies import Plan
from specviz.refuse import whole
from specviz.targets.exl3 import Exl3Target
from specviz.targets.exl3_cache import PAGE


class Exl3Drafter:
    """A draft model of exllamav3's, its weights loaded and its cache made before them."""

    simulated_cost = False
    taps: tuple[int, ...] = ()

    def __init__(self, model: Any, cache: Any, name: str, caption: str, fingerprint: str) -> None:
        if not cache.initialized:
            raise ValueError("The cache has no tensors: make it before the model's weights load.")
        self.model, self.cache, self.name = model, cache, name
        self.caption = caption or f"{name}, exllamav3"
        self.fingerprint = fingerprint
        self._target: Exl3Target | None = None

    def _meet(self, target: Target) -> None:
        """Attach the library's models to one another.

        Raises
        ------
        ValueError
            When the target is no model of exllamav3's, or the library says they do not fit.
        """
        if not isinstance(target, Exl3Target):
            raise ValueError(
                f"{self.name} runs in exllamav3 and {target.name} does not: load both with "
                "load_exl3(target_dir, draft=...)."
            )
        if self.model.caps.get("attach_target"):
            join(self.model, target.model, self.name, target.name)
        self._target = target

    def _attached(self) -> Exl3Target:
        if self._target is None:
            raise RuntimeError(f"{self.name} is not attached to a target yet: attach it first.")
        return self._target

    def _table(self) -> list[int]:
        return list(range(self.cache.max_num_tokens // PAGE))

    def _check_room(self, tokens: int) -> None:
        if tokens > self.cache.max_num_tokens:
            raise ValueError(
                f"{self.name} was loaded with a cache of {self.cache.max_num_tokens:,} tokens and "
                f"this draft reaches {tokens:,}: load it with more tokens."
            )

    def _refuse_tree(self, plan: Plan) -> None:
        if plan.tree is not None:
            raise ValueError(
                f"{self.name} drafts chains only: exllamav3 has no tree mask to grow a "
                f"{plan.tree.builder} tree with. Use FixedK, or a DFlash drafter."
            )


def join(drafting: Any, model: Any, drafter: str, target: str) -> None:
    """Attach a draft model that borrows the target's head, loaded or not.

    Raises
    ------
    ValueError
        With the library's own objection, when they do not fit.
    """
    try:
        drafting.attach_to(model)
    except (ValueError, AssertionError) as error:
        raise ValueError(f"{drafter} does not fit {target}: {error}.") from None


def max_k_of(model: Any, asked: int | None) -> int:
    """Most tokens per round: as asked for, else what the library drafts by default."""
    return int(model.caps.get("default_draft_size", 4)) if asked is None else whole("k", asked, 1)
