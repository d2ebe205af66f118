"""Print the tables of docs/families.md from the bundled greedy capture; needs no torch.

python data/tables/families.py > tables.md
"""

from __future__ import annotations

import pandas as pd
from written import markdown, spread

import specviz as sv
from specviz.analysis import length_by_nodes, reanchoring_gain, recall_lengths

NAMES = ["ngram", "bigram", "lm", "eagle", "block", "mtp"]
LEARNED = NAMES[2:]
KINDS = ["code", "prose"]


def wide(table: pd.DataFrame, columns: str, value: str, index: str = "drafter") -> pd.DataFrame:
    """One row per drafter in the usual order, one column per value of `columns`."""
    found = table.pivot_table(
        index=index, columns=columns, values=value, sort=False, aggfunc="first"
    )
    return found.loc[[name for name in NAMES if name in found.index]].reset_index()


def main() -> None:
    trace = sv.bundled_trace("smollm2-greedy")
    measured = sv.CostModel.from_dict(trace.meta.cost_models[0])
    report = sv.family_report(trace, [measured, sv.t4_like(), sv.free_drafts()])
    lengths = report.lengths.copy()
    lengths["all rounds"] = lengths.apply(spread, axis=1, middle="tokens_per_round")
    lengths["without repeated text"] = lengths.apply(
        spread,
        axis=1,
        middle="tokens_per_round_unrepeated",
        low="low_unrepeated",
        high="high_unrepeated",
    )
    counts = lengths[lengths["drafter"] == "lm"].set_index("content_type")["n_prompts"]
    print("Prompts:", ", ".join(f"{kind} {n}" for kind, n in counts.items()))
    markdown("Tokens per round, k = 7", wide(lengths, "content_type", "tokens_per_round"))
    for kind in KINDS:
        mine = lengths[lengths["content_type"] == kind].set_index("drafter").loc[NAMES]
        chosen = mine[["all rounds", "without repeated text", "n_rounds", "n_rounds_unrepeated"]]
        markdown(f"{kind}, with intervals", chosen.reset_index())

    best = report.best_k[report.best_k["content_type"].isin(KINDS)].copy()
    best["found"] = best.apply(
        lambda row: "0" if row["k"] == 0 else f"{row['k']}: {spread(row, 'speedup')}", axis=1
    )
    best["where"] = best["content_type"] + ", " + best["cost"]
    markdown("Best k and its speed-up", wide(best, "where", "found"))

    for title, table, value in (
        ("Survival", report.survival, "survival"),
        ("Match", report.depth_match, "match"),
    ):
        for kind in KINDS:
            mine = table[table["content_type"] == kind]
            markdown(f"{title} at depth 1 to 7, {kind}", wide(mine, "depth", value))

    sizes = report.drafters.set_index("drafter").loc[NAMES].reset_index()
    seconds = next(column for column in sizes if column.startswith("draft_seconds"))
    sizes["draft of 7, ms"] = 1000 * sizes[seconds]
    sizes["in plain steps"] = sizes[seconds] / measured.plain_seconds
    sizes["parameters, millions"] = sizes["parameters"] / 1e6
    columns = ["drafter", "parameters, millions", "megabytes", "draft of 7, ms", "in plain steps"]
    markdown("Size and cost", sizes[columns])

    gain = reanchoring_gain(trace)
    gain = gain[(gain["j"] == "all") & gain["content_type"].isin(KINDS)].copy()
    gain["gain"] = [
        f"{row['gain']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for _, row in gain.iterrows()
    ]
    columns = ["drafter", "content_type", "fresh", "tail", "gain", "differs", "n_pairs"]
    markdown("A fresh draft against the tail of the old one", gain[columns])

    recall = recall_lengths(trace, tops=(1, 2, 4, 16))
    recall = recall[recall["content_type"].isin(KINDS) & recall["drafter"].isin(LEARNED)].copy()
    recall["within"] = recall.apply(
        spread, axis=1, middle="recall", low="recall_low", high="recall_high"
    )
    recall["realised share"] = recall.apply(
        spread, axis=1, middle="share", low="share_low", high="share_high"
    )
    columns = ["drafter", "content_type", "top", "within", "realised share"]
    markdown("Tokens per round within the first candidates", recall[columns])

    trees = pd.concat(length_by_nodes(trace, name, (4, 7, 16)) for name in LEARNED)
    trees = trees[trees["content_type"].isin(KINDS) & trees["nodes"].isin((4, 7, 16))].copy()
    trees["found"] = trees.apply(spread, axis=1, middle="tokens_per_round")
    trees["what"] = trees["drafter"] + ", " + trees["builder"]
    trees["where"] = trees["content_type"] + ", " + trees["nodes"].astype(str) + " nodes"
    found = trees.pivot_table(
        index="what", columns="where", values="found", sort=False, aggfunc="first"
    )
    markdown("Trees", found.reset_index())


if __name__ == "__main__":
    main()
