"""What a lossy acceptance rule gains, and what it gives up (F3.7, F3.8).

Two live traces of the same prompts are held against each other: one with the rule, and one with
a lossless rule and nothing else changed. After the first token that differs the two texts part:
what follows is another text, and may be easier or harder to draft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.levers.task_checks import task_check
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    check_resampling,
    ratio_difference,
    ratio_interval,
)
from specviz.trace import Trace


def drift_table(
    runs: Trace | Iterable[Trace] | Mapping[str, Trace],
    baseline: Trace,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens per round, drift and task checks of every rule, by content type.

    Parameters
    ----------
    runs
        Traces of `specviz.trials.run_prompts`, one per rule: one, several, or by the name that
        the table is to show. Without names the rules are called what the traces call them.
    baseline
        The same prompts with a lossless rule (`Greedy()` for the relaxations of greedy
        decoding, `Rejection()` for `Lenience`), and the same target, drafter, policy, limit.
    level, draws, seed
        Of the expanded percentile intervals, which resample prompts (F7.2).

    Returns
    -------
    DataFrame
        One row per rule and content type, "all" last; the baseline's own rows come first:

        rule, lossy, content_type
            lossy as the trace says it: whether the rule may change the output's law.
        tokens_per_round, low, high
            Tokens emitted by rounds / rounds, the bonus token counted.
        gained, gained_low, gained_high
            Tokens per round above the baseline's. The interval takes the same prompts for both
            sides, but texts that have parted: this is no paired comparison of drafts.
        drift, drift_low, drift_high
            Share of the tokens emitted by rounds that are not the target's argmax where they
            stand. Ties count in favour of the token.
        log_ratio, log_ratio_drifted
            Mean of ln(p_max / p(token)), in nats, with the raw p (temperature 1): over all
            tokens emitted by rounds, and over the drifted ones alone (NaN without any).
        repeated, repeated_baseline
            Share of those tokens that end a 12-gram their output already holds: a rule that
            makes the text loop makes it easy to draft.
        diverged, first_divergence
            Share of prompts whose output differs from the baseline's, and, over those, the
            median of the first output position that does (0 is the token of prefill). Of sampled
            texts this says little: two lossless runs part as well.
        task_pass, task_pass_baseline, checked
            Shares of `checked` prompts whose text passes its task check (`task_checks`), of
            this rule and of the baseline: only the difference is the rule's doing. Prompts
            without a check, or with too little text in one of the two, are left out.
        tokens, rounds, prompts
            What the numbers are made of; tokens are those emitted by rounds.

    Raises
    ------
    ValueError
        As `drift_by_prompt`, when two rules have one name, and when no interval can be made of
        `level`, `draws` and `seed`.

    Notes
    -----
    The token that prefill emits belongs to no round and counts in none of the shares. Prompts
    without a round in one of the two traces are left out.

    Examples
    --------
    >>> from specviz.trials import run_prompts                             # doctest: +SKIP
    >>> greedy = run_prompts(prompts, target, drafter)                     # doctest: +SKIP
    >>> top2 = run_prompts(prompts, target, drafter, acceptance=TopM(2))   # doctest: +SKIP
    >>> drift_table(top2, greedy)                                          # doctest: +SKIP
    """
    check_resampling(level, draws, seed)
    _check_live(baseline)
    given = {_rule(baseline): baseline, **_named(runs, baseline)}
    rows = []
    for rule, run in given.items():
        prompts = drift_by_prompt(run, baseline)
        kinds = [*dict.fromkeys(prompts["content_type"]), "all"]
        for kind in kinds:
            part = prompts if kind == "all" else prompts[prompts["content_type"] == kind]
            head = {"rule": rule, "lossy": run.meta.lossy, "content_type": kind}
            rows.append(head | _summary(part, level, draws, seed))
    return pd.DataFrame(rows)


