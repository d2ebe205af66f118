"""What every table of decided tokens must be, checked in one place."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from specviz.refuse import shown


def need_tokens(table: object, columns: Iterable[str] = (), by: str | None = None) -> pd.DataFrame:
    """`table`, if it is one of decided tokens, with these columns beside prompt_id and accepted.

    Raises
    ------
    ValueError
        When it is no table, is empty or lacks a column; `accepted` is no share from 0 to 1 in
        every row; a row has no prompt; or drafters are mixed that `by` does not tell apart.
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
    if not is_numeric_dtype(fate) or not np.all((fate >= 0) & (fate <= 1)):  # NaN is neither
        raise ValueError("accepted must be True or False, or a share from 0 to 1, in every row.")
    if table["prompt_id"].isna().any():
        raise ValueError("Some rows have no prompt_id: intervals resample prompts, so name each.")
    if "drafter" in table and by != "drafter" and table["drafter"].nunique() > 1:
        names = list(dict.fromkeys(table["drafter"]))
        raise ValueError(
            f"This table mixes the drafters {', '.join(map(str, names))}: take one at a time, as "
            f"in table[table['drafter'] == {names[0]!r}]."
        )
    return table
