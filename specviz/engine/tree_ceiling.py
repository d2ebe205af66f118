"""The best tree of fixed tokens, measured on the target: its own most probable paths (T5.3).

No drafter whose tokens are fixed before a sampled target draws, and none at all under
sample-match, can expect more accepted tokens from n nodes than the n most probable
continuations sum to. The target itself is asked for them, with the tree engine: a path is never
more probable than its beginning, so that what falls behind the best n found can be dropped.
"""

from __future__ import annotations

import heapq
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from specviz.engine.protocols import Draft, Target
from specviz.engine.record import software, storable, target_meta
from specviz.engine.sampling import Sampling
from specviz.engine.tree import MAX_NODES, Path, limited
from specviz.prompt_set import prompt_seed
from specviz.refuse import a_path, whole
from specviz.trace import Trace, TraceError, need_trace
from specviz.trace.target_trees import TargetTrees, load_target_trees, trees_of_rows

#: Nodes asked about in one verification; more would be asked in vain, fewer take more passes.
BATCH = 16


@dataclass(frozen=True)
class LikelyPaths:
    """The most probable continuations after an anchor, in order of probability.

    Attributes
    ----------
    paths, chances
        Tokens below the anchor, and the probability of all of them in turn.
    entropies
        Entropy (nats) of the distribution after each; NaN after an end of text.
    entropy
        The same after the anchor.
    rows
        Rows that the target verified for it.
    """

    paths: tuple[Path, ...]
    chances: tuple[float, ...]
    entropies: tuple[float, ...]
    entropy: float
    rows: int

    def parents(self) -> list[int]:
        """Index of every node's parent, -1 for the anchor."""
        place: dict[Path, int] = {(): -1}
        for path in self.paths:
            place[path] = len(place) - 1
        return [place[path[:-1]] for path in self.paths]


def likely_paths(
    target: Target, anchor: int, nodes: int, depth: int, sampling: Sampling
) -> LikelyPaths:
    """The `nodes` most probable continuations of at most `depth` tokens after an anchor (T5.3).

    Exact under the target's own distributions, shaped by `sampling`. Nothing goes on after an
    end of text. The anchor's own forward pass must still be owed, as at the start of a round;
    nothing is committed.
    """
    chance: dict[Path, float] = {}
    entropy: dict[Path, float] = {}
    rows = 0
    ask: list[Path] = [()]
    while ask:
        shape = _with_ancestors(ask)
        found = target.verify(_draft(anchor, shape))
        rows += len(found.logits)
        p = sampling.probs(found.logits)
        place = {path: row for row, path in enumerate(shape)}
        wide = p[[place[path] for path in ask]]
        entropy.update(zip(ask, torch.special.entr(wide).sum(-1).tolist(), strict=True))
        top, ids = (part.tolist() for part in wide.topk(min(nodes, wide.shape[-1]), dim=-1))
        for path, shares, tokens in zip(ask, top, ids, strict=True):
            if len(path) < depth:
                above = chance[path] if path else 1.0
                below = zip(tokens, shares, strict=True)
                chance.update({(*path, t): above * share for t, share in below if share > 0})
        kept = heapq.nsmallest(nodes, chance, key=lambda path: (-chance[path], len(path), path))
        chance = {path: chance[path] for path in kept}  # what fell behind cannot come back
        going_on = (path for path in kept if path not in entropy and path[-1] not in target.eos_ids)
        ask = [path for path, _ in zip(going_on, range(BATCH), strict=False)]
    after = tuple(entropy.get(path, float("nan")) for path in chance)
    return LikelyPaths(tuple(chance), tuple(chance.values()), after, entropy[()], rows)


