"""Small, valid greedy captures without a model, from given or random match streams.

`synthetic_trace()` gives code that drafts well, prose that drafts badly and bursty mixed
text; sequences that end by themselves and at the limit; a looping tail; token text that
would break a page that forgot to escape it. Every statistic of a position comes from one
actual distribution, so the orders of the branching factor agree with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from specviz.trace.schema import TOP_DRAFT, TOP_TARGET, TraceMeta, table_schemas
from specviz.trace.trace import Trace

EOS = 0
VOCAB = 200
#: Token ids whose text must be escaped.
HOSTILE = {7: "</pre><script>alert(1)</script>", 8: "<b>&amp;", 9: "\\xff"}

#: Per content type: probability that a token matches in easy and in hard text, chance of
#: leaving each of the two, and the temperature of the target's distribution.
LAWS: Mapping[str, tuple[float, float, float, float, float]] = {
    "code": (0.92, 0.60, 0.10, 0.40, 0.25),
    "prose": (0.65, 0.30, 0.30, 0.20, 0.45),
    "mixed": (0.95, 0.20, 0.12, 0.12, 0.35),
}


def synthetic_trace(
    seed: int = 0,
    *,
    content_types: Sequence[str] = ("code", "prose", "mixed"),
    prompts_per_type: int = 4,
    drafters: Sequence[str] = ("steady",),
    k: int = 15,
    max_new_tokens: int = 48,
    shorter_drafts: bool = True,
) -> Trace:
    """A random capture; the same seed gives the same trace.

    The first drafter sees only tokens (M(a+1) = M(a) - 1 after a match, until its K cuts
    it); any further one makes fresh drafts at every anchor, as block drafters do.
    `shorter_drafts` lets a drafter offer fewer than K tokens, or none, at some anchors.
    """
    rng = np.random.default_rng(seed)
    outputs, finishes, types, temperatures = [], [], [], []
    matches: dict[str, list[np.ndarray]] = {name: [] for name in drafters}
    offered: dict[str, list[np.ndarray]] = {name: [] for name in drafters}
    for content_type in content_types:
        easy, hard, leave_easy, leave_hard, temperature = LAWS.get(content_type, LAWS["mixed"])
        for prompt in range(prompts_per_type):
            eos = prompt % 4 == 1
            n = int(rng.integers(max(2, max_new_tokens // 3), max_new_tokens)) if eos else 0
            n = n or max_new_tokens
            outputs.append(n)
            finishes.append("eos" if eos else "limit")
            types.append(content_type)
            state = _regimes(rng, n + k, leave_easy, leave_hard)
            temperatures.append(np.where(state, temperature, 2 * temperature))
            hit = rng.random(n + k) < np.where(state, easy, hard)
            for which, name in enumerate(drafters):
                d = np.full(n - 1, k)
                if shorter_drafts:
                    some = rng.random(n - 1) < 0.2
                    d[some] = rng.integers(0, k + 1, some.sum())
                reach = np.full(n - 1, k) if not eos else np.minimum(k, n - 1 - np.arange(n - 1))
                if which == 0:
                    run = _run_lengths(hit)[1:n]
                else:
                    p = np.where(state, easy, hard)[1:n]
                    run = rng.geometric(1 - p) - 1
                matches[name].append(np.minimum.reduce([run, d, reach]))
                offered[name].append(d)
    return trace_of(
        matches,
        drafted=offered,
        finish=finishes,
        content_types=types,
        k=k,
        max_new_tokens=max_new_tokens,
        temperatures=temperatures,
        loop_every=4,
        seed=seed,
    )


def trace_of(
    matches: Mapping[str, Sequence[Any]] | Sequence[Any],
    *,
    drafted: Mapping[str, Sequence[Any]] | None = None,
    finish: Sequence[str] | str = "limit",
    content_types: Sequence[str] | str = "code",
    prompt_ids: Sequence[str] | None = None,
    k: int = 15,
    max_new_tokens: int | None = None,
    temperatures: Sequence[np.ndarray] | None = None,
    loop_every: int = 0,
    seed: int = 0,
) -> Trace:
    """A capture with these match streams: one array M[0..n-2] per sequence.

    `matches` may be a mapping from drafter names. A sequence that ends at the limit has K
    lookahead tokens, so its M may reach past the output; one that ends by itself has none.
    """
    if not isinstance(matches, Mapping):
        matches = {"steady": matches}
    streams = {name: [np.asarray(m, dtype=int) for m in given] for name, given in matches.items()}
    first = next(iter(streams.values()))
    count = len(first)
    finishes = [finish] * count if isinstance(finish, str) else list(finish)
    types = [content_types] * count if isinstance(content_types, str) else list(content_types)
    names = list(prompt_ids) if prompt_ids else [f"{t}-{i:02d}" for i, t in enumerate(types)]
    limit = max_new_tokens or max(len(m) + 1 for m in first) + finishes.count("eos")
    rng = np.random.default_rng([seed, 1])
    rows: dict[str, list[dict[str, Any]]] = {"sequences": [], "positions": [], "drafts": []}
    for seq in range(count):
        n = len(first[seq]) + 1
        tokens = rng.integers(1, VOCAB, n + k)
        if loop_every and seq % loop_every == 0 and n >= 40:
            tokens[n - 18 : n] = tokens[:18]
        if finishes[seq] == "eos":
            tokens = np.append(tokens[: n - 1], EOS)
        heat = np.full(n, 0.5) if temperatures is None else np.asarray(temperatures[seq])[:n]
        rows["sequences"].append(
            _sequence_row(seq, names[seq], types[seq], tokens, n, limit, finishes[seq])
        )
        rows["positions"] += _position_rows(seq, tokens[:n], heat)
        for name, given in streams.items():
            offer = np.full(n - 1, k) if drafted is None else np.asarray(drafted[name][seq])
            rows["drafts"] += _draft_rows(rng, seq, name, tokens, n, given[seq], offer, k)
    schemas = table_schemas(k)
    return Trace(
        TraceMeta(
            kind="capture",
            exhaustive=True,
            target={
                "name": "synthetic",
                "caption": "made by a random generator, no model",
                "dtype": "float64",
                "device": "none",
                "vocab_size": VOCAB,
            },
            drafters={
                name: {"k": k, "caption": f"synthetic drafter {name}", "simulated_cost": False}
                for name in streams
            },
            k=k,
            max_new_tokens=limit,
            seed=seed,
        ),
        {name: pa.Table.from_pylist(rows[name], schema=schemas[name]) for name in rows},
    )


def token_text(token: int) -> str:
    return HOSTILE.get(token, f" w{token}")


def _regimes(rng: np.random.Generator, n: int, leave_easy: float, leave_hard: float) -> np.ndarray:
    """A two-state chain: True in easy text."""
    state = np.empty(n, dtype=bool)
    state[0] = rng.random() < 0.5
    draws = rng.random(n)
    for t in range(1, n):
        leave = leave_easy if state[t - 1] else leave_hard
        state[t] = state[t - 1] ^ (draws[t] < leave)
    return state


def _run_lengths(hit: np.ndarray) -> np.ndarray:
    """How many consecutive hits start at every place."""
    run = np.zeros(len(hit) + 1, dtype=int)
    for t in range(len(hit) - 1, -1, -1):
        run[t] = run[t + 1] + 1 if hit[t] else 0
    return run[:-1]


def _sequence_row(
    seq: int, name: str, content_type: str, tokens: np.ndarray, n: int, limit: int, finish: str
) -> dict[str, Any]:
    return {
        "seq": seq,
        "prompt_id": name,
        "content_type": content_type,
        "prompt": f"Write some <b>{content_type}</b> & stop.",
        "output": "".join(token_text(t) for t in tokens[:n].tolist()),
        "prompt_ids": [1, 2, 3, 4 + seq],
        "lookahead": tokens[n:].tolist(),
        "n_prompt": 4,
        "n_output": n,
        "max_new_tokens": limit,
        "finish": finish,
        "decode_seconds": 0.05 * n,
    }


def _position_rows(seq: int, tokens: np.ndarray, heat: np.ndarray) -> list[dict[str, Any]]:
    logits = -np.log(np.arange(1, VOCAB + 1)) / heat[:, None]
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    p = np.exp(logp)
    entropy = -(p * logp).sum(axis=1)
    repeated = _repeated(tokens.tolist())
    return [
        {
            "seq": seq,
            "t": t,
            "token_id": token,
            "text": token_text(token),
            "entropy": entropy[t],
            "ebf": np.exp(entropy[t]),
            "ebf2": 1 / (p[t] ** 2).sum(),
            "p_max": p[t, 0],
            "log2_moment": (p[t] * logp[t] ** 2).sum(),
            "n90": int((np.cumsum(p[t]) < 0.9).sum()) + 1,
            "margin": logp[t, 0] - logp[t, 1],
            "tie": False,
            "top_ids": [(token + i) % VOCAB for i in range(TOP_TARGET)],
            "top_logp": logp[t, :TOP_TARGET].astype(np.float16),
            "logp": logp[t, 0],
            "logp_sampled": 0.0,
            "rank": 0,
            "repeated": repeated[t],
        }
        for t, token in enumerate(tokens.tolist())
    ]


def _repeated(tokens: list[int], size: int = 12) -> list[bool]:
    """Whether each token ends a `size`-gram that the output already contains."""
    seen: set[tuple[int, ...]] = set()
    flags = []
    for t in range(len(tokens)):
        gram = tuple(tokens[t + 1 - size : t + 1]) if t + 1 >= size else None
        flags.append(gram in seen)
        if gram is not None:
            seen.add(gram)
    return flags


def _draft_rows(
    rng: np.random.Generator,
    seq: int,
    name: str,
    tokens: np.ndarray,
    n: int,
    matched: np.ndarray,
    drafted: np.ndarray,
    k: int,
) -> list[dict[str, Any]]:
    rows = []
    for a in range(n - 1):
        m, d = int(matched[a]), int(drafted[a])
        truth = tokens[a + 1 : a + 1 + k]
        if not 0 <= m <= min(d, len(truth)) or d > k:
            raise ValueError(
                f"Sequence {seq}, anchor {a}: M = {m} with {d} of {k} drafted and "
                f"{len(truth)} tokens known to follow."
            )
        draft = rng.integers(1, VOCAB, k)
        draft[:m] = truth[:m]
        if m < min(d, len(truth)):
            draft[m] = truth[m] % (VOCAB - 1) + 1
        draft[d:] = -1
        depth = np.arange(k)
        sure = np.clip(rng.beta(6, 2, k) - 0.4 * (depth >= m), 0.02, 0.99)
        known = min(d, len(truth))
        right = draft[:known] == truth[:known]
        rank = np.full(k, -1)
        rank[:known] = np.where(right, 0, rng.integers(1, 9, known))
        path = np.full(k, np.nan)
        path[:known] = np.log(np.where(right, sure[:known], (1 - sure[:known]) / 2))
        top = np.full((k, TOP_DRAFT), -1)
        for i in range(known):
            top[i] = (draft[i] + 1 + np.arange(TOP_DRAFT)) % VOCAB
            top[i, 0] = draft[i]
            if 0 < rank[i] < TOP_DRAFT:
                top[i, rank[i]] = truth[i]
        rows.append(
            {
                "seq": seq,
                "anchor": a,
                "drafter": name,
                "drafted": d,
                "matched": m,
                "token": draft.tolist(),
                "logq": _half(np.log(sure), d),
                "entropy": _half(-3 * np.log(sure), d),
                "confidence": _half(sure, d),
                "path_logq": _half(path, known),
                "path_rank": rank.tolist(),
                "overlap": _half(np.where(rank == 0, sure, 0.4 * sure), known),
                "kl": _half(-np.log(sure), known),
                "top4_ids": top.ravel().tolist(),
            }
        )
    return rows


def _half(values: np.ndarray, upto: int) -> np.ndarray:
    """float16, NaN from entry `upto` on."""
    half = values.astype(np.float16)
    half[upto:] = np.nan
    return half
