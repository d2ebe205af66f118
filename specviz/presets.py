"""Cost models that are not measured here: a public report's, and the best there could be."""

from __future__ import annotations

from specviz.cost import ANY, LONGEST, CostModel


def free_drafts(cost: CostModel | None = None) -> CostModel:
    """Drafts cost nothing and a verification costs one plain step, whatever its rows.

    The best that any k could look: speed-up equals tokens per round. Takes the plain step of
    `cost`, or, without one, counts time in plain steps.

    Examples
    --------
    >>> free_drafts().round_seconds("ngram", 15)
    1.0
    """
    step = 1.0 if cost is None else cost.plain_seconds
    return CostModel(
        "free drafts",
        "free drafts",
        verify=(step, step),
        draft={ANY: (0.0,) * (LONGEST + 1)},
        note="Drafting costs nothing and every verification one plain step: an upper limit."
        + (" Time is counted in plain steps." if cost is None else ""),
    )


def t4_like(charge: str = "tokens") -> CostModel:
    """Two T4 GPUs with a 27B target at 4 bits, derived from a public report, not measured.

    The report gives 18 to 19 tokens a second plainly and 2.5 tokens a round at 36 tokens a
    second on prose with k = 7. So a plain step takes 1 / 18.5 s, a round 2.5 / 36 s, and the
    difference is spread evenly over the 7 drafted tokens: an assumption, since the report
    does not split drafting from verification. For chains the split makes no difference; for a
    tree it does, and the truth lies between the two. Its code figures (7.4 tokens a round at 154 a
    second) would make a round cheaper than a plain step; no one model fits both.

    Parameters
    ----------
    charge
        "tokens": a round pays for the depth it drafts, further rows are verified for nothing
        (the best for trees). "rows": it pays for every verified row (the worst for them).

    Raises
    ------
    ValueError
        For another `charge`.

    Examples
    --------
    >>> cost = t4_like()
    >>> round(2.5 / cost.round_seconds("any", 7), 6), round(1 / cost.plain_seconds, 6)
    (36.0, 18.5)
    """
    step, round_of_7 = 1 / 18.5, 2.5 / 36
    token = (round_of_7 - step) / 7
    if charge not in ("tokens", "rows"):
        raise ValueError(f'charge must be "tokens" or "rows", not {charge!r}.')
    by_rows = charge == "rows"
    return CostModel(
        "T4-like, rows charged" if by_rows else "T4-like",
        "preset",
        verify=(step, step + token * by_rows),
        draft={ANY: tuple(token * k * (not by_rows) for k in range(LONGEST + 1))},
        note="Derived from a public report on 2x T4 (27B target, k = 7, prose), not measured: "
        "the extra time of a round is spread evenly over its drafted tokens, verification "
        "included. The report's code figures would imply a round cheaper than a plain step.",
    )
