"""Memory of a model on one or more GPUs, from its config alone: before anything is downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.analysis.serving.memory import KVShape, speculation_memory
from specviz.analysis.serving.model_shape import ModelShape, model_shape, quantisation
from specviz.markup import escape, table_html
from specviz.refuse import above_0, listed, whole

GB = 1e9
#: What torch sees of a 16 GB T4: 15,360 MiB, less what the driver keeps.
T4_BYTES = 15.6e9
#: Left free on each GPU by default: the 0.75 GB of `load_exl3`, and room for CUDA itself.
RESERVE_BYTES = 1.2e9


@dataclass(frozen=True)
class GPUPlan:
    """One GPU's share, in bytes."""

    capacity: float
    weights: float
    cache: float
    drafter: float
    activations: float
    layers: int
    head: bool

    @property
    def total(self) -> float:
        return self.weights + self.cache + self.drafter + self.activations

    @property
    def free(self) -> float:
        return self.capacity - self.total


@dataclass(frozen=True)
class MemoryPlan:
    """Estimated bytes of a target, its caches and a drafter, layer by layer over the GPUs.

    Attributes
    ----------
    gpus
        In the order in which exllamav3 fills them; the drafter is on the first.
    left_over
        Layers (and the head, as one) for which there is no room.
    host_bytes
        The embedding table, which exllamav3 keeps in the computer's own memory.
    tree_bytes
        Keys and values of a draft's nodes, part of `cache`.
    """

    gpus: tuple[GPUPlan, ...]
    left_over: int
    host_bytes: float
    tree_bytes: float
    shape: ModelShape

    @property
    def fits(self) -> bool:
        return self.left_over == 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        many = len(self.gpus)
        on = f"{many} GPU{'s' if many > 1 else ''} of {self.gpus[0].capacity / GB:.3g} GB"
        if not self.fits:
            return (
                f"Does not fit on {on}: {self.left_over} of {self.shape.layers + 1} layers (the "
                "head counts as one) are left over. Fewer bits per weight, a shorter or quantised "
                "cache, or another GPU would help."
            )
        free = min(gpu.free for gpu in self.gpus)
        split = " + ".join(str(gpu.layers) for gpu in self.gpus)
        return (
            f"Fits on {on}, layers split {split}, {free / GB:.2g} GB left on the fullest: "
            "an estimate from shapes, not a measurement."
        )

    def _repr_html_(self) -> str:
        rows = [
            {
                "GPU": number,
                "layers": gpu.layers,
                "head": "yes" if gpu.head else "",
                "weights, GB": gpu.weights / GB,
                "cache, GB": gpu.cache / GB,
                "drafter, GB": gpu.drafter / GB,
                "activations, GB": gpu.activations / GB,
                "free, GB": gpu.free / GB,
            }
            for number, gpu in enumerate(self.gpus)
        ]
        return f"<p>{escape(self.sentence)}</p>{table_html(rows)}"


