"""Cards of the trained drafters that come with specviz: what they are, and what was measured.

Reading a card needs neither torch nor the weights.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from specviz._data_files import data_file


def drafter_names() -> list[str]:
    """Names of the trained drafters that come with specviz."""
    try:
        folder = data_file("drafters/README.md").parent
    except FileNotFoundError:
        return []
    return sorted(card.stem for card in folder.glob("*.json"))


def drafter_card(name: str) -> dict[str, Any]:
    """The card of one shipped drafter.

    Parameters
    ----------
    name
        One of `drafter_names()`.

    Returns
    -------
    dict
        family, target, corpus, steps, seed, hours, sha256, bytes, licence, log (the learning
        curve) and measured (tokens per round on the evaluation prompts).

    Raises
    ------
    ValueError
        For a name that is not shipped.

    Examples
    --------
    >>> drafter_card("eagle")["family"]
    'eagle'
    """
    names = drafter_names()
    if name not in names:
        raise ValueError(f"No drafter {name!r} comes with specviz: choose {', '.join(names)}.")
    card: dict[str, Any] = json.loads(data_file(f"drafters/{name}.json").read_text("utf-8"))
    return card


def drafter_cards() -> pd.DataFrame:
    """One row per shipped drafter and content type: how it was trained and what it reached.

    Returns
    -------
    pandas.DataFrame
        drafter, family, corpus_tokens, trained_tokens, hours, megabytes, and the columns of
        `specviz.family_table`, measured on evaluation prompts: of every type, or of code and prose.

    Examples
    --------
    >>> set(drafter_cards()["family"]) == {"bigram", "lm", "eagle", "block", "mtp"}
    True
    """
    rows = []
    for name in drafter_names():
        card = drafter_card(name)
        about = {
            "drafter": name,
            "family": card["family"],
            "corpus_tokens": card["corpus"]["tokens"],
            "trained_tokens": card.get("tokens"),
            "hours": card.get("hours"),
            "megabytes": card["bytes"] / 1e6,
        }
        rows += [{**about, **measured} for measured in card["measured"]]
    return pd.DataFrame(rows)


def learning_log(*names: str) -> pd.DataFrame:
    """The learning curves of shipped drafters, for `plot_learning`.

    Parameters
    ----------
    names
        All that were trained by steps, if none is named.

    Returns
    -------
    pandas.DataFrame
        One row per evaluation and content type: drafter, step, tokens, hours, content_type,
        loss (nats), tokens_per_round (greedy, k = 7, held-out prompts, the target's own token
        counted), rounds, prompts.

    Raises
    ------
    ValueError
        For a name that is not shipped, or a drafter that was counted, not trained by steps.

    Examples
    --------
    >>> int(learning_log("eagle")["step"].min())
    0
    """
    rows = []
    for name in names or drafter_names():
        log = drafter_card(name).get("log")
        if log is None:
            if names:
                raise ValueError(f"{name} was counted, not trained by steps: it has no curve.")
            continue
        rows += [{"drafter": name, **row} for row in log]
    return pd.DataFrame(rows)
