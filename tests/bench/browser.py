"""From a key press on a slider to the picture drawn anew in JupyterLab, at 100,000 anchors.

`python -m tests.bench.browser` prints medians in milliseconds, as a user waits for them: event,
kernel, and drawing. The kernel's own part is measured by `tests.bench.widgets`.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.browser import lab as labs

AIM = 150
SETUP = """
import specviz as sv
from specviz.widgets.capacity_planner import CapacityPlanner
from specviz.widgets.drafter_race import DrafterRace
from specviz.widgets.k_explorer import KExplorer
from specviz.widgets.policy_race import PolicyRace
from tests.bench.widgets import large
trace, cost = large(), sv.t4_like()
"""
#: Widget to its cell, and the label of the slider that is moved.
CELLS = {
    "KExplorer": ("KExplorer(trace, kind='code', cost=cost)", "k, drafted tokens"),
    "DrafterRace": ("DrafterRace(trace)", "k, drafted tokens"),
    "CapacityPlanner": ("CapacityPlanner(trace, cost=cost)", "code"),
    "PolicyRace": ("PolicyRace(trace, cost=cost).set(kind='code')", "k"),
}
#: Milliseconds from a key press to the last change of the picture or the words; half a second
#: without one ends the wait.
WATCH = """area => new Promise(done => {
  let began = null, last = null, quiet = null;
  const settled = () => { seen.disconnect(); done(last - began); };
  const wait = () => { clearTimeout(quiet); quiet = setTimeout(settled, 500); };
  const seen = new MutationObserver(changes => {
    if (began === null || !changes.some(c => c.target.closest?.('.sv-plot, .widget-html'))) return;
    last = performance.now();
    wait();
  });
  seen.observe(area, {subtree: true, childList: true, attributes: true});
  area.addEventListener('keydown', () => { began = last = performance.now(); }, {once: true,
    capture: true});
  window.watching = true;
})"""


def main() -> None:
    cells = [SETUP, *(source for source, _ in CELLS.values())]
    with tempfile.TemporaryDirectory() as home, labs.opened(Path(home), cells) as lab:
        for place, (name, (_, label)) in enumerate(CELLS.items(), start=1):
            area = lab.output(place)
            area.locator(".sv-plot .main-svg").first.wait_for(timeout=60_000)
            slider = area.locator(".widget-slider").filter(has_text=label).first
            took = [waited(lab, area, slider, key) for key in ["ArrowLeft", "ArrowRight"] * 4]
            print(
                f"{name:<18} {statistics.median(took[2:]):7.0f} ms   (aim: {AIM} ms; "
                f"{min(took[2:]):.0f} to {max(took[2:]):.0f})",
                flush=True,
            )


def waited(lab: Any, area: Any, slider: Any, key: str) -> float:
    """Milliseconds that one key press took to be answered in full."""
    handle = slider.locator(".noUi-handle")
    handle.focus()
    lab.page.evaluate("window.watching = false")
    answer = area.evaluate_handle(f"area => ({{ told: ({WATCH})(area) }})")
    handle.press(key)
    took: float = answer.evaluate("async box => await box.told")
    lab.settle()
    return took


if __name__ == "__main__":
    main()
