"""Targets and drafters by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.cards import drafter_names

if TYPE_CHECKING:
    from specviz.engine.protocols import Drafter, Target

#: The target that specviz fetches by itself.
EMBEDDED = "smollm2-135m"

_DTYPES = ("float64", "float32", "float16")


def load_target(
    name: str | Path = EMBEDDED, *, device: str | dict[str, Any] = "cpu", dtype: str | None = None
) -> Target:
    """Load a target by name, from a folder, or from a model hub.

    Parameters
    ----------
    name
        "smollm2-135m" (fetched once, 93 MB), a folder with a transformers checkpoint, or a
        hub id. Only dense full-attention decoders fit.
    device
        "cpu", "cuda", "cuda:1", or "auto" to spread the layers over the GPUs there are (by
        accelerate; in fp16 a model of 7B to 14B parameters has room on two of 16 GB by its
        sizes). Not verified on CUDA, nor on two GPUs.
    dtype
        "float32" (default on a CPU), "float16" (default on a GPU) or "float64". Never
        bfloat16: its top-2 ties are too common to study greedy decoding (F1.5).

    Returns
    -------
    Target
        Checked: its tree rows equal independent forwards.

    Raises
    ------
    FetchError
        When the embedded target cannot be fetched; the sentence names the remedy.
    ValueError
        For an unknown name or dtype, or a model this target cannot rewind.

    Examples
    --------
    >>> target = load_target("smollm2-135m")                     # doctest: +SKIP
    """
    if not isinstance(name, (str, Path)) or not str(name):
        raise ValueError(f"A target is named by a string or a path, not by {name!r}.")
    torch, AutoModelForCausalLM, AutoTokenizer = _engine()
    from specviz.embedded import embedded_caption, embedded_target_dir, quiet_transformers
    from specviz.targets.torch_lm import TorchTarget

    if dtype is None:
        dtype = "float32" if device == "cpu" else "float16"
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}.")
    if str(device).startswith(("cuda", "auto")) and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} needs a CUDA GPU and there is none: use 'cpu'.")
    embedded = str(name) == EMBEDDED
    where = embedded_target_dir() if embedded else name
    if not embedded and not Path(where).exists() and str(where).count("/") != 1:
        raise ValueError(
            f"No target {str(name)!r}: it is neither {EMBEDDED!r}, nor a folder, nor a hub id "
            "like 'owner/model'."
        )
    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(
                where,
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                device_map=None if device == "cpu" else device,
            )
            tokenizer = AutoTokenizer.from_pretrained(where)
    except OSError as error:
        raise ValueError(
            f"The target {str(name)!r} cannot be loaded: {str(error).splitlines()[0]}"
        ) from None
    _refuse_offloaded(str(name), getattr(model, "hf_device_map", None) or {})
    caption = embedded_caption() if embedded else f"{name}, {dtype}"
    return TorchTarget(model, tokenizer, Path(str(name)).name, caption)


def _refuse_offloaded(name: str, device_map: Mapping[str, Any]) -> None:
    """accelerate puts what does not fit on the GPUs on the CPU or the disk, without a word."""
    left = sorted(part for part, device in device_map.items() if str(device) in ("cpu", "disk"))
    if left and len(left) < len(device_map):
        raise ValueError(
            f"{name} does not fit on the GPUs: {len(left)} of its {len(device_map)} parts would be "
            "on the CPU, and every time would be that of moving them. Take a smaller model, or an "
            "EXL3 quantisation of it with load_exl3."
        )


def load_drafter(name: str | Path, target: Target) -> Drafter:
    """Load a drafter by name and attach it to a target.

    Parameters
    ----------
    name
        "ngram"; "self-quant" or "self-quant-3bit" (the target with rounded weights);
        "self-skip" (the target without layers 10, 14, 18 and 22); "lm", "eagle" and the others
        trained for the embedded target that come with specviz; a folder that `specviz train`
        wrote; a folder of z-lab's with a DFlash drafter for the target; or the folder of a
        smaller transformers model with the target's tokens.
    target
        The target it will draft for.

    Raises
    ------
    ValueError
        For an unknown name, or a drafter that does not fit the target.

    Examples
    --------
    >>> drafter = load_drafter("ngram", target)                  # doctest: +SKIP
    """
    if not isinstance(name, (str, Path)) or not str(name):
        raise ValueError(f"A drafter is named by a string or a path, not by {name!r}.")
    name = str(name)
    _engine()
    from specviz.drafters.block import BlockDrafter
    from specviz.drafters.dflash_files import is_dflash, read_dflash
    from specviz.drafters.ngram import NGram
    from specviz.drafters.self_draft import SelfQuant, SelfSkip
    from specviz.drafters.trained import WEIGHTS, shipped_drafter, trained_drafter

    makers: dict[str, Callable[[], Drafter]] = {
        "ngram": NGram,
        "self-quant": SelfQuant,
        "self-skip": SelfSkip,
        **{f"self-quant-{bits}bit": partial(SelfQuant, bits) for bits in range(2, 9)},
    }
    if name in makers:
        drafter = makers[name]()
    elif name in drafter_names():
        drafter = shipped_drafter(name)
    elif (Path(name) / WEIGHTS).is_file():
        drafter = trained_drafter(Path(name) / WEIGHTS, Path(name).resolve().name)
    elif is_dflash(name):
        drafter = BlockDrafter(read_dflash(name, target), Path(name).resolve().name)
    elif (Path(name) / "config.json").is_file():
        drafter = _smaller_lm(name, target)
    else:
        raise ValueError(
            f"No drafter {name!r}: choose {', '.join([*list(makers)[:3], *drafter_names()])}, "
            "self-quant-3bit, a folder that `specviz train` wrote, or the folder of a smaller "
            "model with the target's tokens."
        )
    drafter.attach(target)
    return drafter


def _smaller_lm(folder: str, target: Target) -> Drafter:
    torch, AutoModelForCausalLM, AutoTokenizer = _engine()
    from specviz.drafters.lm import LMDrafter

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, target.dtype), use_safetensors=True
    ).to(target.device)
    return LMDrafter(model, AutoTokenizer.from_pretrained(folder), name=Path(folder).name)


def _engine() -> Any:
    """torch and what is needed of transformers, or one sentence saying how to get them."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise ImportError(
            f"Running models needs the `engine` extra ({error.name} is missing): from the "
            'checkout, pip install -c constraints.txt -e ".[engine]".'
        ) from None
    return torch, AutoModelForCausalLM, AutoTokenizer
