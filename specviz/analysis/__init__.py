"""Numbers from a trace: branching, survival, replay, the best k. Draws nothing, runs no model."""

from specviz.analysis.branching import ebf_means, entropy, entropy_by, hill
from specviz.analysis.by_k import length_by_k, speedup_by_k
from specviz.analysis.ceilings import depth_match, recall_lengths
from specviz.analysis.controls import compare_drafters, rounds_by_prompt, shuffled_control
from specviz.analysis.drift import drift_by_prompt, drift_table
from specviz.analysis.families import family_table
from specviz.analysis.family_report import FamilyReport, family_report
from specviz.analysis.levers import compare_policies, length_by_nodes
from specviz.analysis.optimal_k import OptimalK, optimal_k
from specviz.analysis.reanchoring import reanchoring_gain
from specviz.analysis.replay import Replay, replay
from specviz.analysis.resampling import Interval, ratio_difference, ratio_interval
from specviz.analysis.survival import accepted_lengths, survival_by
from specviz.analysis.switching import class_rates, detection, fit_choices

__all__ = [
    "FamilyReport",
    "Interval",
    "OptimalK",
    "Replay",
    "accepted_lengths",
    "class_rates",
    "compare_drafters",
    "compare_policies",
    "depth_match",
    "detection",
    "drift_by_prompt",
    "drift_table",
    "ebf_means",
    "entropy",
    "entropy_by",
    "family_report",
    "family_table",
    "fit_choices",
    "hill",
    "length_by_k",
    "length_by_nodes",
    "optimal_k",
    "ratio_difference",
    "ratio_interval",
    "reanchoring_gain",
    "recall_lengths",
    "replay",
    "rounds_by_prompt",
    "shuffled_control",
    "speedup_by_k",
    "survival_by",
]
