"""Traces that come with specviz: real captures to read without a model."""

from __future__ import annotations

from specviz._data_files import data_file
from specviz.trace import Trace, load_trace
from specviz.trace.target_trees import TargetTrees, load_target_trees

#: Name of each trace, and what it holds.
BUNDLED = {
    "smollm2-greedy": "SmolLM2-135M on 18 prompts of code, 18 of prose and 8 of each other type, "
    "greedy, 64 tokens each; every drafter family at every anchor, chains of 10 tokens (block: 7) "
    "and trees of 16 nodes",
    "smollm2-sampled": "the same prompts and drafters, sampled at temperature 1, with p and q of "
    "every token; no trees",
    "smollm2-self-quant": "10 of the code and 10 of the prose outputs of smollm2-sampled, with a "
    "drafter that is the target with rounded weights: it can say every token, and nearly as well",
    "smollm2-trees": "SmolLM2-135M on 18 prompts of code and 18 of prose, greedy, 64 tokens each; "
    "lm, eagle and ngram at every anchor, chains of 7 tokens and trees of 64 nodes",
    "smollm2-fitting": "32 other prompts of code and prose, 48 tokens each, with lm and eagle: to "
    "fit on what is judged on smollm2-trees",
}

#: Name of each file of the target's own trees (`capture_tree_ceiling`), and what it holds.
TARGET_TREES = {
    "anchors": "128 nodes to depth 16, at 4 anchors drawn from each code and prose output of "
    "smollm2-sampled",
    "anchors-16": "16 nodes to depth 16, at 16 other anchors of each of these outputs",
    "rounds-7": "the rounds of the best tree of 7 nodes on the same outputs",
    "rounds-16": "the rounds of the best tree of 16 nodes",
    "rounds-64": "the rounds of the best tree of 64 nodes",
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


def bundled_target_trees(name: str = "anchors") -> TargetTrees:
    """Open the embedded target's own most probable paths; needs no torch.

    Parameters
    ----------
    name
        One of `TARGET_TREES`.

    Raises
    ------
    ValueError
        For another name; the sentence lists those there are.

    Examples
    --------
    >>> bundled_target_trees("rounds-7").meta["follow"]
    7
    """
    if name not in TARGET_TREES:
        raise ValueError(
            f"No target's trees {name!r} come with specviz; there are {', '.join(TARGET_TREES)}."
        )
    return load_target_trees(data_file(f"ceiling/{name}.parquet"))
