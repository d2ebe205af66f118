"""The report: whole, offline, safe, and honest about what a trace cannot say."""

from __future__ import annotations

import html
import re

import pandas as pd
import pyarrow as pa
import pytest
from plotly.offline import get_plotlyjs

from specviz.analysis import replay_sampled
from specviz.bundled import bundled_trace
from specviz.cost import CostModel
from specviz.presets import t4_like
from specviz.reporting import report
from specviz.reporting.compose import MOST_TYPES
from specviz.reporting.findings import _between, best_k_sentence, contrast, shown_types
from specviz.trace.trace import Trace
from tests.hostile import ATTACKS, MEASURED, hostile_trace, live_trace, tables_of, with_meta
from tests.synthetic import synthetic_trace, trace_of
from tests.unit.test_markup import Reader


def written(tmp_path, trace, **options):
    return report(trace, tmp_path / "report.html", **options).read_text(encoding="utf-8")


def own(page):
    """The page without plotly's code."""
    assert page.count(get_plotlyjs()) <= 1
    return page.replace(get_plotlyjs(), "")


def prose(page):
    """The words a reader sees."""
    words = re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", own(page), flags=re.S)
    return re.sub(r"\s+", " ", html.unescape(words))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    trace = synthetic_trace(drafters=("ngram", "self-quant"), prompts_per_type=4)
    trace = with_meta(
        trace,
        cost_models=(MEASURED.to_dict(),),
        software={"specviz": "0.1.0"},
        template={"sha256": "c0ffee"},
    )
    return written(tmp_path_factory.mktemp("report"), trace)


def test_the_headline_comes_first_and_has_intervals(page):
    text = prose(page)
    assert re.search(r"Prose branches [\d.]+ times as widely as code", text)
    assert re.search(
        r"a gap of [\d.]+ \[[\d.]+, [\d.]+\]; without \d+ positions? of repeated text", text
    )
    assert re.search(
        r"With self-quant at k = 7 a round emits, bonus counted, [\d.]+ on code \[", text
    )
    assert "With ngram, at the cost of 2 CPU cores (measured here): draft k = " in text
    assert text.index("Prose branches") < text.index("Token by token")


def test_every_cost_stands_beside_the_others(page):
    text = prose(page)
    assert text.index("How many tokens to draft") < text.index("T4-like (preset)")
    for cost in ("2 CPU cores", "T4-like", "free drafts"):
        assert page.count(f"\\u003cb\\u003e{cost}\\u003c\\u002fb\\u003e") == 2  # once per drafter
    assert "measured here, simulated for self-quant" in text
    assert "do not draft" in text


def test_pictures_tables_and_strips_are_there(page):
    assert page.count("Plotly.newPlot(") - get_plotlyjs().count("Plotly.newPlot(") == 9
    assert page.count("<summary>The numbers behind this picture") == 9
    assert page.count('<div class="sv-strip"') == 3
    assert own(page).count('"displaylogo": false') == 9
    assert "With and without repeated text, k = 7" in page
    assert "Drafters side by side" in page


def test_a_sampled_capture_shows_no_rounds_that_nobody_ran(tmp_path):
    text = prose(written(tmp_path, bundled_trace("smollm2-sampled")))
    assert "sampled, temperature 1" in text
    assert "Token by token" in text
    assert "live run" not in text
    assert "accepted draft token" not in text


def test_the_furthest_drafter_is_explained_and_bounded(page):
    text = prose(page)
    assert text.index("Entropy and acceptance, self-quant") < text.index("What bounds tokens per")
    assert "The target is greedy: its entropy sets no ceiling" in text


def test_a_sampled_capture_is_replayed_under_every_rule(tmp_path):
    trace = bundled_trace("smollm2-self-quant")
    text = prose(written(tmp_path, trace))
    for rule in ("rejection", "argmax-match"):
        row = replay_sampled(trace, 7, rule=rule).by("content_type").iloc[1]
        assert f"{row.tokens_per_round:.2f} ({row.low:.2f}–{row.high:.2f})" in text
    assert "What bounds tokens per round, self-quant" in text
    assert "speed of light, 7 nodes" in text
    assert "no ceiling" not in text


def test_provenance_is_in_the_footer(page):
    foot = prose(page[page.index("<footer>") :])
    for said in ("no model", "float64", "seed 0", "SHA-256 c0ffee", "specviz 0.1.0", "4 code"):
        assert said in foot