def drift_by_prompt(run: Trace, baseline: Trace) -> pd.DataFrame:
    """What `drift_table` is made of: one row per prompt.

    Returns
    -------
    DataFrame
        content_type, prompt_id; tokens (emitted by rounds) and rounds, of the run and (with
        _baseline) of the baseline; drifted (tokens that are not the argmax), log_ratio (their
        sum of ln(p_max / p), nats); repeated and repeated_baseline (tokens); first_divergence
        (output position, NaN when the outputs are equal); check (name of the task check, missing
        without one), passed and passed_baseline (True, False, or missing where there is too
        little text).

    Raises
    ------
    ValueError
        When a trace holds no live rounds with positions, or the two differ in more than the
        rule: in target, drafters, policy, limit or prompts.
    """
    _check_pair(run, baseline)
    mine, other = _per_prompt(run), _per_prompt(baseline)
    rows = []
    for name in mine.index:
        a, b = mine.loc[name], other.loc[name]
        check, passed = task_check(a["content_type"], a["prompt"], a["text"], a["cut"])
        _, passed_baseline = task_check(b["content_type"], b["prompt"], b["text"], b["cut"])
        rows.append(
            {
                "content_type": a["content_type"],
                "prompt_id": name,
                "tokens": a["tokens"],
                "rounds": a["rounds"],
                "tokens_baseline": b["tokens"],
                "rounds_baseline": b["rounds"],
                "drifted": a["drifted"],
                "log_ratio": a["log_ratio"],
                "repeated": a["repeated"],
                "repeated_baseline": b["repeated"],
                "first_divergence": _first_difference(a["token_ids"], b["token_ids"]),
                "check": check,
                "passed": passed,
                "passed_baseline": passed_baseline,
            }
        )
    frame = pd.DataFrame(rows)
    held = frame[(frame["rounds"] > 0) & (frame["rounds_baseline"] > 0)].reset_index(drop=True)
    if held.empty:
        raise ValueError("No prompt has a round in both traces: allow more new tokens.")
    return held


def _summary(prompts: pd.DataFrame, level: float, draws: int, seed: int) -> dict[str, Any]:
    """The numbers of one row of `drift_table`."""
    tokens, rounds = prompts["tokens"], prompts["rounds"]
    speed = ratio_interval(tokens, rounds, level, draws, seed)
    gained = ratio_difference(
        tokens,
        rounds,
        prompts["tokens_baseline"],
        prompts["rounds_baseline"],
        paired=True,
        level=level,
        draws=draws,
        seed=seed,
    )
    drift = ratio_interval(prompts["drifted"], tokens, level, draws, seed)
    drifted, given_up = int(prompts["drifted"].sum()), float(prompts["log_ratio"].sum())
    parted = prompts["first_divergence"].dropna()
    checked = prompts.dropna(subset=["passed", "passed_baseline"])
    return {
        "tokens_per_round": speed.estimate,
        "low": speed.low,
        "high": speed.high,
        "gained": gained.estimate,
        "gained_low": gained.low,
        "gained_high": gained.high,
        "drift": drift.estimate,
        "drift_low": drift.low,
        "drift_high": drift.high,
        "log_ratio": given_up / int(tokens.sum()),
        "log_ratio_drifted": given_up / drifted if drifted else np.nan,
        "repeated": float(prompts["repeated"].sum() / tokens.sum()),
        "repeated_baseline": float(
            prompts["repeated_baseline"].sum() / prompts["tokens_baseline"].sum()
        ),
        "diverged": len(parted) / len(prompts),
        "first_divergence": float(parted.median()) if len(parted) else np.nan,
        "task_pass": _share(checked["passed"]),
        "task_pass_baseline": _share(checked["passed_baseline"]),
        "checked": len(checked),
        "tokens": int(tokens.sum()),
        "rounds": int(rounds.sum()),
        "prompts": len(prompts),
    }


def _share(passed: pd.Series) -> float:
    return float(passed.astype(float).mean()) if len(passed) else np.nan


