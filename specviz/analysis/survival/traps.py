"""How counting goes wrong though the drafter stays the same: simulations to teach and test with.

Every number here is drawn from a law that is known, so that each estimate can be held against
the truth. The text has two states, easy and hard, and stays in one for a while: real text is
like that, and it is what makes the start of a round, and its end, no fair sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specviz.analysis.survival.lengths import kaplan_meier
from specviz.analysis.theory.tau import tau_iid
from specviz.policies.base import number
from specviz.refuse import whole


@dataclass(frozen=True)
class TwoStateText:
    """Text that is easy for a while, then hard for a while.

    Parameters
    ----------
    easy, hard
        Chance that the drafter's token is the target's, per state.
    leave_easy, leave_hard
        Chance per token to change to the other state.

    Notes
    -----
    The defaults match 0.70 of all tokens, in stretches of some 14.

    Examples
    --------
    >>> text = TwoStateText()
    >>> text.match, text.hits(5, seed=0).dtype.name
    (0.7, 'bool')
    """

    easy: float = 0.95
    hard: float = 0.45
    leave_easy: float = 0.07
    leave_hard: float = 0.07

    def __post_init__(self) -> None:
        for name in ("easy", "hard", "leave_easy", "leave_hard"):
            object.__setattr__(self, name, number(name, getattr(self, name), 0, 1))
        if not self.leave_easy + self.leave_hard:
            raise ValueError("One of the states must be left now and then.")

    @property
    def match(self) -> float:
        """Share of all tokens that match."""
        often = self.leave_hard / (self.leave_easy + self.leave_hard)
        return often * self.easy + (1 - often) * self.hard

    def hits(self, tokens: int, seed: int) -> NDArray[np.bool_]:
        """Whether each token of a text matches, shape [tokens]."""
        rng = np.random.default_rng(whole("seed", seed, least=0))
        now = bool(rng.random() * (self.leave_easy + self.leave_hard) < self.leave_hard)
        leave, easy = {True: self.leave_easy, False: self.leave_hard}, []
        for u in rng.random(whole("tokens", tokens, least=1)).tolist():
            easy.append(now)
            now ^= u < leave[now]
        return np.asarray(rng.random(tokens) < np.where(easy, self.easy, self.hard))


def selection_trap(
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    text: TwoStateText | None = None,
    *,
    tokens: int = 200_000,
    seed: int = 0,
) -> pd.DataFrame:
    """One drafter, one text, several k: which numbers move though nothing but k does.

    Parameters
    ----------
    ks
        Tokens drafted in every round.
    text
        None takes `TwoStateText()`.
    tokens
        Length of the text.
    seed
        Of the text.

    Returns
    -------
    DataFrame
        Per k:

        - draft_yield: accepted / drafted. It falls: what follows a rejection was drafted, too.
        - first_match: share of rounds whose first token is accepted. It falls: with a longer
          draft more rounds start just after a hard token.
        - last_hazard: share of rounds that accept token k, of those that accepted k - 1. It
          rises: who gets that far is in easy text.
        - right_censored: accepted / (accepted + rejections seen), which leaves out what was
          never decided. It hardly moves, and is near `token_match`, the share of all tokens
          that match.
        - tokens_per_round (bonus counted) of the rounds that were run, the truth.
        - all_anchors: 1 + the mean of min(k, M) over all anchors. Too high: rounds rush through
          easy text, and so start more rarely in it.
        - other_starts: the same over the anchors that the largest of `ks` visits. Too low for
          the others.
        - n_rounds.

    Raises
    ------
    ValueError
        When a k is below 1 or the text is shorter than 100 times the largest.

    Notes
    -----
    Source: F7.5 (which anchors), F2.5 (the identities). Expect token_match 0.70, draft_yield
    .667 to .139, first_match .667 to .534, and at k = 8 last_hazard .88 and 4.21 against 2.98
    tokens per round.

    Examples
    --------
    >>> found = selection_trap((1, 8), tokens=20_000)
    >>> bool((found.all_anchors > found.tokens_per_round).all())
    True
    """
    lengths = [whole("Every one of ks", k, least=1) for k in ks]
    if not lengths:
        raise ValueError("ks must name a length.")
    whole("tokens (100 times the largest k)", tokens, least=100 * max(lengths))
    hits = (TwoStateText() if text is None else text).hits(tokens, seed)
    last = len(hits) - max(lengths) - 1
    run = _runs(hits)[1:]  # run[a]: matches from token a + 1 on
    starts = {k: _starts(run, k, last) for k in lengths}
    rows = []
    for k in lengths:
        mine = np.minimum(run[starts[k]], k)
        there = np.minimum(run[starts[max(lengths)]], k)
        rows.append(
            {
                "k": k,
                "token_match": hits[1 : last + 1].mean(),
                "draft_yield": mine.sum() / (k * len(mine)),
                "first_match": (mine >= 1).mean(),
                "last_hazard": (mine >= k).sum() / (mine >= k - 1).sum(),
                "right_censored": mine.sum() / (mine.sum() + (mine < k).sum()),
                "tokens_per_round": 1 + mine.mean(),
                "all_anchors": 1 + np.minimum(run[:last], k).mean(),
                "other_starts": 1 + there.mean(),
                "n_rounds": len(mine),
            }
        )
    return pd.DataFrame(rows)


def censoring_trap(
    easy: float = 0.95,
    hard: float = 0.4,
    k_easy: int = 8,
    k_hard: int = 2,
    wide: float = 0.0,
    *,
    rounds: int = 100_000,
    seed: int = 0,
) -> pd.DataFrame:
    """A policy that drafts less where text is hard, and what Kaplan-Meier makes of it (F7.4).

    Parameters
    ----------
    easy, hard
        Chance of a match, per kind of round; half of the rounds are of either.
    k_easy, k_hard
        What the policy drafts there.
    wide
        Share of rounds, drawn by lot, that draft the longer of the two whatever the text.
    rounds
        How many.
    seed
        Of the draws.

    Returns
    -------
    DataFrame
        Per depth: truth (P(accepted >= depth) if all rounds drafted that far), kaplan_meier
        (all rounds together), stratified (the mean of the two kinds' own curves: right, but
        NaN where a kind was never tried) and at_risk. `attrs` hold tokens per round up to the
        last depth, bonus counted: truth_tokens, kaplan_meier_tokens.

    Notes
    -----
    Defaults: 4.88 tokens per round by Kaplan-Meier against 4.53 in truth.

    Examples
    --------
    >>> found = censoring_trap(rounds=20_000)
    >>> bool(found.attrs["kaplan_meier_tokens"] > found.attrs["truth_tokens"] + 0.2)
    True
    """
    easy, hard, wide = (
        number(name, value, 0, 1)
        for name, value in (("easy", easy), ("hard", hard), ("wide", wide))
    )
    longest = max(whole("k_easy", k_easy, least=1), whole("k_hard", k_hard, least=1))
    rng = np.random.default_rng(whole("seed", seed, least=0))
    kind = np.arange(whole("rounds", rounds, least=2)) % 2 == 0
    drafted = np.where(rng.random(rounds) < wide, longest, np.where(kind, k_easy, k_hard))
    tried = rng.random((rounds, longest)) < np.where(kind, easy, hard)[:, None]
    match = np.cumprod(tried, axis=1).sum(axis=1)
    accepted = np.minimum(match, drafted)
    depths = np.arange(1, longest + 1)
    own = []
    for each in (kind, ~kind):
        curve = kaplan_meier(accepted[each], match[each] < drafted[each], longest)
        own.append(np.where(depths <= drafted[each].max(), curve, np.nan))
    frame = pd.DataFrame(
        {
            "depth": depths,
            "truth": (easy**depths + hard**depths) / 2,
            "kaplan_meier": kaplan_meier(accepted, match < drafted, longest),
            "stratified": (own[0] + own[1]) / 2,
            "at_risk": [int(((match >= j - 1) & (drafted >= j)).sum()) for j in depths],
        }
    )
    frame.attrs["truth_tokens"] = (tau_iid(easy, longest) + tau_iid(hard, longest)) / 2
    frame.attrs["kaplan_meier_tokens"] = 1 + float(frame["kaplan_meier"].sum())
    return frame


def _runs(hits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many matches in a row start at every token."""
    misses = np.append(np.flatnonzero(~hits), len(hits))
    every = np.arange(len(hits))
    return np.asarray(misses[np.searchsorted(misses, every)] - every)


def _starts(run: NDArray[np.int64], k: int, last: int) -> NDArray[np.int64]:
    """Anchors below `last` where rounds of k tokens start."""
    step, at, found = (np.minimum(run, k) + 1).tolist(), 0, []
    while at < last:
        found.append(at)
        at += step[at]
    return np.array(found, dtype=np.int64)