def test_nothing_is_loaded_from_anywhere(page):
    rest = own(page)
    assert len(page) < 6_000_000
    assert not re.search(r"https?://", rest)
    assert not re.search(r"<(link|img|iframe|object|embed|base|form)\b|@import|\burl\(", rest)
    assert not re.search(r"<script[^>]+src", rest)
    assert "default-src 'none'" in rest


def test_words_that_mislead_are_not_used(page):
    assert "acceptance rate" not in prose(page).lower()


def test_hostile_text_stays_text(tmp_path):
    page = written(tmp_path, hostile_trace())
    rest = own(page)
    for attack in ATTACKS[:3]:
        assert attack not in rest
    assert "window.hit = 1</script>" not in rest
    assert "\u202e" not in rest
    assert "‹U+202E›" in rest
    tags = set(Reader(rest).tags)
    assert not tags & {"img", "svg", "iframe", "a", "object"}
    assert "{{7*7}}" in rest  # not evaluated, not lost
    assert len(page) < 6_000_000


def test_a_live_run_says_what_it_can_and_what_is_missing(tmp_path):
    text = prose(written(tmp_path, live_trace()))
    assert re.search(r"Run live, steady \(fixed-4\) emitted [\d.]+ tokens per round on code", text)
    assert "make a capture of the same prompts first" in text
    assert "Token by token" in text
    assert "How widely the text branches" in text
    assert "Whose cost" not in text  # nothing on this page depends on one


def test_a_capture_without_drafts_still_gives_entropy(tmp_path):
    tables = tables_of(synthetic_trace(prompts_per_type=2))
    tables.pop("drafts")
    bare = Trace(synthetic_trace(prompts_per_type=2).meta, tables)
    text = prose(written(tmp_path, with_meta(bare, drafters={})))
    assert "No drafts were recorded" in text
    assert "Prose branches" in text


def test_an_empty_trace_is_a_page_without_plotly(tmp_path):
    meta = synthetic_trace(prompts_per_type=1).meta
    page = written(tmp_path, Trace(meta, {}))
    assert "This trace holds nothing that could be measured" in page
    assert "has no positions" in page
    assert "Plotly" not in page


def test_one_prompt_has_no_interval(tmp_path):
    text = prose(written(tmp_path, trace_of([[3, 2, 1, 0, 0, 1, 0]], k=4)))
    assert "[one prompt: no interval]" in text


def test_a_cost_that_does_not_price_the_drafter_is_named(tmp_path):
    other = CostModel("other", "given", verify=(0.1, 0.1), draft={"else": (0.0, 0.1)})
    text = prose(written(tmp_path, synthetic_trace(prompts_per_type=2), costs=other))
    assert "does not price the drafter 'steady'" in text
    assert "T4-like (preset)" in text


def test_a_given_cost_is_shown_and_names_do_not_collide(tmp_path):
    given = CostModel.from_array([0.1, 0.1], [0.0] * 16, name="T4-like")
    page = written(tmp_path, synthetic_trace(prompts_per_type=2), costs=[given, given])
    assert "T4-like (given)" in prose(page)
    assert "T4-like #2 (preset)" in prose(page)


def test_only_the_asked_drafter_is_shown(tmp_path):
    trace = synthetic_trace(drafters=("ngram", "other"), prompts_per_type=2)
    page = written(tmp_path, trace, drafter="other")
    assert "Drafter other" in page
    assert "Drafter ngram" not in page
    with pytest.raises(ValueError, match="No drafter 'none'"):
        report(trace, tmp_path / "x.html", drafter="none")


def test_the_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    trace = trace_of([[1, 0, 0], [1, 1, 0]], k=2)
    target = tmp_path / "deep" / "er" / "report.html"
    assert report(trace, target) == target
    before = target.read_bytes()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        report(trace, target)
    assert target.read_bytes() == before
    assert [p.name for p in target.parent.iterdir()] == ["report.html"]


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        report(trace_of([[0]]), tmp_path)


def test_the_same_trace_gives_the_same_page(tmp_path):
    trace = trace_of([[1, 0, 0], [1, 1, 0]], k=2)
    first = report(trace, tmp_path / "a.html").read_bytes()
    assert report(trace, tmp_path / "b.html").read_bytes() == first


