"""Rounds of one prompt are alike: what becomes of tests and intervals that do not know it.

Every prompt here has a chance of its own that a token matches, from Beta(6, 4), so that the
truth about tokens per round, and about "no difference", is known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from specviz.analysis.resampling import ratio_interval
from specviz.analysis.survival.groups import compare_survival
from specviz.policies.base import number
from specviz.refuse import whole


def alike_rounds_trap(
    prompts: int = 20,
    rounds: int = 30,
    k: int = 7,
    *,
    trials: int = 100,
    permutations: int = 199,
    seed: int = 0,
) -> pd.DataFrame:
    """Two groups of prompts that do not differ: how often each test says that they do.

    Every prompt has a chance of its own that a token matches, from Beta(6, 4), in either group.

    Parameters
    ----------
    prompts, rounds
        Prompts in both groups together (even), and rounds of each.
    k
        Tokens drafted in every round.
    trials
        Pairs of groups that are drawn.
    permutations
        Of prompts, in each trial.
    seed
        Of everything.

    Returns
    -------
    DataFrame
        Per test ("log-rank over rounds", "permuted prompts"): false_alarms, the share of
        trials with p < 0.05, which should be 0.05, and n_trials.

    Examples
    --------
    >>> found = alike_rounds_trap(trials=20, permutations=39).false_alarms
    >>> bool(found[0] > found[1])
    True
    """
    half = whole("prompts", prompts, least=4) // 2
    rounds, k = whole("rounds", rounds, least=1), whole("k", k, least=1)
    trials = whole("trials", trials, least=1)
    rng = np.random.default_rng(whole("seed", seed, least=0))
    alarms = np.zeros(2)
    group = np.repeat(np.array(["a", "b"]), half * rounds)
    prompt = np.repeat(np.arange(2 * half), rounds)
    for trial in range(trials):
        chance = np.repeat(rng.beta(6, 4, 2 * half), rounds)
        match = rng.geometric(1 - chance) - 1
        frame = pd.DataFrame(
            {
                "group": group,
                "prompt_id": prompt,
                "drafted": k,
                "accepted": np.minimum(match, k),
                "stop": np.where(match < k, "reject", "full"),
            }
        )
        sides = [
            stats.CensoredData.right_censored(part["accepted"] + 1, part["stop"] == "full")
            for _, part in frame.groupby("group")
        ]
        naive = stats.logrank(*sides).pvalue
        fair = compare_survival(
            frame, "group", permutations=permutations, draws=1, seed=seed + trial
        ).p_value
        alarms += np.array([naive < 0.05, fair < 0.05])
    return pd.DataFrame(
        {
            "test": ["log-rank over rounds", "permuted prompts"],
            "false_alarms": alarms / trials,
            "n_trials": trials,
        }
    )


def interval_coverage(
    prompts: int = 80,
    rounds: int = 40,
    k: int = 7,
    *,
    level: float = 0.95,
    trials: int = 1000,
    draws: int = 400,
    seed: int = 0,
) -> pd.DataFrame:
    """How often an interval for tokens per round holds the truth, where a prompt's rounds are
    alike (F7.2).

    Every prompt has a chance of its own that a token matches, from Beta(6, 4), and between half
    and one and a half times `rounds` rounds, so that the ratio of sums is one of unequal parts.

    Parameters
    ----------
    prompts, rounds, k
        Prompts of a trial, their rounds on average, tokens drafted in a round.
    level, draws
        Of the percentile interval.
    trials
        Data sets that are drawn.
    seed
        Of everything.

    Returns
    -------
    DataFrame
        Per way to make the interval ("prompts resampled", "rounds taken as independent"):
        coverage, which should be `level`, mean_width (tokens per round) and n_trials.

    Notes
    -----
    Percentile intervals are a little narrow when prompts are few. With the other defaults, over
    3000 trials, a 95 % interval held the truth in 90 % of them with 18 prompts, 93 % with 36,
    and 94 to 95 % with 100 or more.

    Examples
    --------
    >>> found = interval_coverage(40, trials=30, draws=100).coverage
    >>> bool(found[0] > found[1] + 0.2)
    True
    """
    prompts, rounds = whole("prompts", prompts, least=2), whole("rounds", rounds, least=2)
    k, trials = whole("k", k, least=1), whole("trials", trials, least=1)
    level = number("level", level, 0.01, 0.9999)
    rng = np.random.default_rng(whole("seed", seed, least=0))
    # Beta(6, 4): E[alpha^j] = prod (6 + i) / (10 + i).
    truth = 1 + float(np.cumprod((6 + np.arange(k)) / (10 + np.arange(k))).sum())
    z = float(stats.norm.ppf((1 + level) / 2))
    ends = np.empty((trials, 2, 2))
    for trial in range(trials):
        count = rng.integers(rounds // 2, rounds + (rounds + 1) // 2 + 1, prompts)
        chance = np.repeat(rng.beta(6, 4, prompts), count)
        tokens = np.minimum(rng.geometric(1 - chance) - 1, k) + 1.0
        sums = np.add.reduceat(tokens, np.cumsum(count) - count)
        found = ratio_interval(sums, count, level, draws, seed + trial)
        ends[trial, 0] = found.low, found.high
        spread = z * tokens.std(ddof=1) / np.sqrt(len(tokens))
        ends[trial, 1] = tokens.mean() - spread, tokens.mean() + spread
    inside = (ends[..., 0] <= truth) & (truth <= ends[..., 1])
    return pd.DataFrame(
        {
            "interval": ["prompts resampled", "rounds taken as independent"],
            "coverage": inside.mean(axis=0),
            "mean_width": (ends[..., 1] - ends[..., 0]).mean(axis=0),
            "n_trials": trials,
        }
    )
