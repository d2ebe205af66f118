"""What was worked out of a trace is remembered as long as the trace lives, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple, Unpack
from weakref import WeakKeyDictionary

from specviz.trace.trace import Trace

Asked = TypeVarTuple("Asked")
T = TypeVar("T")


def per_trace(
    make: Callable[[Trace, Unpack[Asked]], T],
) -> Callable[[Trace, Unpack[Asked]], T]:
    """`make`, whose answers are kept by trace and arguments (hashable, by position).

    A plain cache would keep its traces in memory, too, and they may be large.
    """
    known: WeakKeyDictionary[Trace, dict[tuple[object, ...], T]] = WeakKeyDictionary()

    @wraps(make)
    def remembered(trace: Trace, *asked: *Asked) -> T:
        answers = known.setdefault(trace, {})
        if asked not in answers:
            answers[asked] = make(trace, *asked)
        return answers[asked]

    return remembered
