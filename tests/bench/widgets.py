"""What a widget takes in the kernel when a slider moves, at 100,000 anchors.

`python -m tests.bench.widgets` prints medians in milliseconds of CPU time, which a busy machine
does not stretch; the picture is drawn, and turned into what is sent to the browser.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import specviz as sv
from specviz.trace import Trace
from specviz.widgets.capacity_planner import CapacityPlanner
from specviz.widgets.drafter_race import DrafterRace
from specviz.widgets.k_explorer import KExplorer
from specviz.widgets.policy_race import PolicyRace
from tests.synthetic import trace_of

ANCHORS, LENGTH, K, KINDS = 100_000, 500, 15, ("code", "prose", "json", "mixed")
AIM = 50


def main() -> None:
    trace = large()
    cost = sv.t4_like()
    explorer = KExplorer(trace, kind="code", cost=cost).set(cost="own sliders")
    report("KExplorer, k", explorer, [{"k": k} for k in range(1, K)])
    report("KExplorer, own cost", explorer, [{"per_token": 0.02 * i} for i in range(1, 15)])
    report("KExplorer, all text", explorer.set(kind=""), [{"k": k} for k in range(1, K)])
    races: list[tuple[str, Any, list[dict[str, Any]]]] = [
        ("DrafterRace, k", DrafterRace(trace), [{"k": k} for k in (2, 4, 6)]),
        (
            "CapacityPlanner, mix",
            CapacityPlanner(trace, cost=cost),
            [{"mix 0": weight} for weight in (2, 4, 6)],
        ),
        (
            "PolicyRace, k",
            PolicyRace(trace, cost=cost).set(kind="code"),
            [{"k": k} for k in (2, 3, 5)],
        ),
    ]
    for what, widget, changes in races:
        report(what, widget, changes)


def large() -> Trace:
    """A capture with `ANCHORS` drafts of up to K tokens."""
    rng = np.random.default_rng(0)
    many = ANCHORS // LENGTH
    return trace_of(
        [np.minimum(rng.geometric(0.4, LENGTH) - 1, K) for _ in range(many)],
        content_types=[KINDS[i % len(KINDS)] for i in range(many)],
    )


def report(what: str, widget: Any, changes: list[dict[str, Any]]) -> None:
    """Print the median milliseconds of these changes, the first one left out."""
    widget.view  # noqa: B018  what is shown is redrawn
    took = [1e3 * seconds(lambda change=change: widget.set(**change)) for change in changes]
    print(f"{what:<28} {statistics.median(took[1:]):7.1f} ms   (aim: {AIM} ms)", flush=True)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
