"""The strip in the browser: the one widget of specviz with code of its own there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from specviz.strip import STRIP_CSS
from specviz.widgets.scripts import script

_SCRIPT = script("strip_view.js")
_STYLE = (
    STRIP_CSS + ".sv-strip-view{width:100%}"
    ".sv-live{cursor:text;outline-offset:2px}"
    ".sv-strip.sv-live:focus-visible{outline:2px solid #0072b2}"
    ".sv-strip-view .t.bare{border-bottom:3px dashed rgba(128,128,128,.7)}"
    ".sv-live .t.at{outline:2px solid currentColor;outline-offset:1px;border-radius:2px}"
    ".sv-live.dim .t:not(.marked){opacity:.38}"
    ".sv-strip-view .by-role .t.accepted{background:rgba(0,114,178,.26)}"
    ".sv-strip-view .by-role .t.bonus{background:rgba(0,158,115,.30)}"
    ".sv-strip-view .by-role .t.own{background:rgba(204,121,167,.34)}"
    ".sv-strip-view .by-role .t.bare{background:rgba(128,128,128,.2)}"
    ".sv-strip-view ul.sv-key{padding:0;margin:.3em 0}.sv-key .t{margin-left:.25em}"
    ".sv-card{display:flex;flex-wrap:wrap;gap:.2em 2.5em;min-height:10.6em;margin:.4em 0;"
    "font-size:13px;line-height:1.5}"
    ".sv-card p{margin:.1em 0}.sv-card .head{font-size:15px;overflow-wrap:anywhere}"
    ".sv-card .head b{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    ".sv-card .hint{opacity:.8}"
    ".sv-card .facts{flex:1 1 24em}"
    ".sv-card dl{display:flex;flex-wrap:wrap;gap:.1em 1.6em;margin:.3em 0}"
    ".sv-card dl div{white-space:nowrap}"
    ".sv-card dt{opacity:.8;font-size:12px;font-weight:400;float:none;margin:0}"
    ".sv-card dd{margin:0;font-size:15px;font-variant-numeric:tabular-nums}"
    ".sv-card .best{flex:0 1 21em;list-style:none;margin:.1em 0;padding:0}"
    ".sv-card .best li{display:grid;grid-template-columns:9.5em 4.8em 1fr;align-items:center;"
    "margin:0;line-height:1.6}"
    ".sv-card .best .title{display:block;opacity:.8;font-size:12px}"
    ".sv-card .best .name{font-family:ui-monospace,Menlo,Consolas,monospace;overflow:hidden;"
    "text-overflow:ellipsis;white-space:nowrap}"
    ".sv-card .best .p{font-variant-numeric:tabular-nums}"
    ".sv-card .best .bar{height:.75em;background:#0072b2;border-radius:2px;opacity:.8}"
)


class StripView(anywidget.AnyWidget):
    """Tokens as text, coloured, with a card of numbers for the one under the pointer.

    `tokens` and `paint` are what `specviz.widgets.strip_data` makes; they are replaced whole.
    `at` is the token whose card stays (-1: none), `span` the first and last token that are
    selected as text ([]: none), `marked` the tokens that another picture points at.
    """

    _esm = _SCRIPT
    _css = _STYLE
    tokens = traitlets.Dict().tag(sync=True)
    paint = traitlets.Dict().tag(sync=True)
    at = traitlets.Int(-1).tag(sync=True)
    span = traitlets.List(traitlets.Int()).tag(sync=True)
    marked = traitlets.List(traitlets.Int()).tag(sync=True)


def strip_page_html(
    tokens: dict[str, Any], paint: dict[str, Any], at: int = -1, marked: Sequence[int] = ()
) -> str:
    """The same strip for a page without a kernel: its code and its data, nothing else.

    Examples
    --------
    >>> "</script><b>" in strip_page_html({"text": ["</script><b>"]}, {})
    False
    """
    code = _SCRIPT.partition("export default")[0]
    state = json.dumps(
        {"tokens": tokens, "paint": paint, "at": at, "span": [], "marked": list(marked)},
        allow_nan=False,
    )
    safe = state.replace("<", "\\u003c")  # no text can close the script it stands in
    return (
        f'<style>{_STYLE}</style><div class="sv-strip-here"></div>'
        f'<script type="module">{code}\n'
        f"const state = {safe};\nconst listeners = {{}};\n"
        "const model = {\n"
        "  get: (name) => state[name],\n"
        "  set: (name, value) => { state[name] = value; (listeners['change:' + name] || [])"
        ".forEach((f) => f()); },\n"
        "  save_changes: () => {}, off: () => {},\n"
        "  on: (name, f) => { (listeners[name] ||= []).push(f); },\n};\n"
        "render({ model, el: document.querySelector('.sv-strip-here') });\n</script>"
    )
