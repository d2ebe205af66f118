"""Labelled controls: each is reached by Tab, moved by the arrow keys, and says what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import ipywidgets as w

from specviz.markup import escape

#: Replay takes milliseconds, so a slider speaks while it is dragged.
_LIVE = {"continuous_update": True}
_LABEL = {"description_width": "initial"}
_LONGEST = 60
_MARKUP = frozenset("&<>\"'")


def label(text: object, longest: int = _LONGEST) -> str:
    """Text for a control's label or option: plain, with hidden characters made visible.

    Controls set text, not HTML, so nothing is escaped here.

    Examples
    --------
    >>> label("a < b\u202e")
    'a < b‹U+202E›'
    """
    shown = " ".join(visible(str(text)[: 4 * longest]).split())
    return shown if len(shown) <= longest else shown[:longest] + "…"


def visible(text: str) -> str:
    """Text as it is, with hidden characters as their code point; for places that take no HTML."""
    return "".join(c if c in _MARKUP else escape(c) for c in text)


def slider(text: str, value: int, low: int, high: int, step: int = 1) -> w.IntSlider:
    """A whole number from `low` to `high`."""
    return w.IntSlider(
        value=value,
        min=low,
        max=high,
        step=step,
        description=label(text),
        style=_LABEL,
        layout=w.Layout(width="300px"),
        **_LIVE,
    )


def decimal(
    text: str, value: float, low: float, high: float, step: float = 0.01, form: str = ".2f"
) -> w.FloatSlider:
    """A number from `low` to `high`."""
    return w.FloatSlider(
        value=value,
        min=low,
        max=high,
        step=step,
        description=label(text),
        readout_format=form,
        style=_LABEL,
        layout=w.Layout(width="320px"),
        **_LIVE,
    )


def choice(text: str, options: Iterable[Any] | Mapping[str, Any], value: Any = None) -> w.Dropdown:
    """One of several; options are shown as text, or by the keys of a mapping.

    `value` is one of the options' values; None takes the first.
    """
    pairs = options_of(options)
    values = [each for _, each in pairs]
    if value is not None and value not in values:
        raise ValueError(f"{text} must be one of {[shown for shown, _ in pairs]}, not {value!r}.")
    return w.Dropdown(
        options=pairs,
        # By place: ipywidgets takes a value of None for no choice at all.
        index=None if not pairs else 0 if value is None else values.index(value),
        description=label(text),
        style=_LABEL,
        layout=w.Layout(width="auto", max_width="420px"),
    )


def options_of(options: Iterable[Any] | Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Options as (shown, value), every shown text its own, for `Dropdown.options`."""
    pairs = list(options.items()) if isinstance(options, Mapping) else [(o, o) for o in options]
    seen: dict[str, int] = {}
    shown = []
    for text, value in pairs:
        name = label(text)
        seen[name] = seen.get(name, 0) + 1
        shown.append((name if seen[name] == 1 else f"{name} ({seen[name]})", value))
    return shown


def switch(text: str, value: bool = False) -> w.Checkbox:
    """Yes or no."""
    return w.Checkbox(
        value=value,
        description=label(text),
        indent=False,
        style=_LABEL,
        layout=w.Layout(width="auto"),
    )


def text_box(text: str, value: str = "", placeholder: str = "") -> w.Textarea:
    """Some lines of text."""
    return w.Textarea(
        value=value,
        placeholder=placeholder,
        description=label(text),
        style=_LABEL,
        layout=w.Layout(width="100%", height="4.5em"),
    )


def button(text: str, tooltip: str = "", icon: str = "") -> w.Button:
    """Something to press."""
    return w.Button(
        description=label(text),
        tooltip=tooltip or label(text),
        icon=icon,
        layout=w.Layout(width="auto"),
    )
