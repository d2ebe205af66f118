"""Checks that several entrances share: what is wrong, in one sentence."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any


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
        raise ValueError(f"{name} must be a whole number, at least {least}, not {shown(value)}.")
    return int(value)


def above_0(name: str, value: object) -> float:
    """`value` as a plain float, if it is a finite number above 0; else a ValueError."""
    if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf:
        return float(value)
    raise ValueError(f"{name} must be a number above 0, not {shown(value)}.")


def listed(name: str, value: object, *, empty: bool = False) -> list[Any]:
    """`value` as a list, if it holds several things in order; text is one thing.

    Raises
    ------
    ValueError
        When it is no list, or has no entry and may not be `empty`.

    Examples
    --------
    >>> listed("budgets", (4, 7))
    [4, 7]
    """
    try:
        found = None if isinstance(value, str | bytes | Mapping) else list(value)  # type: ignore[call-overload]
    except TypeError:
        found = None
    if found is None:
        such = "" if value is None or isinstance(value, Mapping) else f", such as [{shown(value)}]"
        raise ValueError(f"{name} must be a list{such}, not {shown(value)}.")
    if not found and not empty:
        raise ValueError(f"{name} must name at least one: this list is empty.")
    return found


def one_name(what: str, value: object) -> str:
    """`value`, if it is text; else a ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be one name, as text, not {shown(value)}.")
    return value


def a_path(what: str, value: object) -> Path:
    """`value` as a path with ~ expanded, if it can be one; else a ValueError."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f"{what} must be the path of a file, not {shown(value)}.")
    return Path(value).expanduser()


def yes_no(name: str, value: object) -> bool:
    """`value`, if it is True or False; else a ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {shown(value)}.")
    return value


def shown(value: object) -> str:
    """What a sentence calls a wrong value: its repr in one line, the kind of a large one.

    Examples
    --------
    >>> shown([1, 2]), shown(100 * "x")
    ('[1, 2]', 'a str')
    """
    text = repr(value)
    return text if len(text) <= 80 and "\n" not in text else f"a {type(value).__name__}"
