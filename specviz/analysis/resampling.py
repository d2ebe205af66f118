"""Intervals by resampling prompts.

Rounds of one prompt are alike, so they are never resampled on their own: the unit is the
prompt (F7.2). Every statistic here is a ratio of sums (tokens over rounds, plain seconds over
speculative seconds), recomputed on each resample of whole prompts.

All intervals are *expanded percentile intervals* (Hesterberg 2015): quantiles of the resamples,
a little further out than the level says, by as much as Student's interval of n means is wider
than a normal one that divides by n. Plain percentiles are too narrow when prompts are few: of
95 % intervals they hold the truth in about 90 % with 18 prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from specviz.markup import counted
from specviz.refuse import whole

Floats = NDArray[np.float64]

LEVEL = 0.95
DRAWS = 10_000
#: Most resampled counts held at once.
_CHUNK = 4_000_000


@dataclass(frozen=True)
class Interval:
    """An estimate with an expanded percentile interval over resampled prompts.

    Quantiles of the resamples, set further out the fewer the prompts, by Student's t
    (`percentiles`). `low` and `high` are NaN with a single prompt: one prompt says nothing of
    the next.

    Examples
    --------
    >>> str(Interval(2.5, 2.25, 2.75, level=0.95, n_prompts=16, draws=10_000, seed=0))
    '2.50 (95 % interval 2.25 to 2.75, 16 prompts)'
    """

    estimate: float
    low: float
    high: float
    level: float
    n_prompts: int
    draws: int
    seed: int

    def __str__(self) -> str:
        if np.isnan(self.low):
            return f"{self.estimate:z.2f} (no interval from {counted(self.n_prompts, 'prompt')})"
        return (
            f"{self.estimate:z.2f} ({100 * self.level:g} % interval {self.low:z.2f} to "
            f"{self.high:z.2f}, {counted(self.n_prompts, 'prompt')})"
        )


def ratio_interval(
    numerator: ArrayLike,
    denominator: ArrayLike,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Ratio of sums with its interval over resampled prompts (F7.2).

    Parameters
    ----------
    numerator, denominator
        One entry per prompt, shape [prompts]: say tokens emitted and rounds.
    level, draws, seed
        Of the expanded percentile interval.

    Returns
    -------
    Interval
        `estimate` is sum(numerator) / sum(denominator): prompts weigh as much as they hold,
        which is not the mean of the prompts' own ratios.

    Raises
    ------
    ValueError
        When the arrays differ in length, are empty, or a denominator is not positive.

    Examples
    --------
    >>> ratio_interval([10.0, 10.0], [2.0, 8.0]).estimate    # total time, not the mean of 5, 1.25
    2.0
    """
    check_resampling(level, draws, seed)
    top, bottom = _pair(numerator, denominator, "")
    estimate = float(top.sum() / bottom.sum())
    sums = resampled_sums(np.column_stack([top, bottom]), draws, seed)
    low, high = percentiles(sums[:, 0] / sums[:, 1], level, len(top))
    return Interval(estimate, float(low), float(high), level, len(top), draws, seed)