def capture_tree_ceiling(
    trace: Trace,
    target: Target,
    *,
    nodes: int = MAX_NODES,
    depth: int = 16,
    per_prompt: int = 4,
    follow: int | None = None,
    out: str | pathlib.Path | None = None,
    resume: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> TargetTrees:
    """Expand the target's most probable paths below anchors of its own sampled outputs (T5.3).

    Parameters
    ----------
    trace
        A capture of this target with `sampling=`; `trace.select(...)` keeps some prompts.
    target
        The same target. It must verify trees.
    nodes, depth
        Size of the trees; every smaller budget is contained in the largest.
    per_prompt
        Anchors drawn at random from each output, without replacement.
    follow
        Instead of drawing anchors, start at the first and go from round to round, as the best
        tree of so many nodes advances on the recorded output: the mean over these anchors is
        tokens per round, where that over random ones is not (F7.5). About one anchor for every
        two to four tokens.
    out
        Parquet file, written after every prompt. None keeps the result in memory.
    resume
        Go on with what `out` already holds.
    seed
        Of the draw of anchors.

    Returns
    -------
    TargetTrees
        `specviz.tree_ceiling` makes a table of it, at every budget.

    Raises
    ------
    ValueError
        For a greedy capture (its text is certain: the ceiling is k + 1), another target than
        the capture's, one that verifies no trees, or a size out of range.
    TraceError
        When `out` holds something else, or was made with other settings.

    Notes
    -----
    Some 200 to 400 verified rows an anchor at 128 nodes. Interrupted, it loses at most the prompt
    in flight, and `out` can be resumed.

    Examples
    --------
    >>> from specviz.campaign import capture
    >>> from specviz.drafters.markov import MarkovDrafter
    >>> from specviz.targets.toy import MarkovModel, ToyTarget
    >>> target, drafter = ToyTarget(MarkovModel.random(6)), MarkovDrafter(MarkovModel.random(6))
    >>> trace = capture(["ab"], target, drafter, sampling=Sampling(), progress=False)
    >>> found = capture_tree_ceiling(trace, target, nodes=8, per_prompt=2, progress=False)
    >>> found.table.num_rows, len(found.anchors["token"][0])
    (2, 8)
    """
    nodes, depth = limited("nodes", nodes), whole("depth", depth, least=1)
    per_prompt, seed = whole("per_prompt", per_prompt, least=1), whole("seed", seed, least=0)
    if follow is not None and limited("follow", follow) > nodes:
        raise ValueError(f"follow is {follow}, and the trees have only {nodes} nodes.")
    _check(trace, target)
    out = None if out is None else a_path("out", out)
    given = trace.meta.sampling
    sampling = Sampling(given["temperature"], int(given["top_k"]), given["top_p"])
    meta = {
        "target": target_meta(target),
        "sampling": asdict(sampling),
        "nodes": nodes,
        "depth": depth,
        "per_prompt": None if follow else per_prompt,
        "follow": follow,
        "seed": seed,
        "software": software(),
    }
    done = _resumed(out, meta, resume)
    have = {row["prompt_id"] for row in done}
    texts = [text for text in _texts(trace) if text.prompt_id not in have]
    size = sum(text.n - 1 if follow else min(per_prompt, text.n - 1) for text in texts)
    with tqdm(total=size, unit="pos", desc="tree ceiling", disable=not progress) as bar:
        for text in texts:
            done += _expand(target, text, meta, sampling, bar)
            if out is not None:
                trees_of_rows(meta, done).save(out)
    return trees_of_rows(meta, done)


@dataclass(frozen=True)
class _Text:
    """One recorded output: its prompt, its tokens and those decoded past its end."""

    seq: int
    prompt_id: str
    content_type: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    n: int


def _expand(
    target: Target, text: _Text, meta: Mapping[str, Any], sampling: Sampling, bar: Any
) -> list[dict[str, Any]]:
    """One row per anchor of a text."""
    rows = []
    ahead: list[int] = []
    if not meta["follow"]:
        rng = np.random.default_rng(prompt_seed(meta["seed"], text.prompt_id))
        ahead = sorted(rng.permutation(text.n - 1)[: meta["per_prompt"]].tolist())
    target.prefill(text.prompt)
    here = 0  # the anchor whose forward pass is owed
    anchor = ahead.pop(0) if ahead else 0
    while anchor < text.n - 1:
        if anchor > here:
            way = Draft.chain(text.tokens[here], text.tokens[here + 1 : anchor])
            target.verify(way)
            target.commit(range(len(way)))
            here = anchor
        found = likely_paths(target, text.tokens[here], meta["nodes"], meta["depth"], sampling)
        realised = _on(found, text.tokens[here + 1 :])
        rows.append(
            {
                "seq": text.seq,
                "prompt_id": text.prompt_id,
                "content_type": text.content_type,
                "anchor": here,
                "entropy": found.entropy,
                "token": [path[-1] for path in found.paths],
                "text": [storable(target.codec.token_text(path[-1])) for path in found.paths],
                "parent": found.parents(),
                "chance": list(found.chances),
                "node_entropy": list(found.entropies),
                "realised": realised,
            }
        )
        if meta["follow"]:
            step = 1 + sum(node < meta["follow"] for node in realised)
            anchor = here + step
            bar.update(min(step, text.n - 1 - here))
        else:
            anchor = ahead.pop(0) if ahead else text.n
            bar.update(1)
    return rows


def _on(found: LikelyPaths, tokens: Sequence[int]) -> list[int]:
    """The nodes that the text goes through, from the anchor down."""
    place = {path: node for node, path in enumerate(found.paths)}
    nodes = []
    for length in range(1, len(tokens) + 1):
        node = place.get(tuple(tokens[:length]))
        if node is None:
            break
        nodes.append(node)
    return nodes


def _with_ancestors(paths: Sequence[Path]) -> list[Path]:
    """The paths and all their beginnings, the anchor's () first, parents before children."""
    return sorted({path[:end] for path in paths for end in range(len(path) + 1)}, key=_by_length)


def _by_length(path: Path) -> tuple[int, Path]:
    return len(path), path


def _draft(anchor: int, shape: Sequence[Path]) -> Draft:
    place = {path: row - 1 for row, path in enumerate(shape)}
    nodes = shape[1:]
    return Draft(
        anchor,
        tuple(path[-1] for path in nodes),
        tuple(place[path[:-1]] for path in nodes),
        (0.0,) * len(nodes),
    )


def _texts(trace: Trace) -> list[_Text]:
    output = trace.positions.groupby("seq", sort=False)["token_id"].agg(list).to_dict()
    sequences: list[dict[str, Any]] = trace.table("sequences").to_pylist()
    return [
        _Text(
            row["seq"],
            row["prompt_id"],
            row["content_type"],
            tuple(row["prompt_ids"]),
            (*output[row["seq"]], *row["lookahead"]),
            row["n_output"],
        )
        for row in sequences
        if row["n_output"] > 1
    ]


def _check(trace: Trace, target: Target) -> None:
    need_trace(trace).require("sequences", "positions")
    if trace.meta.greedy:
        raise ValueError(
            "A greedy target's text is certain, so that the only ceiling is k + 1: give a capture "
            "made with sampling=Sampling()."
        )
    if not isinstance(target, Target):
        raise ValueError(f"{target!r:.60} is not a target: load one with load_target(name).")
    if not target.supports_trees:
        raise ValueError(f"{target.name} verifies chains only: its best trees cannot be measured.")
    if trace.meta.target.get("fingerprint") != target.fingerprint:
        raise ValueError(
            f"The capture is of {trace.meta.target.get('name')} with other weights than this "
            f"{target.name}: load the target that made it."
        )


def _resumed(
    out: pathlib.Path | None, meta: Mapping[str, Any], resume: bool
) -> list[dict[str, Any]]:
    """The rows that `out` already holds."""
    if out is None or not out.exists():
        return []
    if not resume:
        raise TraceError(f"{out} already exists: pass resume=True to go on, or name another file.")
    old = load_target_trees(out)
    for name in (name for name in meta if name != "software"):
        if old.meta.get(name) != meta[name]:
            raise TraceError(
                f"{out} was made with another {name} ({old.meta.get(name)}), not {meta[name]}: "
                "name another file, or take the same settings to go on."
            )
    rows: list[dict[str, Any]] = old.table.to_pylist()
    return rows
