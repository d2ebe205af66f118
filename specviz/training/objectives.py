"""What a drafter may be trained for, beside the target's whole distribution.

Cross-entropy asks for the target's probabilities. A draft is judged by less: how far its tokens
are the target's likeliest ones (a chain), or whether these are among its first few (a tree).
Both objectives look at that token alone, and only make sense for a drafter that has already
learned something: where it gives that token no probability, nothing pulls it up.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: What `train_drafter("eagle", objective=...)` takes.
OBJECTIVES = ("cross-entropy", "expected-length", "recall")
#: Candidates among which "recall" wants the target's token, as `top4_ids` of a capture.
CANDIDATES = 4
#: How far ahead of the first candidate left out it wants the token, in nats.
MARGIN = 1.0


def expected_length(
    logits: Sequence[torch.Tensor],
    likeliest: Sequence[torch.Tensor],
    taught: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Tokens accepted in the mean over anchors, if drafts are drawn and the target is greedy.

    Parameters
    ----------
    logits
        Of each depth, [rows taught at that depth, m].
    likeliest
        Of each depth: the target's likeliest token as a row of the logits.
    taught
        Of each depth: bool [batch, anchors], which anchors its rows belong to; those of a
        deeper one are among those of the one before.

    Returns
    -------
    torch.Tensor
        sum over depths d of prod over i <= d of q_i(y_i), a scalar (F2.1).
    """
    reached = taught[0].to(logits[0].dtype)
    total = reached.new_zeros(())
    for rows, right, where in zip(logits, likeliest, taught, strict=True):
        q = rows.softmax(-1).gather(-1, right[:, None])[:, 0]
        reached = torch.zeros_like(reached).masked_scatter(where, q) * reached
        total = total + reached.sum()
    return total / taught[0].sum()


def recall_loss(logits: torch.Tensor, likeliest: torch.Tensor) -> torch.Tensor:
    """How far the target's likeliest token is from a safe place among the first candidates.

    0 where it is `MARGIN` ahead of the best token that it has to push out; its mean over
    rows [rows, m] falls linearly with that distance otherwise.
    """
    own = logits.gather(-1, likeliest[:, None])[:, 0]
    others = logits.scatter(-1, likeliest[:, None], -torch.inf)
    out = others.topk(min(CANDIDATES, others.shape[-1] - 1), -1).values[:, -1]
    return torch.relu(MARGIN + out - own).mean()
