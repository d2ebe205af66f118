"""How exllamav3 is told which GPUs to use and how much of them, in GB."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

from specviz.refuse import listed

#: Left free on every GPU, for activations; CUDA's own memory comes on top.
RESERVE = 0.75


def placement(
    devices: int, reserve: Sequence[float] | None = None, use: Sequence[float] | None = None
) -> dict[str, list[float]]:
    """What `Model.load` is told of the GPUs, in GB.

    Raises
    ------
    ValueError
        When both lists are given, or one has not an entry per GPU, or leaves none to use.

    Examples
    --------
    >>> placement(2)
    {'reserve_per_device': [0.75, 0.75]}
    """
    if reserve is not None and use is not None:
        raise ValueError("Give reserve_per_device or use_per_device, not both.")
    name = "use_per_device" if use is not None else "reserve_per_device"
    asked = use if use is not None else reserve
    given = [RESERVE] * devices if asked is None else listed(name, asked)
    if len(given) != devices or not all(_gigabytes(each) for each in given):
        raise ValueError(f"{name} needs {devices} number(s) of GB, one per GPU, not {given}.")
    if use is not None and not any(given):
        raise ValueError(f"use_per_device leaves no GPU to use: {given}.")
    others = [] if use is not None else _others(devices)
    return {name: [float(each) for each in given] + others}


def _gigabytes(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < 1000


def _others(devices: int) -> list[float]:
    """Entries that keep the library off the GPUs beyond those asked for."""
    import torch

    return [-1.0] * max(torch.cuda.device_count() - devices, 0)


def for_the_drafter(placing: Mapping[str, Any]) -> dict[str, Any]:
    """Room for the drafter, which is loaded first: `use` limits are the target's alone.

    A GPU that the target is kept off is not for the drafter either.

    Examples
    --------
    >>> for_the_drafter({"reserve_per_device": [1.0, 2.0]})
    {'reserve_per_device': [1.0, 2.0]}
    """
    used = placing.get("use_per_device")
    if used is None:
        return {
            name: list(given) if isinstance(given, list) else given
            for name, given in placing.items()
        }
    kept = [RESERVE if each > 0 else -1.0 for each in used]
    return {"reserve_per_device": kept + _others(len(used))}


@contextlib.contextmanager
def given_back_on_failure(model: Any, drafting: Any, tokens: int, name: str) -> Iterator[None]:
    """Unload what a load that fails, or is interrupted, leaves behind on the GPUs.

    A notebook keeps the error, and with it the models: a second try would find no room.

    Raises
    ------
    MemoryError
        With a remedy, in place of the library's own word for it.
    """
    import torch

    try:
        yield
    except BaseException as error:
        for part in (model, drafting):
            if part is not None:
                part.unload()
        for device in range(torch.cuda.device_count()):
            # The library limits what this process may take while it loads.
            torch.cuda.set_per_process_memory_fraction(1.0, device)
        if isinstance(error, torch.OutOfMemoryError) or "Insufficient VRAM" in str(error):
            raise MemoryError(
                f"{name} does not fit on the GPUs with a cache of {tokens:,} tokens: ask for fewer "
                "tokens, cache_bits=6, or less reserve_per_device; specviz doctor shows what is "
                "free, and plan_memory what is needed."
            ) from None
        raise
