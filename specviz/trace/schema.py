"""The columns of a trace: what each table holds, in which unit, in which Arrow type.

A trace is one folder: `trace.json` (see `TraceMeta`) and one Parquet file per table.
Indices follow one convention everywhere. A sequence has output tokens y[0..n-1]; prefill
emits y[0]. A round starts at an **anchor** a (the last committed token, 0..n-2), drafts
y[a+1..a+k] and emits `accepted + 1` tokens, the last of which is always the target's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1

#: Columns of the `drafts` table that hold one entry per drafted depth 1..K.
#: Free-running columns follow the drafter's own draft.
FREE_COLUMNS = ("token", "logq", "entropy", "confidence")
#: Forced columns follow the realised output y[a+1..a+K].
FORCED_COLUMNS = ("path_logq", "path_rank", "overlap", "kl")
#: How many of the drafter's best candidates are kept per forced depth (`top4_ids`).
TOP_DRAFT = 4
#: How many of the target's best candidates are kept per position.
TOP_TARGET = 5

#: Why a round ended where it did; "full": accepted as deep as the draft goes.
STOPS = ("reject", "full", "eos", "limit")
#: Why a sequence ended.
FINISHES = ("eos", "limit", "stopped")


def sequences_schema() -> pa.Schema:
    """One row per prompt."""
    return pa.schema(
        [
            ("seq", pa.int32()),
            ("prompt_id", pa.string()),
            ("content_type", pa.string()),
            ("prompt", pa.string()),  # as the model saw it, chat template applied
            ("output", pa.string()),
            ("prompt_ids", pa.list_(pa.int32())),
            ("lookahead", pa.list_(pa.int32())),  # tokens decoded past the limit
            ("n_prompt", pa.int32()),
            ("n_output", pa.int32()),
            ("max_new_tokens", pa.int32()),
            ("finish", pa.string()),  # one of FINISHES
            ("decode_seconds", pa.float64()),  # plain decoding; NaN where not measured
        ]
    )


def positions_schema() -> pa.Schema:
    """One row per output token: the target's distribution it came from, in nats."""
    return pa.schema(
        [
            ("seq", pa.int32()),
            ("t", pa.int32()),
            ("token_id", pa.int32()),
            ("text", pa.string()),  # bytes that are not UTF-8 are shown as \\xNN
            ("entropy", pa.float32()),  # H = -sum p ln p
            ("ebf", pa.float32()),  # exp(H), Hill number of order 1
            ("ebf2", pa.float32()),  # 1 / sum p^2
            ("p_max", pa.float32()),  # 1 / EBF_inf
            ("log2_moment", pa.float32()),  # sum p ln^2 p
            ("n90", pa.int32()),  # nucleus size at 0.9
            ("margin", pa.float32()),  # ln p(1st) - ln p(2nd)
            ("tie", pa.bool_()),  # margin within two units in the last place
            ("top_ids", pa.list_(pa.int32(), TOP_TARGET)),
            ("top_logp", pa.list_(pa.float16(), TOP_TARGET)),
            ("logp", pa.float32()),  # of the emitted token, raw (temperature 1)
            ("logp_sampled", pa.float32()),  # of the emitted token, as decoded
            ("rank", pa.int32()),  # of the emitted token, 0 is the argmax
            ("repeated", pa.bool_()),  # ends a 12-gram the output already contains
        ]
    )


def drafts_schema(k: int) -> pa.Schema:
    """One row per (sequence, anchor, drafter); list columns have `k` entries.

    `drafted` is how many tokens the drafter offers there (at most its own K); entries past
    it are -1 in integer columns and NaN in the others.
    """
    half, ints = pa.list_(pa.float16(), k), pa.list_(pa.int32(), k)
    return pa.schema(
        [
            ("seq", pa.int32()),
            ("anchor", pa.int32()),
            ("drafter", pa.dictionary(pa.int32(), pa.string())),
            ("drafted", pa.int16()),
            ("matched", pa.int16()),  # M(a): leading draft tokens equal to y[a+1], y[a+2], ...
            ("token", ints),
            ("logq", half),
            ("entropy", half),
            ("confidence", half),
            ("path_logq", half),
            ("path_rank", ints),
            ("overlap", half),  # sum min(p, q)
            ("kl", half),  # KL(p || q)
            ("top4_ids", pa.list_(pa.int32(), TOP_DRAFT * k)),
        ]
    )


def trees_schema(k: int) -> pa.Schema:
    """One row per (sequence, anchor, drafter, builder): a token tree grown at every anchor.

    A builder is a shape without its size. Where it is nested (see `TraceMeta.trees`) its first b
    nodes are the tree of budget b, so that one row replays at every budget.
    """
    return pa.schema(
        [
            ("seq", pa.int32()),
            ("anchor", pa.int32()),
            ("drafter", pa.dictionary(pa.int32(), pa.string())),
            ("builder", pa.dictionary(pa.int32(), pa.string())),
            # Of every node, in the order of entry, parents before children:
            ("node_depth", pa.list_(pa.int8())),
            ("node_parent", pa.list_(pa.int16())),  # -1: the anchor
            ("node_token", pa.list_(pa.int32())),
            ("node_logq", pa.list_(pa.float16())),  # after its parent; NaN where it has no q
            # The smallest budget whose tree holds y[a+1..a+j]; -1 where none does.
            ("enter_budget", pa.list_(pa.int16(), k)),
        ]
    )


