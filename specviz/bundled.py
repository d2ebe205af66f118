"""Traces that come with specviz: real captures to read without a model."""

from __future__ import annotations

from specviz._data_files import data_file
from specviz.trace import Trace, load_trace

#: Name of each trace, and what it holds.
BUNDLED = {
    "smollm2-greedy": "SmolLM2-135M on 18 prompts of code, 18 of prose and 8 of each other type, "
    "greedy, 64 tokens each; every drafter family at every anchor, chains of 10 tokens (block: 7) "
    "and trees of 16 nodes",
    "smollm2-sampled": "the same prompts and drafters, sampled at temperature 1, with p and q of "
    "every token; no trees",
    "smollm2-trees": "SmolLM2-135M on 18 prompts of code and 18 of prose, greedy, 64 tokens each; "
    "lm, eagle and ngram at every anchor, chains of 7 tokens and trees of 64 nodes",
    "smollm2-fitting": "32 other prompts of code and prose, 48 tokens each, with lm and eagle: to "
    "fit on what is judged on smollm2-trees",
}


def bundled_trace(name: str) -> Trace:
    """Open a trace that comes with specviz; needs no torch.

    Parameters
    ----------
    name
        One of `BUNDLED`.

    Raises
    ------
    ValueError
        For another name; the sentence lists those there are.

    Examples
    --------
    >>> bundled_trace("smollm2-trees").drafters
    ['eagle', 'lm', 'ngram']
    """
    if name not in BUNDLED:
        raise ValueError(f"No trace {name!r} comes with specviz; there are {', '.join(BUNDLED)}.")
    return load_trace(data_file(f"traces/{name}/trace.json").parent)
