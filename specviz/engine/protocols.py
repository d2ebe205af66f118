"""What a target, a drafter and an acceptance rule are.

The engine is four small protocols: `Target`, `Drafter` and `Acceptance` here, `Policy` in
`specviz.policies` (it must run without torch). One vocabulary throughout: a round starts at
the **anchor** (the last committed token, whose own forward pass is still owed), the drafter
proposes a **draft**, the target **verifies** it in one forward pass, and what is accepted is
**committed**.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from specviz.engine.inputs import Ids, Prompt
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.sampling import RAW, Sampling
from specviz.policies import DraftView, Plan

More = Callable[[DraftView], bool]

#: A tap i > 0 is the residual stream after i decoder layers. This one is the final hidden
#: state, normalised as the unembedding sees it.
FINAL = -1


def check_drafter(drafter: object) -> None:
    """Raise ValueError unless `drafter` is one."""
    if not isinstance(drafter, Drafter):
        raise ValueError(
            f"{drafter!r:.60} is not a drafter: load one with load_drafter(name, target)."
        )


@dataclass(frozen=True)
class Draft:
    """A tree of drafted tokens below an anchor; a chain is a tree with one branch.

    Attributes
    ----------
    anchor
        The last committed token: verified together with the draft.
    tokens
        Node tokens, parents before children.
    parents
        Index of each node's parent, -1 for the anchor.
    logq, entropy, confidence
        Per node: the drafter's ln q of its token, the entropy of the distribution it came
        from (nats), and the drafter's own score in [0, 1].
    q
        What the tokens were drawn from, one row per node (probabilities on the device), shaped
        by the run's temperature, top-k and top-p; None for tokens that were chosen, such as the
        likeliest ones (point drafts). Live only: never stored. `logq`, `entropy` and
        `confidence` are of the drafter's distribution as it is, whatever the temperature.
    """

    anchor: int
    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    logq: tuple[float, ...] = ()
    entropy: tuple[float, ...] = ()
    confidence: tuple[float, ...] = ()
    q: torch.Tensor | None = None

    def __post_init__(self) -> None:
        n = len(self.tokens)
        if not len(self.parents) == len(self.logq) == n:
            raise ValueError(
                f"A draft needs one parent and one logq per token: {n} tokens, "
                f"{len(self.parents)} parents, {len(self.logq)} logq."
            )
        for node, parent in enumerate(self.parents):
            if not -1 <= parent < node:
                raise ValueError(f"Node {node} has parent {parent}: parents come before children.")

    @classmethod
    def chain(
        cls,
        anchor: int,
        tokens: Sequence[int],
        logq: Sequence[float] | None = None,
        entropy: Sequence[float] | None = None,
        confidence: Sequence[float] | None = None,
        q: torch.Tensor | None = None,
    ) -> Draft:
        """One branch. Without `logq` the tokens are point drafts (q = 1)."""
        n = len(tokens)
        return cls(
            int(anchor),
            tuple(int(token) for token in tokens),
            tuple(range(-1, n - 1)),
            tuple(logq) if logq is not None else (0.0,) * n,
            tuple(entropy) if entropy is not None else (0.0,) * n,
            tuple(confidence) if confidence is not None else (1.0,) * n,
            q,
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @property
    def depth(self) -> int:
        """How many tokens could be accepted: the length of the longest branch."""
        return max(self.depths(), default=0)

    def depths(self) -> list[int]:
        """Depth of every node; a child of the anchor has depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    def check_path(self, path: Sequence[int]) -> None:
        """Raise ValueError unless `path` leads from the anchor down the tree."""
        here = -1
        for node in path:
            if not 0 <= node < len(self) or self.parents[node] != here:
                raise ValueError(f"{tuple(path)} is not a path from the anchor down the draft.")
            here = node


@dataclass(frozen=True)
class Rows:
    """What the target saw: one distribution per verified row.

    Attributes
    ----------
    logits
        [1 + n, vocabulary], raw. Row 0 follows the anchor, row 1 + i follows node i.
    taps
        Hidden states the drafters asked for, by layer: [1 + n, hidden]. After `prefill` they
        cover the whole prompt, one row per prompt token, while `logits` has only the last.
    """

    logits: torch.Tensor
    taps: Mapping[int, torch.Tensor] = field(default_factory=dict)


class Codec(Protocol):
    """Prompts to token ids and token ids to text."""

    @property
    def template(self) -> Mapping[str, str]: ...
    def encode(self, prompt: Prompt) -> tuple[int, ...]: ...
    def render(self, prompt: Prompt) -> str: ...
    def decode(self, tokens: Ids) -> str: ...
    def token_text(self, token: int) -> str: ...