def rounds_schema() -> pa.Schema:
    """One row per live (or imported) round; times in seconds."""
    return pa.schema(
        [
            ("seq", pa.int32()),
            ("round", pa.int32()),
            ("anchor", pa.int32()),  # -1: an observed engine whose round starts at the prompt
            ("policy", pa.string()),
            ("drafter", pa.string()),
            ("drafted", pa.int16()),  # how many tokens could be accepted: of a tree, its depth
            ("accepted", pa.int16()),
            ("emitted", pa.int16()),
            ("stop", pa.string()),  # one of STOPS
            ("nodes", pa.int16()),  # draft nodes verified; rows verified = nodes + 1
            ("draft_seconds", pa.float64()),
            ("verify_seconds", pa.float64()),
            ("other_seconds", pa.float64()),
        ]
    )


def rows_schema() -> pa.Schema:
    """One row per verified row of a live round, on the accepted path or off it."""
    return pa.schema(
        [
            ("seq", pa.int32()),
            ("round", pa.int32()),
            ("node", pa.int16()),  # -1 is the anchor's row
            ("depth", pa.int16()),
            ("on_path", pa.bool_()),
            ("entropy", pa.float32()),
            ("p_max", pa.float32()),
            ("margin", pa.float32()),
        ]
    )


def vocabulary_schema() -> pa.Schema:
    """One row per token that the target or a drafter named and its own output does not hold."""
    return pa.schema(
        [
            ("seq", pa.int32()),  # the first that names it
            ("token_id", pa.int32()),
            ("text", pa.string()),  # as in `positions`
        ]
    )


def table_schemas(k: int) -> dict[str, pa.Schema]:
    """Every table's schema, for drafts of at most `k` tokens."""
    return {
        "sequences": sequences_schema(),
        "positions": positions_schema(),
        "drafts": drafts_schema(k),
        "trees": trees_schema(k),
        "rounds": rounds_schema(),
        "rows": rows_schema(),
        "vocabulary": vocabulary_schema(),
    }


@dataclass(frozen=True)
class TraceMeta:
    """What `trace.json` holds: everything needed to read the tables and to repeat them.

    Attributes
    ----------
    kind
        "capture" (a draft at every anchor), "run" (live) or "imported".
    exhaustive
        True when every anchor has a draft; False when only visited anchors do.
    target
        name, caption, dtype, device, vocab_size, fingerprint (of its weights).
    drafters
        Per drafter name: `k` (its K), `caption`, `simulated_cost`, `fingerprint`.
    k
        Width of the list columns: the largest K of the drafters.
    trees
        Per drafter and builder of the `trees` table: `nodes` and `depth` (upper limits) and
        `nested`.
    sampling
        temperature, top_k, top_p; temperature 0 is greedy.
    acceptance, lossy
        The acceptance rule's name, and whether it may change the output's law. Of a capture:
        the rule by which `matched` tokens would be kept.
    template
        The chat template's text and its SHA-256 (empty when prompts were given as ids).
    cost_models
        Measured or preset cost models kept with the trace, as `CostModel.to_dict` gives.
    certificate
        Live against plain decoding, for runs that were certified.
    memory
        Of a run: slots and bytes of keys and values at the peak, rejected rows included.
    """

    kind: str
    exhaustive: bool
    target: Mapping[str, Any]
    drafters: Mapping[str, Mapping[str, Any]]
    k: int
    max_new_tokens: int
    seed: int
    trees: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=lambda: {"temperature": 0.0})
    acceptance: str = "greedy"
    lossy: bool = False
    template: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    cost_models: tuple[Mapping[str, Any], ...] = ()
    certificate: Mapping[str, Any] | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    created: str = ""
    complete: bool = True
    schema_version: int = SCHEMA_VERSION

    @property
    def greedy(self) -> bool:
        return float(self.sampling.get("temperature", 0.0)) == 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TraceMeta:
        """Read `trace.json`.

        Raises
        ------
        ValueError
            When the text is not a trace's JSON, or its schema is newer than this package.
        """
        try:
            raw = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"trace.json is not JSON: {error}.") from None
        if not isinstance(raw, dict) or "schema_version" not in raw:
            raise ValueError("trace.json has no schema_version: this is not a specviz trace.")
        if raw["schema_version"] != SCHEMA_VERSION:
            raise ValueError(
                f"This trace has schema {raw['schema_version']}, this specviz reads "
                f"{SCHEMA_VERSION}: read it with the specviz version named in its `software`."
            )
        known = {f.name for f in fields(cls)}
        missing = [n for n in ("kind", "target", "drafters", "k") if n not in raw]
        if missing:
            raise ValueError(f"trace.json lacks {', '.join(missing)}: capture it again.")
        drafters = raw["drafters"]
        described = [*drafters.values()] if isinstance(drafters, dict) else [None]
        if not all(isinstance(part, dict) for part in [raw["target"], *described]):
            raise ValueError("`target` and every one of `drafters` must be JSON objects.")
        if isinstance(raw["k"], bool) or not isinstance(raw["k"], int) or raw["k"] < 1:
            raise ValueError(f"`k` must be a whole number of at least 1, not {raw['k']!r}.")
        raw["cost_models"] = tuple(raw.get("cost_models") or ())
        return cls(**{name: value for name, value in raw.items() if name in known})
