"""Public figures, as their sources state them, and the verdict that the figures themselves give.

No verdict is stored: it is computed from the row, so that a wrong figure can be put right in
one place, and anybody's table with the same columns can be audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specviz._data_files import data_file
from specviz.analysis.audits.audit import Audit, audit
from specviz.analysis.audits.ranges import Figure, Range
from specviz.analysis.audits.together import TOLERANCE, audit_together
from specviz.refuse import a_path, shown

#: What a row says in words, and what its figures are; a figure may be a range such as 18-19.
WORDS = (
    "id",
    "source",
    "reference",
    "evidence",
    "system",
    "setting",
    "group",
    "term",
    "definition",
)
FIGURES = (
    "tokens_per_round",
    "accepted_per_round",
    "draft_yield",
    "tokens_per_second",
    "baseline_tokens_per_second",
    "speedup",
    "round_ms",
    "plain_ms",
)
COLUMNS = (*WORDS, "bonus_counted", "k", *FIGURES, "survival", "requests", "note")
_BONUS = {"yes": True, "no": False, "unknown": None}


def read_claims(path: str | Path | None = None) -> pd.DataFrame:
    """Public claims about speculative decoding, one per row, as text.

    Parameters
    ----------
    path
        A CSV file with the columns `COLUMNS`; by default the one that comes with specviz.

    Returns
    -------
    DataFrame
        id, source, reference (its address or number), evidence ("read": the source was read;
        "thread", "report": what a public thread or report says; "abstract"; "second-hand"),
        system, setting, group (claims of one system that should share a cost model), term (the
        source's own), definition (the name here), bonus_counted (by the source: yes, no,
        unknown), k, the figures with the digits or the range (18-19) they were given with,
        survival (from depth 1 on, apart by spaces), requests (at once), note. Empty where the
        source does not say.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When the file is no CSV table, a column is missing, an id is empty or there twice, or a
        figure cannot be read; the sentence names the row.

    Examples
    --------
    >>> claims = read_claims().set_index("id")
    >>> claims.loc["t4-code", ["k", "tokens_per_round", "baseline_tokens_per_second"]].tolist()
    ['7', '7.4', '18-19']
    """
    file = data_file("claims.csv") if path is None else a_path("path", path)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name a CSV file of claims in it.")
    try:
        claims = pd.read_csv(file, dtype=str, keep_default_na=False)
    except ValueError as error:  # of pandas' parser, or of a decoder
        raise ValueError(
            f"{file} is no table of claims ({str(error).splitlines()[0]}): it must be a CSV file "
            f"with the columns {', '.join(COLUMNS)}."
        ) from None
    missing = [column for column in COLUMNS if column not in claims.columns]
    if missing:
        raise ValueError(f"{file} has no column {missing[0]!r}; it needs {', '.join(COLUMNS)}.")
    ids = claims["id"]
    if (ids == "").any() or ids.duplicated().any():
        bad = ids[ids.duplicated() | (ids == "")].iloc[0]
        raise ValueError(f"Every claim needs an id of its own: {bad!r} is empty or there twice.")
    claim_audits(claims)  # refuses what cannot be read
    return claims


def claim_audits(claims: pd.DataFrame | None = None) -> dict[str, Audit]:
    """The audit of every claim, by its id.

    Raises
    ------
    ValueError
        When a figure cannot be read, or a claim has none.

    Examples
    --------
    >>> claim_audits()["t4-four-times"].verdict
    'inconsistent'
    """
    claims = _table(claims)
    return {row["id"]: _audit(row) for row in claims.to_dict("records")}


def audit_claims(claims: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every claim with the verdict its own figures give.

    Returns
    -------
    DataFrame
        id, source, setting, verdict ("consistent", "inconsistent", "not enough said"),
        bonus_counted (by the source, or else as the figures must count it: "yes" or "no";
        "either" where both fit, "" where there is no count), k, tokens_per_round (bonus counted;
        middle of its range), speedup, step_ratio with step_low and step_high (seconds of a
        round / of a plain step), token_match (F2.2), checked (formulas that could have failed),
        reason, reference. NaN where the figures do not say.

    Examples
    --------
    >>> verdicts = audit_claims().set_index("id")["verdict"]
    >>> verdicts["t4-code"], verdicts["t4-prose"], verdicts["dflash-two-to-three"]
    ('inconsistent', 'consistent', 'not enough said')
    """
    claims = _table(claims)
    rows = []
    for row, found in zip(claims.to_dict("records"), claim_audits(claims).values(), strict=True):
        ratio = found.step_ratio
        rows.append(
            {
                "id": row["id"],
                "source": row["source"],
                "setting": row["setting"],
                "verdict": found.verdict,
                "bonus_counted": _bonus(found),
                "k": np.nan if found.k is None else found.k,
                "tokens_per_round": _middle(found.tokens_per_round),
                "speedup": _middle(found.speedup),
                "step_ratio": _middle(ratio),
                "step_low": np.nan if ratio is None else ratio.low,
                "step_high": np.nan if ratio is None else ratio.high,
                "token_match": _middle(found.token_match),
                "checked": ", ".join(dict.fromkeys(f.formula for f in found.findings)),
                "reason": _reason(found),
                "reference": row["reference"],
            }
        )
    return pd.DataFrame(rows)


