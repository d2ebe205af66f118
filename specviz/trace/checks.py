"""The identities every trace satisfies (F2.5 of the formula sheet, and the index convention).

They are what catches a wrong denominator: `sum(emitted) = n - 1`, `emitted = accepted + 1`,
`0 <= accepted <= drafted`, anchors that chain, and M(a) equal to what the tokens say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from specviz.trace.schema import FINISHES, STOPS, TraceMeta

Array = np.ndarray[Any, Any]


def validate(meta: TraceMeta, tables: Mapping[str, pa.Table]) -> None:
    """Raise ValueError naming the first identity that does not hold."""
    for name, table in tables.items():
        empty = next((c for c in table.column_names if table[c].null_count), None)
        if empty is not None:
            raise ValueError(f"Invalid trace: `{name}` has missing values in {empty!r}.")
    _sequences(tables["sequences"])
    sizes = dict(
        zip(
            tables["sequences"]["seq"].to_pylist(),
            tables["sequences"]["n_output"].to_pylist(),
            strict=True,
        )
    )
    if tables["positions"].num_rows or meta.kind == "capture":
        _positions(tables["positions"], sizes)
    if tables["drafts"].num_rows or (meta.exhaustive and meta.drafters):
        _drafts(meta, tables, sizes)
    if tables["trees"].num_rows or (meta.exhaustive and meta.trees):
        _trees(meta, tables, sizes)
    if tables["rounds"].num_rows:
        _rounds(tables["rounds"], sizes)
    if tables["rows"].num_rows:
        _rows(tables["rows"], tables["rounds"])


def _column(table: pa.Table, name: str) -> Array:
    return np.asarray(table[name].combine_chunks().to_numpy(zero_copy_only=False))


def _fail(table: str, bad: Array, what: str) -> None:
    """Raise when any row of `table` is bad, quoting the first few."""
    rows = np.flatnonzero(bad)
    if len(rows):
        shown = ", ".join(str(row) for row in rows[:3])
        raise ValueError(
            f"Invalid trace: {what} ({len(rows)} row(s) of `{table}`, first: {shown})."
        )


def _sequences(table: pa.Table) -> None:
    seq = _column(table, "seq")
    _fail("sequences", _duplicated(seq), "the same sequence twice")
    names = np.asarray(table["prompt_id"].to_pylist(), dtype=str)
    _fail("sequences", _duplicated(names), "the same prompt_id twice")
    _fail("sequences", _column(table, "n_output") < 1, "a sequence without output")
    finish = table["finish"].to_pylist()
    _fail(
        "sequences",
        np.array([f not in FINISHES for f in finish], bool),
        f"finish is not one of {FINISHES}",
    )
    n, limit = _column(table, "n_output"), _column(table, "max_new_tokens")
    _fail("sequences", n > limit, "more output tokens than max_new_tokens")


def _duplicated(values: Array) -> Array:
    order = np.argsort(values, kind="stable")
    same = np.zeros(len(values), bool)
    same[order[1:]] = values[order[1:]] == values[order[:-1]]
    return same


def _positions(table: pa.Table, sizes: Mapping[int, int]) -> None:
    seq, t = _column(table, "seq"), _column(table, "t")
    counts = dict(zip(*(a.tolist() for a in np.unique(seq, return_counts=True)), strict=True))
    for s, n in sizes.items():
        if counts.get(s, 0) != n:
            raise ValueError(
                f"Invalid trace: sequence {s} has {counts.get(s, 0)} positions for {n} tokens."
            )
    if not table.num_rows:
        return
    first = np.r_[True, seq[1:] != seq[:-1]]
    expected = np.where(first, 0, np.r_[0, t[:-1] + 1])
    _fail("positions", t != expected, "positions of a sequence are not 0, 1, 2, ...")
    entropy, ebf, ebf2 = (_column(table, c) for c in ("entropy", "ebf", "ebf2"))
    p_max = _column(table, "p_max")
    slack = 1e-3
    _fail("positions", ~(entropy >= -slack), "negative or missing entropy")
    _fail("positions", ~np.isclose(ebf, np.exp(entropy), rtol=1e-2), "ebf is not exp(entropy)")
    # Hill numbers do not increase with their order (F1.1).
    _fail("positions", ~((p_max > 0) & (p_max <= 1 + slack)), "p_max outside 0..1")
    _fail("positions", ~(ebf2 <= ebf * (1 + slack)), "ebf2 above ebf, or missing")
    _fail("positions", 1 / p_max > ebf2 * (1 + slack), "1 / p_max above ebf2")
    _fail("positions", _column(table, "n90") < 1, "an empty nucleus (n90)")
    _fail("positions", ~(_column(table, "margin") >= 0), "negative or missing margin")
    for name in ("logp", "logp_sampled"):
        _fail("positions", ~(_column(table, name) <= slack), f"{name} above 0, or missing")
    _fail("positions", _column(table, "rank") < 0, "negative rank")


def _drafts(meta: TraceMeta, tables: Mapping[str, pa.Table], sizes: Mapping[int, int]) -> None:
    table = tables["drafts"]
    expected = sum(max(n - 1, 0) for n in sizes.values()) * len(meta.drafters)
    if meta.exhaustive and table.num_rows != expected:
        raise ValueError(
            f"Invalid trace: exhaustive, yet {table.num_rows} drafts for {expected} "
            "(anchor, drafter) pairs."
        )
    if not table.num_rows:
        return
    drafted, matched = _column(table, "drafted"), _column(table, "matched")
    anchor, seq = _column(table, "anchor"), _column(table, "seq")
    size = np.array([sizes.get(s, -1) for s in seq.tolist()])
    _fail("drafts", size < 0, "a draft of a sequence that is not in the trace")
    _fail("drafts", (anchor < 0) | (anchor > size - 2), "an anchor outside 0..n-2")
    _fail("drafts", (drafted < 0) | (drafted > meta.k), "drafted outside 0..K")
    _fail("drafts", (matched < 0) | (matched > drafted), "matched outside 0..drafted")
    names = table["drafter"].combine_chunks()
    ids = np.asarray(names.indices.to_numpy(zero_copy_only=False))
    known = names.dictionary.to_pylist()
    limits = np.array([meta.drafters.get(name, {}).get("k", -1) for name in known])
    _fail("drafts", limits[ids] < 0, "a drafter that trace.json does not name")
    _fail("drafts", drafted > limits[ids], "drafted above the drafter's own K")
    realised = _realised(tables)
    token = table["token"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    token = token.reshape(table.num_rows, -1)
    for s in np.unique(seq).tolist():
        mine = np.flatnonzero(seq == s)
        _fail(
            "drafts",
            _wrong_match(mine, table.num_rows, anchor, token, drafted, matched, realised[s]),
            "matched is not what the tokens say",
        )
    if meta.exhaustive:
        keys = ids.astype(np.int64) * (1 << 40) + seq.astype(np.int64) * (1 << 20) + anchor
        _fail("drafts", _duplicated(keys), "two drafts of one drafter at one anchor")


def _nodes(table: pa.Table, nodes: Array) -> None:
    """Every node has its columns, and a parent before it that is one level up."""
    tree = np.repeat(np.arange(len(nodes)), nodes)
    for name in ("node_parent", "node_token", "node_logq"):
        count = np.asarray(pc.list_value_length(table[name]).to_numpy(), np.int64)
        _fail("trees", count != nodes, f"{name} does not have one entry per node")
    depth, parent = (
        np.asarray(pc.list_flatten(table[name]).to_numpy(), np.int64)
        for name in ("node_depth", "node_parent")
    )
    first = np.repeat(np.cumsum(nodes) - nodes, nodes)
    odd = (parent < -1) | (parent >= np.arange(len(parent)) - first)
    above = np.where((parent < 0) | odd, 0, depth[np.where(odd, 0, first + np.maximum(parent, 0))])
    logq = np.asarray(pc.list_flatten(table["node_logq"]).to_numpy(zero_copy_only=False))
    above_0 = np.zeros(len(nodes), bool)
    above_0[tree[logq.astype(float) > 0]] = True
    _fail("trees", above_0, "node_logq above 0")
    wrong = np.zeros(len(nodes), bool)
    wrong[tree[odd | (depth != above + 1)]] = True
    _fail("trees", wrong, "a node whose parent is not before it and one level up")


def _entering(
    table: pa.Table, nodes: Array, tables: Mapping[str, pa.Table], size: Array, k: int
) -> Array:
    """`enter_budget` as it follows from tokens and parents; `size` is 0 of nested trees."""
    depth, parent, token = (
        np.asarray(pc.list_flatten(table[name]).to_numpy(), np.int64)
        for name in ("node_depth", "node_parent", "node_token")
    )
    realised = _realised(tables)
    start = dict(zip(realised, np.cumsum([0, *map(len, realised.values())]), strict=False))
    seq, anchor = _column(table, "seq").tolist(), _column(table, "anchor")
    tree = np.repeat(np.arange(len(nodes)), nodes)
    first = np.repeat(np.cumsum(nodes) - nodes, nodes)
    ends = np.array([len(realised[s]) for s in seq])[tree]
    place = anchor[tree] + depth
    text = np.concatenate([*realised.values(), [-1]])
    where = np.array([start[s] for s in seq])[tree] + place
    on = (place < ends) & (token == text[np.minimum(where, len(text) - 1)]) & (depth <= k)
    for level in range(2, int(depth.max(initial=1)) + 1):
        mine = np.flatnonzero(on & (depth == level))
        on[mine] = on[first[mine] + parent[mine]]
    found = np.full((len(nodes), k), -1)
    way = np.flatnonzero(on)[::-1]  # of two that are alike, the first
    enter = np.where(size[tree[way]] > 0, size[tree[way]], way - first[way] + 1)
    found[tree[way], depth[way] - 1] = enter
    return found


def _trees(meta: TraceMeta, tables: Mapping[str, pa.Table], sizes: Mapping[int, int]) -> None:
    table = tables["trees"]
    builders = [(name, builder) for name, many in meta.trees.items() for builder in many]
    expected = sum(max(n - 1, 0) for n in sizes.values()) * len(builders)
    if meta.exhaustive and table.num_rows != expected:
        raise ValueError(
            f"Invalid trace: {table.num_rows} trees for {expected} (anchor, drafter, builder) "
            "triples."
        )
    if not table.num_rows:
        return
    anchor, seq = _column(table, "anchor"), _column(table, "seq")
    size = np.array([sizes.get(s, -1) for s in seq.tolist()])
    _fail("trees", (anchor < 0) | (anchor > size - 2), "an anchor outside 0..n-2")
    names = zip(table["drafter"].to_pylist(), table["builder"].to_pylist(), strict=True)
    which = np.array([builders.index(name) if name in builders else -1 for name in names])
    _fail("trees", which < 0, "a tree that trace.json does not name")
    limit = np.array([meta.trees[name][builder]["nodes"] for name, builder in builders])[which]
    nodes = np.asarray(pc.list_value_length(table["node_depth"]).to_numpy(), np.int64)
    _fail("trees", np.greater(nodes, limit), "more nodes than the shape has")
    _nodes(table, nodes)
    entered = table["enter_budget"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    entered = entered.reshape(table.num_rows, -1)
    odd = np.any((entered == 0) | (entered < -1), axis=1)
    _fail("trees", odd, "a budget that is no number of nodes")
    late = np.any(entered > limit[:, None], axis=1)
    _fail("trees", late, "a token that enters after the last node")
    gone = np.where(entered > 0, entered, np.iinfo(np.int16).max)
    early = np.any(np.diff(gone, axis=1) < 0, axis=1)
    _fail("trees", early, "a token that enters before its parent")
    keys = which.astype(np.int64) * (1 << 40) + seq.astype(np.int64) * (1 << 20) + anchor
    if meta.exhaustive:
        _fail("trees", _duplicated(keys), "two trees of one builder at one anchor")
    nested = np.array([meta.trees[name][builder]["nested"] for name, builder in builders])[which]
    said = _entering(table, nodes, tables, np.where(nested, 0, limit), entered.shape[1])
    other = np.any(said != entered, axis=1)
    _fail("trees", other, "enter_budget is not what the tokens say")


def _wrong_match(
    mine: Array,
    n_rows: int,
    anchor: Array,
    token: Array,
    drafted: Array,
    matched: Array,
    realised: Array,
) -> Array:
    """True for rows of one sequence whose M(a) differs from counting equal tokens."""
    k = token.shape[1]
    where = anchor[mine, None] + 1 + np.arange(k)
    inside = where < len(realised)
    y = np.where(inside, realised[np.minimum(where, len(realised) - 1)], -2)
    agree = (token[mine] == y) & (np.arange(k) < drafted[mine, None])
    counted = np.cumprod(agree, axis=1).sum(axis=1)
    wrong = np.zeros(n_rows, bool)
    wrong[mine] = counted != matched[mine]
    return wrong


def _realised(tables: Mapping[str, pa.Table]) -> dict[int, Array]:
    """Output tokens followed by the lookahead, per sequence."""
    positions = tables["positions"]
    seq, token = _column(positions, "seq"), _column(positions, "token_id")
    ahead = zip(
        tables["sequences"]["seq"].to_pylist(),
        tables["sequences"]["lookahead"].to_pylist(),
        strict=True,
    )
    return {s: np.r_[token[seq == s], np.array(more or [], np.int64)] for s, more in ahead}


def _rounds(table: pa.Table, sizes: Mapping[int, int]) -> None:
    drafted, accepted, emitted = (_column(table, c) for c in ("drafted", "accepted", "emitted"))
    _fail("rounds", (accepted < 0) | (accepted > drafted), "accepted outside 0..drafted")
    _fail("rounds", emitted != accepted + 1, "emitted is not accepted + 1")
    stops = pc.is_in(table["stop"], pa.array(STOPS)).combine_chunks()
    _fail(
        "rounds",
        ~np.asarray(stops.to_numpy(zero_copy_only=False), bool),
        f"stop is not one of {STOPS}",
    )
    seq, anchor = _column(table, "seq"), _column(table, "anchor")
    first = np.r_[True, seq[1:] != seq[:-1]]
    expected = np.where(first, anchor, np.r_[0, (anchor + emitted)[:-1]])
    _fail("rounds", anchor != expected, "an anchor that is not where the last round ended")
    _fail("rounds", first & (anchor > 0), "a first round that starts after the first anchor")
    for s in np.unique(seq).tolist():
        mine = seq == s
        total, start = int(emitted[mine].sum()), int(anchor[mine][0])
        if total != sizes.get(s, -1) - 1 - start:
            raise ValueError(
                f"Invalid trace: the rounds of sequence {s} emit {total} tokens, its output "
                f"after the first anchor has {sizes.get(s, -1) - 1 - start}."
            )


def _rows(table: pa.Table, rounds: pa.Table) -> None:
    keys = set(zip(rounds["seq"].to_pylist(), rounds["round"].to_pylist(), strict=True))
    mine = zip(table["seq"].to_pylist(), table["round"].to_pylist(), strict=True)
    _fail("rows", np.array([key not in keys for key in mine], bool), "a row of no round")
    node, depth = _column(table, "node"), _column(table, "depth")
    _fail("rows", (node == -1) != (depth == 0), "depth 0 is the anchor's row and only that")
