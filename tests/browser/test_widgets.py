"""Widgets in JupyterLab, in a real browser: they open, answer, and show replay's numbers.

One server, one notebook and one kernel serve all tests; every widget has its own cell.
"""

from __future__ import annotations

import re

import pytest

import specviz as sv
from specviz.figures.tree_layout import BLANK
from specviz.policies import CapturedTree, FixedTree
from specviz.widgets.round_stepper import RoundStepper
from tests.browser import lab as labs

pytestmark = [
    pytest.mark.browser,
    pytest.mark.usefixtures("quiet"),
    pytest.mark.xdist_group("lab"),  # one JupyterLab at a time: it is slow to start on two cores
    pytest.mark.skipif(bool(labs.missing()), reason=labs.missing() or "-"),
]

SETUP = """
import time
import specviz as sv
from specviz.widgets.entropy_lens import EntropyLens
from specviz.widgets.live_run import LiveRun
from specviz.widgets.round_stepper import RoundStepper
from specviz.widgets.token_strip import TokenStrip
from specviz.drafters.markov import MarkovDrafter
from specviz.targets.toy import MarkovModel, ToyTarget
from tests.hostile import hostile_trace
from tests.synthetic import synthetic_trace
trace = sv.bundled_trace("smollm2-trees")
def start(prompt):
    model, drafter = MarkovModel.random(8, seed=1), MarkovModel.random(8, seed=2)
    if prompt == "bad":
        raise ValueError("no <b>model</b> here")
    run = sv.generate(
        ToyTarget(model), MarkovDrafter(drafter), "abc",
        max_new_tokens=900 if prompt == "slow" else 30,
    )
    return Slow(run) if prompt == "slow" else run
class Slow:
    def __init__(self, run):
        self.run, self.max_new_tokens = run, run.max_new_tokens
    trace = property(lambda self: self.run.trace)
    finished = property(lambda self: self.run.finished)
    def __iter__(self):
        for each in self.run:
            time.sleep(0.1)
            yield each
"""
CELLS = {
    "setup": SETUP,
    "strip": "strip = TokenStrip(trace, drafter='lm', k=5); strip",
    "stepper": "stepper = RoundStepper(trace, drafter='lm', k=5); stepper",
    "lens": "lens = EntropyLens(trace, drafter='lm', k=5); lens",
    "live": "live = LiveRun(start, prompt='abc'); live",
    "hostile": "hostile = hostile_trace(); TokenStrip(hostile, k=5)",
    "hostile-stepper": "RoundStepper(hostile, k=3).set(step='rewind')",
    "long": (
        "long = TokenStrip(synthetic_trace(content_types=('code',), prompts_per_type=1,"
        " max_new_tokens=2000)); long"
    ),
    "spare": "1",
}
PLACE = {name: i for i, name in enumerate(CELLS)}


@pytest.fixture(scope="module")
def trace():
    return sv.bundled_trace("smollm2-trees")


def shown(lab, name):
    """A widget's output, once it is there."""
    area = lab.output(PLACE[name])
    area.locator(".specviz-widget").wait_for(timeout=30_000)
    return area


def drawn(lab, name):
    """The same, once its picture is drawn."""
    area = shown(lab, name)
    area.locator(".sv-plot .main-svg").first.wait_for(timeout=30_000)
    return area


def press(lab, slider, key, times=1):
    """Move a slider by the keyboard."""
    handle = slider.locator(".noUi-handle")
    handle.focus()
    for _ in range(times):
        handle.press(key)
    lab.settle()


def tokens_per_round(trace, policy, seq=0):
    rounds = sv.replay(trace, policy, "lm").rounds
    return rounds[rounds["seq"] == seq]["emitted"].mean()


def test_the_strip_shows_what_replay_gives(lab, trace):
    area = shown(lab, "strip")
    said = f"{tokens_per_round(trace, sv.FixedK(5)):.2f} tokens per round in this text, k = 5"
    area.get_by_text(said).wait_for()
    press(lab, area.locator(".widget-hslider"), "ArrowLeft", 3)
    said = f"{tokens_per_round(trace, sv.FixedK(2)):.2f} tokens per round in this text, k = 2"
    area.get_by_text(said).wait_for()
    rounds = sv.replay(trace, sv.FixedK(2), "lm").rounds
    labs.expect(area.locator(".sv-live .first")).to_have_count(int((rounds["seq"] == 0).sum()))
    lab.shot(PLACE["strip"], "widget-token-strip")