def _per_prompt(trace: Trace) -> pd.DataFrame:
    """Text, tokens and sums of every prompt, indexed by prompt id."""
    positions = trace.positions.sort_values(["seq", "t"])
    p_max, logp = (positions[name].to_numpy(float) for name in ("p_max", "logp"))
    in_rounds = (positions["t"] > 0).to_numpy()  # position 0 is the token of prefill
    drifted = (positions["rank"] > 0).to_numpy() & in_rounds
    # Of an argmax the ratio is 1, which rounding need not hit.
    log_ratio = np.where(drifted, np.maximum(np.log(p_max) - logp, 0), 0)
    repeated = positions["repeated"].to_numpy() & in_rounds
    positions = positions.assign(drifted=drifted, log_ratio=log_ratio, repeated=repeated)
    by_seq = positions.groupby("seq")
    frame = trace.sequences.set_index("seq")
    frame["token_ids"] = by_seq["token_id"].agg(list)
    frame["drifted"] = by_seq["drifted"].sum().astype(int)
    frame["log_ratio"] = by_seq["log_ratio"].sum()
    frame["repeated"] = by_seq["repeated"].sum().astype(int)
    rounds = trace.rounds.groupby("seq")
    frame["tokens"] = rounds["emitted"].sum().astype(int)
    frame["rounds"] = rounds.size()
    frame = frame.fillna({"tokens": 0, "rounds": 0}).astype({"tokens": int, "rounds": int})
    ended = frame["finish"] == "eos"
    frame["cut"] = ~ended
    # The token that ends a text is none of its text.
    end = by_seq["text"].last().where(ended, "")
    frame["text"] = [
        text.removesuffix(last)
        for text, last in zip(frame["output"], end.loc[frame.index], strict=True)
    ]
    return frame.set_index("prompt_id")


def _first_difference(a: Sequence[int], b: Sequence[int]) -> float:
    """First place where two outputs differ; NaN when they are the same."""
    if a == b:
        return np.nan
    pairs = zip(a, b, strict=False)
    return float(next((t for t, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b))))


def _rule(run: Trace) -> str:
    return run.meta.acceptance


def _named(
    runs: Trace | Iterable[Trace] | Mapping[str, Trace], baseline: Trace
) -> dict[str, Trace]:
    """The runs by the names their rows get, the baseline itself left out."""
    if isinstance(runs, Mapping):
        pairs = list(runs.items())
    else:
        each = [runs] if isinstance(runs, Trace) else list(runs)
        pairs = [(_rule(run), run) for run in each if isinstance(run, Trace)]
        if len(pairs) < len(each):
            raise ValueError("runs are traces of run_prompts: one, a list, or a mapping by name.")
    pairs = [(name, run) for name, run in pairs if run is not baseline]
    names = [_rule(baseline), *(name for name, _ in pairs)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"Two runs are called {twice!r}: give a mapping with a name of its own for each."
        )
    return dict(pairs)


#: What has to be the same on both sides, so that a difference is the rule's.
_SAME: Mapping[str, Callable[[Trace], Any]] = {
    "target": lambda trace: trace.meta.target,
    "drafter": lambda trace: trace.meta.drafters,
    "policy": lambda trace: set(trace.rounds["policy"]),
    "max_new_tokens": lambda trace: trace.meta.max_new_tokens,
    "set of prompts": lambda trace: dict(
        trace.sequences[["prompt_id", "prompt"]].itertuples(index=False)
    ),
}


def _check_live(trace: Trace) -> None:
    if not isinstance(trace, Trace):
        raise ValueError(f"Drift is between traces of run_prompts; this is none: {trace!r:.60}.")
    trace.require("rounds", "positions")


def _check_pair(run: Trace, baseline: Trace) -> None:
    """Only the rule may differ between the two."""
    _check_live(run)
    _check_live(baseline)
    if baseline.meta.lossy:
        raise ValueError(
            f"The baseline's rule, {_rule(baseline)}, is lossy: hold runs against a lossless one."
        )
    for what, of in _SAME.items():
        if of(run) != of(baseline):
            raise ValueError(
                f"The run with {_rule(run)} and the baseline have another {what}: generate both "
                "with the same settings, the acceptance rule apart."
            )
