"""Print the tables of docs/ceiling.md from what comes with specviz; needs no torch.

python data/tables/ceiling.py > tables.md
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from written import markdown, spread

import specviz as sv
from specviz.analysis import ceiling_by_anchor, length_by_nodes, ratio_interval
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
        bounds = sv.measured_bounds(trace, name, k=K, top=(1, 4, 16)).table
        bounds = bounds[bounds["quantity"] == "tokens per round"]
        rows += [
            {**row, "what": f"{name}, at most: {among(row['bound'])}"}
            for row in bounds[bounds["bound"].str.contains("candidates")].to_dict("records")
        ]
        share = bounds.pivot(index="content_type", columns="bound", values="value").loc[KINDS]
        ratio = share["this drafter"] / share["16 candidates"]
        print(name, "chain over its 16 candidates:", ratio.round(3).to_dict())
    table = pd.DataFrame(rows)
    table["tokens"] = table["tokens_per_round"].fillna(table["value"])
    table["found"] = table.apply(spread, axis=1, middle="tokens")
    markdown("Greedy target", pivot(table, "what", "found"))


def among(bound: str) -> str:
    """Where the ceiling's tokens come from, in words."""
    many = bound.split()[0]
    return "its chains, cut in hindsight" if many == "1" else f"any of its {many} likeliest"


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

    same = quant.sequences["prompt_id"]
    few = []
    for n in (16, 64):
        trees = bundled_target_trees(f"rounds-{n}")
        kept = trees.table.filter(pc.is_in(trees.table["prompt_id"], pa.array(same)))
        few.append(sv.tree_ceiling(replace(trees, table=kept), [n]))
    few = pd.concat(few)
    few = few[few["shape"] == "tree"]
    few["what"] = "best tree of " + few["n"].astype(str) + " nodes"
    few["found"] = few.apply(spread, axis=1, middle="tokens_per_round")
    markdown("The same prompts as self-quant", pivot(few, "what", "found"))

    checks = []
    for name, budgets in (("anchors", (7, 128)), ("anchors-16", (7, 16))):
        check = sv.tree_ceiling(bundled_target_trees(name), budgets)
        check = check[(check["shape"] == "tree") & check["content_type"].isin(KINDS)].copy()
        check["expected"] = check.apply(spread, axis=1, middle="tokens_per_round")
        check["realised"] = check.apply(
            spread, axis=1, middle="realised", low="realised_low", high="realised_high"
        )
        columns = ["n", "content_type", "expected", "realised", "n_anchors"]
        checks.append(check[columns].rename(columns={"n_anchors": "places"}))
    markdown("Realised at random places", pd.concat(checks))
    trees = bundled_target_trees("anchors")
    table = sv.tree_ceiling(trees)
    each = ceiling_by_anchor(trees, [7, 16])
    for kind in KINDS:
        mine = each[each["content_type"] == kind].groupby("prompt_id")
        for n in (7, 16):
            gain = ratio_interval(
                mine[f"tree_{n}"].agg(lambda a: (1 + a).sum()),
                mine[f"chain_{n}"].agg(lambda a: (1 + a).sum()),
            )
            print(kind, n, "best tree over best chain:", gain)
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
