"""The report's token strips: one example of each content type."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from specviz.analysis import Replay
from specviz.markup import escape
from specviz.strip import strip_of
from specviz.trace.trace import Trace


def strips(trace: Trace, runs: Sequence[tuple[Replay, int]], shown: Collection[str]) -> str:
    """One example of each shown content type, with the drafter whose rounds are longest.

    Parameters
    ----------
    trace
        Anything; without positions the answer is empty.
    runs
        Per drafter its replay and the k of it; without any, the rounds of the trace are marked,
        if it has some: a sampled capture has none.
    shown
        The content types that have room on the page.
    """
    if trace.positions.empty:
        return ""
    rounds, run = (None, "") if trace.rounds.empty else (trace.rounds, "the live run")
    if runs:
        longest, k = max(runs, key=lambda pair: pair[0].tokens_per_round)
        rounds, run = longest.rounds, f"{longest.drafters[0]} at k = {k}"
    firsts = trace.sequences.drop_duplicates("content_type")
    firsts = firsts[firsts["content_type"].isin(list(shown))]
    parts = [
        "<h2>Token by token</h2><p>One example of each content type, the first captured. "
        "The stronger the orange, the less sure the target; hover over a token for its numbers."
        + (f" The underlines show the rounds of {escape(run)}." if run else "")
        + "</p>"
    ]
    for i, sequence in enumerate(firsts.to_dict("records")):
        strip = strip_of(trace, sequence["seq"], rounds, legend=i == 0)
        parts.append(
            f"<h3>{escape(str(sequence['content_type']).capitalize())}</h3>{strip}"
            "<details><summary>Its prompt, as the model saw it</summary>"
            f'<pre class="prompt">{escape(sequence["prompt"])}</pre></details>'
        )
    return "\n".join(parts)
