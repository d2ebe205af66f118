"""A token tree as the batch of its root-to-leaf paths, for models without a tree mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specviz.engine.protocols import Draft


@dataclass(frozen=True)
class Paths:
    """The anchor and one path per leaf, filled up to the same length.

    Attributes
    ----------
    tokens
        [paths, width]; a shorter path repeats its last token, which no earlier row sees.
    places
        Per verified row (anchor first, then the nodes), a path that has it and its place there.

    Examples
    --------
    >>> paths = Paths.of(Draft(9, (1, 2, 3), (-1, -1, 1), (0.0,) * 3))
    >>> paths.tokens, paths.places
    (((9, 1, 1), (9, 2, 3)), ((0, 0), (0, 1), (1, 1), (1, 2)))
    """

    tokens: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, draft: Draft) -> Paths:
        inner = set(draft.parents)
        leaves = [node for node in range(len(draft)) if node not in inner]
        width, places = 1 + draft.depth, {-1: (0, 0)}
        tokens = []
        for row, leaf in enumerate(leaves):
            path: list[int] = []
            node = leaf
            while node >= 0:
                path.insert(0, node)
                node = draft.parents[node]
            for depth, node in enumerate(path, start=1):
                places.setdefault(node, (row, depth))
            said = [draft.anchor, *(draft.tokens[node] for node in path)]
            tokens.append(tuple(said + said[-1:] * (width - len(said))))
        return cls(tuple(tokens), tuple(places[node] for node in range(-1, len(draft))))

    @property
    def width(self) -> int:
        return len(self.tokens[0])

    def row_of(self, node: int) -> int:
        """A path that has the node."""
        return self.places[node + 1][0]

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """[paths, width, ...] as one row per verified row, anchor first."""
        row, place = zip(*self.places, strict=True)
        return values[list(row), list(place)]
