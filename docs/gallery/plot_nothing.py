"""A picture that says why it is empty

What stands where a trace lacks what a picture needs.
"""

from specviz.figures import plot_nothing

figure = plot_nothing("This trace has no drafts, so nothing can be replayed.")
