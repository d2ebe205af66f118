"""specviz: analyse and teach speculative decoding.

    import specviz as sv

    target = sv.load_target("smollm2-135m")
    drafter = sv.load_drafter("lm", target)
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
    "load_exl3": "specviz.exl3.load",
    "observe_exl3": "specviz.exl3.observe",
    "doctor": "specviz.doctor_report",
    "plan_memory": "specviz.analysis.serving.plan",
    "prompts": "specviz.prompt_set",
    "generate": "specviz.engine.loop",
    "capture": "specviz.campaign",
    "run_prompts": "specviz.trials",
    "capture_tree_ceiling": "specviz.engine.tree_ceiling",
    "load_target_trees": "specviz.trace.target_trees",
    "tree_ceiling": "specviz.analysis.ceilings.tree",
    "measure_cost": "specviz.engine.timing",
    "Greedy": "specviz.engine.acceptance",
    "SampleMatch": "specviz.engine.acceptance",
    "Rejection": "specviz.engine.acceptance",
    "SharedNoise": "specviz.engine.acceptance",
    "BlockVerify": "specviz.engine.block_verify",
    "RecursiveRejection": "specviz.engine.multi_draft",
    "Typical": "specviz.engine.lossy",
    "ProbabilityGap": "specviz.engine.lossy",
    "ProbabilityRatio": "specviz.engine.lossy",
    "TopM": "specviz.engine.lossy",
    "Lenience": "specviz.engine.lossy",
    "Sampling": "specviz.engine.sampling",
    "BestFirst": "specviz.engine.tree_shapes",
    "Dynamic": "specviz.engine.tree_shapes",
    "Cartesian": "specviz.engine.tree_shapes",
    "Sequoia": "specviz.engine.tree_shapes",
    "SampledTree": "specviz.engine.tree_drafts",
    "Trie": "specviz.engine.tree_drafts",
    "FixedTree": "specviz.policies",
    "ContentAdaptive": "specviz.policies",
    "FixedK": "specviz.policies",
    "CostModel": "specviz.cost",
    "t4_like": "specviz.presets",
    "free_drafts": "specviz.presets",
    "preset": "specviz.presets",
    "roofline": "specviz.rooflines",
    "Device": "specviz.rooflines",
    "fit_cost": "specviz.analysis.serving.cost_fit",
    "break_even_tokens": "specviz.analysis.serving.sensitivity",
    "cost_sensitivity": "specviz.analysis.serving.sensitivity",
    "Trace": "specviz.trace",
    "load_trace": "specviz.trace",
    "bundled_trace": "specviz.bundled",
    "replay": "specviz.analysis.replays.replay",
    "optimal_k": "specviz.analysis.replays.optimal_k",
    "oracle": "specviz.analysis.replays.oracle",
    "regret": "specviz.analysis.replays.oracle",
    "compare_drafters": "specviz.analysis.drafting.controls",
    "compare_policies": "specviz.analysis.levers.compare",
    "drift_table": "specviz.analysis.levers.drift",
    "family_table": "specviz.analysis.drafting.families",
    "family_report": "specviz.analysis.drafting.family_report",
    "depth_match": "specviz.analysis.ceilings.candidates",
    "recall_lengths": "specviz.analysis.ceilings.candidates",
    "reanchoring_gain": "specviz.analysis.drafting.reanchoring",
    "which_ceiling": "specviz.analysis.ceilings.which",
    "measured_bounds": "specviz.analysis.ceilings.measured",
    "iid_check": "specviz.analysis.ceilings.independence",
    "audit": "specviz.analysis.audits.audit",
    "audit_together": "specviz.analysis.audits.together",
    "read_claims": "specviz.analysis.audits.claims",
    "audit_claims": "specviz.analysis.audits.claims",
    "audit_groups": "specviz.analysis.audits.claims",
    "capacity": "specviz.analysis.serving.capacity",
    "capacity_from_figures": "specviz.analysis.serving.capacity",
    "SLA": "specviz.analysis.serving.capacity",
    "KVShape": "specviz.analysis.serving.memory",
    "speculation_memory": "specviz.analysis.serving.memory",
    "replay_sampled": "specviz.analysis.replays.sampled",
    "hazard_table": "specviz.analysis.hazards.model",
    "hazard_model": "specviz.analysis.hazards.model",
    "residual_type_effect": "specviz.analysis.hazards.model",
    "hazard_curve": "specviz.analysis.hazards.curves",
    "optimal_k_by_ebf": "specviz.analysis.ebf.optimal_k",
    "EBFSteps": "specviz.analysis.ebf.steps",
    "compare_survival": "specviz.analysis.survival.groups",
    "drafter_cards": "specviz.cards",
    "learning_log": "specviz.cards",
    "report": "specviz.reporting",
    "show": "specviz.widgets.dashboard",
    "dashboard": "specviz.widgets.dashboard",
}

__all__ = list(_HOME)

if TYPE_CHECKING:
    from specviz.analysis.audits.audit import audit as audit
    from specviz.analysis.audits.claims import audit_claims as audit_claims
    from specviz.analysis.audits.claims import audit_groups as audit_groups
    from specviz.analysis.audits.claims import read_claims as read_claims
    from specviz.analysis.audits.together import audit_together as audit_together
    from specviz.analysis.ceilings.candidates import depth_match as depth_match
    from specviz.analysis.ceilings.candidates import recall_lengths as recall_lengths
    from specviz.analysis.ceilings.independence import iid_check as iid_check
    from specviz.analysis.ceilings.measured import measured_bounds as measured_bounds
    from specviz.analysis.ceilings.tree import tree_ceiling as tree_ceiling
    from specviz.analysis.ceilings.which import which_ceiling as which_ceiling
    from specviz.analysis.drafting.controls import compare_drafters as compare_drafters
    from specviz.analysis.drafting.families import family_table as family_table
    from specviz.analysis.drafting.family_report import family_report as family_report
    from specviz.analysis.drafting.reanchoring import reanchoring_gain as reanchoring_gain
    from specviz.analysis.ebf.optimal_k import optimal_k_by_ebf as optimal_k_by_ebf
    from specviz.analysis.ebf.steps import EBFSteps as EBFSteps
    from specviz.analysis.hazards.curves import hazard_curve as hazard_curve
    from specviz.analysis.hazards.model import hazard_model as hazard_model
    from specviz.analysis.hazards.model import hazard_table as hazard_table
    from specviz.analysis.hazards.model import residual_type_effect as residual_type_effect
    from specviz.analysis.levers.compare import compare_policies as compare_policies
    from specviz.analysis.levers.drift import drift_table as drift_table
    from specviz.analysis.replays.optimal_k import optimal_k as optimal_k
    from specviz.analysis.replays.oracle import oracle as oracle
    from specviz.analysis.replays.oracle import regret as regret
    from specviz.analysis.replays.replay import replay as replay
    from specviz.analysis.replays.sampled import replay_sampled as replay_sampled
    from specviz.analysis.serving.capacity import SLA as SLA
    from specviz.analysis.serving.capacity import capacity as capacity
    from specviz.analysis.serving.capacity import capacity_from_figures as capacity_from_figures
    from specviz.analysis.serving.cost_fit import fit_cost as fit_cost
    from specviz.analysis.serving.memory import KVShape as KVShape
    from specviz.analysis.serving.memory import speculation_memory as speculation_memory
    from specviz.analysis.serving.plan import plan_memory as plan_memory
    from specviz.analysis.serving.sensitivity import break_even_tokens as break_even_tokens
    from specviz.analysis.serving.sensitivity import cost_sensitivity as cost_sensitivity
    from specviz.analysis.survival.groups import compare_survival as compare_survival
    from specviz.bundled import bundled_trace as bundled_trace
    from specviz.campaign import capture as capture
    from specviz.cards import drafter_cards as drafter_cards
    from specviz.cards import learning_log as learning_log
    from specviz.cost import CostModel as CostModel
    from specviz.doctor_report import doctor as doctor
    from specviz.engine.acceptance import Greedy as Greedy
    from specviz.engine.acceptance import Rejection as Rejection
    from specviz.engine.acceptance import SampleMatch as SampleMatch
    from specviz.engine.acceptance import SharedNoise as SharedNoise
    from specviz.engine.block_verify import BlockVerify as BlockVerify
    from specviz.engine.loop import generate as generate
    from specviz.engine.lossy import Lenience as Lenience
    from specviz.engine.lossy import ProbabilityGap as ProbabilityGap
    from specviz.engine.lossy import ProbabilityRatio as ProbabilityRatio
    from specviz.engine.lossy import TopM as TopM
    from specviz.engine.lossy import Typical as Typical
    from specviz.engine.multi_draft import RecursiveRejection as RecursiveRejection
    from specviz.engine.sampling import Sampling as Sampling
    from specviz.engine.timing import measure_cost as measure_cost
    from specviz.engine.tree_ceiling import capture_tree_ceiling as capture_tree_ceiling
    from specviz.engine.tree_drafts import SampledTree as SampledTree
    from specviz.engine.tree_drafts import Trie as Trie
    from specviz.engine.tree_shapes import BestFirst as BestFirst
    from specviz.engine.tree_shapes import Cartesian as Cartesian
    from specviz.engine.tree_shapes import Dynamic as Dynamic
    from specviz.engine.tree_shapes import Sequoia as Sequoia
    from specviz.exl3.load import load_exl3 as load_exl3
    from specviz.exl3.observe import observe_exl3 as observe_exl3
    from specviz.policies import ContentAdaptive as ContentAdaptive
    from specviz.policies import FixedK as FixedK
    from specviz.policies import FixedTree as FixedTree
    from specviz.presets import free_drafts as free_drafts
    from specviz.presets import preset as preset
    from specviz.presets import t4_like as t4_like
    from specviz.prompt_set import prompts as prompts
    from specviz.reporting import report as report
    from specviz.rooflines import Device as Device
    from specviz.rooflines import roofline as roofline
    from specviz.trace import Trace as Trace
    from specviz.trace import load_trace as load_trace
    from specviz.trace.target_trees import load_target_trees as load_target_trees
    from specviz.trials import run_prompts as run_prompts
    from specviz.widgets.dashboard import dashboard as dashboard
    from specviz.widgets.dashboard import show as show
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
