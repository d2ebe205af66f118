"""LiveRun

A prompt, a model behind it, and the tokens as rounds accept them.
"""

import specviz as sv
from specviz.widgets import LiveRun

target = sv.load_target()
drafter = sv.load_drafter("lm", target)
widget = LiveRun(
    lambda prompt: sv.generate(target, drafter, prompt, max_new_tokens=40),
    prompt="The sea was calm when",
)
widget.start()
