"""The token strip: generated text, token by token, coloured by the target's entropy.

Pure HTML and CSS, so it works in a notebook, in a report and on paper. Whitespace and round
marks are drawn over the text and never copied with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specviz.markup import counted, escape, number

if TYPE_CHECKING:
    import pandas as pd

    from specviz.trace.trace import Trace

#: Upper edges of the strip's colour steps, in nats; the last step is open.
STRIP_EDGES = (0.1, 0.5, 1.0, 2.0, 3.0)
_ALPHA = (0.0, 0.10, 0.22, 0.36, 0.50, 0.64)  # readable over white and over near-black
#: What each underline means.
ROLES = {
    "accepted": "accepted draft token",
    "bonus": "bonus: the target's own token after a fully accepted draft",
    "own": "the target's own token where the draft ended early or was wrong",
}

_WHITESPACE = str.maketrans(
    {"\n": '<i class="l">\n</i>', "\t": '<i class="b">\t</i>', " ": '<i class="s"> </i>'}
)
#: Styles of the strip and its key, for whoever draws one elsewhere.
STRIP_CSS = (
    ".sv-strip{font:14px/2.15 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
    "white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4;max-height:26em;overflow:auto;"
    "padding:.5em .75em;border:1px solid rgba(128,128,128,.35);border-radius:6px;color:inherit;"
    "box-sizing:border-box}"
    ".sv-strip .t,.sv-key .t{padding:.18em 0 .1em;border-bottom:3px solid transparent}"
    ".sv-strip .n{background:repeating-linear-gradient(45deg,rgba(128,128,128,.25) 0 2px,"
    "transparent 2px 5px)}"
    + "".join(
        f".sv-strip .h{i},.sv-key .h{i}{{background-color:rgba(213,94,0,{a})}}"
        for i, a in enumerate(_ALPHA)
    )
    + ".sv-strip .accepted,.sv-key .accepted{border-bottom:3px solid #0072b2}"
    ".sv-strip .bonus,.sv-key .bonus{border-bottom:5px double #009e73}"
    ".sv-strip .own,.sv-key .own{border-bottom:3px dotted #cc79a7}"
    ".sv-strip .first{margin-left:3px;box-shadow:-2px 0 0 0 rgba(128,128,128,.8)}"
    # Marks for whitespace are drawn over it, so that copying gives the plain text.
    ".sv-strip i{font-style:normal;position:relative}"
    ".sv-strip i::before{position:absolute;top:.14em;line-height:1;opacity:.5;pointer-events:none}"
    ".sv-strip i.s::before{content:'\\00b7';left:0;width:100%;text-align:center}"
    ".sv-strip i.b::before{content:'\\2192';left:0}"
    ".sv-strip i.l::before{content:'\\21b5';position:static}"
    ".sv-key{font-size:13px;line-height:2;display:flex;flex-wrap:wrap;gap:.1em 1.4em;margin:.3em 0;"
    "user-select:none}.sv-key .t{padding:.1em .45em}.sv-key ul{display:contents}"
    ".sv-key li{list-style:none;margin:0}"
)


def token_strip_html(
    tokens: Sequence[str],
    values: Sequence[float],
    *,
    rounds: Iterable[Mapping[str, Any]] | None = None,
    details: Sequence[Mapping[str, Any]] | None = None,
    caption: str | None = None,
    legend: bool = True,
) -> str:
    """Generated text, token by token, coloured by the target's entropy there.

    Parameters
    ----------
    tokens
        Text of every output token y[0..n-1]; bytes that are not UTF-8 as ``\\xNN``.
    values
        Entropy in nats, one per token; NaN is hatched.
    rounds
        Rounds to mark: records with `anchor`, `drafted` and `accepted` (others are ignored).
        Accepted tokens are underlined solid; the token that closes a round is always the
        target's own: doubled when the whole draft was accepted (the bonus), dotted otherwise.
    details
        Per token what its tooltip adds, such as id, p, rank and the best alternatives.
    caption
        What is shown: the prompt, the drafter and k; escaped.
    legend
        Whether to explain the colours and underlines.

    Returns
    -------
    str
        HTML and CSS without a script. Selecting and copying the strip gives the plain text
        (control characters aside, which stay visible as their code point).

    Raises
    ------
    ValueError
        When the lengths differ or a round lies outside the tokens.

    Examples
    --------
    >>> rounds = [{"anchor": 0, "drafted": 0, "accepted": 0}]
    >>> "EBF 4.48" in token_strip_html(["a", " b"], [0.2, 1.5], rounds=rounds)
    True
    """
    n = len(tokens)
    if len(values) != n or (details is not None and len(details) != n):
        raise ValueError(
            f"A strip needs one value and one tooltip per token: {n} tokens, {len(values)} values"
            + (f", {len(details)} tooltips." if details is not None else ".")
        )
    roles, notes, starts = _roles(n, rounds)
    spans = []
    for t, (token, value) in enumerate(zip(tokens, values, strict=True)):
        classes = ["t", _step(float(value)), *roles[t], *(["first"] if t in starts else [])]
        title = _tooltip(t, token, float(value), details[t] if details else {}, notes[t])
        spans.append(f'<span class="{" ".join(classes)}" title="{title}">{_visible(token)}</span>')
    key = _key(rounds is not None, any(math.isnan(v) for v in values)) if legend else ""
    head = f'<p class="sv-caption">{escape(caption)}</p>' if caption else ""
    return (
        f"<style>{STRIP_CSS}</style>{head}{key}"
        f'<div class="sv-strip" dir="ltr" translate="no">{"".join(spans)}</div>'
    )


def strip_of(
    trace: Trace,
    seq: int,
    rounds: pd.DataFrame | None = None,
    *,
    longest: int = 320,
    legend: bool = True,
) -> str:
    """The strip of one sequence of a trace, with its numbers in the tooltips.

    Parameters
    ----------
    trace
        A trace with positions.
    seq
        Which sequence.
    rounds
        Rounds to mark, such as `replay(trace, FixedK(7)).rounds` or `trace.rounds`; those of
        other sequences are left out.
    longest
        Most tokens shown: a page is for reading.
    legend
        Whether to explain the colours and underlines.

    Raises
    ------
    ValueError
        When the trace has no positions of that sequence.

    Examples
    --------
    >>> strip_of(trace, 0, sv.replay(trace, sv.FixedK(7)).rounds)    # doctest: +SKIP
    """
    trace.require("positions")
    positions = trace.positions
    along = positions[positions["seq"] == seq].sort_values("t")
    if along.empty:
        raise ValueError(f"This trace has no positions of sequence {seq}.")
    shown, marked = along.head(longest), None
    sequence = trace.sequences[trace.sequences["seq"] == seq].iloc[0]
    cut = f", the first {len(shown):,} shown" if len(shown) < len(along) else ""
    said = (
        f"{sequence['prompt_id']}: {counted(len(along), 'token')}{cut}, mean entropy "
        f"{number(float(along['entropy'].mean()))} nats"
    )
    if rounds is not None:
        own = rounds[rounds["seq"] == seq]
        inside = own[own["anchor"] + own["accepted"] + 1 < len(shown)]
        columns = ["anchor", "drafted", "accepted"]
        marked = [dict(zip(columns, row, strict=True)) for row in inside[columns].to_numpy()]
        if len(own):
            each = number(float(own["accepted"].mean()) + 1)
            said += f", {each} tokens per round (bonus counted, {counted(len(own), 'round')})"
    texts = positions.drop_duplicates("token_id").set_index("token_id")["text"].to_dict()
    return token_strip_html(
        shown["text"].tolist(),
        shown["entropy"].tolist(),
        rounds=marked,
        details=[_numbers(row, texts) for row in shown.to_dict("records")],
        caption=said,
        legend=legend,
    )


def _numbers(row: Mapping[Any, Any], texts: Mapping[Any, str]) -> dict[str, Any]:
    """What a position's tooltip says; tokens the output never emitted are known by id only."""
    best = []
    for token, logp in zip(row["top_ids"], row["top_logp"], strict=True):
        text = texts.get(token, f"id {token}")
        short = text if len(text) <= 24 else text[:24] + "…"
        best.append(f"“{short}” {number(math.exp(logp), 2)}".replace("\n", "↵"))
    said = {"id": row["token_id"], "p": math.exp(row["logp"]), "rank": row["rank"]}
    return {**said, "best": "; ".join(best), **({"text": "repeated"} if row["repeated"] else {})}


