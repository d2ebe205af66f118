"""Formulas on arrays: what acceptance rules keep, what trees give, what bounds them. No trace."""
