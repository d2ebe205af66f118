"""Which drafted tokens are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.protocols import Draft, Rows, Verdict


@dataclass(frozen=True)
class Greedy:
    """Keep the drafted tokens that the target's argmax would have produced (F3.4).

    Lossless for greedy decoding: the output is the target's own greedy output, up to ties
    that a change of batch shape decides differently.
    """

    name: ClassVar[str] = "greedy"
    lossless: ClassVar[bool] = True

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        best = rows.logits.argmax(-1).tolist()
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(draft.parents):
            children.setdefault(parent, []).append(node)
        path: list[int] = []
        here = -1
        while True:
            wanted = best[here + 1]
            below = children.get(here, [])
            match = next((node for node in below if draft.tokens[node] == wanted), None)
            if match is None:
                return Verdict(tuple(path), wanted, full=not below)
            path.append(match)
            here = match
