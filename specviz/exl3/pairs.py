"""Whether a target and a draft model fit: asked before any weights are read."""

from __future__ import annotations

from typing import Any

from specviz.drafters.exl3_base import join
from specviz.drafters.exl3_chains import check_attention


def check_pair(model: Any, drafting: Any, target: str, drafter: str, k: int | None) -> None:
    """Refuse a draft model that could not be used once it is loaded.

    Parameters
    ----------
    model, drafting
        exllamav3's, not loaded yet.
    target, drafter
        Their names.
    k
        Drafted tokens asked for, None for the library's choice.

    Raises
    ------
    ValueError
        When the draft model has other shapes than the target, or layers or a block that do not fit.
    """
    if drafting.caps.get("attach_target"):
        join(drafting, model, drafter, target)
    if drafting.caps.get("dflash_draft"):
        widest = int(drafting.caps["default_draft_size"])
        if k is not None and k > widest:
            raise ValueError(f"{drafter} drafts blocks of {widest} tokens: max_k cannot be {k}.")
        return
    check_attention(drafting, drafter)
