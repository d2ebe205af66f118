"""Hostile text is read, never run; tables and strips say what they were given."""

from __future__ import annotations

import html
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specviz.markup import counted, escape, number, page_html, table_html
from specviz.strip import STRIP_EDGES, strip_of, token_strip_html
from tests.synthetic import synthetic_trace

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates among them


class Reader(HTMLParser):
    """The text of the strip and every tag of a piece of HTML."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.text, self._inside = "", 0
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        if "title" in given:
            self.titles.append(given["title"])
        if given.get("class") == "sv-strip" or self._inside:
            self._inside += 1

    def handle_endtag(self, tag):
        self._inside = max(self._inside - 1, 0)

    def handle_data(self, data):
        if self._inside:
            self.text += data


@given(ANY_TEXT)
def test_escaped_text_holds_no_markup_and_encodes(text):
    safe = escape(text)
    assert not set(safe) & set("<>\"'")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00-\x08\x0b-\x1f\x7f]", safe)
    safe.encode("utf-8")


@given(
    st.text(st.characters(categories=("L", "N", "P", "S", "Z"), exclude_characters="\u2028\u2029"))
)
def test_escaping_printable_text_loses_nothing(text):
    assert html.unescape(escape(text)) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u202e", "‹U+202E›"),
        ("\u2066", "‹U+2066›"),
        ("\ud800", "‹U+D800›"),
        ("\x00", "‹U+0000›"),
        ("\r", "‹U+000D›"),
        ("a\tb\n", "a\tb\n"),
        ("{{x}}", "{{x}}"),
        (3, "3"),
    ],
)
def test_escape_shows_what_would_hide(text, shown):
    assert escape(text) == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.46512, "2.47"),
        (12.3456, "12.3"),
        (1234.5, "1,234"),
        (0.0, "0.00"),
        (-0.05123, "-0.0512"),
        (1e-7, "1.00e-07"),
        (math.inf, "∞"),
        (None, "–"),
        (7, "7"),
        (False, "no"),
    ],
)
def test_numbers_have_three_figures(value, text):
    assert number(value) == text


def test_table_escapes_cells_headers_and_caption():
    made = table_html([{"<k>": "<script>", "p_max": 0.25}], caption="a < b")
    assert Reader(made).tags.count("script") == 0
    assert "&lt;script&gt;" in made
    assert "&lt;k&gt;" in made
    assert "<caption>a &lt; b</caption>" in made
    assert ">p max</th>" in made
    assert ">0.250</td>" in made


def test_table_takes_frames_and_formats():
    frame = pd.DataFrame({"type": ["code"], "k": [7], "x": [1.23456]})
    made = table_html(frame, formats={"x": ".1f", "k": lambda k: f"k={k}"})
    assert ">1.2<" in made
    assert ">k=7<" in made
    assert '<th scope="row" style="text-align:left">code</th>' in made
    with pytest.raises(ValueError, match="No column 'y'"):
        table_html(frame, formats={"y": ".1f"})


def test_an_empty_table_is_still_a_table():
    assert "<tbody></tbody>" in table_html([])


def test_page_forbids_every_request_and_escapes_its_title():
    page = page_html("<b>", "<p>x</p>")
    assert "<title>&lt;b&gt;</title>" in page
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_markup_and_strip_load_nothing_heavy():
    code = (
        "import sys, specviz.markup, specviz.strip\n"
        "assert not {'pandas', 'numpy', 'plotly', 'torch'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- the strip --------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))), min_size=1))
def test_copying_the_strip_gives_the_plain_text(tokens):
    read = Reader(token_strip_html(tokens, [0.5] * len(tokens)))
    assert read.text == "".join(tokens)


def test_whitespace_is_marked_and_kept():
    made = token_strip_html(["a b", "\n\n", "\t"], [0.0, 0.0, 0.0])
    assert Reader(made).text == "a b\n\n\t"
    assert made.count('<i class="l">\n</i>') == 2
    assert made.count('<i class="s"> </i>') == 1
    assert made.count('<i class="b">\t</i>') == 1


@pytest.mark.parametrize(
    "token",
    [
        "<script>window.hit = 1</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "{{constructor}}",
        "\u202eevil\u2066",
        "\ud83d",
        "\\xe2\\x82",
        "x" * 10_000,
        "</div></pre><!--",
    ],
)
def test_hostile_tokens_stay_text(token):
    made = token_strip_html([token, "b"], [1.0, 2.0], details=[{"best": token}, {}], caption=token)
    made.encode("utf-8")
    read = Reader(made)
    assert set(read.tags) <= {"style", "p", "div", "ul", "li", "span", "i"}
    assert len([t for t in read.titles if t.startswith("y[")]) == 2
    assert html.unescape(escape(token)) in read.text
    assert len(made) < 60_000


def test_rounds_are_underlined_by_role_and_told_in_the_tooltip():
    rounds = [
        {"anchor": 0, "drafted": 3, "accepted": 1, "stop": "reject"},
        {"anchor": 2, "drafted": 1, "accepted": 1, "stop": "full"},
        {"anchor": 4, "drafted": 0, "accepted": 0, "stop": "limit"},
    ]
    made = token_strip_html(list("abcdef"), [0.05, 0.3, 0.7, 1.5, 2.5, 9.0], rounds=rounds)
    classes = re.findall(r'<span class="(t h[^"]*)" title', made)
    assert classes == [
        "t h0",
        "t h1 accepted first",
        "t h2 own",
        "t h3 accepted first",
        "t h4 bonus",
        "t h5 own first",
    ]
    titles = Reader(made).titles
    assert "round 0: 1 of 3 drafted accepted" in titles[1]
    assert "the target's own token where the draft ended" in titles[2]
    assert "bonus" in titles[4]
    assert "round" not in titles[0]


def test_colour_steps_follow_the_legend():
    values = [0.0, *STRIP_EDGES, math.nan]
    made = token_strip_html(["x"] * len(values), values)
    assert re.findall(r'class="t (\w+)" title', made) == ["h0", "h1", "h2", "h3", "h4", "h5", "n"]
    assert "not recorded" in made
    assert "EBF 2.72" in made  # exp(1 nat)


def test_strip_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="2 tokens, 1 values"):
        token_strip_html(["a", "b"], [0.1])
    with pytest.raises(ValueError, match="does not fit 2 tokens"):
        token_strip_html(
            ["a", "b"], [0.1, 0.1], rounds=[{"anchor": 0, "drafted": 2, "accepted": 1}]
        )


def test_strip_of_a_trace_carries_its_numbers():
    trace = synthetic_trace(prompts_per_type=1)
    first = trace.positions[trace.positions["seq"] == 0].iloc[0]
    read = Reader(strip_of(trace, 0))
    assert read.text == "".join(trace.positions.loc[trace.positions["seq"] == 0, "text"])
    assert f"id: {first['token_id']}" in read.titles[0]
    assert f"p: {number(math.exp(first['logp']))}" in read.titles[0]
    assert "rank: 0" in read.titles[0]
    short = Reader(strip_of(trace, 0, longest=5))
    assert len(short.titles) == 5
    with pytest.raises(ValueError, match="no positions of sequence 99"):
        strip_of(trace, 99)


def test_there_is_no_negative_zero() -> None:
    assert number(-0.0) == number(0.0) == "0.00"


def test_one_is_singular() -> None:
    assert [counted(n, "prompt") for n in (0, 1, 2)] == ["0 prompts", "1 prompt", "2 prompts"]
