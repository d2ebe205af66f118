"""What a verification could cost on a device, from its data sheet alone: a lower limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specviz.cost import ANY, LONGEST, CostModel
from specviz.refuse import above_0, shown


@dataclass(frozen=True)
class Device:
    """Peak arithmetic and memory speed of one device.

    Attributes
    ----------
    name
        What a caption calls it.
    flops
        Operations per second, dense, in the precision that is multiplied in.
    bandwidth
        Bytes per second from memory.
    source
        Where the two numbers come from.

    Raises
    ------
    ValueError
        When a number is not above 0.
    """

    name: str
    flops: float
    bandwidth: float
    source: str = "given"

    def __post_init__(self) -> None:
        above_0("flops, operations per second,", self.flops)
        above_0("bandwidth, bytes per second,", self.bandwidth)


#: Most rows that a curve is drawn for.
MOST_ROWS = 100_000
_SHEET = "spec sheet, from memory"
T4 = Device("T4", 65e12, 320e9, _SHEET)
A100 = Device("A100 80 GB SXM", 312e12, 2.039e12, _SHEET)
H100 = Device("H100 SXM", 989e12, 3.35e12, _SHEET)


def ridge(device: Device, bytes_per_parameter: float = 2.0) -> float:
    """Rows up to which reading the weights takes longer than multiplying by them (F4.5).

    flops / bandwidth times bytes per parameter / 2: a row needs two operations per parameter.

    Examples
    --------
    >>> round(ridge(T4)), round(ridge(T4, 0.5)), round(ridge(H100))
    (203, 51, 295)
    """
    if not isinstance(device, Device):
        raise ValueError(
            f"device must be a Device, such as specviz.rooflines.T4 or Device(name, flops, "
            f"bandwidth), not {shown(device)}."
        )
    above_0("bytes_per_parameter", bytes_per_parameter)
    return device.flops / device.bandwidth * bytes_per_parameter / 2


def roofline(
    parameters: float,
    device: Device,
    bytes_per_parameter: float = 2.0,
    drafter_parameters: float | None = None,
) -> CostModel:
    """A cost model from a data sheet: flat up to the ridge, then linear in the rows (F4.5).

    Parameters
    ----------
    parameters
        Of the target, those that a forward pass multiplies by.
    device
        Its peak speeds: `T4`, `A100`, `H100` or `Device(name, flops, bandwidth)`.
    bytes_per_parameter
        As stored: 2 for 16 bits, 0.5 for 4 bits.
    drafter_parameters
        Of a drafter that goes token by token, stored alike; None takes drafts as free.

    Returns
    -------
    CostModel
        Provenance "preset": nothing of it was measured.

    Raises
    ------
    ValueError
        When a number is not above 0, `device` is no Device, or the ridge lies beyond `MOST_ROWS`.

    Notes
    -----
    Weights only: no cache of keys and values, no activations, no dequantising, no launches, and
    both peaks reached. Real verifications are slower and grow earlier, so measure where you can.

    Examples
    --------
    >>> cost = roofline(27e9, T4, 0.5)
    >>> round(1e3 * cost.plain_seconds, 1), cost.verify_seconds(50) == cost.plain_seconds
    (42.2, True)
    """
    above_0("parameters", parameters)
    top = ridge(device, bytes_per_parameter)
    if top > MOST_ROWS:
        raise ValueError(
            f"With {bytes_per_parameter:g} bytes a parameter the ridge of {device.name} is at "
            f"{top:.3g} rows, beyond {MOST_ROWS:,}: give 2 for 16 bits, 0.5 for 4."
        )
    reading = parameters * bytes_per_parameter / device.bandwidth
    # Two rows past the ridge, so that the last segment has the slope that goes on from there.
    rows = np.arange(1, math.ceil(top) + 3)
    verify = np.maximum(reading, rows * 2 * parameters / device.flops)
    token, drafts = 0.0, "drafting is taken as free"
    if drafter_parameters is not None:
        above_0("drafter_parameters", drafter_parameters)
        token = max(bytes_per_parameter / device.bandwidth, 2 / device.flops) * drafter_parameters
        drafts = f"a drafted token reads {drafter_parameters:.3g} parameters"
    return CostModel(
        f"roofline of {parameters:.3g} parameters on {device.name}",
        "preset",
        verify=tuple(verify.tolist()),
        draft={ANY: tuple(token * k for k in range(LONGEST + 1))},
        note=f"Derived, not measured: {bytes_per_parameter:g} bytes a parameter, "
        f"{device.flops / 1e12:g} Tflop/s, {device.bandwidth / 1e9:g} GB/s ({device.source}); "
        f"weights only, flat to {top:.0f} rows; {drafts}. A lower limit of every round.",
    )
