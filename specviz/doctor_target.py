"""Whether a model in a folder can be used, with which target, on what is here: one verdict."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specviz.analysis.serving.model_shape import ModelShape, model_shape, quantisation
from specviz.analysis.serving.plan import RESERVE_BYTES, plan_memory
from specviz.doctor_report import INSTALL, UNVERIFIED, free_memory
from specviz.exl3.checks import gpus, why_not
from specviz.exl3.folders import missing_weights, read_config
from specviz.markup import escape

#: Both of exllamav3 and of kernels at large: widths of the output head that need no padding.
PADDED_TO = 128
#: Architectures whose sliding windows exllamav3 keeps in rings, which specviz cannot rewind; a
#: test finds them in its sources.
RINGS = frozenset(
    {
        "AfmoeForCausalLM",
        "Gemma4AssistantForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GptOssForCausalLM",
        "LagunaForCausalLM",
        "MiMoV2ForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "Spark2_5ForCausalLM",
        "Step3p5ForCausalLM",
    }
)


@dataclass(frozen=True)
class Verdict:
    """Attributes
    ----------
    usable
        Whether specviz can use the model on this machine, by config and memory.
    how
        "torch", "exl3", or "observe" (the library's own generator only); None for not at all.
    command
        The line to run.
    notes
        What to know of it: hybrid layers, padded vocabulary, dtype, memory.
    """

    usable: bool
    how: str | None
    sentence: str
    command: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        head = f"{'yes' if self.usable else 'no'}: {self.sentence}"
        return "\n".join([head, *(f"- {note}" for note in self.notes), f"next: {self.command}"])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def judge(
    folder: str | Path,
    *,
    devices: Sequence[Mapping[str, Any]] | None = None,
    reason: str | None = None,
    memory: float | None = None,
) -> Verdict:
    """Judge a model by its config.json and what is on this machine.

    Parameters
    ----------
    folder
        A folder with a config.json.
    devices, reason, memory
        GPUs, why exllamav3 cannot run, and free bytes of memory, to judge for another machine;
        by default this one's.

    Raises
    ------
    ValueError
        When there is no config, or it is not that of a decoder.

    Examples
    --------
    >>> judge("models/Qwen3.8-27B-4.0bpw").usable                # doctest: +SKIP
    """
    folder = Path(folder)
    config = read_config(folder)
    shape = model_shape(config)
    if devices is None:
        if importlib.util.find_spec("torch") is None:
            return Verdict(
                False,
                None,
                "torch is not installed here.",
                INSTALL,
                tuple(_notes(folder, config, shape)),
            )
        devices, reason = gpus(), why_not()
    memory = free_memory() if memory is None else memory
    notes = [*_notes(folder, config, shape), UNVERIFIED]
    others = sorted(set(shape.kinds) - {"full_attention"})
    quantised = quantisation(config).get("quant_method")
    name = folder.resolve().name
    sizes = [float(gpu["free_bytes"]) for gpu in devices]
    if quantised == "exl3":
        return _exl3(folder, name, config, shape, others, sizes, reason, notes)
    if quantised:
        return Verdict(
            False,
            None,
            f"{name} is quantised by {quantised}, which specviz loads neither with transformers "
            "nor with exllamav3.",
            "take the model's own weights, or an EXL3 quantisation of them",
            tuple(notes),
        )
    if config.get("is_encoder_decoder"):
        return Verdict(
            False,
            None,
            f"{name} has an encoder: specviz takes decoders only.",
            "choose a decoder",
            tuple(notes),
        )
    if others:
        return Verdict(
            False,
            None,
            f"{name} has layers of {', '.join(others)}, which the torch target cannot rewind; "
            "exllamav3's can where they are linear_attention.",
            "take an EXL3 quantisation of it, and specviz doctor --target again",
            tuple(notes),
        )
    return _torch(folder, name, config, sizes, memory, notes)


def _exl3(
    folder: Path,
    name: str,
    config: Mapping[str, Any],
    shape: ModelShape,
    others: list[str],
    sizes: list[float],
    reason: str | None,
    notes: list[str],
) -> Verdict:
    # Other architectures keep a window as a mask over pages, which is rewound like any page.
    named = set(config.get("architectures") or RINGS)
    sliding = "sliding_attention" in others and bool(named & RINGS)
    how = "observe" if sliding else "exl3"
    call = f'sv.load_exl3("{folder}", draft=..., devices={max(len(sizes), 1)})'
    if reason is not None:
        if not sizes:
            notes.insert(0, f"On two T4s: {plan_memory(config).sentence}")
        return Verdict(False, how, reason, "specviz doctor", tuple(notes))
    roomy = [size for size in sizes if size > RESERVE_BYTES]
    if not roomy:
        said = (
            f"{name} cannot be loaded: less than {RESERVE_BYTES / 1e9:.2g} GB is free on every GPU."
        )
        return Verdict(False, how, said, "free the GPUs; specviz doctor", tuple(notes))
    plan = plan_memory(config, gpus=roomy)
    notes.insert(0, plan.sentence)
    if not plan.fits:
        return Verdict(False, how, f"{name} is too large for what is here.", call, tuple(notes))
    if sliding:
        said = f"{name} has sliding-window layers: its generator can be watched, no more than that."
        call = f"{call}, then sv.observe_exl3(target, prompts, drafter)"
        return Verdict(True, how, said, call, tuple(notes))
    if "linear_attention" in others:
        notes.insert(0, "linear_attention layers have one state: chains only, no trees.")
    return Verdict(
        True, how, f"{name} can be loaded with load_exl3, by its config.", call, tuple(notes)
    )


def _torch(
    folder: Path,
    name: str,
    config: Mapping[str, Any],
    sizes: list[float],
    memory: float | None,
    notes: list[str],
) -> Verdict:
    sizes = [size for size in sizes if size > RESERVE_BYTES]
    if sizes:
        plan = plan_memory(config, bits=16, head_bits=16, gpus=sizes)
        if plan.fits:
            notes.insert(0, f"In fp16: {plan.sentence}")
            device = "auto" if len(sizes) > 1 and plan.gpus[-1].total > 0 else "cuda"
            return Verdict(
                True,
                "torch",
                f"{name} can be loaded with load_target in fp16.",
                f'sv.load_target("{folder}", device="{device}")',
                tuple(notes),
            )
        notes.insert(0, f"In fp16 on GPUs: {plan.sentence}")
    needed = 4.0 * model_shape(config).params
    notes.insert(0, f"In fp32 on the CPU: {needed / 1e9:.3g} GB of weights.")
    if memory is not None and needed > 0.9 * memory:
        said = f"{name} needs more memory than is free here ({memory / 1e9:.3g} GB)."
        return Verdict(False, "torch", said, "free some memory, or use GPUs", tuple(notes))
    call = f'sv.load_target("{folder}")'
    return Verdict(True, "torch", f"{name} can be loaded on the CPU.", call, tuple(notes))


def _notes(folder: Path, config: Mapping[str, Any], shape: ModelShape) -> list[str]:
    """What the config says that numbers depend on."""
    notes = []
    missing = missing_weights(folder)
    if missing is not None:
        notes.append(f"The folder lacks {missing}: by its config alone.")
    text = config.get("text_config") or config
    dtype = text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype")
    if dtype == "bfloat16":
        notes.append("Its weights are bfloat16; specviz computes in fp16 or fp32, never in bf16.")
    known = _tokens(folder)
    if known is not None and known != shape.vocab:
        notes.append(
            f"The head has {shape.vocab:,} rows and the tokenizer {known:,} tokens: logits are "
            "cropped to the tokens."
        )
    if shape.vocab % PADDED_TO:
        notes.append(
            f"exllamav3 pads the head from {shape.vocab:,} rows to a multiple of {PADDED_TO}: "
            "cropped, too."
        )
    return notes


def _tokens(folder: Path) -> int | None:
    """How many ids the tokenizer uses, None when it does not say."""
    try:
        read = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        vocabulary = read["model"]["vocab"]
        ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
        added = [int(token["id"]) for token in read.get("added_tokens", ())]
        return 1 + max([*ids, *added])
    except (OSError, ValueError, KeyError, TypeError):
        return None
