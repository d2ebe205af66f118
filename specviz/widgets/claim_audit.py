"""ClaimAudit: type in reported numbers, see whether they can be true and what they imply."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import ipywidgets
import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.audits.audit import Audit
from specviz.analysis.audits.claims import COLUMNS, audit_claims, claim_audits, read_claims
from specviz.figures.claim_check import plot_claim_check
from specviz.widgets.base import Widget
from specviz.widgets.controls import choice, label

#: Name of the field, its label, and a hint of what to type.
_FIELDS = {
    "tokens_per_round": ("tokens per round", "7.4"),
    "accepted_per_round": ("accepted tokens per round", "6.4"),
    "draft_yield": ("accepted / drafted tokens", "0.5"),
    "k": ("k, drafted tokens", "7"),
    "tokens_per_second": ("tokens per second", "154"),
    "baseline_tokens_per_second": ("without drafting, tokens/s", "18-19"),
    "speedup": ("speed-up, times", "2.0"),
    "round_ms": ("a round, ms", "48"),
    "plain_ms": ("a plain step, ms", "27"),
    "survival": ("survival by depth, shares", "0.8 0.6 0.5"),
    "requests": ("requests at once", "1"),
}
#: A field in prose, where its label would not do.
_SAID = {name: name.replace("_", " ") for name in _FIELDS} | {
    "baseline_tokens_per_second": "plain tokens per second",
    "draft_yield": "accepted over drafted tokens",
    "round_ms": "ms of a round",
    "plain_ms": "ms of a plain step",
    "bonus_counted": "bonus counted",
}
_BONUS = {"not said": "unknown", "yes": "yes", "no": "no"}
_YOURS = "your claim"


class ClaimAudit(Widget):
    """Text fields for the figures of a claim; the identities they must obey are checked at once.

    A figure may be a number or a range such as 18-19; its digits count, since 7.4 may be anything
    that rounds to it. Empty fields are not said. Start from a public claim, or from nothing.

    Parameters
    ----------
    claim
        Id of a public claim (`specviz.read_claims()`) to start from; "" starts empty.

    Raises
    ------
    ValueError
        When there is no such claim.

    Examples
    --------
    >>> ClaimAudit("t4-code").audit.verdict
    'inconsistent'
    """

    title = "Can these figures be true?"

    def __init__(self, claim: str = "t4-code") -> None:
        self.claims = read_claims()
        ids = self.claims["id"].tolist()
        if claim and claim not in ids:
            raise ValueError(f"There is no public claim {claim!r}; there are {', '.join(ids)}.")
        named = {f"{row['id']}: {row['setting']}": row["id"] for row in _rows(self.claims)}
        super().__init__(
            {
                "claim": choice("start from", {"nothing": "", **named}, claim),
                **{name: _field(*said) for name, said in _FIELDS.items()},
                "bonus_counted": choice("bonus counted", _BONUS),
            }
        )
        self._fill()

    # -- state ----------------------------------------------------------------------------

    @property
    def audit(self) -> Audit | None:
        """The audit of what the fields say; None where it cannot be made (`problem` says why)."""
        return self._read()[0]

    @property
    def problem(self) -> str:
        """Why the fields cannot be audited, in a sentence, or ""."""
        return self._read()[1]

    def react(self, name: str) -> None:
        if name == "claim":
            self._fill()

    def _fill(self) -> None:
        """Write the chosen public claim into the fields."""
        mine = self.claims[self.claims["id"] == self["claim"]]
        row = _rows(mine)[0] if len(mine) else dict.fromkeys(COLUMNS, "")
        with self.held():
            for name in _FIELDS:
                self.controls[name].value = row[name]
            self.controls["bonus_counted"].value = row["bonus_counted"] or "unknown"

    def _read(self) -> tuple[Audit | None, str]:
        fields = {name: str(self[name]).strip() for name in _FIELDS}
        if not any(fields[n] for n in _FIELDS if n not in ("k", "requests")):
            return None, "Type in at least one figure of a claim: a count, a speed or a time."
        row = {**dict.fromkeys(COLUMNS, ""), **fields, "id": _YOURS}
        row["bonus_counted"] = self["bonus_counted"]
        try:
            return claim_audits(pd.DataFrame([row]))[_YOURS], ""
        except ValueError as error:
            return None, _in_words(str(error).removeprefix(f"Claim {_YOURS!r}: "))

    # -- what is shown --------------------------------------------------------------------

    @cached_property
    def public(self) -> pd.DataFrame:
        """The public claims with their verdicts."""
        return audit_claims(self.claims)

    def draw(self) -> go.Figure:
        found = self.audit
        if found is None:
            return plot_claim_check(self.public)
        tokens, speed = found.tokens_per_round, found.speedup
        return plot_claim_check(
            self.public,
            found.verdict,
            None if tokens is None else tokens.middle,
            None if speed is None else speed.middle,
        )

    def words(self) -> list[str]:
        found, problem = self._read()
        if found is None:
            return [problem]
        failed = [_in_words(finding.sentence) for finding in found.findings if not finding.ok]
        verdict = found.verdict.capitalize()
        said = [f"{verdict}: {failed[0]}" if failed else f"{verdict}."]
        return [
            *said,
            *failed[1:],
            "No measurement is made: stated figures are held against each other, with all that "
            "rounds to them. They give no n, so there is no interval.",
        ]

    def extra(self) -> str:
        found = self.audit
        if found is None:
            return ""
        return (
            "<details><summary>every check, and what follows</summary>"
            f"{_in_words(found._repr_html_())}</details>"
        )

    def parts(self) -> list[ipywidgets.Widget]:
        controls = dict(self.controls)
        first, last = controls.pop("claim"), controls.pop("bonus_counted")
        grid = ipywidgets.GridBox(
            [*controls.values(), last],
            layout=ipywidgets.Layout(
                width="100%", grid_template_columns="repeat(auto-fill, minmax(300px, 1fr))"
            ),
        )
        return [first, grid, self.alert, self.plot, self.text]


def _field(text: str, hint: str) -> ipywidgets.Text:
    """A line of text that speaks when it is left or Enter is pressed."""
    return ipywidgets.Text(
        value="",
        placeholder=f"such as {hint}",
        description=label(text),
        continuous_update=False,
        style={"description_width": "180px"},
        layout=ipywidgets.Layout(width="290px"),
    )


def _in_words(text: str) -> str:
    """Text with the names of fields as words."""
    names = "|".join(name for name in _SAID if "_" in name)
    return re.sub(rf"\b({names})\b", lambda found: _SAID[found[1]], text)


def _rows(claims: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in claims.to_dict("records")]
