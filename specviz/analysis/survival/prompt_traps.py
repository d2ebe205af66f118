"""Rounds of one prompt are alike: what becomes of tests and intervals that do not know it.

Every prompt here has a chance of its own that a token matches, from Beta(6, 4), so that the
truth about tokens per round, and about "no difference", is known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from specviz.analysis.resampling import ratio_difference, ratio_interval
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
    statistic: str = "ratio",
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
        Prompts of a trial (of each side), their rounds on average, tokens drafted in a round.
    statistic
        "ratio": tokens per round. "paired": its difference from a second drafter on the same
        prompts, which matches 0.8 times as often on each. "unpaired": its difference from other
        prompts, whose chances are from Beta(4, 6).
    level, draws
        Of the expanded percentile interval.
    trials
        Data sets that are drawn.
    seed
        Of everything.

    Returns
    -------
    DataFrame
        Per way to make the interval ("prompts resampled", "rounds taken as independent"):
        coverage, which should be `level`, mean_width (tokens per round) and n_trials.

    Raises
    ------
    ValueError
        When a number cannot be, or the statistic is another.

    Examples
    --------
    >>> found = interval_coverage(40, trials=30, draws=100).coverage
    >>> bool(found[0] > found[1] + 0.2)
    True
    """
    prompts, rounds = whole("prompts", prompts, least=2), whole("rounds", rounds, least=2)
    k, trials = whole("k", k, least=1), whole("trials", trials, least=1)
    level = number("level", level, 0.01, 0.9999)
    if statistic not in ("ratio", "paired", "unpaired"):
        raise ValueError(f'statistic must be "ratio", "paired" or "unpaired", not {statistic!r}.')
    rng = np.random.default_rng(whole("seed", seed, least=0))
    truth = _expected(6, 4, k)
    if statistic != "ratio":
        truth -= _expected(6, 4, k, times=0.8) if statistic == "paired" else _expected(4, 6, k)
    z = float(stats.norm.ppf((1 + level) / 2))
    ends = np.empty((trials, 2, 2))
    for trial in range(trials):
        chance = rng.beta(6, 4, prompts)
        a = _tokens(chance, rounds, k, rng)
        sides = [a]
        if statistic == "ratio":
            found = ratio_interval(*_sums(a), level, draws, seed + trial)
        else:
            other = 0.8 * chance if statistic == "paired" else rng.beta(4, 6, prompts)
            b = _tokens(other, rounds, k, rng)
            sides.append(b)
            found = ratio_difference(
                *_sums(a),
                *_sums(b),
                paired=statistic == "paired",
                level=level,
                draws=draws,
                seed=seed + trial,
            )
        ends[trial, 0] = found.low, found.high
        flat = [np.concatenate(side) for side in sides]
        spread = z * np.sqrt(sum(each.var(ddof=1) / len(each) for each in flat))
        middle = flat[0].mean() - (flat[1].mean() if len(flat) > 1 else 0.0)
        ends[trial, 1] = middle - spread, middle + spread
    inside = (ends[..., 0] <= truth) & (truth <= ends[..., 1])
    return pd.DataFrame(
        {
            "interval": ["prompts resampled", "rounds taken as independent"],
            "coverage": inside.mean(axis=0),
            "mean_width": (ends[..., 1] - ends[..., 0]).mean(axis=0),
            "n_trials": trials,
        }
    )


def _expected(a: int, b: int, k: int, times: float = 1.0) -> float:
    """Tokens per round where the chance is `times` one from Beta(a, b), over prompts."""
    moments = np.cumprod(times * (a + np.arange(k)) / (a + b + np.arange(k)))  # E[chance^j]
    return 1 + float(moments.sum())


def _tokens(
    chance: NDArray[np.float64], rounds: int, k: int, rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """Tokens of every round of every prompt, the bonus counted."""
    counts = rng.integers(rounds // 2, rounds + (rounds + 1) // 2 + 1, len(chance))
    match = rng.geometric(1 - np.repeat(chance, counts)) - 1
    return np.split(np.minimum(match, k) + 1.0, np.cumsum(counts)[:-1])


def _sums(prompts: list[NDArray[np.float64]]) -> tuple[list[float], list[int]]:
    return [float(each.sum()) for each in prompts], [len(each) for each in prompts]
