"""Measure the trees that no fixed draft can beat: `python data/ceiling/build.py`.

The embedded target on code and prose of the bundled sampled capture (temperature 1). One file
holds trees of 128 nodes at anchors drawn at random, one trees of 16 at more of them; the others
follow the rounds of the best tree of one budget. Resumes in out/ceiling; about an hour on one
core. `ship` copies what is there to data/ceiling.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import specviz as sv

ROOT = Path(__file__).parents[2]
WORK, SHIPPED = ROOT / "out" / "ceiling", Path(__file__).parent
TYPES = ["code", "prose"]
#: Budgets whose rounds are followed.
FOLLOWED = (7, 16, 64)


def build() -> None:
    trace = sv.bundled_trace("smollm2-sampled").select(content_type=TYPES)
    target = sv.load_target("smollm2-135m")
    for n in FOLLOWED[:2]:
        sv.capture_tree_ceiling(trace, target, nodes=n, follow=n, out=WORK / f"rounds-{n}.parquet")
    sv.capture_tree_ceiling(trace, target, per_prompt=4, out=WORK / "anchors.parquet")
    many = {"nodes": 16, "per_prompt": 16, "seed": 1, "out": WORK / "anchors-16.parquet"}
    sv.capture_tree_ceiling(trace, target, **many)
    for n in FOLLOWED[2:]:
        sv.capture_tree_ceiling(trace, target, nodes=n, follow=n, out=WORK / f"rounds-{n}.parquet")


def ship() -> None:
    for file in sorted(WORK.glob("*.parquet")):
        shutil.copy(file, SHIPPED / file.name)


if __name__ == "__main__":
    ship() if sys.argv[1:] == ["ship"] else build()
