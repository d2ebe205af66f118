"""Pictures: pure functions from tables to plotly figures. They compute nothing but layout."""

from specviz.figures.bounds import plot_bounds
from specviz.figures.calibration import plot_calibration
from specviz.figures.capacity import plot_capacity
from specviz.figures.ceilings import plot_ceilings
from specviz.figures.claim_check import plot_claim_check
from specviz.figures.claims import plot_claims
from specviz.figures.depth_match import plot_depth_match
from specviz.figures.drafter_race import plot_drafter_race
from specviz.figures.entropy_by_type import plot_entropy_by_type
from specviz.figures.hazard_curve import plot_hazard_curve
from specviz.figures.k_by_ebf import plot_k_by_ebf
from specviz.figures.k_choice import plot_k_choice
from specviz.figures.learning import plot_learning
from specviz.figures.length_by_k import plot_length_by_k
from specviz.figures.length_by_nodes import plot_length_by_nodes
from specviz.figures.lens_curve import plot_lens_curve
from specviz.figures.nothing import plot_nothing
from specviz.figures.policies import plot_policies
from specviz.figures.policy_race import plot_policy_race
from specviz.figures.position_entropy import plot_position_entropy
from specviz.figures.reanchoring import plot_reanchoring
from specviz.figures.round_steps import plot_round_chain, plot_round_tree
from specviz.figures.speedup_by_k import plot_speedup_by_k
from specviz.figures.strip_heat import plot_strip_heat
from specviz.figures.survival import plot_survival
from specviz.figures.tree_ceiling import plot_tree_ceiling
from specviz.figures.tree_lab import plot_tree_lab
from specviz.figures.type_effect import plot_type_effect

__all__ = [
    "plot_bounds",
    "plot_calibration",
    "plot_capacity",
    "plot_ceilings",
    "plot_claim_check",
    "plot_claims",
    "plot_depth_match",
    "plot_drafter_race",
    "plot_entropy_by_type",
    "plot_hazard_curve",
    "plot_k_by_ebf",
    "plot_k_choice",
    "plot_learning",
    "plot_length_by_k",
    "plot_length_by_nodes",
    "plot_lens_curve",
    "plot_nothing",
    "plot_policies",
    "plot_policy_race",
    "plot_position_entropy",
    "plot_reanchoring",
    "plot_round_chain",
    "plot_round_tree",
    "plot_speedup_by_k",
    "plot_strip_heat",
    "plot_survival",
    "plot_tree_ceiling",
    "plot_tree_lab",
    "plot_type_effect",
]
