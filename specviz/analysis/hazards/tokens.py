"""What every table of decided tokens must be, checked in one place."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
from pandas.api.types import is_numeric_dtype

from specviz.refuse import shown

#: A share that was summed in single precision may pass 1 by so much.
_ROUNDED = 1e-6


def need_tokens(
    table: object, columns: Collection[str] = (), by: str | None = None
) -> pd.DataFrame:
    """`table`, if it is one of decided tokens, with these columns beside prompt_id and accepted.

    Raises
    ------
    ValueError
        When it is no table, is empty or lacks a column; `accepted` is no share from 0 to 1 in
        every row; a row has no prompt or kind; or drafters are mixed that `by` does not tell
        apart.
    """
    if not isinstance(table, pd.DataFrame):
        raise ValueError(
            f"{shown(table)} is no table of drafted tokens: make one with hazard_table(trace, k, "
            "drafter)."
        )
    for name in ("prompt_id", "accepted", *columns):
        if name not in table:
            raise ValueError(
                f"This table has no column {name!r}; it has {list(table.columns)}: make one with "
                "hazard_table(trace, k, drafter)."
            )
    if table.empty:
        raise ValueError("This table has no row: no drafted token was decided.")
    fate = table["accepted"]
    if not is_numeric_dtype(fate) or fate.isna().any() or not fate.between(0, 1 + _ROUNDED).all():
        raise ValueError("accepted must be True or False, or a share from 0 to 1, in every row.")
    for name in ("prompt_id", *({"content_type"} & {*columns}), *([] if by is None else [by])):
        if table[name].isna().any():
            raise ValueError(f"Some rows have no {name}: leave them out, or fill it in.")
    if "drafter" in table and by != "drafter" and table["drafter"].nunique() > 1:
        names = list(dict.fromkeys(table["drafter"]))
        raise ValueError(
            f"This table mixes the drafters {', '.join(map(str, names))}: take one at a time, as "
            f"in table[table['drafter'] == {names[0]!r}]."
        )
    return table
