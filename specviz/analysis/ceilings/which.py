"""Which bounds apply where: the answer depends on target, acceptance rule and drafter together.

"The ceiling that entropy sets" has no meaning without all three (T5.2, T5.6): it binds drafts
that are fixed before a sampled target draws, and no others.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from specviz.analysis.ceilings.bound_table import (
    BLOCK,
    CHAIN,
    FIXED,
    GREEDY,
    LENGTH,
    NEARNESS,
    OVERLAP,
    SEVERAL,
    SHARED,
    Bound,
    relaxed,
)

if TYPE_CHECKING:
    import pandas as pd

#: How the target decodes.
TARGETS = {
    "greedy": "the target's argmax is emitted (temperature 0)",
    "sampled": "the target's token is drawn from p",
}
#: Rules that leave the output's law unchanged, by the names that traces give them.
LOSSLESS = {
    "greedy": "kept when it is the target's argmax",
    "sample-match": "kept when it equals the target's own draw",
    "rejection": "kept with probability min(1, p / q), token by token",
    "block": "rejection of the block as a whole",
    "recursive": "rejection of several drafts for one position in turn",
    "shared-noise": "kept when target and drafter, racing on the same noise, take the same token",
}
#: Rules that change it. A trace's name may go on with the rule's numbers: "top-2".
LOSSY = {
    "typical": "kept when p is above a bar that falls with entropy",
    "gap": "kept when p is near p_max",
    "ratio": "kept when p is a fair share of p_max",
    "top": "kept when it is among the target's m likeliest",
    "lenience": "rejection with p / l in place of p",
}
#: Names that `replay_sampled` has for sample-match: of the drafter's argmax, and of draws from q.
MATCHES = ("argmax-match", "drawn-match")
DRAFTERS = {
    "fixed": "a function of the context: argmax drafts, chains or trees, n-grams",
    "autoregressive": "each token is drawn given the drafted ones before it",
    "factorised": "the tokens of a block are drawn apart from one another",
}


@dataclass(frozen=True)
class Ceilings:
    """The bounds of one setting, the tightest first among those on tokens per round.

    Attributes
    ----------
    target, acceptance, drafter
        The setting.
    lossless
        Whether the rule leaves the output's law as it is. Of a lossy rule no number is a gain
        until it is shown with how far the output drifts.
    entropy_binds
        Whether the target's entropy limits what any drafter of the kind can win.
    bounds
        What applies.
    says
        The same in one or two sentences.
    """

    target: str
    acceptance: str
    drafter: str
    lossless: bool
    entropy_binds: bool
    bounds: tuple[Bound, ...]
    says: str

    @property
    def table(self) -> pd.DataFrame:
        """One row per bound, with the fields of `Bound`."""
        import pandas as pd

        return pd.DataFrame([asdict(bound) for bound in self.bounds])

    def __str__(self) -> str:
        rows = [
            f"- {b.quantity} {b.side} {b.formula} ({b.formula_id}, {b.holds})" for b in self.bounds
        ]
        return "\n".join([self.says, *rows])

    def _repr_html_(self) -> str:
        from specviz.markup import escape, table_html

        kind = "lossless" if self.lossless else "LOSSY"
        caption = (
            f"{self.target} target, {self.acceptance} ({kind}), {self.drafter} drafts. Tokens per "
            "round count the bonus. A theorem holds under its assumption; a model adds one about "
            "text."
        )
        return f"<p>{escape(self.says)}</p>" + table_html(self.table, caption=caption)


def which_ceiling(*, target: str, acceptance: str, drafter: str) -> Ceilings:
    """The bounds that apply to a target, an acceptance rule and a drafter.

    Parameters
    ----------
    target
        "greedy" or "sampled".
    acceptance
        One of `LOSSLESS` or `LOSSY`, or the name of a rule as a trace has it
        (`trace.meta.acceptance`), such as "top-2". The names of `replay_sampled` are understood:
        "argmax-match" is sample-match with fixed drafts, "drawn-match" with drawn ones.
    drafter
        "fixed" (argmax drafts are that), "autoregressive" or "factorised".

    Returns
    -------
    Ceilings
        Shown as a table in a notebook; `.table` is the same as a DataFrame.

    Raises
    ------
    ValueError
        For a word that is not known, the sentence listing those that are, and for argmax
        matching of a sampled target, which would not follow p.

    Notes
    -----
    All lossless rules are one at temperature 0, where p is a point mass: a greedy target has
    the same bounds under each.

    Examples
    --------
    >>> which_ceiling(target="greedy", acceptance="greedy", drafter="fixed").entropy_binds
    False
    >>> found = which_ceiling(target="sampled", acceptance="sample-match", drafter="autoregressive")
    >>> print(found.bounds[0].formula_id, found.entropy_binds)
    T5.3 True
    """
    _known("target", target, TARGETS)
    rule = _rule(acceptance)
    _known("drafter", drafter, DRAFTERS)
    if acceptance == "argmax-match":
        drafter = "fixed"
    lossless = rule in LOSSLESS
    if target == "sampled" and rule == "greedy":
        raise ValueError(
            "Keeping the argmax of a sampled target would not follow p: take acceptance="
            "'sample-match', or target='greedy'."
        )
    binds = False
    bounds: tuple[Bound, ...]
    if not lossless:
        bounds = (LENGTH, relaxed(rule))
        says = (
            "A lossy rule: the output no longer follows the target, so that the only ceiling is "
            "the length of the draft. Report how far the text drifts beside every gain."
        )
    elif target == "greedy":
        bounds = (LENGTH, *GREEDY)
        says = (
            "A greedy target's text is a function of the context, so its entropy sets no ceiling: "
            "the only one is the length of the draft. What limits a drafter is what it cannot see."
        )
    elif drafter == "fixed" or rule == "sample-match":
        binds = True
        bounds = (*FIXED, LENGTH)
        says = (
            "The draft knows nothing of what the target will draw, so the target's path "
            "probabilities are the ceiling: the best tree of as many fixed tokens."
        )
    else:
        bounds, says = _drawn(rule, drafter)
    return Ceilings(target, acceptance, drafter, lossless, binds, bounds, says)


def _drawn(rule: str, drafter: str) -> tuple[tuple[Bound, ...], str]:
    """Drafts drawn from q, which a rule that knows q can keep more often than a fixed one."""
    if rule == "recursive":
        says = (
            "Several tokens drawn from q compete for each position. Entropy sets no ceiling: where "
            "q = p the first of them is kept always."
        )
        return (LENGTH, SEVERAL, NEARNESS), says
    of_drafts = BLOCK if drafter == "factorised" else CHAIN
    near = (SHARED,) if rule == "shared-noise" else (NEARNESS,)
    if drafter == "factorised":
        says = (
            "Entropy sets no ceiling, but tokens drawn apart from one another know no pairs: what "
            "the tokens of a block tell of one another is lost, even with exact marginals."
        )
    else:
        says = (
            "Entropy sets no ceiling: with q = p every token is kept, however undecided the "
            "target. The limit is how near the drafter's law is to the target's."
        )
    return (of_drafts, LENGTH, OVERLAP, *near), says


def _known(what: str, word: object, words: dict[str, str]) -> None:
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"No {what} {word!r} is known: it is one of {', '.join(words)}.")


def _rule(acceptance: object) -> str:
    """The family of a rule's name: "top-2" is "top"."""
    words = LOSSLESS | LOSSY
    if isinstance(acceptance, str):
        if re.fullmatch("recursive-with(out)?-replacement", acceptance):
            return "recursive"
        family = re.sub(r"(-[0-9.e]+)+$", "", acceptance)
        if family in LOSSY:
            _known_numbers(family, acceptance)
            return family
        if acceptance in MATCHES:
            return "sample-match"
    _known("acceptance", acceptance, words)
    return str(acceptance)


def _known_numbers(family: str, acceptance: str) -> None:
    """Refuse a lossy rule whose numbers no rule has: "top-0" would keep nothing."""
    numbers = [float(each) for each in re.findall(r"-(\d[\d.]*(?:e-?\d+)?)", acceptance)]
    if family == "top" and not re.fullmatch("top(-[1-9][0-9]*)?", acceptance):
        raise ValueError(f"top-m keeps the m likeliest tokens, m = 1 or more: not {acceptance!r}.")
    if family in ("typical", "ratio", "lenience") and not all(0 < each <= 1 for each in numbers):
        raise ValueError(f"The numbers of {family} are above 0 and at most 1: not {acceptance!r}.")
