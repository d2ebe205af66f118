"""Figures that somebody else stated: as they were given, and with all that rounds to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import TypeAlias

from specviz.markup import number

#: A number (a Decimal keeps the zeros it was written with), or (low, high) for a range.
Figure: TypeAlias = float | Decimal | Sequence[float]
#: Floating-point noise, as a share; what is computed in two ways differs by less.
_NOISE = 1e-9


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, none negative, as a source gave them.

    `least` and `most` are wider by what may have been rounded away. Comparisons use them, so
    that they are refused only where no rounding could mend it; text shows `low` and `high`.
    Sums, products and quotients hold every result that numbers of the two ranges can have.

    Examples
    --------
    >>> speedup = stated("new", 154) / stated("old", (18, 19))
    >>> str(speedup), str(Range.of(7.4) / speedup)
    ('8.11 to 8.56', '0.865 to 0.913')
    >>> speedup.at_most(Range.of(8))
    False
    """

    low: float
    high: float
    least: float
    most: float

    @classmethod
    def of(cls, low: float, high: float | None = None) -> Range:
        """Exact ends."""
        low, high = float(low), float(low if high is None else high)
        return cls(low, high, low, high)

    def __add__(self, other: Range | float) -> Range:
        return self._with(other, lambda a, b: a + b, False)

    def __mul__(self, other: Range | float) -> Range:
        return self._with(other, lambda a, b: a * b, False)

    def __truediv__(self, other: Range | float) -> Range:
        return self._with(other, lambda a, b: a / b if b else math.inf, True)

    def _with(
        self, other: Range | float, do: Callable[[float, float], float], crossed: bool
    ) -> Range:
        b = other if isinstance(other, Range) else Range.of(other)
        ends = (b.high, b.low, b.most, b.least) if crossed else (b.low, b.high, b.least, b.most)
        return Range(
            *(
                do(a, b)
                for a, b in zip((self.low, self.high, self.least, self.most), ends, strict=True)
            )
        )

    def meets(self, other: Range) -> bool:
        """Whether one number can be in both."""
        return self.at_most(other) and other.at_most(self)

    def at_most(self, other: Range) -> bool:
        """Whether some number of this range is at most some number of the other."""
        return self.least <= other.most * (1 + _NOISE)

    def within(self, other: Range) -> Range:
        """The numbers in both; this range where, at their word, there are none."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        least, most = max(self.least, other.least), min(self.most, other.most)
        if low > high:
            low, high = self.low, self.high
        if least > most:
            least, most = self.least, self.most
        return Range(low, high, least, most)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def __str__(self) -> str:
        low, high = (number(int(v) if v.is_integer() else v) for v in (self.low, self.high))
        return low if low == high else f"{low} to {high}"


def stated(name: str, figure: Figure) -> Range:
    """A figure as a range: 7.4 may be anything from 7.35 to 7.45, and 154 from 153.5 to 154.5.

    A pair is a range already, and nothing is added to it. A number that was computed has so
    many digits that next to nothing is added either.

    Raises
    ------
    ValueError
        When it is neither a finite number from 0 on nor a pair of them, the lower first.

    Examples
    --------
    >>> stated("tokens_per_round", 7.4)
    Range(low=7.4, high=7.4, least=7.35, most=7.45)
    >>> stated("tokens_per_second", (35, 37))
    Range(low=35.0, high=37.0, least=35.0, most=37.0)
    """
    pair = tuple(figure) if isinstance(figure, (list, tuple)) else (figure, figure)
    if len(pair) != 2 or not all(_is_amount(end) for end in pair):
        raise ValueError(
            f"{name} must be a number, 0 or more, or a pair of them such as (18, 19), "
            f"not {figure!r}."
        )
    low, high = pair
    if low > high:
        raise ValueError(f"{name} gives its higher end first: write ({high!r}, {low!r}).")
    if isinstance(figure, (list, tuple)):
        return Range.of(low, high)
    exact = _decimal(low)
    half = Decimal(1).scaleb(int(exact.as_tuple().exponent)) / 2
    return Range(float(low), float(low), max(float(exact - half), 0.0), float(exact + half))


def _decimal(value: float | Decimal) -> Decimal:
    """The number with the digits it is written with."""
    if isinstance(value, Decimal):
        return value
    return Decimal(int(value)) if isinstance(value, Integral) else Decimal(repr(float(value)))


def _is_amount(value: object) -> bool:
    return (
        isinstance(value, (Real, Decimal))
        and not isinstance(value, bool)
        and math.isfinite(float(value))
        and float(value) >= 0
    )
