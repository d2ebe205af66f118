"""What a round costs: seconds to draft, to verify, and around both.

Every picture over k names the `CostModel` behind it. There are three honest sources: a
measurement on this machine, a preset derived from somebody's public report, and free drafts
(the best any k could look). Verification is never assumed free: it is a curve over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specviz.markup import escape, number, table_html
from specviz.refuse import one_name

#: Longest draft the presets price; captures go no further either.
LONGEST = 15
#: Key of `draft` that stands for every drafter without an entry of its own.
ANY = "*"

Seconds = NDArray[np.float64]


def tree_key(drafter: str, builder: str) -> str:
    """Key of a `CostModel`'s `draft` under which growing a token tree is priced, by its nodes."""
    return f"{drafter} {builder}"


@dataclass(frozen=True)
class CostModel:
    """Seconds of the parts of a round.

    Parameters
    ----------
    name
        What a caption calls it.
    provenance
        "measured here", "preset", "free drafts" or "given"; shown with `note` wherever a
        number that depends on this model is shown.
    verify
        Seconds of one verification of 1, 2, ..., R rows. Beyond R the last segment goes on
        in a straight line, and never downwards.
    draft
        Per drafter, seconds to draft 0, 1, ..., K tokens; entry 0 is 0.0. The key "*" stands
        for any drafter that is not named.
    overhead
        Seconds per round outside drafting and verification.
    simulated
        Drafters whose measured seconds do not stand for what they imitate (rounded weights
        that are still multiplied in fp32, for one).
    note
        One sentence on where the numbers come from.

    Raises
    ------
    ValueError
        When a part is of the wrong kind, a number is negative or not finite, or a draft curve
        does not start at 0.

    Examples
    --------
    >>> cost = CostModel("laptop", "given", verify=(0.05, 0.06), draft={"ngram": (0.0, 0.001)})
    >>> round(cost.round_seconds("ngram", 1), 3)    # 1 ms of drafting, 2 rows verified
    0.061
    >>> round(cost.verify_seconds(4), 3)            # beyond 2 rows: 10 ms for each further one
    0.08
    """

    name: str
    provenance: str
    verify: tuple[float, ...]
    draft: Mapping[str, tuple[float, ...]]
    overhead: float = 0.0
    simulated: tuple[str, ...] = ()
    note: str = ""
    _tables: Mapping[str, Seconds] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for what in ("name", "provenance", "note"):
            if not isinstance(getattr(self, what), str):
                raise ValueError(f"{what} must be text, not {getattr(self, what)!r}.")
        object.__setattr__(self, "verify", _curve("verify", self.verify))
        if self.verify[0] <= 0:
            raise ValueError("One plain step (verify[0]) must take more than 0 seconds.")
        if not isinstance(self.draft, Mapping):
            raise ValueError(
                "draft must map drafter names to their seconds for 0, 1, ..., K tokens, such as "
                f'{{"ngram": (0.0, 0.001)}}, not {self.draft!r}.'
            )
        draft = {name: _curve(f"draft[{name!r}]", curve) for name, curve in self.draft.items()}
        for name, curve in draft.items():
            if curve[0] != 0:
                raise ValueError(
                    f"draft[{name!r}] must start with 0.0, the seconds of drafting nothing, "
                    f"not {curve[0]:g}: entry k is the time of k tokens."
                )
        object.__setattr__(self, "draft", draft)
        seconds = self.overhead
        if not _is_number(seconds) or not (np.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"overhead must be 0 seconds or more, not {seconds!r}.")
        object.__setattr__(self, "overhead", float(seconds))
        object.__setattr__(self, "simulated", _drafter_names(self.simulated))
        object.__setattr__(self, "_tables", {n: np.array(c) for n, c in draft.items()})

    # -- seconds --------------------------------------------------------------------------

    @property
    def plain_seconds(self) -> float:
        """Seconds of one plain decoding step: one verified row and the round's overhead.

        The overhead is counted because a plain step is a round that drafts nothing, run by
        the same loop; k = 0 is then a speed-up of exactly 1.
        """
        return self.verify[0] + self.overhead

    def verify_seconds(self, rows: ArrayLike) -> Any:
        """Seconds of one verification of `rows` rows (a number or an integer array)."""
        rows = _whole("rows", rows, least=1)
        known = np.array(self.verify)
        last = len(known)
        if last == 1 and np.any(rows > 1):
            raise ValueError(
                f"The cost model {self.name!r} knows verifications of 1 row only, not of "
                f"{int(rows.max())}: give `verify` for at least 2 rows."
            )
        slope = max(float(known[-1] - known[-2]), 0.0) if last > 1 else 0.0
        beyond = np.maximum(rows - last, 0)
        return _plain(known[np.minimum(rows, last) - 1] + slope * beyond)

    def draft_seconds(self, drafter: str, k: ArrayLike) -> Any:
        """Seconds `drafter` takes for `k` tokens (a number or an integer array)."""
        k = _whole("k", k, least=0)
        table = self._tables.get(one_name("drafter", drafter), self._tables.get(ANY))
        if table is None:
            raise ValueError(
                f"The cost model {self.name!r} does not price the drafter {drafter!r}; it "
                f"prices {', '.join(self.draft) or 'none'}."
            )
        if k.size and int(k.max()) >= len(table):
            raise ValueError(
                f"The cost model {self.name!r} prices drafts of at most {len(table) - 1} tokens "
                f"by {drafter!r}, not {int(k.max())}."
            )
        return _plain(table[k])

    def tree_seconds(self, drafter: str, builder: str, depth: ArrayLike, nodes: ArrayLike) -> Any:
        """Seconds `drafter` takes to grow a tree of this builder, depth and number of nodes.

        From the curve over nodes named by `tree_key`, if there is one. Else a curve for any
        drafter ("*") prices the depth alone, as if a level took no longer than a token.
        """
        key = tree_key(drafter, builder)
        if key in self._tables:
            return self.draft_seconds(key, nodes)
        if ANY in self._tables:
            return self.draft_seconds(ANY, depth)
        raise ValueError(
            f"The cost model {self.name!r} does not price {builder} trees by {drafter!r}: "
            "measure_cost(..., trees=[...]) times them."
        )

    def round_seconds(
        self,
        drafter: str,
        drafted: ArrayLike,
        rows: ArrayLike | None = None,
        builder: str = "",
    ) -> Any:
        """Seconds of a round: drafting, verifying `rows` (by default drafted + 1), overhead.

        With the `builder` of a token tree, `drafted` is its depth and `rows` its nodes + 1.
        """
        if rows is None:
            rows = np.asarray(drafted) + 1
        if builder:
            draft = self.tree_seconds(drafter, builder, drafted, np.asarray(rows) - 1)
        else:
            draft = self.draft_seconds(drafter, drafted)
        seconds = draft + self.verify_seconds(rows)
        return _plain(np.asarray(seconds + self.overhead))

    def speedup(self, tokens: float, seconds: float) -> float:
        """Modelled speed-up of `tokens` emitted in `seconds` over as many plain steps."""
        if seconds <= 0:
            raise ValueError(f"A speed-up needs rounds that took time, not {seconds!r} seconds.")
        return tokens * self.plain_seconds / seconds

    # -- in and out -----------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The model as plain JSON values."""
        return {
            "name": self.name,
            "provenance": self.provenance,
            "verify": list(self.verify),
            "draft": {name: list(curve) for name, curve in self.draft.items()},
            "overhead": self.overhead,
            "simulated": list(self.simulated),
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> CostModel:
        """The model that `to_dict` wrote.

        Raises
        ------
        ValueError
            When an entry is missing or not one that a cost model has.
        """
        if not isinstance(raw, Mapping):
            raise ValueError(f"A cost model is read from a dictionary, not from {raw!r}.")
        known = ("name", "provenance", "verify", "draft", "overhead", "simulated", "note")
        missing = [name for name in known[:4] if name not in raw]
        unknown = [name for name in raw if name not in known]
        if missing or unknown:
            what = f"lacks {missing[0]!r}" if missing else f"has an unknown entry {unknown[0]!r}"
            raise ValueError(f"This is not a cost model: it {what}.")
        return cls(**raw)

    @classmethod
    def from_array(
        cls,
        verify: ArrayLike,
        draft: Mapping[str, ArrayLike] | ArrayLike,
        *,
        name: str = "given",
        overhead: float = 0.0,
        note: str = "",
    ) -> CostModel:
        """A model from your own timings.

        Parameters
        ----------
        verify
            Seconds of a verification of 1, 2, ..., R rows, shape [R].
        draft
            Seconds to draft 0, 1, ..., K tokens, shape [K + 1], for any drafter; or a
            mapping from drafter names to such arrays.

        Examples
        --------
        >>> CostModel.from_array([0.05, 0.06], [0.0, 0.002]).draft_seconds("ngram", 1)
        0.002
        """
        curves = draft if isinstance(draft, Mapping) else {ANY: draft}
        return cls(
            name,
            "given",
            _curve("verify", verify),
            {drafter: _curve(f"draft[{drafter!r}]", curve) for drafter, curve in curves.items()},
            overhead,
            note=note,
        )

    def _repr_html_(self) -> str:
        longest = max([len(self.verify), *(len(curve) for curve in self.draft.values())])
        rows = []
        for k in range(longest):
            row: dict[str, Any] = {"k": k}
            row["verify k + 1 rows (ms)"] = _ms(self.verify, k)
            for drafter, curve in self.draft.items():
                who = "any drafter" if drafter == ANY else drafter
                mark = " (simulated cost)" if drafter in self.simulated else ""
                row[f"draft k, {who}{mark} (ms)"] = _ms(curve, k)
            rows.append(row)
        line = (
            f"{self.name} ({self.provenance}): plain step {1e3 * self.plain_seconds:.3g} ms, "
            f"overhead {1e3 * self.overhead:.3g} ms a round. {self.note}"
        )
        return f"<p><b>CostModel</b> {escape(line)}</p>" + table_html(rows)


def need_cost(cost: object) -> CostModel:
    """`cost`, if it is a cost model.

    Raises
    ------
    ValueError
        Otherwise; the sentence names the ways to one.
    """
    if not isinstance(cost, CostModel):
        raise ValueError(
            f"{cost!r} is not a cost model: pass a CostModel, such as measure_cost(target, "
            "drafter), CostModel.from_array(verify, draft), t4_like() or free_drafts()."
        )
    return cost


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _drafter_names(names: object) -> tuple[str, ...]:
    known = None if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if known is None or not all(isinstance(name, str) for name in known):
        raise ValueError(
            f'simulated must be a list of drafter names, such as ("self-quant",), not {names!r}.'
        )
    return known


def _curve(what: str, seconds: ArrayLike | Sequence[float]) -> tuple[float, ...]:
    try:
        values = np.asarray(seconds)
    except ValueError:  # lists of unequal lengths
        values = np.asarray(None)
    if values.size and values.dtype.kind not in "iuf":
        raise ValueError(f"{what} must be a list of seconds (numbers), not {seconds!r}.")
    values = values.astype(float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{what} must be a list of seconds, not of shape {values.shape}.")
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError(f"{what} must hold finite seconds, 0 or more: {values.tolist()}.")
    return tuple(values.tolist())


def _whole(what: str, values: ArrayLike, least: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{what} must be a whole number or an integer array, not {values!r}.")
    if array.size and int(array.min()) < least:
        raise ValueError(f"{what} must be at least {least}, not {int(array.min())}.")
    return array.astype(np.int64)


def _plain(values: NDArray[Any]) -> Any:
    """A Python float for a scalar, else the array."""
    return float(values) if np.ndim(values) == 0 else values


def _ms(curve: Sequence[float], k: int) -> str:
    return number(1e3 * curve[k]) if k < len(curve) else ""