def ratio_difference(
    num_a: ArrayLike,
    den_a: ArrayLike,
    num_b: ArrayLike,
    den_b: ArrayLike,
    *,
    paired: bool,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Difference a - b of two ratios of sums, with its interval.

    Parameters
    ----------
    num_a, den_a, num_b, den_b
        One entry per prompt, shape [prompts].
    paired
        True when a and b are the same prompts in the same order (two drafters on one text):
        each resample then takes the same prompts for both. False when they are different
        prompts (code against prose): each side is resampled on its own, and the interval is
        as wide as the smaller side asks for. `n_prompts` then counts both sides.

    Raises
    ------
    ValueError
        As `ratio_interval`, and when paired sides differ in length.

    Examples
    --------
    >>> faster = ratio_difference([8, 9], [2, 2], [4, 4], [2, 2], paired=True)
    >>> faster.estimate, faster.low > 0
    (2.25, True)
    """
    check_resampling(level, draws, seed)
    top_a, bottom_a = _pair(num_a, den_a, " of a")
    top_b, bottom_b = _pair(num_b, den_b, " of b")
    estimate = float(top_a.sum() / bottom_a.sum() - top_b.sum() / bottom_b.sum())
    if paired:
        if len(top_a) != len(top_b):
            raise ValueError(
                f"Paired sides must hold the same prompts: a has {len(top_a)}, b {len(top_b)}."
            )
        sums = resampled_sums(np.column_stack([top_a, bottom_a, top_b, bottom_b]), draws, seed)
        values = sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]
        n_prompts = len(top_a)
    else:
        a = resampled_sums(np.column_stack([top_a, bottom_a]), draws, seed)
        b = resampled_sums(np.column_stack([top_b, bottom_b]), draws, seed + 1)
        values = a[:, 0] / a[:, 1] - b[:, 0] / b[:, 1]
        n_prompts = len(top_a) + len(top_b)
    low, high = percentiles(values, level, min(len(top_a), len(top_b)))
    return Interval(estimate, float(low), float(high), level, n_prompts, draws, seed)


def wilson(successes: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson interval of a share (F7.1): only for independent trials.

    Rounds of one prompt are not independent: use `ratio_interval` for them.

    Examples
    --------
    >>> low, high = wilson(63, 215)
    >>> round(low, 5), round(high, 5)
    (0.23624, 0.35707)
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"Need 0 <= successes <= n and n >= 1, not {successes} of {n}.")
    _check_level(level)
    found = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


def resampled_sums(values: ArrayLike, draws: int = DRAWS, seed: int = 0) -> Floats:
    """Column sums of `values` [prompts, m] over resamples of its rows: [draws, m].

    All columns of one draw use the same prompts, so statistics of a draw belong together.
    """
    check_resampling(LEVEL, draws, seed)
    table = np.asarray(values, dtype=float)
    few = draws * len(table) <= _CHUNK // 4
    counts = (_kept_counts if few else _prompt_counts)(len(table), draws, seed)
    return np.concatenate([each @ table for each in counts])


def percentiles(values: Floats, level: float, n_prompts: int) -> tuple[Floats, Floats]:
    """Lower and upper end of the expanded percentile interval over axis 0 (F7.2).

    Parameters
    ----------
    values
        The statistic of every resample, shape [draws, ...].
    level
        Of the interval.
    n_prompts
        How many prompts were resampled; of an unpaired difference, the smaller side's.

    Returns
    -------
    tuple
        Two arrays of shape [...]; NaN with fewer than 2 prompts.

    Examples
    --------
    >>> values = np.arange(1001.0)
    >>> [round(float(end)) for end in percentiles(values, 0.95, 10_000)]
    [25, 975]
    >>> [round(float(end)) for end in percentiles(values, 0.95, 18)]
    [15, 985]
    """
    if n_prompts < 2:
        _check_level(level)
        nothing = np.full(np.shape(values)[1:], np.nan)
        return nothing, nothing
    tail = expanded_tail(level, n_prompts)
    low, high = np.quantile(values, [tail, 1 - tail], axis=0)
    return low, high


def expanded_tail(level: float, n_prompts: int) -> float:
    """Share of the resamples that an interval leaves out at either end.

    Phi(-sqrt(n / (n - 1)) t), with t of the level and n - 1 degrees of freedom, for n >= 2
    prompts: the percentile interval of a mean is then Student's (Hesterberg 2015, What teachers
    should know about the bootstrap). Less than (1 - level) / 2, which it nears as n grows.

    Examples
    --------
    >>> [round(expanded_tail(0.95, n), 4) for n in (8, 18, 100, 10_000)]
    [0.0057, 0.015, 0.0231, 0.025]
    """
    _check_level(level)
    return _tail(float(level), whole("n_prompts", n_prompts, least=2))


def check_resampling(level: object, draws: object, seed: object) -> None:
    """Refuse what no interval can be made of; called before any work is done.

    Raises
    ------
    ValueError
        When the level is no share, or draws or seed are not whole numbers (from 1, from 0).
    """
    _check_level(level)
    whole("draws, the number of resamples,", draws, least=1)
    whole("seed", seed, least=0)


@lru_cache(maxsize=1024)
def _tail(level: float, n: int) -> float:
    t = stats.t.ppf((1 + level) / 2, n - 1)
    return float(stats.norm.cdf(-np.sqrt(n / (n - 1)) * t))


@lru_cache(maxsize=4)
def _kept_counts(n_prompts: int, draws: int, seed: int) -> tuple[Floats, ...]:
    """The same resamples serve every statistic of as many prompts; a slider asks many times."""
    return tuple(_prompt_counts(n_prompts, draws, seed))


def _prompt_counts(n_prompts: int, draws: int, seed: int) -> Iterator[Floats]:
    """How often every resample holds each prompt: blocks [some draws, prompts]."""
    rng = np.random.default_rng(seed)
    block = max(1, _CHUNK // n_prompts)
    for start in range(0, draws, block):
        rows = min(block, draws - start)
        picks = rng.integers(0, n_prompts, (rows, n_prompts))
        picks += np.arange(rows)[:, None] * n_prompts
        counts = np.bincount(picks.ravel(), minlength=rows * n_prompts)
        yield counts.reshape(rows, n_prompts).astype(float)


def _pair(numerator: ArrayLike, denominator: ArrayLike, whose: str) -> tuple[Floats, Floats]:
    top, bottom = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    if top.ndim != 1 or top.shape != bottom.shape or not len(top):
        raise ValueError(
            f"The numerator and denominator{whose} need one entry per prompt each; their shapes "
            f"are {top.shape} and {bottom.shape}."
        )
    if not (np.all(np.isfinite(top)) and np.all(bottom > 0) and np.all(np.isfinite(bottom))):
        raise ValueError(
            f"Every prompt{whose} needs a finite numerator and a denominator above 0: leave out "
            "prompts without rounds."
        )
    return top, bottom


def _check_level(level: object) -> None:
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ValueError(f"level is a share between 0 and 1, such as 0.95, not {level!r}.")
