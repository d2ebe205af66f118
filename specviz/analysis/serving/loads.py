"""What kinds of text load a server with: tokens, rounds and seconds, resampled and mixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from specviz.analysis.replays.replay import Replay
from specviz.analysis.resampling import Floats, percentiles, resampled_sums
from specviz.cost import CostModel
from specviz.refuse import shown

#: The share of tokens, or of rounds, that a "p95" leaves above itself is 5 %.
P95 = 0.95
#: Seconds closer than this are one value: sums of one cost model in another order.
_SAME = 12


def shares_of(mix: Mapping[str, float]) -> dict[str, float]:
    """The weights of a mix, scaled to 1; a kind without weight is left out."""
    fine = isinstance(mix, Mapping) and len(mix) > 0
    if fine:
        fine = all(
            isinstance(w, Real) and not isinstance(w, bool) and 0 <= w < math.inf
            for w in mix.values()
        )
    if not fine or not 0 < sum(mix.values()) < math.inf:
        raise ValueError(
            "mix must map content types to their shares of the tokens, 0 or more, such as "
            f'{{"code": 0.7, "prose": 0.3}}, not {shown(mix)}.'
        )
    total = float(sum(mix.values()))
    return {kind: float(weight) / total for kind, weight in mix.items() if weight > 0}


@dataclass(frozen=True, eq=False)
class Load:
    """One kind of text under one policy, per prompt.

    Attributes
    ----------
    content_type, share, policy
        What it is, its share of all tokens, and the policy's name.
    plain
        Seconds of a plain step.
    tokens, seconds, rounds
        Sums of every prompt, shape [P].
    latency, latency_tokens
        Distinct seconds per token (of a round, over what it emitted), shape [U]; how many
        tokens of each prompt took them, [P, U]. Empty where only averages are known.
    wait, wait_rounds
        Distinct seconds of a round, [W], and how many rounds of each prompt, [P, W].
    n_rounds, n_prompts
        0 where only averages are known.
    """

    content_type: str
    share: float
    policy: str
    plain: float
    tokens: Floats
    seconds: Floats
    rounds: Floats
    latency: Floats
    latency_tokens: Floats
    wait: Floats
    wait_rounds: Floats
    n_rounds: int = 0
    n_prompts: int = 0

    @classmethod
    def of_rounds(
        cls, kind: str, share: float, policy: str, plain: float, rounds: pd.DataFrame
    ) -> Load:
        """From rounds with prompt_id, emitted and seconds."""
        prompts, names = pd.factorize(rounds["prompt_id"])
        emitted = rounds["emitted"].to_numpy(dtype=float)
        seconds = rounds["seconds"].to_numpy(dtype=float)
        once = np.ones(len(rounds))
        return cls._of(kind, share, policy, plain, prompts, len(names), emitted, seconds, once)

    @classmethod
    def of_replay(
        cls, kind: str, share: float, policy: str, cost: CostModel, run: Replay
    ) -> Load | None:
        """From the rounds of a replay on one kind of text; None, where it has none."""
        tally = run.tally
        mine, prompts, many = tally.prompts(kind)
        if not many:
            return None
        emitted, times = (tally.accepted[mine] + 1).astype(float), tally.rounds[mine].astype(float)
        seconds = tally.seconds(cost)[mine]
        plain = cost.plain_seconds
        return cls._of(kind, share, policy, plain, prompts, many, emitted, seconds, times)

    @classmethod
    def _of(
        cls,
        kind: str,
        share: float,
        policy: str,
        plain: float,
        prompts: NDArray[np.intp],
        many: int,
        emitted: Floats,
        seconds: Floats,
        times: Floats,
    ) -> Load:
        """Of cases [G] that occur so many `times` in a prompt each."""

        def per_prompt(weights: Floats) -> Floats:
            return np.bincount(prompts, weights, many).astype(float)

        latency, latency_tokens = _histogram(prompts, many, seconds / emitted, emitted * times)
        wait, wait_rounds = _histogram(prompts, many, seconds, times)
        return cls(
            content_type=kind,
            share=share,
            policy=policy,
            plain=plain,
            tokens=per_prompt(emitted * times),
            seconds=per_prompt(seconds * times),
            rounds=per_prompt(times),
            latency=latency,
            latency_tokens=latency_tokens,
            wait=wait,
            wait_rounds=wait_rounds,
            n_rounds=int(times.sum()),
            n_prompts=many,
        )

    @classmethod
    def of_figures(
        cls, kind: str, share: float, policy: str, plain: float, tokens: float, seconds: float
    ) -> Load:
        """From tokens per round and the seconds that every round takes."""
        return cls(
            content_type=kind,
            share=share,
            policy=policy,
            plain=plain,
            tokens=np.array([tokens]),
            seconds=np.array([seconds]),
            rounds=np.ones(1),
            latency=np.zeros(0),
            latency_tokens=np.zeros((1, 0)),
            wait=np.array([seconds]),
            wait_rounds=np.ones((1, 1)),
        )


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums of a load over all prompts (1 row) or over resamples of them (one row each)."""

    load: Load
    tokens: Floats
    seconds: Floats
    rounds: Floats
    latency_tokens: Floats = field(repr=False)
    wait_rounds: Floats = field(repr=False)

    @classmethod
    def of(cls, load: Load, draws: int | None = None, seed: int = 0) -> Sums:
        """Over all prompts, or over `draws` resamples."""
        table = np.column_stack(
            [load.tokens, load.seconds, load.rounds, load.latency_tokens, load.wait_rounds]
        )
        sums = table.sum(axis=0)[None] if draws is None else resampled_sums(table, draws, seed)
        cut = 3 + len(load.latency)
        return cls(load, sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3:cut], sums[:, cut:])


