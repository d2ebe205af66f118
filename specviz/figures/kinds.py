"""Kinds of text in the words of titles."""

from __future__ import annotations


def text_of(kind: str) -> str:
    """A content type as a title names it; "all" is no type.

    Examples
    --------
    >>> text_of("all"), text_of("code")
    ('all text', 'code')
    """
    return "all text" if kind == "all" else kind


def whose_text(whose: str, kind: str) -> str:
    """Whose drafts, on which text.

    Examples
    --------
    >>> whose_text("lm", "all"), whose_text("lm", "code"), whose_text("", "code")
    ('lm, all text', 'lm on code', 'code')
    """
    if not whose:
        return text_of(kind)
    return f"{whose}, all text" if kind == "all" else f"{whose} on {kind}"
