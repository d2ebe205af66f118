"""The most frequent next token: the least that training can teach a drafter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from specviz.drafters.assemble import no_drafts, point_columns
from specviz.engine.inputs import Ids, fingerprint_of
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, Drafts, More, Reference, Rows, Target
from specviz.engine.tree_drafts import refuse_tree
from specviz.policies import DraftView, Plan
from specviz.refuse import whole


class Bigram:
    """After each token, the token that followed it most often in a training corpus.

    It knows the target's commonest pairs and nothing else: what a learned drafter owes to
    anything more shows as its difference from this one on the same corpus.

    Parameters
    ----------
    after
        Follower of every token, int [vocabulary]; -1 where none was seen, so that a draft
        ends there.
    share
        Share of all its followers that were this one, float [vocabulary]; 0 where none was
        seen. Held in float16, as it is stored: a table read back is the same drafter.
    max_k
        Most tokens drafted in a round.

    Raises
    ------
    ValueError
        When the two are no table of a vocabulary, or max_k is below 1.

    Notes
    -----
    Drafts are points (q = 1) and suffix-consistent (F7.5): a drafted token depends on the
    token before it only. `confidence` is the share: relative frequency in the corpus, not the
    probability of being accepted.

    Examples
    --------
    >>> from specviz.policies import Plan
    >>> table = Bigram(after=[1, 2, -1], share=[1.0, 0.5, 0.0])
    >>> table.propose([0], Plan(3), lambda view: True).tokens
    (1, 2)
    """

    taps: tuple[int, ...] = ()
    simulated_cost = False

    def __init__(
        self, after: ArrayLike, share: ArrayLike, max_k: int = 15, name: str = "bigram"
    ) -> None:
        self.max_k, self.name = whole("max_k", max_k, 1), name
        _check_table(np.asarray(after), np.asarray(share))
        self.after, self.share = np.array(after, np.int32), np.array(share, np.float16)
        self.caption = f"the most frequent next token, of {int((self.after >= 0).sum()):,} tokens"
        self.fingerprint = fingerprint_of("bigram", self.after.tobytes(), self.share.tobytes())

    @property
    def vocab_size(self) -> int:
        return len(self.after)

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, torch.Tensor], max_k: int = 15, name: str = "bigram"
    ) -> Bigram:
        """The drafter whose `to_tensors` these are.

        Raises
        ------
        ValueError
            When one of the two tensors is missing or they are no table.
        """
        missing = [part for part in ("after", "share") if part not in tensors]
        if missing:
            raise ValueError(
                "A bigram is stored as the tensors 'after' and 'share'; there is no "
                f"{missing[0]!r}."
            )
        after, share = (tensors[part].cpu().numpy() for part in ("after", "share"))
        return cls(after, share, max_k, name)

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """`after` int32 [vocabulary] and `share` float16 [vocabulary], to be stored."""
        return {"after": torch.tensor(self.after), "share": torch.tensor(self.share)}

    def attach(self, target: Target) -> None:
        """Check that the table is of the target's vocabulary.

        Raises
        ------
        ValueError
            When it has another number of tokens.
        """
        if target.vocab_size != self.vocab_size:
            raise ValueError(
                f"{self.name} was fitted on a vocabulary of {self.vocab_size} tokens, "
                f"{target.name} has {target.vocab_size}: fit it on that target's own answers."
            )

    def start(self, prompt: Ids, rows: Rows) -> None:
        pass  # the last token is all it looks at

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        pass

    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        refuse_tree(plan, self.name)
        last, k = context[-1], min(plan.k, self.max_k)
        tokens: list[int] = []
        shares: list[float] = []
        while len(tokens) < k and self.after[last] >= 0:
            zeros = [0.0] * len(tokens)
            if tokens and not more(DraftView(plan, zeros, zeros, shares)):
                break
            shares.append(float(self.share[last]))
            last = int(self.after[last])
            tokens.append(last)
        return Draft.chain(context[-1], tokens, confidence=shares)

    def propose_all(self, reference: Reference, k: int) -> Drafts:
        anchors = reference.anchors
        if anchors == 0:
            return no_drafts(k)
        realised = np.asarray(reference.realised)
        token = np.full((anchors, k), -1, np.int64)
        confidence = np.full((anchors, k), np.nan)
        last = realised[:anchors]
        for depth in range(k):  # every anchor at once
            known = (last >= 0) & (self.after[last] >= 0)
            confidence[known, depth] = self.share[last[known]]
            last = np.where(known, self.after[last], -1)
            token[:, depth] = last
        certain = np.where(token >= 0, 0.0, np.nan)
        return Drafts(
            drafted=(token >= 0).sum(axis=1),
            token=token,
            logq=certain,
            entropy=certain,
            confidence=confidence,
            **point_columns(reference, self.after[realised].astype(np.int64), k),
        )


def fit_bigram(
    texts: Iterable[tuple[Ids, Ids]], vocab_size: int, max_k: int = 15, name: str = "bigram"
) -> Bigram:
    """Count which token follows which in answers, and keep the most frequent follower.

    Parameters
    ----------
    texts
        (prompt ids, answer ids), as `specviz.training.corpus.Corpus.texts` yields. Followers
        are answer tokens only; the first of an answer follows the prompt's last token.
    vocab_size
        Tokens of the target the answers are from.
    max_k, name
        Of the drafter.

    Returns
    -------
    Bigram
        Of equally frequent followers it keeps the smallest id.

    Raises
    ------
    ValueError
        When no token follows another, or one is outside the vocabulary.

    Examples
    --------
    >>> table = fit_bigram([([0], [1, 0, 1, 0, 1, 0, 2])], vocab_size=4)
    >>> table.after.tolist(), table.share.tolist()
    ([1, 0, -1, -1], [0.75, 1.0, 0.0, 0.0])
    """
    whole("vocab_size", vocab_size, 1)
    runs = [np.array([*prompt[-1:], *answer], np.int64) for prompt, answer in texts]
    before = np.concatenate([run[:-1] for run in runs]) if runs else np.zeros(0, np.int64)
    if not len(before):
        raise ValueError("No answer has a token that follows another: there is nothing to count.")
    follower = np.concatenate([run[1:] for run in runs])
    for ids in (before, follower):
        bad = ids[(ids < 0) | (ids >= vocab_size)]
        if len(bad):
            raise ValueError(f"Token id {bad[0]} is outside a vocabulary of {vocab_size}.")
    pairs, counts = np.unique(before * vocab_size + follower, return_counts=True)
    left, right = pairs // vocab_size, pairs % vocab_size
    # The most frequent first, of equals the smallest id; then the first row of every token.
    order = np.lexsort((right, -counts, left))
    tokens, first = np.unique(left[order], return_index=True)
    best = order[first]
    after, share = np.full(vocab_size, -1), np.zeros(vocab_size)
    after[tokens] = right[best]
    share[tokens] = counts[best] / np.bincount(before, minlength=vocab_size)[tokens]
    return Bigram(after, share, max_k, name)


def _check_table(after: np.ndarray, share: np.ndarray) -> None:
    if after.ndim != 1 or after.shape != share.shape or not len(after):
        raise ValueError(
            "A bigram needs one follower and one share per token of a vocabulary; the shapes are "
            f"{after.shape} and {share.shape}."
        )
    if after.dtype.kind not in "iu" or after.min() < -1 or after.max() >= len(after):
        raise ValueError(
            f"Followers are token ids from 0 to {len(after) - 1}, or -1 for none, not "
            f"{after.dtype} from {after.min()} to {after.max()}."
        )
    if not ((share >= 0) & (share <= 1)).all():
        raise ValueError("Shares of followers must lie between 0 and 1.")