def test_a_token_tells_its_numbers(lab, trace):
    area = shown(lab, "strip")
    token = area.locator(".sv-live .t").nth(5)
    token.hover()
    row = trace.positions[(trace.positions["seq"] == 0) & (trace.positions["t"] == 5)].iloc[0]
    card = area.locator(".sv-card")
    labs.expect(card).to_contain_text("y[5]")
    labs.expect(card).to_contain_text(f"{row['entropy']:.3g}")
    token.click()
    area.locator(".sv-live").press("ArrowRight")
    area.locator(".sv-live .t.at[data-t='6']").wait_for()
    area.locator(".sv-key").hover()  # away from the text, the pinned token stays
    labs.expect(card).to_contain_text("y[6]")


def test_keys_reach_a_slider_and_not_the_notebook(lab, trace):
    area = shown(lab, "strip")
    press(lab, area.locator(".widget-hslider"), "Home")
    lab.page.evaluate("jupyterapp.commands.execute('notebook:enter-command-mode')")
    assert lab.page.locator(".jp-Notebook.jp-mod-commandMode").count() == 1
    press(lab, area.locator(".widget-hslider"), "ArrowRight", 2)
    area.get_by_text("in this text, k = 2").wait_for()


def test_copying_the_strip_gives_the_plain_text(lab, trace):
    copied = (
        shown(lab, "strip")
        .locator(".sv-live")
        .evaluate(
            "(node) => { const r = document.createRange(); r.selectNodeContents(node);"
            " const s = getSelection(); s.removeAllRanges(); s.addRange(r);"
            " const text = s.toString(); s.removeAllRanges(); return text; }"
        )
    )
    text = "".join(trace.positions.loc[trace.positions["seq"] == 0, "text"])
    assert copied.strip() == text.strip()


def test_stepping_a_round(lab, trace):
    area = drawn(lab, "stepper")
    title = area.locator(".gtitle")
    rounds = sv.replay(trace, sv.FixedK(5), "lm").rounds
    n = (rounds["seq"] == 0).sum()
    assert title.text_content() == f"Round 1 of {n}, draft: lm drafts 5 tokens"
    area.get_by_role("button", name="next").click()
    area.locator(".gtitle", has_text="verify").wait_for()
    labs.expect(area).to_contain_text("K + 1 inputs")
    area.get_by_role("button", name="next").press("Enter")
    first = rounds[rounds["seq"] == 0].iloc[0]
    area.locator(".gtitle", has_text=f"{first['accepted']} of 5 tokens accepted").wait_for()
    lab.shot(PLACE["stepper"], "widget-round-stepper")


def test_stepping_a_tree(lab, trace):
    area = drawn(lab, "stepper")
    area.locator("select").nth(2).select_option("best-first-d7")
    policy = FixedTree(CapturedTree("best-first-d7", 16, 7), "lm")
    area.get_by_text(f"{tokens_per_round(trace, policy):.2f} tokens per round").wait_for()
    for _ in range(3):
        area.get_by_role("button", name="next").click()
    area.locator(".gtitle", has_text="own token").wait_for()
    lab.shot(PLACE["stepper"], "widget-round-stepper-tree")
    # Labels that a step took away are there again one step back.
    for text in ("next", "back"):
        area.get_by_role("button", name=text).click()
        lab.settle()
    named = area.locator(".textpoint text").filter(has_text=re.compile(r"\S"))
    nodes = RoundStepper(trace, drafter="lm", builder="best-first-d7", budget=16)
    labels = [t for each in nodes.set(step="own token").figure.data for t in each.text or ()]
    labs.expect(named).to_have_count(sum(label != BLANK for label in labels))


def test_playing_goes_on_by_itself(lab):
    area = drawn(lab, "stepper")
    title = area.locator(".gtitle")
    before = title.text_content()
    play = area.get_by_role("button", name="play")
    play.click()
    lab.page.wait_for_function(
        "([title, before]) => title.isConnected ? title.textContent !== before : true",
        arg=[title.element_handle(), before],
        timeout=15_000,
    )
    play.click()
    lab.settle()


def test_brushing_the_curve_lights_the_text(lab):
    area = drawn(lab, "lens")
    box = area.locator(".nsewdrag").first.bounding_box()
    mouse = lab.page.mouse
    mouse.move(box["x"] + 4, box["y"] + 4)
    mouse.down()
    mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] - 4, steps=6)
    mouse.up()
    area.locator(".sv-live .marked").first.wait_for()
    area.get_by_text("accepted where brushed").wait_for()
    lab.settle()
    marked = area.locator(".sv-live .marked").count()
    labs.expect(area).to_contain_text(f"({marked} anchor")
    lab.shot(PLACE["lens"], "widget-entropy-lens")


