"""`load_exl3`: a quantised target of exllamav3's and a drafter for it, on one or more GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.exl3.checks import library
from specviz.exl3.folders import (
    check_files,
    folder_fingerprint,
    opened,
    read_config,
    weights_caption,
)
from specviz.exl3.placing import for_the_drafter, given_back_on_failure, placement
from specviz.refuse import a_path, whole

if TYPE_CHECKING:
    from specviz.drafters.exl3 import Exl3Block
    from specviz.drafters.exl3_chains import Exl3LM, Exl3Mtp
    from specviz.targets.exl3 import Exl3Target

    Exl3Drafter = Exl3Block | Exl3LM | Exl3Mtp

PAGE = 256


def load_exl3(
    target_dir: str | Path,
    draft: str | Path | None = None,
    devices: int = 2,
    *,
    tokens: int = 8192,
    cache_bits: int | None = None,
    max_draft: int = 15,
    draft_tokens: int | None = None,
    chunk: int = 1024,
    reserve_per_device: Sequence[float] | None = None,
    use_per_device: Sequence[float] | None = None,
) -> tuple[Exl3Target, Exl3Drafter | None]:
    """Load an EXL3 target, split by layers over the GPUs, and its drafter.

    exllamav3 makes a cache's tensors while it loads the model, and shares the GPUs out by what
    is left: both caches are made first, then the drafter is loaded, then the target.

    Parameters
    ----------
    target_dir
        Folder of an EXL3 model.
    draft
        Folder of a DFlash, DFlash2 or smaller exllamav3 model; "mtp" for the target's own
        multi-token-prediction head; None for the target alone (specviz's n-gram drafter works
        with it, too).
    devices
        GPUs to use, the first ones that torch sees.
    tokens
        Cache size, rounded up to pages of 256.
    cache_bits
        Bits per value of keys and values, 2 to 8; None keeps fp16.
    max_draft
        Longest draft that the target can be asked to verify; recurrent layers keep room for it.
    draft_tokens
        Most tokens that the drafter drafts; by default the library's own choice.
    chunk
        Prompt tokens per forward pass.
    reserve_per_device, use_per_device
        GB to leave free, or to use, per GPU; one of them at most. By default 0.75 GB is left.

    Returns
    -------
    tuple
        Target and drafter (None without one), the drafter attached.

    Raises
    ------
    ImportError
        When exllamav3 cannot run here: one sentence says why and what to do.
    ValueError
        When a folder or a number is wrong, or the drafter does not fit the target.
    MemoryError
        When the GPUs have no room for it; what had been loaded is given back.

    Notes
    -----
    Not verified on T4, nor on any GPU: what ran is the library's Python code on a CPU. All
    numbers are those of the quantised target.

    Examples
    --------
    >>> target, drafter = load_exl3("Qwen3.8-27B-4.0bpw", draft="mtp")   # doctest: +SKIP
    """
    devices = whole("devices", devices, 1)
    placing = placement(devices, reserve_per_device, use_per_device)
    own = draft is None or (isinstance(draft, str) and draft == "mtp")
    folders = [a_path("target_dir", target_dir)] + ([] if own else [a_path("draft", draft)])
    for folder in folders:
        read_config(folder)
    if cache_bits is not None and not 2 <= whole("cache_bits", cache_bits, 1) <= 8:
        raise ValueError(f"cache_bits must be 2 to 8, or None for fp16, not {cache_bits}.")
    numbers: dict[str, Any] = {
        "tokens": whole("tokens", tokens, PAGE),
        "max_draft": whole("max_draft", max_draft, 1),
        "draft_tokens": None if draft_tokens is None else whole("draft_tokens", draft_tokens, 1),
        "chunk": whole("chunk", chunk, 1),
    }
    exl3 = library(devices)
    for folder in folders:
        check_files(folder, tokenizer=folder is folders[0])
    return assemble(
        exl3,
        folders[0],
        draft if own else folders[1],
        placing=placing,
        cache_bits=cache_bits,
        **numbers,
    )


def assemble(
    exl3: Any,
    target_dir: Path,
    draft: str | Path | None,
    *,
    placing: Mapping[str, Any],
    tokens: int = 1024,
    cache_bits: int | None = None,
    max_draft: int = 15,
    draft_tokens: int | None = None,
    chunk: int = 1024,
    reader: str | None = None,
) -> tuple[Exl3Target, Exl3Drafter | None]:
    """Load in exllamav3's order and join; `load_exl3` has checked everything before.

    `placing` goes to the library's `Model.load`, `reader` to its reader of safetensors files.
    """
    from transformers import PreTrainedTokenizerFast

    from specviz.exl3.pairs import check_pair
    from specviz.targets.exl3 import Exl3Target
    from specviz.targets.exl3_cache import conv_window
    from specviz.targets.text import check_same_tokens

    config = opened(exl3, target_dir, reader)
    model = exl3.Model.from_config(config)
    drafting: Any = None
    if draft == "mtp":
        if "mtp" not in config.model_classes:
            raise ValueError(
                f"{target_dir.name} has no MTP head that exllamav3 can load: give the folder of a "
                "drafter instead, or draft=None."
            )
        drafting = exl3.Model.from_config(config, component="mtp")
    elif draft is not None:
        drafting = exl3.Model.from_config(opened(exl3, Path(draft), reader))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(target_dir)
    if drafting is not None:  # before gigabytes are read
        folder = target_dir if draft == "mtp" else Path(str(draft))
        name = "mtp" if draft == "mtp" else folder.name
        check_pair(model, drafting, target_dir.name, name, draft_tokens)
        if (folder / "tokenizer.json").is_file():
            own = PreTrainedTokenizerFast.from_pretrained(folder)
            check_same_tokens(own, tokenizer, name)  # the library does not compare them
    cache_kind: dict[str, Any] = {}
    if cache_bits is not None:
        cache_kind = {
            "layer_type": exl3.CacheLayer_quant,
            "k_bits": cache_bits,
            "v_bits": cache_bits,
        }
    room: dict[str, Any] = {
        "max_num_tokens": -(-tokens // PAGE) * PAGE,
        # Room for the rows of the longest draft behind the window of a convolution: the library
        # keeps both in one ring, and a whole verification can then be undone.
        "max_history": max_draft + 1 + conv_window(model.get_recurrent_layers()),
        "max_batch_size": 2,  # sequences with a recurrent state: one, and one to spare
    }
    cache = exl3.Cache(model, **room, **cache_kind)
    draft_cache = exl3.Cache(drafting, **room) if drafting is not None else None
    with given_back_on_failure(model, drafting, room["max_num_tokens"], target_dir.name):
        if drafting is not None:
            drafting.load(progressbar=False, max_chunk_size=chunk, **for_the_drafter(placing))
        model.load(
            progressbar=False,
            max_chunk_size=chunk,
            max_output_size=max_draft + 1,
            draft_model=drafting,
            **placing,
        )
    bits = "fp16" if cache_bits is None else f"{cache_bits}-bit"
    target = Exl3Target(
        model,
        cache,
        tokenizer,
        target_dir.name,
        f"{target_dir.name}: {weights_caption(target_dir)}, exllamav3, {bits} cache, fp16 logits",
        folder_fingerprint(target_dir, bits),
        chunk,
    )
    if drafting is None:
        return target, None
    drafter = _drafter(drafting, draft_cache, target_dir, draft, draft_tokens)
    drafter.attach(target)
    return target, drafter


def _drafter(
    model: Any, cache: Any, target_dir: Path, draft: str | Path | None, draft_tokens: int | None
) -> Exl3Drafter:
    from specviz.drafters.exl3 import Exl3Block
    from specviz.drafters.exl3_chains import Exl3LM, Exl3Mtp

    folder = target_dir if draft == "mtp" else Path(str(draft))
    marked = folder_fingerprint(folder, str(draft if draft == "mtp" else "draft"))
    if model.caps.get("mtp_draft"):
        said = f"mtp: the target's own MTP head, exllamav3 ({weights_caption(folder)})"
        return Exl3Mtp(model, cache, "mtp", said, marked, draft_tokens)
    kind = "DFlash2" if hasattr(model, "selector") else "DFlash"
    kind = kind if model.caps.get("dflash_draft") else "a smaller model"
    said = f"{folder.name}: {kind}, exllamav3 ({weights_caption(folder)})"
    made = Exl3Block if model.caps.get("dflash_draft") else Exl3LM
    return made(model, cache, folder.name, said, marked, draft_tokens)