def audit_groups(claims: pd.DataFrame | None = None, tolerance: float = TOLERANCE) -> pd.DataFrame:
    """Every group of claims about one system, held against one cost model.

    Returns
    -------
    DataFrame
        group, n_claims, consistent, one_cost_model, factor (how many times the dearest round
        costs the cheapest, at least), compared, reason.

    Raises
    ------
    ValueError
        When there is no group, or as `audit_together` (claims of a group have one k).

    Examples
    --------
    >>> bool(audit_groups().set_index("group").loc["T4 report", "one_cost_model"])
    False
    """
    claims = _table(claims)
    audits, rows = claim_audits(claims), []
    for group, ids in claims[claims["group"] != ""].groupby("group", sort=False)["id"]:
        found = audit_together({id_: audits[id_] for id_ in ids}, tolerance)
        rows.append(
            {
                "group": group,
                "n_claims": len(ids),
                "consistent": found.consistent,
                "one_cost_model": found.one_cost_model,
                "factor": found.factor,
                "compared": found.compared,
                "reason": found.reason,
            }
        )
    if not rows:
        raise ValueError(
            "No claim names a group: fill in the column `group` where claims share one."
        )
    return pd.DataFrame(rows)


# -- one row ----------------------------------------------------------------------------------


def _table(claims: object) -> pd.DataFrame:
    """The claims given, every cell text; those that come with specviz where there are none."""
    if claims is None:
        return read_claims()
    if not isinstance(claims, pd.DataFrame):
        raise ValueError(f"{shown(claims)} is no table of claims: read one with read_claims(file).")
    for name in COLUMNS:
        if name not in claims:
            raise ValueError(
                f"These claims have no column {name!r}; they need {', '.join(COLUMNS)}."
            )
        if not claims[name].map(lambda cell: isinstance(cell, str)).all():
            raise ValueError(
                f"The column {name!r} must hold text, empty where nothing is known: read the table "
                "with read_claims(file), which keeps the digits as they were written."
            )
    if claims.empty:
        raise ValueError("There is no claim in this table: give one row or more.")
    return claims


def _audit(row: Mapping[Any, Any]) -> Audit:
    try:
        if row["bonus_counted"] not in _BONUS:
            raise ValueError(f"bonus_counted is yes, no or unknown, not {row['bonus_counted']!r}.")
        said = {name: _figure(name, row[name]) for name in FIGURES}
        k, requests = _whole("k", row["k"]), _whole("requests", row["requests"])
        survival = [_number("survival", share) for share in row["survival"].split()]
        counts = sum(said[name] is not None for name in ("tokens_per_round", "accepted_per_round"))
        return audit(
            tokens_per_round=said["tokens_per_round"],
            accepted_per_round=said["accepted_per_round"],
            draft_yield=said["draft_yield"],
            survival=survival,
            k=k,
            tokens_per_second=said["tokens_per_second"],
            baseline_tokens_per_second=said["baseline_tokens_per_second"],
            speedup=said["speedup"],
            round_seconds=_in_seconds(said["round_ms"]),
            plain_seconds=_in_seconds(said["plain_ms"]),
            requests=1 if requests is None else requests,
            bonus_counted=_BONUS[row["bonus_counted"]] if counts == 1 else None,
        )
    except ValueError as error:
        raise ValueError(f"Claim {row['id']!r}: {error}") from None


def _figure(name: str, text: str) -> Figure | None:
    """A figure as written; None where there is none."""
    if not text:
        return None
    low, dash, high = text.partition("-")
    if dash and low and not low.lower().endswith("e"):  # 1e-3 is no range
        return float(_number(name, low)), float(_number(name, high))
    return _number(name, text)


def _number(name: str, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(
            f"{name} is a number such as 7.4, or a range such as 18-19, not {text!r}."
        ) from None


def _whole(name: str, text: str) -> int | None:
    if text and not text.isdecimal():
        raise ValueError(f"{name} is a whole number or empty, not {text!r}.")
    return int(text) if text else None


def _in_seconds(milliseconds: Figure | None) -> Figure | None:
    if milliseconds is None:
        return None
    if isinstance(milliseconds, Decimal):
        return milliseconds.scaleb(-3)
    assert isinstance(milliseconds, tuple)
    return milliseconds[0] / 1000, milliseconds[1] / 1000


def _bonus(found: Audit) -> str:
    if "tokens_per_round" not in found.said and "accepted_per_round" not in found.said:
        return ""
    if len(found.readings) == 1:
        return "yes" if found.readings[0].bonus_counted else "no"
    return {True: "yes", False: "no", None: "either"}[found.bonus_counted]


def _middle(value: Range | None) -> float:
    return float("nan") if value is None else value.middle


def _reason(found: Audit) -> str:
    failed = [finding.sentence for finding in found.findings if not finding.ok]
    if failed:
        return " ".join(failed)
    if found.verdict == "not enough said":
        fast = found.speedup
        needs = f"A speed-up of {fast} needs {fast} tokens per round or more. " if fast else ""
        return f"{needs}No two figures here bound each other: k or a speed would."
    said = found.findings[-1].sentence if found.findings else found.convention
    return f"{said} {found.unchecked}".strip()