def test_brushing_the_text_lights_the_curve(lab):
    area = drawn(lab, "lens")
    strip = area.locator(".sv-live")
    strip.press("Escape")
    strip.press("Home")
    for _ in range(4):
        strip.press("Shift+ArrowRight")
    area.get_by_text("(4 anchors)").wait_for()
    labs.expect(area.locator(".sv-live .marked")).to_have_count(4)


def test_a_live_run(lab):
    area = shown(lab, "live")
    area.get_by_role("button", name="start").click()
    area.get_by_text("sv.capture(prompts").wait_for(timeout=20_000)
    labs.expect(area.locator(".sv-live .t")).to_have_count(30)
    lab.shot(PLACE["live"], "widget-live-run")
    area.locator("textarea").fill("bad")
    area.get_by_role("button", name="start").click()
    alert = area.get_by_role("alert")
    alert.wait_for()
    labs.expect(alert).to_have_text("no <b>model</b> here")


def test_a_live_run_is_stopped(lab):
    area = shown(lab, "live")
    area.locator("textarea").fill("slow")
    area.get_by_role("button", name="start").click()
    lab.page.wait_for_function(
        "c => document.querySelectorAll('.jp-Notebook .jp-Cell')[c]"
        ".querySelectorAll('.sv-live .t').length > 30",
        arg=PLACE["live"],
        timeout=20_000,
    )
    area.get_by_role("button", name="stop").click()
    area.get_by_text("sv.capture(prompts").wait_for(timeout=20_000)
    area.locator("button[disabled]", has_text="stop").wait_for()
    assert 30 < area.locator(".sv-live .t").count() < 900


def test_an_exported_page_works_alone(lab, tmp_path):
    """Without a kernel: the strip answers, nothing hostile runs, nothing is loaded."""
    from specviz.widgets.token_strip import TokenStrip
    from tests.hostile import hostile_trace

    TokenStrip(hostile_trace(), k=5).to_html(tmp_path / "strip.html")
    page = lab.page.context.browser.new_page()
    labs.watch(page, lab.complaints)
    page.goto((tmp_path / "strip.html").as_uri())
    labs.expect(page.locator(".sv-live .t")).to_have_count(24)
    page.locator(".sv-live .t").nth(3).dispatch_event("pointerover")
    labs.expect(page.locator(".sv-card")).to_contain_text("y[3]")
    assert page.evaluate("window.hit") is None
    labs.SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=labs.SCREENSHOTS / "widget-exported.png", full_page=True)
    page.close()


def test_hostile_text_does_not_run(lab):
    area = shown(lab, "hostile")
    labs.expect(area.locator(".sv-live")).to_contain_text("{{7*7}}")
    for token in area.locator(".sv-live .t").all()[:11]:
        token.dispatch_event("pointerover")
    labs.expect(area.locator(".sv-strip-view :is(script, img, svg, a)")).to_have_count(0)
    stepper = drawn(lab, "hostile-stepper")
    stepper.locator(".nsewdrag").first.hover()
    assert lab.page.evaluate("window.hit") is None
    lab.shot(PLACE["hostile"], "widget-hostile")


def test_two_thousand_tokens(lab):
    area = shown(lab, "long")
    labs.expect(area.locator(".sv-live .t")).to_have_count(2000)
    press(lab, area.locator(".widget-hslider"), "ArrowLeft")
    area.get_by_text("k = 3").wait_for()
    took = area.locator(".sv-live").evaluate(
        "(strip) => { const t = performance.now();"
        " strip.dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}));"
        " return performance.now() - t; }"
    )
    assert took < 1000
    area.locator(".sv-live .t.at[data-t='1999']").wait_for()


def test_every_control_is_reached_by_the_keyboard_and_has_a_name(lab):
    for name in ("strip", "stepper", "lens", "live"):
        area = shown(lab, name)
        for control in area.locator("select:visible, textarea:visible, button:visible").all():
            assert control.evaluate(
                "c => c.tabIndex >= 0 && Boolean(c.title || c.textContent.trim()"
                " || (c.labels && c.labels.length) || c.getAttribute('aria-label')"
                " || c.closest('.jupyter-widgets')?.querySelector('label')?.textContent)"
            ), control.evaluate("c => c.outerHTML")


def test_a_kernel_error_in_a_callback_is_shown(lab):
    area = shown(lab, "strip")
    lab.run(PLACE["spare"], "strip.strips = None; 1")
    press(lab, area.locator(".widget-hslider"), "ArrowRight")
    area.get_by_role("alert").wait_for()
