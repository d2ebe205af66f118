"""Accepted length at every anchor against the target's branching factor there, at any k."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.anchors import Ints, anchors_of, by_position
from specviz.analysis.resampling import LEVEL, Floats, percentiles, resampled_sums
from specviz.trace import Trace


@dataclass(frozen=True)
class _Kind:
    """One content type: which anchors, and per prompt and step of EBF how many there are."""

    name: str
    rows: Ints
    cell: Ints  # prompt x step of every row
    count: Floats
    ebf: Floats


class BranchingLens:
    """One drafter's anchors, prepared for a k that changes often.

    Parameters
    ----------
    trace, drafter
        A greedy capture, and one of its drafters.
    edges
        Rising EBFs that part the steps of the curve.
    draws
        Resamples of prompts behind its intervals.

    Raises
    ------
    ValueError
        When the trace has no draft at every anchor.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> lens = BranchingLens(bundled_trace("smollm2-trees"), "lm", (2.0, 8.0), draws=100)
    >>> lens.curve(7, "code")["n_prompts"].tolist()
    [18, 18, 15]
    """

    def __init__(
        self, trace: Trace, drafter: str, edges: tuple[float, ...], draws: int = 1000
    ) -> None:
        self.anchors = anchors_of(trace, drafter)
        self.edges, self.draws = edges, draws
        at = self.anchors
        first = np.concatenate([[0], np.cumsum(at.n)])
        entropy = by_position(trace, at, "entropy").astype(float)
        self.ebf = np.exp(entropy[first[at.owner] + at.anchor + 1])

    def table(self, k: int) -> pd.DataFrame:
        """One row per anchor: seq, prompt_id, content_type, t (= a + 1), ebf, accepted."""
        return self._rows(k, slice(None))

    def of_text(self, seq: int, k: int) -> pd.DataFrame:
        """The rows of `table` that are of one sequence."""
        place = np.flatnonzero(self.anchors.seq == seq)
        ends = self.anchors.start[[place[0], place[0] + 1]] if len(place) else (0, 0)
        return self._rows(k, slice(*ends))

    def curve(self, k: int, kind: str | None = None) -> pd.DataFrame:
        """Mean accepted length in steps of EBF, by content type; intervals resample prompts.

        Returns
        -------
        DataFrame
            content_type, ebf (geometric mean of the step), accepted (mean, bonus not counted),
            low, high, n_anchors, n_prompts. All anchors count alike, though rounds do not visit
            all of them.
        """
        accepted = self._accepted(k, slice(None)).astype(float)
        rows: list[dict[str, Any]] = []
        for each in self._kinds:
            if kind in (None, each.name):
                rows += self._steps(each, accepted[each.rows])
        return pd.DataFrame(rows)

    def _accepted(self, k: int, which: slice) -> Ints:
        return np.clip(np.minimum(self.anchors.acceptable[which], k), 0, None)

    def _rows(self, k: int, which: slice) -> pd.DataFrame:
        at, owner = self.anchors, self.anchors.owner[which]
        return pd.DataFrame(
            {
                "seq": at.seq[owner],
                "prompt_id": at.prompt_id[owner],
                "content_type": at.content_type[owner],
                "t": at.anchor[which] + 1,
                "ebf": self.ebf[which],
                "accepted": self._accepted(k, which),
            }
        )

    @cached_property
    def _kinds(self) -> list[_Kind]:
        at, cells = self.anchors, len(self.edges) + 1
        step = np.searchsorted(self.edges, self.ebf, side="right")
        kind_of, kinds = pd.factorize(at.content_type)
        found = []
        for number, name in enumerate(kinds):
            rows = np.flatnonzero(kind_of[at.owner] == number)
            prompt, prompts = pd.factorize(at.prompt_id[at.owner[rows]])
            cell, n = prompt * cells + step[rows], len(prompts)
            count = np.bincount(cell, minlength=n * cells).astype(float).reshape(n, cells)
            log = np.bincount(step[rows], np.log(self.ebf[rows]), cells)
            with np.errstate(invalid="ignore"):
                ebf = np.exp(log / count.sum(axis=0))  # NaN where no anchor is
            found.append(_Kind(str(name), rows, cell, count, ebf))
        return found

    def _steps(self, kind: _Kind, accepted: Floats) -> list[dict[str, Any]]:
        (n, cells), count = kind.count.shape, kind.count
        kept = np.bincount(kind.cell, accepted, n * cells).reshape(n, cells)
        drawn = resampled_sums(np.hstack([count, kept]), self.draws, 0) if n > 1 else None
        rows = []
        for cell in np.flatnonzero(count.sum(axis=0)):
            size, ends = count[:, cell].sum(), (np.nan, np.nan)
            if drawn is not None:
                some = drawn[drawn[:, cell] > 0]
                low, high = percentiles(some[:, cells + cell] / some[:, cell], LEVEL, n)
                ends = float(low), float(high)
            rows.append(
                {
                    "content_type": kind.name,
                    "ebf": float(kind.ebf[cell]),
                    "accepted": kept[:, cell].sum() / size,
                    "low": ends[0],
                    "high": ends[1],
                    "n_anchors": int(size),
                    "n_prompts": int((count[:, cell] > 0).sum()),
                }
            )
        return rows
