"""Memory that speculation takes: a drafter's weights and cache, and cache for the draft's rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from specviz.markup import escape, table_html
from specviz.refuse import whole


@dataclass(frozen=True)
class KVShape:
    """Keys and values that one token leaves in a model's cache.

    Parameters
    ----------
    layers, kv_heads, head_dim
        Layers with a cache, key-value heads of each, entries of a head.
    bytes_per_value
        4 in float32, 2 in float16, less where the cache is quantised.

    Raises
    ------
    ValueError
        When one of the three is no whole number from 1 on, or `bytes_per_value` is not above 0.

    Examples
    --------
    >>> KVShape(layers=30, kv_heads=3, head_dim=64, bytes_per_value=4).bytes_per_token
    46080.0
    """

    layers: int
    kv_heads: int
    head_dim: int
    bytes_per_value: float = 2.0

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim"):
            object.__setattr__(self, name, whole(name, getattr(self, name), least=1))
        _amount("bytes_per_value", self.bytes_per_value, above=True)

    @property
    def bytes_per_token(self) -> float:
        """Keys and values: 2 x layers x heads x entries x bytes."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_value


@dataclass(frozen=True)
class Memory:
    """Bytes that speculation takes beyond plain decoding, for `requests` at once.

    Attributes
    ----------
    drafter_weights
        Once, however many requests there are.
    drafter_cache
        The drafter's own keys and values.
    draft_rows
        The target's keys and values for the draft's nodes: rows beyond the one of a plain
        step, held until the round's accepted path is kept and the rest dropped.
    per_request_plain
        What one request holds in the target's cache without speculation.
    """

    drafter_weights: float
    drafter_cache: float
    draft_rows: float
    per_request_plain: float
    requests: int

    @property
    def total(self) -> float:
        return self.drafter_weights + self.drafter_cache + self.draft_rows

    @property
    def requests_displaced(self) -> float:
        """How many plain requests the same bytes would hold in the target's cache."""
        return self.total / self.per_request_plain

    def _repr_html_(self) -> str:
        parts = {
            "drafter's weights": self.drafter_weights,
            "drafter's cache": self.drafter_cache,
            "the draft's rows in the target's cache": self.draft_rows,
            "together": self.total,
        }
        note = (
            f"For {self.requests} request(s) at once. The same bytes would hold "
            f"{self.requests_displaced:.3g} more plain request(s)."
        )
        return table_html([{"what": what, "MB": size / 1e6} for what, size in parts.items()]) + (
            f"<p>{escape(note)}</p>"
        )


def speculation_memory(
    target: KVShape,
    *,
    context: int,
    nodes: int,
    drafter_bytes: float = 0.0,
    drafter: KVShape | None = None,
    requests: int = 1,
) -> Memory:
    """Bytes that drafting takes, for capacity plans: a count of shapes, not a measurement.

    Activations, padding and the allocator's rounding are left out; an engine that keeps
    whole pages takes more.

    Parameters
    ----------
    target, drafter
        Shapes of the two caches; None for a drafter without one, such as an n-gram lookup or
        one that reads the target's states.
    context
        Tokens of a request that are in the cache, prompt and answer.
    nodes
        Draft nodes verified in a round: k of a chain, all nodes of a tree.
    drafter_bytes
        The drafter's weights.
    requests
        Requests decoded at once.

    Raises
    ------
    ValueError
        When a shape is none, or a number is out of range.

    Examples
    --------
    >>> target = KVShape(layers=30, kv_heads=3, head_dim=64, bytes_per_value=4)
    >>> memory = speculation_memory(target, context=1000, nodes=64, drafter_bytes=28e6)
    >>> round(memory.draft_rows / 1e6, 2), round(memory.requests_displaced, 2)
    (2.95, 0.67)
    """
    for name, shape in (("target", target), ("drafter", drafter)):
        if not isinstance(shape, KVShape) and not (name == "drafter" and shape is None):
            raise ValueError(
                f"{name} must be a KVShape(layers, kv_heads, head_dim, bytes), not {shape!r}."
            )
    context = whole("context", context, least=1)
    nodes, requests = whole("nodes", nodes, least=0), whole("requests", requests, least=1)
    _amount("drafter_bytes", drafter_bytes)
    own = 0.0 if drafter is None else drafter.bytes_per_token * (context + nodes)
    return Memory(
        float(drafter_bytes),
        requests * own,
        requests * nodes * target.bytes_per_token,
        context * target.bytes_per_token,
        requests,
    )


def _amount(name: str, value: object, above: bool = False) -> None:
    fine = isinstance(value, Real) and not isinstance(value, bool)
    if not fine or not 0 <= float(value) < float("inf") or (above and value == 0):  # type: ignore[arg-type]
        least = "above 0" if above else "0 or more"
        raise ValueError(f"{name} must be a number, {least}, not {value!r}.")
