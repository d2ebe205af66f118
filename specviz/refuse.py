"""Checks that several entrances share: what is wrong, in one sentence."""

from __future__ import annotations

from numbers import Integral


def whole(name: str, value: object, least: int) -> int:
    """`value` as a plain int, if it is a whole number of at least `least`.

    Raises
    ------
    ValueError
        Otherwise; NumPy integers are whole numbers, booleans and 3.0 are not.

    Examples
    --------
    >>> whole("k", 3, least=0)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, not {value!r}.")
    return int(value)