def measures(parts: Sequence[Sums]) -> dict[str, Floats]:
    """Every number of a mix of loads, one entry per row of the sums; shares add up to 1.

    Tokens are what is shared out, so that seconds per token add up, and speeds do not: the
    speed of a mix is a ratio of totals (F7.2).
    """
    shares = np.array([part.load.share for part in parts])
    shares = shares / shares.sum()
    per_token = sum(s * p.seconds / p.tokens for s, p in zip(shares, parts, strict=True))
    rounds = sum(s * p.rounds / p.tokens for s, p in zip(shares, parts, strict=True))
    plain = parts[0].load.plain
    # A token of a load weighs its share over the load's tokens; so does a round.
    weights = [(s / p.tokens)[:, None] for s, p in zip(shares, parts, strict=True)]
    waits = [w * p.wait_rounds for w, p in zip(weights, parts, strict=True)]
    found = {
        "tokens_per_round": 1 / np.asarray(rounds),
        "tokens_per_second": 1 / np.asarray(per_token),
        "speedup": plain / np.asarray(per_token),
        "latency_mean": np.asarray(per_token),
        "latency_p95": np.full(len(parts[0].tokens), np.nan),
        "wait_p95": _quantile([p.load.wait for p in parts], waits, P95),
    }
    if all(len(p.load.latency) for p in parts):
        tokens = [w * p.latency_tokens for w, p in zip(weights, parts, strict=True)]
        found["latency_p95"] = _quantile([p.load.latency for p in parts], tokens, P95)
    return found


def break_even(own: Sums, others: Sequence[Sums]) -> Floats:
    """Share of `own` in all tokens above which drafting loses time, the others keeping theirs.

    Per row of the sums: with l the seconds lost per token of `own` and g those gained per
    token of the others, g / (g + l). 1 where nothing is lost on `own`, 0 where the others
    gain nothing to pay with. Drafting in all of them, at equal plain speed.
    """
    plain = own.load.plain
    lost = own.seconds / own.tokens - plain
    gained = plain - 1 / measures(others)["tokens_per_second"]
    share = np.where(gained > 0, gained / np.where(gained + lost > 0, gained + lost, 1.0), 0.0)
    return np.where(lost <= 1e-12 * plain, 1.0, share)  # a plain step repeated loses nothing


def with_ends(
    name: str, estimate: Floats, resampled: Floats | None, level: float, prompts: int
) -> dict[str, float]:
    """`name`, `name_low` and `name_high`; the ends are NaN without resamples.

    `prompts` are those of the load with the fewest.
    """
    low, high = (np.nan, np.nan) if resampled is None else percentiles(resampled, level, prompts)
    return {name: float(estimate[0]), f"{name}_low": float(low), f"{name}_high": float(high)}


def all_with_ends(
    estimates: Mapping[str, Floats], resampled: Mapping[str, Floats], level: float, prompts: int
) -> dict[str, float]:
    """`with_ends` of several numbers at once; `resampled` is empty or has them all."""
    if not resampled:
        return {
            key: value
            for name, each in estimates.items()
            for key, value in with_ends(name, each, None, level, prompts).items()
        }
    table = np.column_stack([resampled[name] for name in estimates])
    row: dict[str, float] = {}
    for (name, each), low, high in zip(
        estimates.items(), *percentiles(table, level, prompts), strict=True
    ):
        row |= {name: float(each[0]), f"{name}_low": float(low), f"{name}_high": float(high)}
    return row


def _histogram(
    prompts: NDArray[np.intp], many: int, values: Floats, weights: ArrayLike
) -> tuple[Floats, Floats]:
    """Distinct values, and the weight of each per prompt: [U], [many, U]."""
    distinct, which = np.unique(values.round(_SAME), return_inverse=True)
    cells = prompts * len(distinct) + which
    table = np.bincount(cells, np.asarray(weights), many * len(distinct))
    return distinct, table.reshape(many, len(distinct)).astype(float)


def _quantile(values: list[Floats], weights: list[Floats], share: float) -> Floats:
    """Per row, the smallest value that at least `share` of the weight does not exceed."""
    value, weight = np.concatenate(values), np.concatenate(weights, axis=1)
    order = np.argsort(value, kind="stable")
    upto = np.cumsum(weight[:, order], axis=1)
    reached = upto >= share * upto[:, -1:] * (1 - 1e-12)
    return np.asarray(value[order][np.argmax(reached, axis=1)])
