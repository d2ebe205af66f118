"""Numbers from a trace: branching, survival, replay, the best k, bounds. Runs no model."""

from specviz.analysis.audits.audit import Audit, audit
from specviz.analysis.audits.claims import audit_claims, audit_groups, read_claims
from specviz.analysis.audits.together import AuditTogether, audit_together
from specviz.analysis.branching import ebf_means, entropy, entropy_by, hill
from specviz.analysis.ceilings.candidates import depth_match, recall_lengths
from specviz.analysis.ceilings.independence import iid_check
from specviz.analysis.ceilings.measured import MeasuredBounds, measured_bounds
from specviz.analysis.ceilings.tree import (
    ceiling_by_anchor,
    drafters_at_anchors,
    tree_ceiling,
)
from specviz.analysis.ceilings.which import Ceilings, which_ceiling
from specviz.analysis.drafting.controls import compare_drafters, rounds_by_prompt, shuffled_control
from specviz.analysis.drafting.families import family_table
from specviz.analysis.drafting.family_report import FamilyReport, family_report
from specviz.analysis.drafting.reanchoring import reanchoring_gain
from specviz.analysis.ebf.optimal_k import OptimalKByEBF, optimal_k_by_ebf
from specviz.analysis.ebf.steps import EBFSteps
from specviz.analysis.hazards.curves import auc, calibration, hazard_curve, rank_correlation
from specviz.analysis.hazards.model import (
    HazardModel,
    hazard_model,
    hazard_table,
    residual_type_effect,
)
from specviz.analysis.levers.compare import compare_policies, length_by_nodes
from specviz.analysis.levers.drift import drift_by_prompt, drift_table
from specviz.analysis.levers.switching import class_rates, detection, fit_choices
from specviz.analysis.replays.by_k import length_by_k, speedup_by_k
from specviz.analysis.replays.optimal_k import OptimalK, optimal_k
from specviz.analysis.replays.replay import Replay, replay
from specviz.analysis.replays.sampled import SampledReplay, replay_sampled
from specviz.analysis.resampling import Interval, ratio_difference, ratio_interval
from specviz.analysis.serving.capacity import SLA, Capacity, capacity, capacity_from_figures
from specviz.analysis.serving.cost_fit import CostFit, fit_cost
from specviz.analysis.serving.sensitivity import break_even_tokens, cost_sensitivity
from specviz.analysis.survival.groups import SurvivalComparison, compare_survival
from specviz.analysis.survival.lengths import accepted_lengths, survival_by

__all__ = [
    "SLA",
    "Audit",
    "AuditTogether",
    "Capacity",
    "Ceilings",
    "CostFit",
    "EBFSteps",
    "FamilyReport",
    "HazardModel",
    "Interval",
    "MeasuredBounds",
    "OptimalK",
    "OptimalKByEBF",
    "Replay",
    "SampledReplay",
    "SurvivalComparison",
    "accepted_lengths",
    "auc",
    "audit",
    "audit_claims",
    "audit_groups",
    "audit_together",
    "break_even_tokens",
    "calibration",
    "capacity",
    "capacity_from_figures",
    "ceiling_by_anchor",
    "class_rates",
    "compare_drafters",
    "compare_policies",
    "compare_survival",
    "cost_sensitivity",
    "depth_match",
    "detection",
    "drafters_at_anchors",
    "drift_by_prompt",
    "drift_table",
    "ebf_means",
    "entropy",
    "entropy_by",
    "family_report",
    "family_table",
    "fit_choices",
    "fit_cost",
    "hazard_curve",
    "hazard_model",
    "hazard_table",
    "hill",
    "iid_check",
    "length_by_k",
    "length_by_nodes",
    "measured_bounds",
    "optimal_k",
    "optimal_k_by_ebf",
    "rank_correlation",
    "ratio_difference",
    "ratio_interval",
    "read_claims",
    "reanchoring_gain",
    "recall_lengths",
    "replay",
    "replay_sampled",
    "residual_type_effect",
    "rounds_by_prompt",
    "shuffled_control",
    "speedup_by_k",
    "survival_by",
    "tree_ceiling",
    "which_ceiling",
]
