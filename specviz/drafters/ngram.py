"""Copy what followed the last time: drafts without a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specviz.drafters.assemble import no_drafts, point_columns
from specviz.engine.inputs import Ids, fingerprint_of
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree import trie
from specviz.engine.tree_drafts import Trie, refuse_tree
from specviz.policies import DraftView, Plan
from specviz.refuse import whole


class NGram:
    """Longest suffix match over prompt and output, the most recent one on ties.

    The text that followed the match is copied; when the copy reaches the end of the text it
    goes on with its own tokens, so that a drafted token depends on the tokens before it only
    (and drafts are suffix-consistent, F7.5).

    Parameters
    ----------
    min_match
        Shortest suffix, in tokens, that may be matched; with none the draft is empty.
    max_k
        Most tokens drafted in a round.

    Notes
    -----
    Drafts are points (q = 1). `confidence` is L / (L + 1) for a suffix of L tokens: a score,
    not a probability. Known elsewhere as prompt lookup (Saxena 2023).

    Examples
    --------
    >>> from specviz.policies import Plan
    >>> NGram().propose([5, 6, 7, 5, 6], Plan(3), lambda view: True).tokens
    (7, 5, 6)
    """

    taps: tuple[int, ...] = ()
    simulated_cost = False

    def __init__(self, min_match: int = 1, max_k: int = 15, name: str = "ngram") -> None:
        if min_match < 1:
            raise ValueError(f"min_match must be at least 1 token, not {min_match}.")
        self.min_match, self.max_k, self.name = min_match, whole("max_k", max_k, 1), name
        self.caption = f"n-gram lookup, suffixes of {min_match} token(s) or more"
        self.fingerprint = fingerprint_of("ngram", min_match)

    def attach(self, target: Target) -> None:
        pass  # token ids are all it knows; they fit any target

    def start(self, prompt: Ids, rows: Rows) -> None:
        pass

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        pass

    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        if isinstance(plan.tree, Trie):
            depth = plan.tree.depth if plan.k else 0
            return trie(self._copies(np.asarray(context), depth), context[-1], plan.tree.budget)
        refuse_tree(plan, self.name, "a Trie")
        tokens, scores = self._copy(np.asarray(context), min(plan.k, self.max_k))
        zeros = [0.0] * len(tokens)
        for depth in range(1, len(tokens)):
            if not more(DraftView(plan, zeros[:depth], zeros[:depth], scores[:depth])):
                tokens, scores = tokens[:depth], scores[:depth]
                break
        return Draft.chain(context[-1], tokens, confidence=scores)

    def propose_all(self, reference: Reference, k: int) -> Drafts:
        anchors, end = reference.anchors, len(reference.realised)
        if anchors == 0:
            return no_drafts(k)
        text = np.asarray(reference.prompt + reference.realised)
        token = np.full((anchors, k), -1, np.int64)
        confidence = np.full((anchors, k), np.nan)
        drafted = np.zeros(anchors, np.int64)
        proposed = np.full(end, -1, np.int64)
        for t in range(end):
            # The context of anchor t ends with output token t.
            width = k if t < anchors else 1
            tokens, scores = self._copy(text[: len(reference.prompt) + t + 1], width)
            if tokens:
                proposed[t] = tokens[0]
            if t < anchors:
                drafted[t] = len(tokens)
                token[t, : len(tokens)] = tokens
                confidence[t, : len(tokens)] = scores
        certain = np.where(token >= 0, 0.0, np.nan)
        return Drafts(
            drafted=drafted,
            token=token,
            logq=certain,
            entropy=certain,
            confidence=confidence,
            **point_columns(reference, proposed, k),
        )

    def _copy(self, text: np.ndarray, k: int) -> tuple[list[int], list[float]]:
        """Up to k tokens that followed the longest earlier match, and their scores."""
        last = len(text) - 1
        ends = np.flatnonzero(text[:last] == text[last])
        if k < 1 or len(ends) == 0:
            return [], []
        length, kept = 1, ends
        while True:
            longer = kept[kept >= length]
            longer = longer[text[longer - length] == text[last - length]]
            if len(longer) == 0:
                break
            kept, length = longer, length + 1
        if length < self.min_match:
            return [], []
        copied = _after(text, int(kept[-1]), k)
        return copied, [(length + j) / (length + j + 1) for j in range(k)]

    def _copies(self, text: np.ndarray, k: int) -> list[list[int]]:
        """k tokens after every earlier match, the longest matches first, then the most recent.

        The first is the chain that `_copy` would draft.
        """
        last = len(text) - 1
        kept = np.flatnonzero(text[:last] == text[last])
        length = {int(end): 1 for end in kept}
        shared = 1
        while len(kept):
            kept = kept[kept >= shared]
            kept = kept[text[kept - shared] == text[last - shared]]
            shared += 1
            length.update(dict.fromkeys(kept.tolist(), shared))
        ends = [end for end in length if k and length[end] >= self.min_match]
        ends.sort(key=lambda end: (-length[end], -end))
        return [_after(text, end, k) for end in ends]


def _after(text: np.ndarray, source: int, k: int) -> list[int]:
    """k tokens that followed an earlier place; past the end of the text it copies itself."""
    last = len(text) - 1
    copied: list[int] = text[source + 1 : source + 1 + k].tolist()
    while len(copied) < k:
        copied.append(copied[len(copied) - (last - source)])
    return copied