def plan_memory(
    config: Mapping[str, Any],
    *,
    bits: float | None = None,
    head_bits: float = 6.0,
    tokens: int = 8192,
    cache_bits: int | None = None,
    draft: Mapping[str, Any] | str | None = None,
    draft_bits: float = 16.0,
    nodes: int = 15,
    gpus: Sequence[float] = (T4_BYTES, T4_BYTES),
    reserve: float = RESERVE_BYTES,
    chunk: int = 1024,
) -> MemoryPlan:
    """Estimate weights, cache, drafter and activations per GPU, and the layer split.

    Parameters
    ----------
    config
        The target's config.json, as a mapping.
    bits, head_bits
        Bits per weight of the layers and of the output head; by default what the config says
        of its EXL3 quantisation, else 16.
    tokens, cache_bits
        Cache size, and bits per key or value (None: 16; below it a 16-bit scale per 32 values
        is added).
    draft, draft_bits
        The drafter's config.json, or "mtp" for the target's own head (in `bits`); its weights'
        bits.
    nodes
        Draft nodes verified in a round: k of a chain, all nodes of a tree.
    gpus, reserve
        Bytes of each GPU, and what is left free on each: the 0.75 GB of `load_exl3`, and room
        for CUDA's own memory, about 0.45 GB.
    chunk
        Prompt tokens per forward pass.

    Returns
    -------
    MemoryPlan

    Raises
    ------
    ValueError
        When the config has no shapes, or a number is out of range.

    Notes
    -----
    Counted: every matrix, keys and values, recurrent states with room to step `nodes` tokens
    back, logits of a verification in fp32 twice. Activations of a prefill chunk are taken as
    chunk x (4 hidden + 2 inner) x 4 bytes. Left out: norms and the allocator's rounding.

    Examples
    --------
    >>> llama = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    ...          "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
    >>> plan = plan_memory(llama, bits=4.0, gpus=[15.6e9])
    >>> plan.fits, round(plan.gpus[0].weights / 1e9, 2)
    (True, 3.88)
    """
    shape = model_shape(config)
    tokens, nodes = whole("tokens", tokens, 1), whole("nodes", nodes, 0)
    chunk = whole("chunk", chunk, 1)
    sizes = [above_0("Each of gpus, in bytes,", each) for each in listed("gpus", gpus)]
    if reserve != 0:
        reserve = above_0("reserve, in bytes,", reserve)
    if any(size <= reserve for size in sizes):
        raise ValueError(f"Every GPU needs more bytes than the {reserve:.3g} that are left free.")
    quantised = quantisation(config)
    if bits is None:
        bits = quantised.get("bits", 16.0) if quantised.get("quant_method") == "exl3" else 16.0
        head_bits = quantised.get("head_bits", head_bits) if quantised else bits
    for name, value in (("bits", bits), ("head_bits", head_bits), ("draft_bits", draft_bits)):
        if above_0(f"{name}, bits per weight,", value) > 32:
            raise ValueError(f"{name} are bits per weight, above 0 and at most 32, not {value}.")
    if cache_bits is not None and not 2 <= whole("cache_bits", cache_bits, 1) <= 8:
        raise ValueError(f"cache_bits must be 2 to 8, or None for 16, not {cache_bits}.")
    value_bytes = 2.0 if cache_bits is None else cache_bits / 8 + 2 / 32
    per_token = shape.kv(value_bytes)
    tree = 0.0
    if per_token is not None:
        tree = speculation_memory(per_token, context=tokens, nodes=nodes).draft_rows
    weights = [params * bits / 8 for params in shape.layer_params]
    slots = tokens + nodes
    cache = [
        (per_token.bytes_per_token / per_token.layers * slots if attends and per_token else 0.0)
        + (0.0 if attends else shape.recurrent_bytes(nodes + 1))
        for attends in shape.attends
    ]
    head = shape.head_params * head_bits / 8
    logits = (nodes + 1) * shape.vocab * 4.0 * 2
    drafter = _drafter(shape, draft, bits, draft_bits, slots)
    activations = chunk * (4 * shape.hidden + 2 * shape.inner) * 4.0
    made, items = [], [*zip(weights, cache, strict=True)]
    next_item = 0
    for number, capacity in enumerate(sizes):
        own = drafter if number == 0 else 0.0
        room = capacity - reserve - activations - own
        held, kept, layers = 0.0, 0.0, 0
        while next_item < len(items) and sum(items[next_item]) <= room - held - kept:
            held, kept = held + items[next_item][0], kept + items[next_item][1]
            next_item, layers = next_item + 1, layers + 1
        with_head = next_item == len(items) and head + logits <= room - held - kept
        if with_head:
            held, next_item = held + head, next_item + 1
        work = (activations if layers or with_head else 0.0) + (logits if with_head else 0.0)
        made.append(GPUPlan(capacity, held, kept, own, work, layers, with_head))
    left = max(len(items) + 1 - next_item, 0)
    return MemoryPlan(tuple(made), left, shape.head_params * 2.0, tree, shape)


def _drafter(
    target: ModelShape,
    draft: Mapping[str, Any] | str | None,
    bits: float,
    draft_bits: float,
    slots: int,
) -> float:
    """Bytes of a drafter's weights and cache; embedding and head are the target's."""
    if draft is None:
        return 0.0
    if draft == "mtp":
        one = target.mtp_params * bits / 8
        kv: KVShape | None = target.kv(2.0, layers=1)
        return one + (kv.bytes_per_token * slots if kv else 0.0)
    if isinstance(draft, str):
        raise ValueError(f'draft is a config, "mtp" or None, not {draft!r}.')
    shape = model_shape(draft)
    own = sum(shape.layer_params) * draft_bits / 8
    blocks = draft.get("dflash_config") or draft
    taps = len(blocks.get("target_layer_ids") or ())
    if taps:  # a DFlash drafter: states of some layers, joined; a selector's two codebooks
        own += taps * shape.hidden**2 * draft_bits / 8
        own += 2 * shape.vocab * int(blocks.get("selector_rank") or 0) * 2.0
    else:
        own += shape.head_params * draft_bits / 8
    kv = shape.kv(2.0)
    return own + (kv.bytes_per_token * slots if kv else 0.0)
