"""Explorers in JupyterLab, in a real browser: a drag, a click or a key gives replay's number.

One server, one notebook and one kernel serve all tests; every widget has its own cell.
"""

from __future__ import annotations

import pytest

import specviz as sv
from specviz.markup import number
from specviz.policies import CapturedTree, FixedK, FixedTree
from tests.browser import lab as labs

pytestmark = [
    pytest.mark.browser,
    pytest.mark.usefixtures("quiet"),
    pytest.mark.xdist_group("lab"),  # one JupyterLab at a time: it is slow to start on two cores
    pytest.mark.skipif(bool(labs.missing()), reason=labs.missing() or "-"),
]

SETUP = """
import specviz as sv
from specviz.widgets import (
    BoundsLab, CapacityPlanner, ClaimAudit, DrafterRace, KExplorer, PolicyRace, TreeLab, dashboard
)
from tests.hostile import hostile_trace, live_trace
trace = sv.bundled_trace("smollm2-trees")
"""
CELLS = {
    "setup": SETUP,
    "k": "KExplorer(trace, drafter='lm', kind='code', k=5, cost=sv.t4_like(), draws=500)",
    "race": "PolicyRace(trace, drafter='lm', kind='code', cost=sv.t4_like(), draws=500)",
    "tree": "TreeLab(trace, drafter='lm', kind='code', draws=500)",
    "drafters": "DrafterRace(trace, kind='code', draws=500)",
    "bounds": "BoundsLab(trace, drafter='lm', kind='code', draws=200)",
    "capacity": "CapacityPlanner(trace, drafter='lm', k=3, cost=sv.t4_like(), draws=200)",
    "claim": "ClaimAudit('t4-prose')",
    "live": "KExplorer(live_trace())",
    "hostile": "DrafterRace(hostile_trace(), draws=50)",
    "board": "dashboard(trace, cost=sv.t4_like())",
}
PLACE = {name: i for i, name in enumerate(CELLS)}


@pytest.fixture(scope="module")
def code():
    return sv.bundled_trace("smollm2-trees").select(content_type="code")


def drawn(lab, name):
    """A widget's output, once its picture is drawn."""
    area = lab.output(PLACE[name])
    area.locator(".sv-plot .main-svg").first.wait_for(timeout=30_000)
    return area


def sliding(area, text):
    """The slider with this label."""
    return area.locator(".widget-hslider").filter(has_text=text).first


def press(lab, area, text, key, times=1):
    """Move a slider by the keyboard."""
    handle = sliding(area, text).locator(".noUi-handle")
    handle.focus()
    for _ in range(times):
        handle.press(key)
    lab.settle()


def test_dragging_k_gives_what_replay_gives(lab, code):
    area = drawn(lab, "k")
    handle = sliding(area, "k, drafted").locator(".noUi-handle")
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    lab.page.mouse.move(x, y)
    lab.page.mouse.down()
    lab.page.mouse.move(x - 400, y, steps=8)  # to the left end and beyond
    lab.page.mouse.up()
    area.get_by_text("k = 0: 1.00").wait_for()
    press(lab, area, "k, drafted", "ArrowRight", 2)
    found = sv.replay(code, FixedK(2), "lm").tokens_per_round
    area.get_by_text(f"k = 2: {number(found)}").wait_for()
    lab.shot(PLACE["k"], "widget-k-explorer")


def test_clicking_a_point_chooses_its_k(lab, code):
    area = drawn(lab, "k")
    points = area.locator(".xy .scatterlayer .trace:has(.point)").last.locator(".point")
    box = points.nth(4).bounding_box()
    lab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    found = sv.replay(code, FixedK(4), "lm").tokens_per_round
    area.get_by_text(f"k = 4: {number(found)}").wait_for()


def test_the_readers_own_cost(lab):
    area = drawn(lab, "k")
    assert not sliding(area, "drafting a token").is_visible()
    area.locator("select").nth(2).select_option("own sliders")
    for text in ("drafting a token", "further row"):
        sliding(area, text).wait_for()
        press(lab, area, text, "Home")
    area.get_by_text("Best k: 7").wait_for()  # for nothing, the longest draft is best
    area.locator(".gtitle", has_text="best k is 7").wait_for()


def test_the_race_follows_its_k(lab, code):
    area = drawn(lab, "race")
    press(lab, area, "fixed k", "ArrowLeft", 3)
    area.locator(".ytick", has_text="fixed k = 1").first.wait_for()
    fixed = sv.regret(code, [FixedK(1)], sv.t4_like(), "lm", draws=10)
    oracle = number(float(fixed["tokens_per_second"].iloc[0]))
    area.get_by_text(f"reaches {oracle} tokens per second").wait_for()
    lab.shot(PLACE["race"], "widget-policy-race")


