"""The bounds that `which_ceiling` chooses from, each with its formula and what it assumes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """One bound that applies in a setting.

    Attributes
    ----------
    name
        What is compared with what.
    quantity
        "tokens per round" (bonus counted), "first token kept" (a chance), or what else it bounds.
    side
        "at most" or "at least".
    formula, formula_id
        In the notation of `docs/formulas.md`, and its entry there.
    holds
        "theorem", or "model": then the assumption is one about text.
    assumption
        Under what it holds.
    code
        Where specviz computes it.
    """

    name: str
    quantity: str
    side: str
    formula: str
    formula_id: str
    holds: str
    assumption: str
    code: str


_TAU, _FIRST = "tokens per round", "first token kept"
LENGTH = Bound(
    "length of the draft",
    _TAU,
    "at most",
    "k + 1 (of a tree: depth + 1)",
    "F2.5",
    "theorem",
    "none",
    "specviz.analysis.survival.lengths.tokens_per_round",
)
OVERLAP = Bound(
    "overlap of p and q",
    _FIRST,
    "at most",
    "1 - TV(p, q) = sum min(p, q)",
    "F3.1",
    "theorem",
    "one draft, drawn from q; rejection reaches it",
    "specviz.analysis.theory.acceptance.rejection_chance",
)
NEARNESS = Bound(
    "divergence of q from p",
    _FIRST,
    "at least",
    "1 - sqrt(1 - exp(-KL)), and 1 - sqrt(KL / 2)",
    "T5.1",
    "theorem",
    "one draft drawn from q, kept by rejection; 0, and no news, where KL is infinite",
    "specviz.analysis.theory.divergence.bretagnolle_huber_floor",
)
#: Drafts that know nothing of what the target will draw.
FIXED = (
    Bound(
        "best tree of n fixed tokens",
        _TAU,
        "at most",
        "1 + sum of the n largest path probabilities P(v)",
        "T5.3",
        "theorem",
        "full knowledge of P; for n nodes, or the k tokens of a chain",
        "specviz.analysis.theory.tree.best_tree",
    ),
    Bound(
        "entropy of where the text leaves the tree",
        "entropy of the emitted tokens, nats",
        "at most",
        "ln(n + 1) + H(bonus | exit)",
        "T5.4",
        "theorem",
        "n nodes; no independence between positions",
        "specviz.analysis.theory.bounds.exit_identity",
    ),
    Bound(
        "speed of light",
        _TAU,
        "at most",
        "(ln P - 1) / mu + mu2 / mu^2 + 1 + (1 / mu - mu2 / mu^2) / P, P = n + 1",
        "T5.5'",
        "model",
        "distributions independent and alike after every prefix; text is bursty",
        "specviz.analysis.theory.bounds.speed_of_light",
    ),
    Bound(
        "best chain at a given entropy",
        _TAU,
        "at most",
        "sum over j = 0..k of p_max^j <= sum of hi(H, V)^j",
        "T5.7",
        "model",
        "one and the same distribution at every position",
        "specviz.analysis.theory.bounds.entropy_sandwich",
    ),
    Bound(
        "likeliest token",
        _FIRST,
        "at most",
        "p_max = 1 / EBF_inf",
        "T5.2",
        "theorem",
        "one draft that shares no randomness with the target",
        "specviz.analysis.branching.hill",
    ),
)
CHAIN = Bound(
    "overlap of the laws of whole drafts",
    _TAU,
    "at most",
    "1 + sum over i of 1 - TV(P_1..i, Q_1..i)",
    "F3.5",
    "theorem",
    "a chain drawn from Q; k + 1 where Q = P, at any entropy (T5.6)",
    "specviz.analysis.theory.acceptance.chain_survival",
)
BLOCK = Bound(
    "what a product cannot know",
    _TAU,
    "at most",
    "1 + sum over i of 1 - TV(P_1..i, q_1 x ... x q_i)",
    "T6.1",
    "theorem",
    "tokens drawn apart; exact marginals are not always the best such q (T6.2)",
    "specviz.analysis.theory.block.factorised",
)
SEVERAL = Bound(
    "several drafts for one position",
    "one of them kept",
    "at most",
    "min over sets H of 1 + p(H) - P(every draft is in H)",
    "F3.6",
    "theorem",
    "drafts drawn from q; recursive rejection may keep fewer",
    "specviz.analysis.theory.multi_draft.optimal_chance",
)
SHARED = Bound(
    "shared noise",
    _FIRST,
    "at least",
    "(1 - TV) / (1 + TV)",
    "F3.3",
    "theorem",
    "drafter and target race on the same noise",
    "specviz.analysis.theory.acceptance.shared_noise_floor",
)
GREEDY = (
    Bound(
        "best tree for what the drafter sees",
        _TAU,
        "at most",
        "1 + sum of the n largest P(v | F), P(. | F) = posterior of the greedy text",
        "T6.4",
        "theorem",
        "a drafter that sees F only; where F is the whole context, k + 1",
        "specviz.analysis.theory.tree.best_tree",
    ),
    Bound(
        "what is unknown of the greedy token",
        _FIRST,
        "at most",
        "the alpha at which h(alpha) + (1 - alpha) ln(V - 1) = H(Y | F)",
        "T6.4",
        "theorem",
        "a drafter that sees F only; H(Y | F) is not the target's entropy",
        "specviz.analysis.branching_bounds.mean_pmax_bounds",
    ),
    Bound(
        "certified argmax",
        _FIRST,
        "at least",
        "share of positions with KL(p || q), or 1 - overlap, below the margin's bar",
        "F3.4",
        "theorem",
        "the draft is argmax q, with p and q raw (temperature 1)",
        "specviz.analysis.theory.divergence.overlap_certificate",
    ),
)
_LOSSY_BOUNDS = {
    "typical": ("F3.7", "q(tokens with p above min(epsilon, delta / EBF_1))"),
    "gap": ("F3.8", "q(tokens with p >= p_max - delta)"),
    "ratio": ("F3.8", "q(tokens with p >= rho p_max)"),
    "top": ("F3.8", "q(the m likeliest tokens of p)"),
    "lenience": ("F3.8", "sum min(p / l, q)"),
}


def relaxed(rule: str) -> Bound:
    """What a lossy rule lets pass."""
    formula_id, formula = _LOSSY_BOUNDS[rule]
    return Bound(
        "tokens let pass",
        _FIRST,
        "at most",
        formula,
        formula_id,
        "theorem",
        "a draft drawn from q; reached, and the output's law is another one",
        "specviz.analysis.theory.acceptance."
        + ("lenient_chance" if rule == "lenience" else "allowed_chance"),
    )
