"""Capture of one prompt: decode once, then ask every drafter for its draft at every anchor.

Under greedy decoding the output does not depend on the drafter, so these drafts hold every
fixed k, stopping rule and switch of drafters exactly (F7.5); `specviz.replay` reads them. Of a
sampled output, ln q and ln p of its tokens say how likely each draft would have been accepted
(F7.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from specviz.engine.decoded import Decoded
from specviz.engine.protocols import FINAL, Drafter, Reference, Target
from specviz.engine.record import (
    drafts_table,
    matched_lengths,
    positions_table,
    sequences_table,
    vocabulary_table,
)
from specviz.engine.sampling import RAW, Sampling
from specviz.engine.tree_capture import Shapes, trees_table
from specviz.prompt_set import Prompt, prompt_seed

Tables = dict[str, pa.Table]


def capture_one(
    target: Target,
    drafters: Mapping[str, Drafter],
    seq: int,
    prompt: Prompt,
    k: int,
    max_new_tokens: int,
    trees: Mapping[str, Shapes],
    sampling: Sampling,
    seed: int,
    tick: Callable[[int], Any] = lambda n: None,
) -> Tables:
    """The tables of one prompt: decode, describe every position, ask every drafter."""
    ids = target.codec.encode(prompt.messages)
    taps = sorted({FINAL, *(tap for drafter in drafters.values() for tap in drafter.taps)})
    own_seed = prompt_seed(seed, prompt.id)
    decoded = Decoded(target, ids, taps, max_new_tokens, k, sampling, own_seed, tick)
    n = min(max_new_tokens, len(decoded.tokens))
    output, lookahead = decoded.tokens[:n], decoded.tokens[n:]
    finish = "eos" if output[-1] in target.eos_ids else "limit"
    reference = Reference(
        ids,
        tuple(output),
        tuple(lookahead),
        decoded.logits,
        decoded.taps,
        RAW if sampling.greedy else sampling,
    )
    tables = {
        "sequences": sequences_table(
            seq,
            prompt.id,
            prompt.content_type,
            target.codec.render(prompt.messages),
            target.codec.decode(output),
            ids,
            n,
            lookahead,
            max_new_tokens,
            finish,
            decoded.seconds,
        ),
        "positions": positions_table(
            seq,
            output,
            decoded.stats.take(range(n)),
            decoded.logp[:n],
            decoded.rank[:n],
            target.codec,
            decoded.logp_sampled[:n],
        ),
    }
    wide = max(min(k, drafter.max_k) for drafter in drafters.values())
    drafts = []
    for name, drafter in drafters.items():
        columns = drafter.propose_all(reference, min(k, drafter.max_k))
        matched = matched_lengths(columns, reference.realised)
        drafts.append(drafts_table(seq, name, columns, matched, wide))
    tables["drafts"] = pa.concat_tables(drafts).unify_dictionaries()
    grown = [
        trees_table(seq, name, drafters[name], reference, shapes, wide)
        for name, shapes in trees.items()
        if shapes
    ]
    if grown:
        tables["trees"] = pa.concat_tables(grown).unify_dictionaries()
    named = [("positions", "top_ids"), ("drafts", "token"), ("trees", "node_token")]
    lists = [tables[table][name].combine_chunks() for table, name in named if table in tables]
    others = np.unique(np.concatenate([each.flatten().to_numpy() for each in lists]))
    tables["vocabulary"] = vocabulary_table(seq, others.tolist(), output, target.codec)
    tick(max_new_tokens - n)  # an early end of text still completes the bar
    return tables
