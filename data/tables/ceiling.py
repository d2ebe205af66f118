"""Print the tables of docs/ceiling.md from what comes with specviz; needs no torch.

python data/tables/ceiling.py > tables.md
"""

from __future__ import annotations

import pandas as pd
from written import markdown, spread

import specviz as sv
from specviz.analysis import length_by_nodes, recall_lengths
from specviz.analysis.ceilings.tree import drafters_at_anchors
from specviz.bundled import TARGET_TREES, bundled_target_trees

KINDS = ["code", "prose"]
LEARNED = ["lm", "eagle", "block", "mtp"]
K = 7


def pivot(table: pd.DataFrame, index: str, value: str) -> pd.DataFrame:
    """One row per value of `index`, one column per kind of text."""
    mine = table[table["content_type"].isin(KINDS)]
    found = mine.pivot_table(
        index=index, columns="content_type", values=value, sort=False, aggfunc="first"
    )
    return found[KINDS].reset_index()


def greedy() -> None:
    trace = sv.bundled_trace("smollm2-greedy")
    rows = []
    for name in ["ngram", *LEARNED]:
        found = sv.replay(trace, sv.FixedK(K), name).by("content_type")
        rows += [{**row, "what": f"{name}, chain of {K}"} for row in found.to_dict("records")]
        trees = length_by_nodes(trace, name, (16,))
        trees = trees[(trees["builder"] != "chain") & (trees["nodes"] == 16)]
        rows += [{**row, "what": f"{name}, tree of 16"} for row in trees.to_dict("records")]
    for name in LEARNED:
        recall = recall_lengths(trace, name, tops=(4, 16))
        rows += [
            {
                "content_type": row["content_type"],
                "what": f"{name}, any of its {row['top']} likeliest at each of {row['k']} depths",
                "tokens_per_round": row["recall"],
                "low": row["recall_low"],
                "high": row["recall_high"],
            }
            for row in recall[recall["top"] > 1].to_dict("records")
        ]
    table = pd.DataFrame(rows)
    table["found"] = table.apply(spread, axis=1, middle="tokens_per_round")
    markdown("Greedy target", pivot(table, "what", "found"))


def sampled() -> None:
    trace = sv.bundled_trace("smollm2-sampled").select(content_type=KINDS)
    rows = []
    quant = sv.bundled_trace("smollm2-self-quant")
    for held, name in [*((trace, name) for name in LEARNED), (quant, "self-quant")]:
        for rule in ("argmax-match", "rejection"):
            found = sv.replay_sampled(held, K, name, rule=rule).by("content_type")
            rows += [{**row, "what": f"{name}, {rule}"} for row in found.to_dict("records")]
    followed = []
    for name in TARGET_TREES:
        if name.startswith("rounds"):
            table = sv.tree_ceiling(bundled_target_trees(name))
            followed.append(table[table["on_policy"]])
    own = pd.concat(followed)
    own["what"] = "best tree of " + own["n"].astype(str) + " nodes (T5.3)"
    rows += own.to_dict("records")
    table = pd.DataFrame(rows)
    table["found"] = table.apply(spread, axis=1, middle="tokens_per_round")
    markdown("Sampled target, rounds as they come", pivot(table, "what", "found"))
    own = own[own["content_type"].isin(KINDS)].copy()
    own["expected"] = own.apply(spread, axis=1, middle="tokens_per_round")
    own["realised"] = own.apply(
        spread, axis=1, middle="realised", low="realised_low", high="realised_high"
    )
    columns = ["n", "content_type", "expected", "realised", "n_anchors"]
    markdown("The theorem and the texts", own[columns].rename(columns={"n_anchors": "rounds"}))

    trees = bundled_target_trees("anchors")
    table = sv.tree_ceiling(trees)
    table["found"] = table.apply(spread, axis=1, middle="tokens_per_round")
    table["what"] = table["shape"] + " of " + table["n"].astype(str)
    markdown("Sampled target, at anchors drawn at random", pivot(table, "what", "found"))
    chains = table[table["shape"] == "chain"]
    markdown("What no chain can pass", pivot(chains, "what", "at_most"))
    for rule in ("argmax-match", "rejection"):
        near = drafters_at_anchors(trees, trace, K, rule=rule)
        near["found"] = near.apply(spread, axis=1, middle="tokens")
        near["part"] = near.apply(
            spread, axis=1, middle="share", low="share_low", high="share_high"
        )
        markdown(f"Drafters at the same anchors, {rule}", pivot(near, "drafter", "found"))
        markdown(f"Accepted over the best tree's, {rule}", pivot(near, "drafter", "part"))


def entropy_bounds() -> None:
    trace = sv.bundled_trace("smollm2-sampled").select(content_type=KINDS)
    for title, table in (
        ("What entropy alone says", sv.measured_bounds(trace, "lm", k=K).table),
        ("Floors", sv.measured_bounds(sv.bundled_trace("smollm2-self-quant"), k=K).table),
    ):
        table["found"] = table.apply(spread, axis=1, middle="value")
        table["what"] = table["quantity"] + ": " + table["bound"] + ", " + table["side"]
        markdown(title, pivot(table, "what", "found"))


if __name__ == "__main__":
    greedy()
    sampled()
    entropy_bounds()
