"""Text, tables and pages as HTML, with nothing heavier than the standard library.

Everything a model, a user or a file may have written passes through `escape` before it
reaches a page, so hostile text is read and never run. Plotly takes the same escaped text:
its labels understand a little HTML too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Format = str | Callable[[Any], str]

# Numeric entities only: plotly's labels do not know &quot;.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"}
# Characters that would be invisible, or would reorder or break the text around them.
_HIDDEN = (
    [c for c in range(0x20) if c not in (0x09, 0x0A)]
    + list(range(0x7F, 0xA0))
    + [0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF]
    + [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
_TABLE = str.maketrans(
    {**_ENTITIES, **{code: f"‹U+{code:04X}›" for code in [*_HIDDEN, *range(0xD800, 0xE000)]}}
)


def escape(text: object) -> str:
    """Text that is safe inside an HTML element, a quoted attribute, or a plotly label.

    Control characters (except tab and newline), bidirectional controls and lone surrogates
    are shown as their code point, so that they can neither reorder the text around them
    nor fail to encode.

    Parameters
    ----------
    text
        Anything; what is not a string is taken as `str(text)`.

    Returns
    -------
    str

    Examples
    --------
    >>> escape('<b title="x">')
    '&lt;b title=&#34;x&#34;&gt;'
    >>> escape("abc\u202edef")
    'abc‹U+202E›def'
    """
    return str(text).translate(_TABLE)


def number(value: object, digits: int = 3) -> str:
    """A cell's text: three significant figures, thousands apart, a dash for what is missing.

    Powers of ten below 1e-4 and from 1e15 on.

    Examples
    --------
    >>> [number(v) for v in (3.14159, 0.9999, 1234567, 0.000123456, float("nan"), True)]
    ['3.14', '1.00', '1,234,567', '0.000123', '–', 'yes']
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    try:
        as_float = float(value)  # type: ignore[arg-type]  # numpy scalars among others
    except (TypeError, ValueError):
        return str(value)
    if math.isnan(as_float):
        return "–"
    if math.isinf(as_float):
        return "∞" if as_float > 0 else "−∞"
    if abs(as_float) >= 1e15:
        return f"{as_float:.{digits - 1}e}"
    if as_float.is_integer() and not isinstance(value, float):
        return f"{int(as_float):,}"
    as_float = as_float or 0.0  # no negative zero
    if as_float and abs(as_float) >= 10 ** (digits - 1):
        return f"{as_float:,.0f}"
    if as_float and abs(as_float) < 1e-4:
        return f"{as_float:.{digits - 1}e}"
    rounded = float(f"{as_float:.{digits - 1}e}")  # 0.9999 has the places of 1
    places = digits - 1 - (math.floor(math.log10(abs(rounded))) if rounded else 0)
    return f"{as_float:.{places}f}"


def counted(n: float, noun: str) -> str:
    """A whole number and its noun, in the plural unless there is one.

    Examples
    --------
    >>> counted(1, "prompt"), counted(1200, "round")
    ('1 prompt', '1,200 rounds')
    """
    return f"{number(int(n))} {noun}{'' if n == 1 else 's'}"


def table_html(
    frame: pd.DataFrame | Iterable[Mapping[str, Any]],
    caption: str | None = None,
    formats: Mapping[str, Format] | None = None,
) -> str:
    """A small table that a screen reader can follow and that scrolls inside its own box.

    Parameters
    ----------
    frame
        A DataFrame (its index is left out) or records with the same keys.
    caption
        What the table shows, with units and definitions; escaped.
    formats
        Per column a format specification such as ".2f", or a function giving the text. Other
        columns use `number`.

    Returns
    -------
    str
        HTML; every cell is escaped.

    Raises
    ------
    ValueError
        When `formats` names a column that is not there.

    Examples
    --------
    >>> "<td" in table_html([{"k": 7, "tokens_per_round": 2.5}], caption="bonus counted")
    True
    """
    columns, rows = _cells(frame)
    formats = dict(formats or {})
    unknown = [c for c in formats if columns and c not in columns]
    if unknown:
        raise ValueError(f"No column {unknown[0]!r} to format; the table has {columns}.")
    numeric = [_is_numeric([row[i] for row in rows]) for i in range(len(columns))]

    def cell(i: int, value: Any) -> str:
        text = escape(_formatted(value, formats.get(columns[i])))
        side = "right" if numeric[i] else "left"
        tag, scope = ("th", ' scope="row"') if i == 0 else ("td", "")
        return f'<{tag}{scope} style="text-align:{side}">{text}</{tag}>'

    head = "".join(
        f'<th scope="col" style="text-align:{"right" if numeric[i] else "left"}">'
        f"{escape(c.replace('_', ' '))}</th>"
        for i, c in enumerate(columns)
    )
    body = "".join(
        "<tr>" + "".join(cell(i, value) for i, value in enumerate(row)) + "</tr>" for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        '<div class="sv-scroll" style="overflow-x:auto;max-width:100%">'
        f'<table class="sv-table">{title}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(frame: Any) -> tuple[list[str], list[list[Any]]]:
    if hasattr(frame, "itertuples"):
        rows = [list(row) for row in frame.itertuples(index=False, name=None)]
        return [str(c) for c in frame.columns], rows
    records = list(frame)
    columns = list(records[0]) if records else []
    return columns, [[record.get(c) for c in columns] for record in records]


def _formatted(value: Any, spec: Format | None) -> str:
    if callable(spec):
        return spec(value)
    if spec is None or value is None or value != value:
        return number(value)
    return format(value, spec)


def _is_numeric(values: Sequence[Any]) -> bool:
    present = [v for v in values if v is not None]
    return bool(present) and all(
        hasattr(v, "__float__") and not isinstance(v, str) for v in present
    )


# -- pages ------------------------------------------------------------------------------------

# The browser itself refuses whatever would leave the page.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def page_html(title: str, body: str, head: str = "") -> str:
    """A whole offline page: readable in light and dark, with no way to load anything.

    Parameters
    ----------
    title
        Plain text; escaped.
    body, head
        HTML that is already safe: what came from outside went through `escape`.

    Returns
    -------
    str

    Examples
    --------
    >>> page_html("a < b", "<p>hello</p>").count("a &lt; b")
    1
    """
    css = files("specviz").joinpath("assets/page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{css}</style>\n{head}</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
