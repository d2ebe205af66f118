"""Tables as Markdown, for the pages under docs/."""

from __future__ import annotations

import pandas as pd


def markdown(title: str, table: pd.DataFrame) -> None:
    print(f"\n### {title}\n")
    print("| " + " | ".join(map(str, table.columns)) + " |")
    print("|" + "---|" * len(table.columns))
    for row in table.astype(object).to_numpy():
        print("| " + " | ".join(map(_cell, row)) + " |")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def spread(row: pd.Series, middle: str, low: str = "low", high: str = "high") -> str:
    return f"{row[middle]:.2f} [{row[low]:.2f}, {row[high]:.2f}]"
