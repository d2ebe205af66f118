"""k as a function of the branching factor."""
