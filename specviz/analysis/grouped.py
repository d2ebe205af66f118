"""Ratios of sums per prompt, for every kind of text and all of it, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specviz.analysis.anchors import Anchors, Ints, anchors_of, require_capture
from specviz.analysis.resampling import Floats, percentiles, resampled_sums
from specviz.trace import Trace


def captured_by(trace: Trace, drafter: str | None) -> list[Anchors]:
    """The anchors of one drafter of a capture, or of all of them."""
    require_capture(trace)
    return [anchors_of(trace, n) for n in ([drafter] if drafter is not None else trace.drafters)]


def groups_of(anchors: Anchors, by: str) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
    """Every value of `by` and its sequences with a round, then "all"."""
    values = anchors.labels(by)
    longer = anchors.n > 1  # a one-token output has no anchor
    for value in dict.fromkeys(values[longer]):
        yield value, longer & (values == value)
    yield "all", longer


def ratios(
    prompt_id: NDArray[Any], top: Floats, below: Floats, level: float, draws: int, seed: int
) -> tuple[Floats, Floats, Floats, Ints]:
    """Ratios of the column sums of [sequences, m], their intervals' ends, and prompts behind each.

    Sequences of one prompt count as one. NaN where nothing is below. A resample with nothing
    below a column is left out of its interval.
    """
    codes = pd.factorize(prompt_id)[0]
    top, below = (pd.DataFrame(each).groupby(codes).sum().to_numpy(float) for each in (top, below))
    m, prompts = top.shape[1], (below > 0).sum(axis=0)
    ratio, low, high = (np.full(m, np.nan) for _ in range(3))
    some = prompts > 0
    ratio[some] = top[:, some].sum(axis=0) / below[:, some].sum(axis=0)
    if len(top) < 2:
        return ratio, low, high, prompts
    sums = resampled_sums(np.hstack([top, below]), draws, seed)
    for j in np.flatnonzero(prompts > 1):
        over, under = sums[:, j], sums[:, m + j]
        low[j], high[j] = percentiles(over[under > 0] / under[under > 0], level, prompts[j])
    return ratio, low, high, prompts