@runtime_checkable
class Target(Protocol):
    """Owns the weights, the KV cache and its rewind. Knows no drafter.

    A target serves one sequence at a time: `prefill` starts a new one and increments
    `session`, so that an older run notices. `verify` changes nothing that `commit` does not
    confirm: it may be interrupted and asked again.

    Attributes
    ----------
    caption
        What pictures say of the weights ("Q4_1 weights dequantised to fp32").
    verifies
        Forward passes of `verify` since the last prefill.
    """

    name: str
    caption: str
    vocab_size: int
    eos_ids: frozenset[int]
    supports_trees: bool
    session: int
    verifies: int

    @property
    def fingerprint(self) -> str:
        """Short hash that changes with the weights: a capture is resumed on the same ones."""
        ...

    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def codec(self) -> Codec: ...

    def prefill(self, prompt: Ids, taps: Sequence[int] = ()) -> Rows:
        """Start a sequence. One row of logits: the distribution after the prompt."""
        ...

    def verify(self, draft: Draft) -> Rows:
        """1 + n rows: after the anchor, then after every draft node."""
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep the anchor and the accepted nodes (root to leaf), drop the rest."""
        ...

    def unembed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [m, vocabulary] of final hidden states [m, hidden] (the `FINAL` tap)."""
        ...

    def memory(self) -> Mapping[str, int]:
        """What the sequence took at its peak, in slots and bytes; empty where not known."""
        ...

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read now means something."""
        ...


@dataclass(frozen=True)
class Reference:
    """The target's own output, which capture asks every drafter about.

    Attributes
    ----------
    prompt, output, lookahead
        Token ids; `lookahead` are the tokens decoded past the limit, so that no draft that
        reaches over the end is cut by it.
    logits
        `logits(lo, hi)` gives the target's rows [hi - lo, vocabulary] that produced output
        tokens lo..hi-1 (of output + lookahead); computed on demand, never kept.
    taps
        Hidden states by layer over prompt + output + lookahead, less the last token.
    sampling
        How p and q are shaped before they are compared; greedy outputs are compared raw.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    lookahead: tuple[int, ...]
    logits: Callable[[int, int], torch.Tensor]
    taps: Mapping[int, torch.Tensor] = field(default_factory=dict)
    sampling: Sampling = RAW

    @property
    def anchors(self) -> int:
        """Anchors 0..n-2: every output token but the last starts a round."""
        return max(len(self.output) - 1, 0)

    @property
    def realised(self) -> tuple[int, ...]:
        return self.output + self.lookahead


@dataclass(frozen=True)
class Drafts:
    """Drafts at every anchor: the columns of the trace's `drafts` table, as arrays [anchors, K]."""

    drafted: np.ndarray
    token: np.ndarray
    logq: np.ndarray
    entropy: np.ndarray
    confidence: np.ndarray
    path_logq: np.ndarray
    path_rank: np.ndarray
    overlap: np.ndarray
    kl: np.ndarray
    top4_ids: np.ndarray


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens. Knows no policy: it is handed a plan and asked to stop by `more`.

    Attributes
    ----------
    max_k
        Most tokens it can draft in a round.
    taps
        The target's hidden states it needs (layer numbers); `Rows` carry them.
    simulated_cost
        True when its measured seconds do not stand for what it imitates.
    """

    name: str
    caption: str
    max_k: int
    taps: tuple[int, ...]
    simulated_cost: bool

    @property
    def fingerprint(self) -> str:
        """Short hash of whatever its drafts depend on, once attached."""
        ...

    def attach(self, target: Target) -> None:
        """Meet the target; refuse with a sentence when vocabulary or shapes do not fit."""
        ...

    def start(self, prompt: Ids, rows: Rows) -> None:
        """A new sequence: the prompt and what the target saw of it."""
        ...

    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        """A draft after `context` (prompt and committed tokens).

        A chain of at most `plan.k` tokens, or the tree of `plan.tree`. `pick` turns distributions
        into tokens; a drafter that has none leaves it alone.
        """
        ...

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        """Catch up with the last round: its verified rows and the accepted path."""
        ...

    def propose_all(self, reference: Reference, k: int) -> Drafts:
        """The draft `propose` would make at every anchor, vectorised."""
        ...


@dataclass(frozen=True)
class Verdict:
    """What acceptance says of one verified draft.

    Attributes
    ----------
    path
        Accepted nodes, from the anchor down.
    token
        The target's own token after them: the bonus after a full accept, else the correction.
    full
        True when the path ended at a leaf, so that nothing was rejected.
    """

    path: tuple[int, ...]
    token: int
    full: bool


@runtime_checkable
class Acceptance(Protocol):
    """Which drafted tokens are kept. Lossless rules leave the output's law unchanged."""

    @property
    def name(self) -> str: ...
    @property
    def lossless(self) -> bool: ...
    @property
    def sampling(self) -> Sampling:
        """How the target's distribution is shaped; temperature 0 is greedy decoding."""
        ...

    def pick(self, seed: int, anchor: int) -> Pick:
        """How the drafter is to choose its tokens in the round of this anchor."""
        ...

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict: ...
