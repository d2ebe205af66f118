"""Replay of lossless sampling: how many rounds an output would have taken, in expectation.

A sampled output follows the target's law whatever is drafted, so one recorded sample serves
every drafter and every k: given the output, the chance that a draft agrees with its next i
tokens and is kept is a product of known factors, and rounds are a renewal chain on its anchors
(F7.6). What is random about the drafts is averaged out exactly, not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specviz.analysis.anchors import Anchors, Ints, need_every_anchor
from specviz.analysis.replays.renewal import RULES, Reaches, drawn_rounds, expected_rounds
from specviz.analysis.replays.sampled_policies import Asker
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    Interval,
    check_resampling,
    ratio_interval,
)
from specviz.cost import CostModel, need_cost
from specviz.policies import FixedK, Policy
from specviz.refuse import whole
from specviz.trace import Trace


@dataclass(frozen=True, eq=False)
class SampledReplay:
    """Expected rounds of one policy on one sampled capture.

    Attributes
    ----------
    policy, drafters, rule
        Names; the rule is one of `RULES`.
    exact
        True where k depended on committed text only: every number is then an expectation
        over the drafts, given the outputs. False where the policy looked at past rounds, and
        rounds were drawn.
    runs
        How often they were drawn (1 where exact).
    rounds
        One row per anchor and draft length: seq, prompt_id, content_type, anchor, policy,
        drafter, drafted, accepted (expected, the bonus not counted; drawn where not exact),
        emitted (= accepted + 1) and weight: how many rounds of that kind to expect.
    level, draws, seed
        Of the intervals, which resample prompts; the seed also draws the rounds.
    """

    policy: str
    drafters: tuple[str, ...]
    rule: str
    exact: bool
    runs: int
    rounds: pd.DataFrame
    level: float
    draws: int
    seed: int
    _per_run: Floats = field(repr=False)

    @property
    def expected_rounds(self) -> float:
        return float(self.rounds["weight"].sum())

    @property
    def tokens_per_round(self) -> float:
        """Tokens (bonus counted) over expected rounds, sums over all sequences."""
        return float(_weighted(self.rounds, "emitted").sum()) / self.expected_rounds

    @cached_property
    def interval(self) -> Interval:
        """`tokens_per_round` with its interval over resampled prompts.

        It covers which prompts were asked and what the target happened to sample for each,
        not the rounds drawn where the replay is not exact: see `simulation_error`.
        """
        found = _ratio(self.rounds, _weighted(self.rounds, "emitted"), _weighted(self.rounds))
        return ratio_interval(*found, self.level, self.draws, self.seed)

    @property
    def simulation_error(self) -> float:
        """Standard error of `tokens_per_round` from drawing rounds; 0 where exact."""
        if self.exact:
            return 0.0
        if self.runs < 2:
            return float("nan")
        return float(np.std(self._per_run, ddof=1) / np.sqrt(self.runs))

    def by(self, column: str = "content_type") -> pd.DataFrame:
        """Expected tokens per round (bonus counted) of every value of a column of `rounds`.

        Returns
        -------
        DataFrame
            The column, tokens_per_round, low, high (expanded percentile interval over resampled
            prompts, NaN with one), draft_yield (accepted / drafted; NaN where nothing is
            drafted), rule, exact, expected_rounds, n_tokens, n_prompts.

        Raises
        ------
        ValueError
            For another column than seq, prompt_id, content_type, drafter or drafted.
        """
        known = ("seq", "prompt_id", "content_type", "drafter", "drafted")
        if column not in known:
            raise ValueError(f"Rounds are grouped by one of {', '.join(known)}, not {column!r}.")
        rows = []
        for value, group in self.rounds.groupby(column, sort=False):
            emitted, rounds = _weighted(group, "emitted"), _weighted(group)
            found = ratio_interval(
                *_ratio(group, emitted, rounds), self.level, self.draws, self.seed
            )
            drafted = _weighted(group, "drafted").sum()
            rows.append(
                {
                    column: value,
                    "tokens_per_round": found.estimate,
                    "low": found.low,
                    "high": found.high,
                    "draft_yield": (emitted - rounds).sum() / drafted if drafted else np.nan,
                    "rule": self.rule,
                    "exact": self.exact,
                    "expected_rounds": rounds.sum(),
                    "n_tokens": round(emitted.sum()),
                    "n_prompts": found.n_prompts,
                }
            )
        return pd.DataFrame(rows)

    def seconds(self, cost: CostModel) -> NDArray[np.float64]:
        """Modelled seconds of one round of every row of `rounds`, not yet times its weight.

        Raises
        ------
        ValueError
            When `cost` is no cost model or does not price a drafter.
        """
        need_cost(cost)
        spent = np.zeros(len(self.rounds))
        for name in self.drafters:
            mine = (self.rounds["drafter"] == name).to_numpy()
            drafted = self.rounds["drafted"].to_numpy()[mine].astype(np.int64)
            spent[mine] = cost.round_seconds(name, drafted)
        return spent

    def speedup(self, cost: CostModel) -> Interval:
        """Modelled speed-up over plain decoding: plain seconds over expected seconds (F7.2).

        The interval covers the choice of prompts, not the noise of the timings.
        """
        plain = _weighted(self.rounds, "emitted") * need_cost(cost).plain_seconds
        spent = self.rounds["weight"].to_numpy() * self.seconds(cost)
        return ratio_interval(*_ratio(self.rounds, plain, spent), self.level, self.draws, self.seed)

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"{self.runs} simulated runs, seed {self.seed}"
        return (
            f"SampledReplay({self.policy} with {', '.join(self.drafters) or 'no drafter'}, "
            f"{self.rule}, {how}: {self.expected_rounds:,.1f} expected rounds, {self.interval} "
            "tokens per round, bonus counted)"
        )

    def _repr_html_(self) -> str:
        from specviz.markup import table_html

        return table_html(self.by("content_type"), caption=repr(self))


def replay_sampled(
    trace: Trace,
    policy: Policy | int,
    drafter: str | None = None,
    *,
    rule: str = "rejection",
    runs: int = 20,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> SampledReplay:
    """Expected rounds of a policy on a sampled capture, without a model (F7.6).

    Parameters
    ----------
    trace
        A capture at a temperature above 0, with a draft at every anchor.
    policy
        A policy of chains, or a number of tokens (then `FixedK`). It is asked as the live loop
        asks it. Where k follows from committed text alone (a fixed k, a schedule by position,
        gates on the target's entropy) the replay is exact; where the policy looks at past
        rounds, rounds are drawn with `seed`.
    drafter
        The drafter for every round. None takes the plan's, or the trace's only one.
    rule
        "rejection": drafts drawn from q, kept by rejection sampling. "drawn-match": drafts
        drawn from q, kept where the target draws the same token. "argmax-match": the
        drafter's likeliest tokens, kept where the target draws them. All three are lossless.
        For drafts that are points (an n-gram's) the three agree.
    runs
        How often rounds are drawn for a policy that looks at the past.
    level, draws, seed
        Of the intervals over resampled prompts.

    Returns
    -------
    SampledReplay

    Raises
    ------
    ValueError
        When the trace is greedy or has no draft at every anchor, the policy looks inside the
        draft, asks for trees or learns from measured time, a plan asks for more than the
        drafter's K, or the drafter is not clear.

    Notes
    -----
    Exact given the recorded outputs, under R1 and R2 of F7.5, with p and q shaped as the
    capture shaped them (temperature, top-k, top-p). A policy that looks inside the draft would
    see tokens that were drawn but are not in the trace, hence the refusal. ln q is stored in
    half precision: a factor is off by at most |ln q| / 2000 of itself.

    Examples
    --------
    >>> from specviz.campaign import capture
    >>> from specviz.drafters.markov import MarkovDrafter
    >>> from specviz.engine.sampling import Sampling
    >>> from specviz.targets.toy import MarkovModel, ToyTarget
    >>> chain = MarkovModel.random(8, seed=1)
    >>> other = MarkovDrafter(chain.mixed_with(MarkovModel.random(8, seed=2), 0.5))
    >>> trace = capture(["abc", "hgf"], ToyTarget(chain), other, sampling=Sampling(), k=4,
    ...                 max_new_tokens=33, progress=False)
    >>> found = replay_sampled(trace, 4)
    >>> found.exact, 1 < found.tokens_per_round < 5
    (True, True)
    >>> replay_sampled(trace, 0).expected_rounds                 # plain decoding
    64.0
    """
    check_resampling(level, draws, seed)
    runs = whole("runs", runs, least=1)
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, not {rule!r}.")
    if isinstance(policy, int) and not isinstance(policy, bool):
        policy = FixedK(policy)
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise ValueError(
            f"{policy!r:.60} is no policy and no number of tokens: pass one, such as FixedK(7)."
        )
    if not policy.replayable:
        raise ValueError(
            f"The policy {policy.name!r} learns from measured seconds and has no replay: run it "
            "live, or use its modelled form."
        )
    _require_sampled(trace)
    asker, reaches = Asker(trace, policy, drafter), Reaches(trace, rule)
    settled = asker.everywhere()
    exact = settled is not None
    if settled is None:
        rows, per_run = drawn_rounds(asker, reaches, runs, seed)
    else:
        rows, per_run = expected_rounds(asker, reaches, *settled), np.zeros(0)
    used = tuple(name for name in trace.drafters if name in set(rows["drafter"]))
    table = _described(rows, asker.anchors, policy.name)
    return SampledReplay(
        policy=policy.name,
        drafters=used,
        rule=rule,
        exact=exact,
        runs=1 if exact else runs,
        rounds=table,
        level=level,
        draws=draws,
        seed=seed,
        _per_run=per_run,
    )


def _described(rows: pd.DataFrame, anchors: Anchors, policy: str) -> pd.DataFrame:
    where: Ints = rows["where"].to_numpy()
    owner = anchors.owner[where]
    accepted = rows["accepted"].to_numpy(dtype=float)
    return pd.DataFrame(
        {
            "seq": anchors.seq[owner],
            "prompt_id": anchors.prompt_id[owner],
            "content_type": anchors.content_type[owner],
            "anchor": anchors.anchor[where],
            "policy": policy,
            "drafter": rows["drafter"].to_numpy(dtype=object),
            "drafted": rows["drafted"].to_numpy(dtype=np.int64),
            "accepted": accepted,
            "emitted": accepted + 1,
            "weight": rows["weight"].to_numpy(dtype=float),
        }
    )


def _require_sampled(trace: Trace) -> None:
    need_every_anchor(trace, ": make a capture of the same prompts with sampling=Sampling() first.")
    trace.require("positions", "drafts")
    if trace.meta.greedy:
        raise ValueError(
            "This capture is greedy, so nothing about its rounds is left to chance: use replay, "
            "or capture with sampling=Sampling()."
        )


def _weighted(rounds: pd.DataFrame, column: str | None = None) -> Floats:
    weight = rounds["weight"].to_numpy()
    return weight if column is None else weight * rounds[column].to_numpy(dtype=float)


def _ratio(
    rounds: pd.DataFrame, top: Sequence[float] | Floats, bottom: Floats
) -> tuple[Floats, Floats]:
    """Sums per prompt."""
    codes, names = pd.factorize(rounds["prompt_id"])
    found = [np.bincount(codes, np.asarray(v, dtype=float), len(names)) for v in (top, bottom)]
    return found[0].astype(float), found[1].astype(float)
