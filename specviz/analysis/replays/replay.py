"""Replay: the rounds any policy would have run, from one greedy capture.

The target's greedy output depends on no drafter, and the capture drafted at *every* anchor,
so any policy can be followed exactly: from anchor a to a + 1 + accepted (F7.5). Averaging
min(k, M) over all anchors instead is too high, and over the anchors another k visited too low.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specviz.analysis.anchors import (
    Anchors,
    Ints,
    anchors_of,
    fixed_rounds,
    repeated_next,
    require_capture,
)
from specviz.analysis.replays.simulate import Rounds, check_k, chosen_drafter, priced, simulate
from specviz.analysis.replays.tally import Tally
from specviz.analysis.resampling import DRAWS, LEVEL, Interval, check_resampling, ratio_interval
from specviz.cost import CostModel
from specviz.policies import FixedK, Plan, Policy
from specviz.trace import Trace


@dataclass(frozen=True, eq=False)
class Replay:
    """The rounds of one policy on one capture.

    Attributes
    ----------
    policy
        Its name.
    drafters
        The drafters it used, in the order of the trace.
    level, draws, seed
        Of the intervals, which resample prompts.
    """

    policy: str
    drafters: tuple[str, ...]
    level: float
    draws: int
    seed: int
    _trace: Trace = field(repr=False)
    _anchors: Anchors = field(repr=False)
    _played: Rounds = field(repr=False)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round: seq, prompt_id, content_type, round, anchor, policy, drafter,
        builder, drafted, nodes, accepted, emitted (= accepted + 1), stop.

        `builder` names the shape of a token tree ("" for a chain), `drafted` is its depth and
        `nodes` how many draft nodes are verified: of a chain, its length both. `stop` is "eos"
        or "limit" where the round reached the output's last token (drafts beyond it are neither
        accepted nor rejected), else "full" or "reject".
        """
        return self._frame(self._played)

    def rounds_of(self, seq: int) -> pd.DataFrame:
        """The rows of `rounds` that are of one sequence; none for a sequence that is not there."""
        owner = self._anchors.owner[self._played.where]  # sorted
        place = np.flatnonzero(self._anchors.seq == seq)
        low, high = np.searchsorted(owner, [place[0], place[0] + 1]) if len(place) else (0, 0)
        return self._frame(self._played.between(int(low), int(high)))

    def _frame(self, played: Rounds) -> pd.DataFrame:
        at = self._anchors
        owner, anchor = at.owner[played.where], at.anchor[played.where]
        full = played.accepted == played.drafted
        last = anchor + played.accepted + 1 == at.n[owner] - 1
        number = np.arange(len(owner)) - np.searchsorted(owner, owner)  # owner is sorted
        return pd.DataFrame(
            {
                "seq": at.seq[owner],
                "prompt_id": at.prompt_id[owner],
                "content_type": at.content_type[owner],
                "round": number,
                "anchor": anchor,
                "policy": self.policy,
                "drafter": np.array(self.drafters, dtype=object)[played.drafter],
                "builder": np.array(played.builders, dtype=object)[played.builder],
                "drafted": played.drafted,
                "nodes": played.nodes,
                "accepted": played.accepted,
                "emitted": played.accepted + 1,
                "stop": np.select(
                    [last & at.eos[owner], last, full], ["eos", "limit", "full"], "reject"
                ),
            }
        )

    @cached_property
    def tally(self) -> Tally:
        """The same rounds, those that are alike counted together."""
        return Tally.of(self._anchors, self._played)

    @property
    def n_rounds(self) -> int:
        return len(self._played.where)

    @property
    def tokens_per_round(self) -> float:
        """Tokens emitted per round, the bonus token counted: sum of tokens / rounds."""
        return float(self._played.accepted.sum() / self.n_rounds) + 1

    @property
    def rows_per_round(self) -> float:
        """Rows the target verifies per round: the anchor's and one for every draft node."""
        return float(self._played.nodes.sum() / self.n_rounds) + 1

    def seconds(self, cost: CostModel) -> NDArray[np.float64]:
        """Modelled seconds of every round, shape [rounds].

        Raises
        ------
        ValueError
            When `cost` is no cost model, or does not price a drafter or a tree.
        """
        played = self._played
        names = self.drafters, played.builders
        return priced(names, played.drafter, played.builder, played.drafted, played.nodes, cost)

    @cached_property
    def interval(self) -> Interval:
        """`tokens_per_round` with its interval over resampled prompts."""
        tokens, rounds = _per_prompt(
            self._anchors.prompt_id[self._anchors.owner[self._played.where]],
            self._played.accepted + 1,
        )
        return ratio_interval(tokens, rounds, self.level, self.draws, self.seed)

    def by(self, column: str = "content_type", repeated: bool | None = None) -> pd.DataFrame:
        """Tokens per round (bonus counted) of every value of a column of `rounds`.

        Parameters
        ----------
        column
            "content_type", "prompt_id", "drafter" or another column of `rounds`.
        repeated
            None takes all rounds; False leaves out those whose anchor is followed by a token
            of repeated text (position a + 1 ends a 12-gram the output already contains);
            True takes only those.

        Returns
        -------
        DataFrame
            The column, tokens_per_round, low, high (expanded percentile interval over resampled
            prompts, NaN with one prompt), n_rounds, n_prompts.
        """
        if column not in self.rounds.columns:
            raise ValueError(
                f"No column {column!r} to group rounds by; there are {list(self.rounds.columns)}."
            )
        rounds = self.rounds
        if repeated is not None:
            rounds = rounds[
                repeated_next(self._trace, self._anchors)[self._played.where] == repeated
            ]
        rows = []
        for value, group in rounds.groupby(column, sort=False):
            tokens, counts = _per_prompt(group["prompt_id"], group["emitted"])
            found = ratio_interval(tokens, counts, self.level, self.draws, self.seed)
            rows.append((value, found.estimate, found.low, found.high, len(group), found.n_prompts))
        names = [column, "tokens_per_round", "low", "high", "n_rounds", "n_prompts"]
        return pd.DataFrame(rows, columns=names)

    def __repr__(self) -> str:
        return (
            f"Replay({self.policy} with {', '.join(self.drafters) or 'no drafter'}: "
            f"{self.n_rounds:,} rounds, {self.interval} tokens per round, bonus counted)"
        )

    def _repr_html_(self) -> str:
        from specviz.markup import table_html

        return table_html(
            self.by("content_type"),
            caption=f"Replay of {self.policy} with {', '.join(self.drafters) or 'no drafter'}. "
            "Tokens per round count the bonus token; the interval "
            f"({100 * self.level:g} %) resamples prompts.",
        )


