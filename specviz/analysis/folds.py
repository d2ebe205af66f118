"""Judging on other prompts than those fitted on: every prompt belongs to one fold."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specviz.refuse import whole


def prompt_folds(groups: ArrayLike, folds: int, seed: int = 0) -> NDArray[np.int64]:
    """The fold of every prompt; each group (kind of text) is dealt out evenly.

    Parameters
    ----------
    groups
        Of every prompt, shape [prompts].
    folds
        From 2 to the number of prompts (then each prompt is a fold of its own).
    seed
        Of the shuffle within a group.

    Examples
    --------
    >>> sorted(prompt_folds(["code", "code", "prose", "prose"], 2).tolist())
    [0, 0, 1, 1]
    """
    kinds = np.asarray(groups, dtype=object)
    folds = whole("folds", folds, least=2)
    if len(kinds) < folds:
        raise ValueError(f"{folds} folds need as many prompts; there are {len(kinds)}.")
    rng = np.random.default_rng(whole("seed", seed, least=0))
    dealt = [rng.permutation(np.flatnonzero(kinds == kind)) for kind in dict.fromkeys(kinds)]
    fold = np.empty(len(kinds), dtype=np.int64)
    fold[np.concatenate(dealt)] = np.arange(len(kinds)) % folds
    return fold
