"""specviz: analyse and teach speculative decoding.

    import specviz as sv

    target = sv.load_target("smollm2-135m")
    drafter = sv.load_drafter("self-quant", target)
    trace = sv.capture(sv.prompts(limit=2), target, [drafter], out="out/first")
    sv.optimal_k(trace, sv.measure_cost(target, drafter))

Names are imported when first used: `import specviz` loads neither torch nor pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "load_target": "specviz.zoo",
    "load_drafter": "specviz.zoo",
    "prompts": "specviz.prompt_set",
    "generate": "specviz.engine.loop",
    "capture": "specviz.campaign",
    "measure_cost": "specviz.engine.timing",
    "Greedy": "specviz.engine.acceptance",
    "FixedK": "specviz.policies",
    "CostModel": "specviz.cost",
    "Trace": "specviz.trace",
    "load_trace": "specviz.trace",
    "replay": "specviz.analysis.replay",
    "optimal_k": "specviz.analysis.optimal_k",
    "compare_drafters": "specviz.analysis.controls",
    "family_table": "specviz.analysis.families",
    "drafter_cards": "specviz.cards",
    "learning_log": "specviz.cards",
    "report": "specviz.reporting",
}

__all__ = list(_HOME)

if TYPE_CHECKING:
    from specviz.analysis.controls import compare_drafters as compare_drafters
    from specviz.analysis.families import family_table as family_table
    from specviz.analysis.optimal_k import optimal_k as optimal_k
    from specviz.analysis.replay import replay as replay
    from specviz.campaign import capture as capture
    from specviz.cards import drafter_cards as drafter_cards
    from specviz.cards import learning_log as learning_log
    from specviz.cost import CostModel as CostModel
    from specviz.engine.acceptance import Greedy as Greedy
    from specviz.engine.loop import generate as generate
    from specviz.engine.timing import measure_cost as measure_cost
    from specviz.policies import FixedK as FixedK
    from specviz.prompt_set import prompts as prompts
    from specviz.reporting import report as report
    from specviz.trace import Trace as Trace
    from specviz.trace import load_trace as load_trace
    from specviz.zoo import load_drafter as load_drafter
    from specviz.zoo import load_target as load_target


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specviz' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