def test_a_budget_of_nodes(lab, code):
    area = drawn(lab, "tree")
    press(lab, area, "nodes", "ArrowRight", 2)
    policy = FixedTree(CapturedTree("best-first-d7", 18, 7))
    found = sv.replay(code, policy, "lm").tokens_per_round
    area.get_by_text(f"best-first-d7, 18 nodes: {number(found)}").wait_for()
    press(lab, area, "anchor", "ArrowRight", 12)
    area.get_by_text("of the text's own next tokens, so a round").wait_for()
    lab.shot(PLACE["tree"], "widget-tree-lab")


def test_drafters_on_another_kind_of_text(lab):
    area = drawn(lab, "drafters")
    area.locator("select").first.select_option("prose")
    trace = sv.bundled_trace("smollm2-trees").select(content_type="prose")
    best = max(sv.replay(trace, FixedK(7), name).tokens_per_round for name in trace.drafters)
    area.get_by_text(f"on prose text: {number(best)}").wait_for()
    lab.shot(PLACE["drafters"], "widget-drafter-race")


def test_bounds_at_another_k(lab, code):
    area = drawn(lab, "bounds")
    press(lab, area, "k, drafted", "Home")
    found = sv.replay(code, FixedK(1), "lm").tokens_per_round
    area.get_by_text(f"Greedy target: {number(found)} (").wait_for()
    assert "theorem (no assumption)" in area.locator(".ytick").last.text_content()
    lab.shot(PLACE["bounds"], "widget-bounds-lab")


def test_a_mix_of_code_alone(lab, code):
    area = drawn(lab, "capacity")
    press(lab, area, "prose", "Home")
    plan = sv.capacity(code, {"code": 1}, sv.t4_like(), FixedK(3), "lm", draws=10)
    speed = number(float(plan.table["tokens_per_second"].iloc[-1]))
    area.get_by_text(f"The mix: {speed}").wait_for()
    press(lab, area, "SLA: tokens", "ArrowRight", 2)
    area.get_by_text("SLA: meets").first.wait_for()
    lab.shot(PLACE["capacity"], "widget-capacity-planner")


def test_typing_a_claim(lab):
    area = drawn(lab, "claim")
    area.get_by_text("Consistent.").wait_for()
    field = area.get_by_label("tokens per second")
    field.fill("99")
    field.press("Enter")
    area.get_by_text("Inconsistent: A speed-up").wait_for()
    field.fill("<b>fast</b>")
    field.press("Enter")
    area.get_by_text("tokens per second is a number such as 7.4").wait_for()
    labs.expect(area.locator("b", has_text="fast")).to_have_count(0)
    field.fill("36")
    field.press("Enter")
    area.get_by_text("Consistent.").wait_for()
    lab.shot(PLACE["claim"], "widget-claim-audit")


def test_a_trace_that_lacks_drafts_says_so(lab):
    area = lab.output(PLACE["live"])
    area.get_by_text("make a capture of the same prompts first").first.wait_for()
    labs.expect(area.locator(".widget-hslider")).to_have_count(0)


def test_hostile_names_do_not_run(lab):
    area = drawn(lab, "hostile")
    area.locator(".nsewdrag").first.hover()
    labs.expect(area.locator(".specviz-widget :is(script, img, a)")).to_have_count(0)
    assert lab.page.evaluate("window.hit") is None
    lab.shot(PLACE["hostile"], "widget-hostile-explorer")


def test_a_tab_is_made_when_it_is_opened(lab):
    area = lab.output(PLACE["board"])
    area.locator(".sv-live").first.wait_for(timeout=30_000)
    labs.expect(area.locator(".specviz-widget")).to_have_count(1)
    tab = area.get_by_role("tab", name="draft length")
    tab.click()
    area.locator(".gtitle", has_text="best k is").wait_for(timeout=30_000)
    labs.expect(area.locator(".specviz-widget")).to_have_count(2)
    lab.shot(PLACE["board"], "widget-dashboard")


def test_every_control_is_reached_by_the_keyboard_and_has_a_name(lab):
    for name in ("k", "race", "tree", "drafters", "bounds", "capacity", "claim"):
        area = drawn(lab, name)
        for control in area.locator("select, input[type=text], .noUi-handle").all():
            assert control.evaluate(
                "c => c.tabIndex >= 0 && Boolean(c.title || (c.labels && c.labels.length)"
                " || c.getAttribute('aria-label')"
                " || c.closest('.jupyter-widgets')?.querySelector('label')?.textContent)"
            ), (name, control.evaluate("c => c.outerHTML"))
