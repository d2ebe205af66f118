"""How many tokens to draft now: policies, the same objects live and in replay.

`base` holds what a policy is asked and told. `schedules` look at past rounds, `stops` at the
draft while it grows, `entropic` at the target's recent entropy, `priced` at what drafting
costs, `adaptive` at the kind of text, which `detector` tells. None keeps any state: what a
rule remembers is folded over the past when it is asked.
"""

from specviz.policies.adaptive import ContentAdaptive
from specviz.policies.base import (
    CapturedTree,
    DraftView,
    FixedK,
    FixedTree,
    History,
    PastRound,
    Plan,
    Policy,
    TreeSpec,
)
from specviz.policies.detector import Detector, load_detector
from specviz.policies.entropic import EBFMatched, EntropyGate
from specviz.policies.priced import Bandit, CostOptimal
from specviz.policies.schedules import EMAWindow, Heuristic
from specviz.policies.stops import SVIP, AdaEDL, ConfidenceStop, entropy_score

__all__ = [
    "SVIP",
    "AdaEDL",
    "Bandit",
    "CapturedTree",
    "ConfidenceStop",
    "ContentAdaptive",
    "CostOptimal",
    "Detector",
    "DraftView",
    "EBFMatched",
    "EMAWindow",
    "EntropyGate",
    "FixedK",
    "FixedTree",
    "Heuristic",
    "History",
    "PastRound",
    "Plan",
    "Policy",
    "TreeSpec",
    "entropy_score",
    "load_detector",
]
