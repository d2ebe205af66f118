"""One drafter's replayed rounds by kind of text: how far they get, and how far drafts survive.

From a replay's tally, so that a slider over k reads no table of rounds. The numbers are those of
`ratio_interval` and `survival_by` on `replay(...).rounds`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specviz.analysis.replays.replay import Replay
from specviz.analysis.resampling import DRAWS, LEVEL, Interval, ratio_interval
from specviz.analysis.survival.lengths import survival_table


def length_of(run: Replay, kind: str | None, draws: int = DRAWS) -> tuple[Interval, int] | None:
    """Tokens per round (bonus counted) of one kind of text (None: all), and how many rounds.

    None, where such text has no round.
    """
    tally = run.tally
    mine, prompts, many = tally.prompts(kind)
    if not many:
        return None
    rounds = np.bincount(prompts, tally.rounds[mine], many)
    tokens = np.bincount(prompts, tally.rounds[mine] * (tally.accepted[mine] + 1), many)
    return ratio_interval(tokens, rounds, draws=draws), int(rounds.sum())


def survival_of(run: Replay, kind: str | None, draws: int = DRAWS) -> pd.DataFrame | None:
    """`survival_by` of one kind of text (None: all); None, where it has no round."""
    tally = run.tally
    mine, prompts, many = tally.prompts(kind)
    if not many:
        return None
    rounds, accepted, rejected = (
        each[mine] for each in (tally.rounds, tally.accepted, tally.rejected)
    )
    most = max(int(tally.drafted[mine].max()), 1)
    tried, failed = np.zeros((many, most)), np.zeros((many, most))
    last = accepted + rejected  # the deepest token whose fate is known
    for j in range(1, most + 1):
        far, lost = last >= j, rejected & (accepted + 1 == j)
        tried[:, j - 1] = np.bincount(prompts[far], rounds[far], many)
        failed[:, j - 1] = np.bincount(prompts[lost], rounds[lost], many)
    return survival_table(tried, failed, int(rounds.sum()), level=LEVEL, draws=draws, seed=0)
