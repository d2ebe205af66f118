"""Pictures: pure functions from tables to plotly figures. They compute nothing but layout."""

from specviz.figures.ceilings import plot_ceilings
from specviz.figures.claims import plot_claims
from specviz.figures.depth_match import plot_depth_match
from specviz.figures.entropy_by_type import plot_entropy_by_type
from specviz.figures.learning import plot_learning
from specviz.figures.length_by_k import plot_length_by_k
from specviz.figures.length_by_nodes import plot_length_by_nodes
from specviz.figures.policies import plot_policies
from specviz.figures.position_entropy import plot_position_entropy
from specviz.figures.reanchoring import plot_reanchoring
from specviz.figures.speedup_by_k import plot_speedup_by_k
from specviz.figures.survival import plot_survival

__all__ = [
    "plot_ceilings",
    "plot_claims",
    "plot_depth_match",
    "plot_entropy_by_type",
    "plot_learning",
    "plot_length_by_k",
    "plot_length_by_nodes",
    "plot_policies",
    "plot_position_entropy",
    "plot_reanchoring",
    "plot_speedup_by_k",
    "plot_survival",
]
