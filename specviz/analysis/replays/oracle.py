"""How much time a policy leaves on the table: the best possible rounds, and regret against them.

The oracle knows every M(a) beforehand and picks the drafts that end each output in the least
modelled time; no policy can be faster, and no policy could know what it knows. The round
oracle knows the current round only. Both are held to the policies' own terms: the same drafts,
the same cost model, one draft a round (F7.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from specviz.analysis.anchors import Anchors, Ints, anchors_of, require_capture
from specviz.analysis.replays.replay import Replay, replay
from specviz.analysis.replays.simulate import Rounds
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.cost import CostModel, need_cost
from specviz.policies import FixedK, Policy
from specviz.trace import Trace


def oracle(
    trace: Trace,
    cost: CostModel,
    drafter: str | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Replay:
    """The rounds that finish every output in the least modelled time.

    A dynamic programme from the last anchor to the first: the least time from a is the least,
    over every draft that may be made there, of the round's seconds and the least time from the
    anchor it leads to. Exact, and with hindsight: a bound on policies, not one of them.

    Parameters
    ----------
    trace
        A greedy capture.
    cost
        Seconds of drafting and verifying. Changing drafters between rounds is taken as free.
    drafter
        The drafter of every round; None lets each round have any drafter of the trace.
    level, draws, seed
        Of the intervals over resampled prompts.

    Returns
    -------
    Replay
        Of drafts with the same outcome, that of the drafter named first, and its shortest.

    Raises
    ------
    ValueError
        As `replay`, and when `cost` is no cost model or does not price a drafter up to its K.

    Examples
    --------
    >>> import specviz as sv                                               # doctest: +SKIP
    >>> oracle(trace, sv.t4_like()).tokens_per_round                       # doctest: +SKIP
    """
    check_resampling(level, draws, seed)
    need_cost(cost)
    every = _drafters(trace, drafter)
    which, drafted = _fastest(every, cost)
    return _replay("oracle", trace, every, which, drafted, level, draws, seed)


def round_oracle(
    trace: Trace,
    drafter: str | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Replay:
    """The rounds that draft exactly what will be accepted.

    Nothing drafted is ever rejected, and no round emits less than it could. Still, it is not
    the best: it drafts even where a token costs more than it saves, and a shorter draft can
    lead to a better anchor. Of several drafters it takes the one that is accepted furthest.

    Parameters and errors are those of `oracle`; it needs no cost model.
    """
    check_resampling(level, draws, seed)
    every = _drafters(trace, drafter)
    acceptable = np.stack([anchors.acceptable for anchors in every])
    which = np.argmax(acceptable, axis=0)
    return _replay("round-oracle", trace, every, which, acceptable.max(axis=0), level, draws, seed)


def regret(
    trace: Trace,
    policies: Sequence[Policy] | Mapping[str, Policy],
    cost: CostModel,
    drafter: str | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """How much longer each policy takes than the oracle, and than the best single fixed k.

    Parameters
    ----------
    trace
        A greedy capture.
    policies
        Policies, or a mapping from labels to them (for two with one name). The oracle, the
        round oracle and the best fixed k are added.
    cost
        Seconds of drafting and verifying.
    drafter
        For every policy, for the oracle and for the best fixed k. None: policies name their
        own, and the other two may use any drafter of the trace.
    level, draws, seed
        Of the expanded percentile interval over resampled prompts, the same ones for every policy.

    Returns
    -------
    DataFrame
        Per content type, and in the last rows ("all") over all prompts:

        - content_type, policy;
        - tokens_per_round (bonus counted), tokens_per_second (modelled, prefill left out);
        - regret: modelled seconds over the oracle's, less 1; never below 0 (but for rounding),
          0.25 is a quarter more time; with regret_low and regret_high;
        - over_fixed: the same against the best fixed k, below 0 where the policy is faster;
          with over_fixed_low and over_fixed_high;
        - best_fixed: one k (and drafter) for all prompts, the fastest in total on *these*
          prompts. It is chosen on the data it is judged on, and the interval does not cover
          that choice, so beating it is a little harder than it should be;
        - cost (the model's name), n_rounds, n_prompts.

        Intervals are NaN with one prompt, and do not cover the noise of the timings.

    Raises
    ------
    ValueError
        As `oracle` and `replay`, and when there is no policy or two have the same name.

    Examples
    --------
    >>> from specviz.policies import ConfidenceStop, Heuristic             # doctest: +SKIP
    >>> regret(trace, [Heuristic(), ConfidenceStop(0.4)], cost)            # doctest: +SKIP
    """
    check_resampling(level, draws, seed)
    need_cost(cost)
    fixed = best_fixed(trace, cost, drafter)
    yardsticks = {
        "oracle": oracle(trace, cost, drafter),
        f"best {fixed.name}": replay(trace, fixed),
        "round-oracle": round_oracle(trace, drafter),
    }
    named = _named(policies, list(yardsticks))
    runs = yardsticks | {name: replay(trace, policy, drafter) for name, policy in named.items()}
    sums = {name: seconds_by_prompt(run, cost) for name, run in runs.items()}
    cells = sums["oracle"].index  # every run has the same prompts: those with a round
    seconds = np.column_stack([table["seconds"].reindex(cells) for table in sums.values()])
    types = cells.get_level_values("content_type")
    groups = [(name, types == name) for name in dict.fromkeys(types)]
    rows = []
    for group, mine in [*groups, ("all", np.ones(len(cells), dtype=bool))]:
        spent = seconds[mine]
        total = spent.sum(axis=0)
        low, high = regret_intervals(spent, level, draws, seed)
        for i, (name, table) in enumerate(sums.items()):
            part = table.reindex(cells)[mine]
            tokens, rounds = part["tokens"].sum(), part["rounds"].sum()
            rows.append(
                {
                    "content_type": group,
                    "policy": name,
                    "tokens_per_round": tokens / rounds,
                    "tokens_per_second": tokens / total[i],
                    "regret": total[i] / total[0] - 1,
                    "regret_low": low[0, i],
                    "regret_high": high[0, i],
                    "over_fixed": total[i] / total[1] - 1,
                    "over_fixed_low": low[1, i],
                    "over_fixed_high": high[1, i],
                    "best_fixed": f"{fixed.name} with {fixed.drafter}, chosen on these prompts",
                    "cost": cost.name,
                    "n_rounds": int(rounds),
                    "n_prompts": int(mine.sum()),
                }
            )
    return pd.DataFrame(rows)


def best_fixed(trace: Trace, cost: CostModel, drafter: str | None = None) -> FixedK:
    """The one k, and drafter, that takes the least modelled time over the whole trace.

    Chosen with hindsight, on the prompts of the trace: say so wherever it is shown. On ties
    the shorter draft wins. Parameters and errors are those of `oracle`.
    """
    found = []
    for anchors in _drafters(trace, drafter):
        spent = anchors.drafted_by_k @ _priced(anchors, need_cost(cost))
        found += [(float(each), k, anchors.drafter) for k, each in enumerate(spent)]
    _, k, name = min(found, key=lambda each: each[:2])
    return FixedK(k, name)


def _fastest(every: list[Anchors], cost: CostModel) -> tuple[Ints, Ints]:
    """Per anchor, the draft that ends its output soonest: an index into `every`, a length."""
    size = len(every[0].owner)
    options, seconds, emits = [], [], []
    for which, anchors in enumerate(every):
        priced = _priced(anchors, cost)
        for drafted in range(anchors.k + 1):
            options.append((which, drafted))
            seconds.append(np.where(drafted <= anchors.offered, priced[drafted], np.inf))
            emits.append(1 + np.minimum(drafted, anchors.acceptable))
    price, emit = np.stack(seconds, axis=1), np.stack(emits, axis=1)
    # All outputs side by side, from their ends: `left` tokens are still to come at an anchor.
    start = every[0].start
    left = start[every[0].owner + 1] - np.arange(size)
    order = np.argsort(left, kind="stable")
    bounds = np.searchsorted(left[order], np.arange(1, int(left.max(initial=0)) + 2))
    togo = np.zeros((len(bounds), len(start) - 1))  # by tokens left and sequence
    best = np.zeros(size, dtype=np.int64)
    for tokens, (low, high) in enumerate(pairwise(bounds), start=1):
        at = order[low:high]
        owner = every[0].owner[at]
        total = price[at] + togo[tokens - emit[at], owner[:, None]]
        best[at] = total.argmin(axis=1)
        togo[tokens, owner] = total.min(axis=1)
    chosen = np.array(options, dtype=np.int64)[best]
    return chosen[:, 0], chosen[:, 1]


def _replay(
    name: str,
    trace: Trace,
    every: list[Anchors],
    which: Ints,
    drafted: Ints,
    level: float,
    draws: int,
    seed: int,
) -> Replay:
    """Follow one choice of drafter and length per anchor, shape [A] each."""
    acceptable = np.stack([anchors.acceptable for anchors in every])
    accepted = np.minimum(drafted, acceptable[which, np.arange(len(which))])
    where, at = [], 0
    while at < len(accepted):  # a sequence's last round lands on the next one's first anchor
        where.append(at)
        at += 1 + int(accepted[at])
    visited = np.array(where, dtype=np.int64)
    used, index = np.unique(which[visited], return_inverse=True)
    names = tuple(every[i].drafter for i in used)
    took = drafted[visited]
    nought = np.zeros(len(visited), dtype=np.int64)
    played = Rounds(visited, took, accepted[visited], took, index, nought, names)
    return Replay(name, names, level, draws, seed, trace, every[0], played)


def _drafters(trace: Trace, drafter: str | None) -> list[Anchors]:
    require_capture(trace)
    names = trace.drafters if drafter is None else [drafter]
    return [anchors_of(trace, name) for name in names]


def _priced(anchors: Anchors, cost: CostModel) -> Floats:
    """Seconds of a round that drafts 0..K tokens."""
    return np.asarray(cost.round_seconds(anchors.drafter, np.arange(anchors.k + 1)))


def seconds_by_prompt(run: Replay, cost: CostModel) -> pd.DataFrame:
    """Tokens, rounds and modelled seconds of every prompt."""
    tally = run.tally
    return pd.DataFrame(
        {
            "tokens": tally.by_cell(tally.accepted + 1).astype(int),
            "rounds": tally.by_cell(np.ones_like(tally.cell)).astype(int),
            "seconds": tally.by_cell(tally.seconds(cost)),
        },
        index=tally.cells,
    )


def regret_intervals(spent: Floats, level: float, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Ends of the intervals of seconds [prompts, runs] against columns 0 and 1, less 1."""
    if len(spent) < 2:
        nothing = np.full((2, spent.shape[1]), np.nan)
        return nothing, nothing
    sums = resampled_sums(spent, draws, seed)
    against = np.stack([sums / sums[:, [0]], sums / sums[:, [1]]], axis=1)
    return percentiles(against - 1, level, len(spent))


def _named(
    policies: Sequence[Policy] | Mapping[str, Policy], taken: list[str]
) -> dict[str, Policy]:
    if isinstance(policies, Policy) or not isinstance(policies, Sequence | Mapping):
        raise ValueError(f"policies must be a list of policies or a mapping, not {policies!r:.60}.")
    pairs = (
        list(policies.items())
        if isinstance(policies, Mapping)
        else [(getattr(each, "name", ""), each) for each in policies]
    )
    if not pairs:
        raise ValueError("Give at least one policy to hold against the oracle.")
    for name, _ in pairs:
        if [*taken, *(other for other, _ in pairs)].count(name) > 1:
            raise ValueError(
                f"Two policies are called {name!r}: pass a mapping with a label for each."
            )
    return dict(pairs)
