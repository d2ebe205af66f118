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
    "prompts": "specviz.prompt_set",
    "generate": "specviz.engine.loop",
    "capture": "specviz.campaign",
    "run_prompts": "specviz.trials",
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
    "Trace": "specviz.trace",
    "load_trace": "specviz.trace",
    "bundled_trace": "specviz.bundled",
    "replay": "specviz.analysis.replay",
    "optimal_k": "specviz.analysis.optimal_k",
    "oracle": "specviz.analysis.oracle",
    "regret": "specviz.analysis.oracle",
    "compare_drafters": "specviz.analysis.controls",
    "compare_policies": "specviz.analysis.levers",
    "drift_table": "specviz.analysis.drift",
    "family_table": "specviz.analysis.families",
    "family_report": "specviz.analysis.family_report",
    "depth_match": "specviz.analysis.ceilings",
    "recall_lengths": "specviz.analysis.ceilings",
    "reanchoring_gain": "specviz.analysis.reanchoring",
    "which_ceiling": "specviz.analysis.ceiling_table",
    "measured_bounds": "specviz.analysis.measured_bounds",
    "iid_check": "specviz.analysis.independence",
    "audit": "specviz.analysis.audit",
    "audit_together": "specviz.analysis.audit_together",
    "read_claims": "specviz.analysis.claims",
    "audit_claims": "specviz.analysis.claims",
    "audit_groups": "specviz.analysis.claims",
    "capacity": "specviz.analysis.capacity",
    "capacity_from_figures": "specviz.analysis.capacity",
    "SLA": "specviz.analysis.capacity",
    "KVShape": "specviz.analysis.memory",
    "speculation_memory": "specviz.analysis.memory",
    "replay_sampled": "specviz.analysis.replay_sampled",
    "hazard_table": "specviz.analysis.hazards",
    "hazard_model": "specviz.analysis.hazards",
    "residual_type_effect": "specviz.analysis.hazards",
    "hazard_curve": "specviz.analysis.hazard_curves",
    "optimal_k_by_ebf": "specviz.analysis.optimal_k_by_ebf",
    "EBFSteps": "specviz.analysis.ebf_steps",
    "compare_survival": "specviz.analysis.survival_groups",
    "drafter_cards": "specviz.cards",
    "learning_log": "specviz.cards",
    "report": "specviz.reporting",
}

__all__ = list(_HOME)

if TYPE_CHECKING:
    from specviz.analysis.audit import audit as audit
    from specviz.analysis.audit_together import audit_together as audit_together
    from specviz.analysis.capacity import SLA as SLA
    from specviz.analysis.capacity import capacity as capacity
    from specviz.analysis.capacity import capacity_from_figures as capacity_from_figures
    from specviz.analysis.ceiling_table import which_ceiling as which_ceiling
    from specviz.analysis.ceilings import depth_match as depth_match
    from specviz.analysis.ceilings import recall_lengths as recall_lengths
    from specviz.analysis.claims import audit_claims as audit_claims
    from specviz.analysis.claims import audit_groups as audit_groups
    from specviz.analysis.claims import read_claims as read_claims
    from specviz.analysis.controls import compare_drafters as compare_drafters
    from specviz.analysis.drift import drift_table as drift_table
    from specviz.analysis.ebf_steps import EBFSteps as EBFSteps
    from specviz.analysis.families import family_table as family_table
    from specviz.analysis.family_report import family_report as family_report
    from specviz.analysis.hazard_curves import hazard_curve as hazard_curve
    from specviz.analysis.hazards import hazard_model as hazard_model
    from specviz.analysis.hazards import hazard_table as hazard_table
    from specviz.analysis.hazards import residual_type_effect as residual_type_effect
    from specviz.analysis.independence import iid_check as iid_check
    from specviz.analysis.levers import compare_policies as compare_policies
    from specviz.analysis.measured_bounds import measured_bounds as measured_bounds
    from specviz.analysis.memory import KVShape as KVShape
    from specviz.analysis.memory import speculation_memory as speculation_memory
    from specviz.analysis.optimal_k import optimal_k as optimal_k
    from specviz.analysis.optimal_k_by_ebf import optimal_k_by_ebf as optimal_k_by_ebf
    from specviz.analysis.oracle import oracle as oracle
    from specviz.analysis.oracle import regret as regret
    from specviz.analysis.reanchoring import reanchoring_gain as reanchoring_gain
    from specviz.analysis.replay import replay as replay
    from specviz.analysis.replay_sampled import replay_sampled as replay_sampled
    from specviz.analysis.survival_groups import compare_survival as compare_survival
    from specviz.bundled import bundled_trace as bundled_trace
    from specviz.campaign import capture as capture
    from specviz.cards import drafter_cards as drafter_cards
    from specviz.cards import learning_log as learning_log
    from specviz.cost import CostModel as CostModel
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
    from specviz.engine.tree_drafts import SampledTree as SampledTree
    from specviz.engine.tree_drafts import Trie as Trie
    from specviz.engine.tree_shapes import BestFirst as BestFirst
    from specviz.engine.tree_shapes import Cartesian as Cartesian
    from specviz.engine.tree_shapes import Dynamic as Dynamic
    from specviz.engine.tree_shapes import Sequoia as Sequoia
    from specviz.policies import ContentAdaptive as ContentAdaptive
    from specviz.policies import FixedK as FixedK
    from specviz.policies import FixedTree as FixedTree
    from specviz.presets import free_drafts as free_drafts
    from specviz.presets import t4_like as t4_like
    from specviz.prompt_set import prompts as prompts
    from specviz.reporting import report as report
    from specviz.trace import Trace as Trace
    from specviz.trace import load_trace as load_trace
    from specviz.trials import run_prompts as run_prompts
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