def test_sentences_of_the_best_k():
    best = pd.DataFrame(
        {
            "content_type": ["code", "prose"],
            "k": [5, 0],
            "speedup": [1.4242, 1.0],
            "low": [1.2, 1.0],
            "high": [1.6, 1.0],
        }
    )
    assert best_k_sentence(best, "ngram", "a laptop") == (
        "With ngram, at the cost of a laptop: draft k = 5 on code (1.42x [1.20, 1.60]); "
        "do not draft on prose."
    )


def test_the_contrast_is_prose_against_code_or_the_extremes():
    frame = pd.DataFrame({"content_type": ["a", "b", "c"], "entropy": [1.0, 3.0, 2.0]})
    assert contrast(frame) == ("b", "a")
    assert contrast(frame[:1]) is None
    both = pd.DataFrame({"content_type": ["code", "x", "prose"], "entropy": [1.0, 3.0, 2.0]})
    assert contrast(both) == ("prose", "code")


@pytest.mark.parametrize("costs", [[None], 3, "cheap", {"a": 1}, [t4_like(), "x"]])
def test_costs_that_are_none_are_refused(tmp_path, costs):
    with pytest.raises(ValueError, match="is not a cost model"):
        report(trace_of([[0]]), tmp_path / "x.html", costs=costs)


@pytest.mark.parametrize("path", [None, 3, b"report.html"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(ValueError, match="path must name the file to write"):
        report(trace_of([[0]]), path)


def test_of_many_content_types_a_page_pictures_some_and_tables_all(tmp_path):
    names = [f"kind-{i:02d}" for i in range(MOST_TYPES + 3)]
    twice = [*names, names[-1]]
    trace = trace_of([[1, 0, 0]] * len(twice), k=2, content_types=twice)
    page = written(tmp_path, trace)
    text = prose(page)
    assert page.count('<div class="sv-strip"') == MOST_TYPES
    assert f"show {MOST_TYPES} of {len(names)} content types" in text
    assert "; the other 3 are in the tables" in text
    head = text[: text.index("How many tokens to draft")]
    assert names[-1] in head  # the one with two prompts has room, whatever its place
    missing = [name for name in names if name not in head]
    assert len(missing) == 3
    for name in missing:
        assert page.count(f">{name}<") >= 5  # rows of tables
        assert f'"name":"{name}"' not in page


def test_few_content_types_leave_nothing_out(page):
    assert "content types (" not in prose(page)


def test_room_goes_to_the_pair_and_then_to_the_most_prompts():
    trace = trace_of([[0]] * 5, content_types=["a", "b", "c", "d", "d"])
    assert shown_types(trace, None, 2) == ["a", "d"]
    assert shown_types(trace, ("c", "b"), 3) == ["b", "c", "d"]


def test_one_of_a_kind_is_in_the_singular(tmp_path):
    text = prose(written(tmp_path, trace_of([[3, 2, 1, 0, 0, 1, 0]], k=4)))
    assert "1 prompt, 8 output tokens" in text
    assert not re.search(r"\b1 (prompts|rounds|positions|tokens)\b", text)


def test_an_interval_has_no_negative_zero():
    assert _between(-0.0004, 0.375) == "[0.000, 0.375]"
    assert _between(-0.5, -0.0) == "[-0.500, 0.000]"


def test_repeats_are_counted_in_the_unit_of_their_sentence(tmp_path):
    """A repeated position inside a round changes positions, and no round."""
    trace = trace_of([[2, 1, 0], [2, 1, 0]], k=2, content_types=["code", "prose"])
    positions = trace.table("positions")
    flags = [t == 2 for t in positions["t"].to_pylist()]
    at = positions.column_names.index("repeated")
    tables = tables_of(trace)
    tables["positions"] = positions.set_column(at, "repeated", pa.array(flags))
    text = prose(written(tmp_path, Trace(trace.meta, tables)))
    assert "; without 2 positions of repeated text" in text
    assert "; no round starts in repeated text" in text


def test_the_speedup_picture_says_what_its_intervals_leave_out(page):
    assert "cover the choice of prompts, not the noise of the timings" in prose(page)


def test_a_picture_that_is_wider_than_the_window_says_so(page):
    assert page.count("scroll it sideways") == 9
