"""Widgets: a trace under your hands. They hold state and call figures; no model is needed."""

from __future__ import annotations

from specviz.widgets.base import Widget
from specviz.widgets.bounds_lab import BoundsLab
from specviz.widgets.capacity_planner import CapacityPlanner
from specviz.widgets.claim_audit import ClaimAudit
from specviz.widgets.dashboard import Dashboard, dashboard, show
from specviz.widgets.drafter_race import DrafterRace
from specviz.widgets.entropy_lens import EntropyLens
from specviz.widgets.k_explorer import KExplorer
from specviz.widgets.live_run import LiveRun
from specviz.widgets.policy_race import PolicyRace
from specviz.widgets.round_stepper import RoundStepper
from specviz.widgets.token_strip import TokenStrip
from specviz.widgets.tree_lab import TreeLab

__all__ = [
    "BoundsLab",
    "CapacityPlanner",
    "ClaimAudit",
    "Dashboard",
    "DrafterRace",
    "EntropyLens",
    "KExplorer",
    "LiveRun",
    "PolicyRace",
    "RoundStepper",
    "TokenStrip",
    "TreeLab",
    "Widget",
    "dashboard",
    "show",
]
