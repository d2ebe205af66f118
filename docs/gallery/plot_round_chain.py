"""One round with a chain

Drafted, verified, accepted, and the target's own token.
"""

import specviz as sv
from specviz.figures import plot_round_chain
from specviz.widgets import RoundStepper

stepper = RoundStepper(sv.bundled_trace("smollm2-trees"), drafter="lm", k=5).set(round=2)
figure = plot_round_chain(stepper.picture, "accept", finding="What is right is kept")