def _roles(
    n: int, rounds: Iterable[Mapping[str, Any]] | None
) -> tuple[list[list[str]], list[str], set[int]]:
    """Per token its underline and its sentence; and the tokens that open a round."""
    roles: list[list[str]] = [[] for _ in range(n)]
    notes, starts = [""] * n, set()
    for index, record in enumerate(rounds or ()):
        anchor, drafted, accepted = (int(record[c]) for c in ("anchor", "drafted", "accepted"))
        last = anchor + accepted + 1
        if anchor < -1 or accepted < 0 or accepted > drafted or last >= n:
            raise ValueError(
                f"Round {index} (anchor {anchor}, {accepted} of {drafted} accepted) does not fit "
                f"{n} tokens: give the rounds of this very output."
            )
        starts.add(anchor + 1)
        closing = "bonus" if drafted and accepted == drafted else "own"
        for t in range(anchor + 1, last + 1):
            role = "accepted" if t < last else closing
            roles[t] = [role]
            notes[t] = f"round {index}: {accepted} of {drafted} drafted accepted; {ROLES[role]}"
    return roles, notes, starts


def _step(value: float) -> str:
    return "n" if math.isnan(value) else f"h{sum(value >= edge for edge in STRIP_EDGES)}"


def _tooltip(t: int, token: str, value: float, detail: Mapping[str, Any], note: str) -> str:
    shown = token if len(token) <= 80 else token[:80] + "…"
    lines = [f"y[{t}] “{shown}”".replace("\n", "↵")]
    if math.isnan(value):
        lines.append("entropy not recorded")
    else:
        lines.append(f"entropy {number(value)} nats, EBF {number(math.exp(value))}")
    lines += [f"{name}: {number(content)}" for name, content in detail.items()]
    lines += [note] if note else []
    return "&#10;".join(escape(line) for line in lines)


def _visible(token: str) -> str:
    return escape(token).translate(_WHITESPACE)


def _key(rounds: bool, missing: bool) -> str:
    edges = ("0", *(f"{e:g}" for e in STRIP_EDGES))
    steps = [
        f'<span class="t h{i}">{edge}{"+" if i == len(STRIP_EDGES) else ""}</span>'
        for i, edge in enumerate(edges)
    ]
    items = [f"entropy in nats, from: {''.join(steps)}"]
    if missing:
        items.append('<span class="t n">hatched</span> not recorded')
    if rounds:
        items += [f'<span class="t {role}">token</span> {escape(s)}' for role, s in ROLES.items()]
        items.append("no underline: emitted by prefill, outside every round")
    return '<div class="sv-key"><ul>' + "".join(f"<li>{i}</li>" for i in items) + "</ul></div>"
