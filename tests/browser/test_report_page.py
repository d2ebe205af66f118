"""The report in a real browser: every picture drawn, nothing loaded, nothing executed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specviz.reporting import report
from tests.hostile import MEASURED, hostile_trace, live_trace, with_meta
from tests.synthetic import synthetic_trace

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SCREENSHOTS = Path("out/screenshots")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a trace's report and collects whatever the browser complains about."""
    complaints: list[str] = []
    pages = []

    def open_report(trace, scheme="light", width=1100):
        path = report(trace, tmp_path / "report.html")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda m: complaints.append(f"console {m.type}: {m.text}"))
        page.on("pageerror", lambda e: complaints.append(f"error: {e}"))
        page.on(
            "request",
            lambda r: (
                None
                if r.url.startswith(("file:", "data:", "blob:"))
                else complaints.append(f"request: {r.url}")
            ),
        )
        page.goto(path.as_uri())
        page.wait_for_function(
            "[...document.querySelectorAll('.plotly-graph-div')]"
            ".every(d => d.querySelector('.main-svg'))"
        )
        pages.append(page)
        return page

    yield open_report
    for page in pages:
        page.close()
    assert complaints == []


def full_trace():
    trace = synthetic_trace(drafters=("ngram", "self-quant"), prompts_per_type=4)
    return with_meta(trace, cost_models=(MEASURED.to_dict(),))


def shot(page, name):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_picture_is_drawn(opened, scheme):
    page = opened(full_trace(), scheme)
    assert page.locator(".plotly-graph-div").count() == 9
    assert page.locator(".js-plotly-plot").count() == 9
    drawn = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(d =>"
        " d.querySelectorAll('.trace, .boxlayer path, .scatterlayer path').length)"
    )
    assert min(drawn) > 0
    shot(page, f"report-{scheme}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_reads_on_its_paper(opened, scheme):
    """Contrast of page and plot text against the paper is at least 4.5 (WCAG AA)."""
    page = opened(full_trace(), scheme)
    for selector, style in [
        ("h1", "color"),
        (".note", "color"),
        (".js-plotly-plot .xtick text", "fill"),
        (".js-plotly-plot .legendtext", "fill"),
    ]:
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate(
            f"getComputedStyle(document.querySelector({selector!r})).{style}",
        )
        assert contrast(ink, paper) >= 4.5, (selector, ink, paper)


def test_a_phone_scrolls_inside_the_pictures_not_the_page(opened):
    page = opened(full_trace(), width=420)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    shot(page, "report-phone")


def test_hostile_text_does_not_run(opened):
    page = opened(hostile_trace())
    page.locator(".sv-strip .t").first.hover()
    for details in page.locator("details").all():
        details.evaluate("d => { d.open = true }")
    assert page.evaluate("window.hit") is None
    assert page.locator("main img, main a, .sv-strip script").count() == 0
    shot(page, "report-hostile")


def test_copying_a_strip_gives_the_plain_text(opened):
    trace = full_trace()
    page = opened(trace)
    copied = page.evaluate(
        "(() => { const r = document.createRange();"
        " r.selectNodeContents(document.querySelector('.sv-strip'));"
        " const s = getSelection(); s.removeAllRanges(); s.addRange(r); return s.toString(); })()"
    )
    text = "".join(trace.positions.loc[trace.positions["seq"] == 0, "text"])
    assert copied.strip() == text.strip()


def test_a_live_run_opens_without_complaint(opened):
    page = opened(live_trace())
    assert page.locator(".missing").count() >= 1
    shot(page, "report-live")


def contrast(one: str, other: str) -> float:
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def luminance(colour: str) -> float:
    channels = [int(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