def replay(
    trace: Trace,
    policy: Policy,
    drafter: str | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Replay:
    """Run a policy over a greedy capture, exactly and without a model (F7.5).

    Parameters
    ----------
    trace
        A capture, greedy and exhaustive (a draft at every anchor).
    policy
        Asked as the live loop asks it: `plan` before a round, then `more` after every
        drafted token but the last. A draft of a plan with k >= 1 has at least one token
        wherever the drafter offers one.
    drafter
        The drafter for every round. None takes the plan's, or the trace's only one.
    level, draws, seed
        Of the intervals over resampled prompts.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError
        When the trace has no draft at every anchor or was sampled, the policy is none or
        cannot replay, a plan asks for more than the drafter's K, or the drafter is not clear.

    Notes
    -----
    Exact where the drafter is a deterministic function of the committed text, a shorter
    draft is the beginning of a longer one, and the target's output does not depend on how
    many rows it verifies: conditions R1 to R3 of F7.5.

    Examples
    --------
    >>> import specviz as sv                                               # doctest: +SKIP
    >>> sv.replay(trace, sv.FixedK(7)).by("content_type")                  # doctest: +SKIP
    """
    check_resampling(level, draws, seed)
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise ValueError(
            f"{policy!r} is not a policy: a policy has name, replayable, plan and more, as "
            "FixedK(7) has."
        )
    if not policy.replayable:
        raise ValueError(
            f"The policy {policy.name!r} learns from measured seconds and "
            "has no exact replay: run it live, or use its modelled form."
        )
    require_capture(trace)
    if type(policy) is FixedK:
        name = chosen_drafter(trace, Plan(policy.k, policy.drafter), drafter)
        anchors = anchors_of(trace, name)
        check_k(policy.k, anchors)
        played = Rounds.chains(*fixed_rounds(anchors, policy.k), anchors.drafter)
    else:
        anchors, played = simulate(trace, policy, drafter)
    return Replay(policy.name, played.drafters, level, draws, seed, trace, anchors, played)


def _per_prompt(
    prompts: NDArray[np.object_] | pd.Series, tokens: Ints | pd.Series
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tokens and rounds of every prompt that has rounds."""
    codes, names = pd.factorize(np.asarray(prompts, dtype=object))
    counts = np.bincount(codes, minlength=len(names)).astype(float)
    return np.bincount(codes, np.asarray(tokens, dtype=float), len(names)).astype(float), counts
