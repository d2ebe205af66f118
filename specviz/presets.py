"""Cost models that are not measured here: a public report's, and the best there could be."""

from __future__ import annotations

import numpy as np

from specviz.cost import ANY, LONGEST, CostModel
from specviz.refuse import one_name


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


#: Per name: rows and their milliseconds (straight between them), and where these come from.
_PUBLIC: dict[str, tuple[tuple[int, ...], tuple[float, ...], str]] = {
    "t4-code": (
        (1, 8),
        (1e3 / 18.5, 7.4e3 / 154),
        "a public report on 2x T4 (27B at 4 bits, k = 7): its plain speed, and its code figures "
        "with drafting counted in. They make 8 rows cheaper than one: no machine is like that, so "
        "something else differed between its figures; t4-prose is the other end",
    ),
    "rtx5090": (
        (1, 16),
        (14.76, 14.76 + 15 * 0.7),
        "a report on one RTX 5090 (27B at 4 bits, exllamav3 issue 380): 0.5 to 0.9 ms for every "
        "further row, here 0.7; drafting is not in it and taken as free",
    ),
    "h100-8b": (
        (1, 128),
        (30.04 + 0.0211, 30.04 + 0.0211 * 128),
        "CAST (arXiv 2610.00321): an 8B model on one H100, a line fitted to 16 to 128 rows and "
        "drawn on to fewer; drafting is not in it and taken as free",
    ),
    "gb10": (
        (1, 8),
        (79.0, 142.0),
        "a report on a GB10 (mistral.rs issue 2386): rounds of 131 to 153 ms at k = 7, here "
        "142, drafting counted in",
    ),
    "cpu-eager": (
        (1, 8),
        (58.5, 121.5),
        "SmolLM2-135M in fp32 on two CPU cores, as transformers runs it: 55 to 62 ms, and 113 to "
        "130 ms for 8 rows; drafting is not in it and taken as free",
    ),
    "cpu-compiled": (
        (1, 8),
        (23.0, 47.0),
        "SmolLM2-135M in fp32 on two CPU cores, compiled with frozen weights; drafting is not in "
        "it and taken as free",
    ),
    "cpu-4bit": (
        (1, 2, 4, 8, 16),
        (7.6, 14.4, 23.1, 39.9, 76.3),
        "SmolLM2-135M at 4 bits by llama.cpp on two CPU cores; drafting is not in it and taken "
        "as free, and still no draft is likely to pay",
    ),
}
PRESETS = ("t4-prose", *_PUBLIC)


def preset(name: str) -> CostModel:
    """A cost model derived from somebody's published figures; its note says from which.

    Parameters
    ----------
    name
        One of `PRESETS`. "t4-prose" (which is `t4_like()`) and "t4-code" are the two ends of one
        report, too far apart for any one machine: look at both.

    Returns
    -------
    CostModel
        Straight between the rows that were reported. Where drafting is part of the reported
        round it is charged to the rows; where it is not known it is free, which flatters.

    Raises
    ------
    ValueError
        For another name.

    Examples
    --------
    >>> code = preset("t4-code")
    >>> round(7.4 / code.round_seconds("any", 7), 6), code.verify_seconds(8) < code.plain_seconds
    (154.0, True)
    """
    if one_name("name", name) == "t4-prose":
        return t4_like()
    if name not in _PUBLIC:
        raise ValueError(f"No preset {name!r}: there are {', '.join(PRESETS)}.")
    rows, milliseconds, source = _PUBLIC[name]
    verify = np.interp(np.arange(1, rows[-1] + 1), rows, np.array(milliseconds) / 1e3)
    return CostModel(
        name,
        "preset",
        verify=tuple(verify.tolist()),
        draft={ANY: (0.0,) * (LONGEST + 1)},
        note=f"Derived, not measured here, from {source}.",
    )
