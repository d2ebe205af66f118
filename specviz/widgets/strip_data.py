"""What the strip shows of one sequence: texts and numbers that never change, and their paint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from specviz.strip import STRIP_EDGES
from specviz.trace import Trace, need_trace
from specviz.widgets.controls import label, visible

#: Upper edges of the colour steps for EBF = exp(entropy); the last step is open.
EBF_EDGES = (1.25, 2.0, 4.0, 8.0, 16.0)
#: What tokens may be coloured by.
COLOURS = {
    "entropy of the target": "entropy",
    "EBF, how many ways it branches": "ebf",
    "accepted, rejected, bonus": "role",
}
#: A token's part in its round, in the order of `StripView`'s classes.
ROLE_NAMES = (
    "prefill: emitted before the first round",
    "accepted: the drafter's token, kept",
    "bonus: the target's own token after a fully accepted draft",
    "rejected: the target's own token in place of a wrong draft",
    "own: nothing was drafted for this place, or the output ended here",
)
_CLASSES = ("", "accepted", "bonus", "own", "bare")
ACCEPTED, BONUS, REJECTED, OWN = 1, 2, 3, 4


class Strips:
    """Reads a trace sequence by sequence.

    Raises
    ------
    ValueError
        When the trace has no positions.
    """

    def __init__(self, trace: Trace) -> None:
        need_trace(trace).require("positions")
        self.trace = trace
        self._drafts: dict[tuple[int, str], dict[str, np.ndarray[Any, Any]]] = {}
        self._tokens: dict[int, dict[str, Any]] = {}

    @cached_property
    def _by_seq(self) -> dict[int, pd.DataFrame]:
        groups = self.trace.positions.groupby("seq", sort=False)
        return {int(str(seq)): part.sort_values("t") for seq, part in groups}

    def text_of(self, token: int) -> str:
        """A token's text where the trace holds it, else its id."""
        return self.trace.texts.get(int(token), f"‹id\u00a0{int(token)}›")

    def positions(self, seq: int) -> pd.DataFrame:
        """Positions of one sequence, in order."""
        if seq not in self._by_seq:
            raise ValueError(f"This trace has no positions of sequence {seq}.")
        return self._by_seq[seq]

    def drafts(self, seq: int, drafter: str) -> dict[str, np.ndarray[Any, Any]]:
        """`token`, `logq` and `path_logq` of one sequence, [anchors, K] each."""
        if (seq, drafter) not in self._drafts:
            mine = self.trace.column("drafts", "seq") == seq
            names = np.asarray(self.trace.table("drafts")["drafter"].to_pylist(), dtype=object)
            rows = self.trace.table("drafts").filter(mine & (names == drafter))
            rows = rows.sort_by("anchor")
            self._drafts[seq, drafter] = {
                name: rows[name]
                .combine_chunks()
                .flatten()
                .to_numpy(zero_copy_only=False)
                .reshape(len(rows), -1)
                for name in ("token", "logq", "path_logq")
            }
        return self._drafts[seq, drafter]

    def tokens(self, seq: int) -> dict[str, Any]:
        """What does not depend on the rounds: texts, entropy (nats), p, rank, alternatives."""
        if seq in self._tokens:
            return self._tokens[seq]
        rows = self.positions(seq)
        best = [
            [[visible(self.text_of(t)[:80]), _exp(p)] for t, p in zip(ids, ps, strict=True)]
            for ids, ps in zip(rows["top_ids"], rows["top_logp"], strict=True)
        ]
        self._tokens[seq] = {
            "text": [visible(text) for text in rows["text"]],
            "entropy": [_number(h) for h in rows["entropy"]],
            "p": [_exp(p) for p in rows["logp"]],
            "rank": rows["rank"].tolist(),
            "best": [[b for b in each if b[1] is not None] for each in best],
            "name": f"Generated text of {label(self.prompt_id(seq))}, {len(rows)} tokens",
        }
        return self._tokens[seq]

    def prompt_id(self, seq: int) -> str:
        names = self.trace.sequences
        return str(names.loc[names["seq"] == seq, "prompt_id"].iloc[0])

    def paint(
        self, seq: int, colour: str, rounds: pd.DataFrame | None, drafter: str | None
    ) -> dict[str, Any]:
        """Colour steps, roles and rounds of one sequence.

        Parameters
        ----------
        colour
            A value of `COLOURS`.
        rounds
            Rounds of this sequence: anchor, drafted, accepted, stop; None marks none.
        drafter
            Whose q is shown, where the trace holds drafts.
        """
        rows = self.positions(seq)
        n, entropy = len(rows), rows["entropy"].to_numpy(dtype=float)
        roles, owner, q = np.zeros(n, int), np.full(n, -1), np.full(n, np.nan)
        sentences, starts = [], []
        records: Sequence[Mapping[Any, Any]] = [] if rounds is None else rounds.to_dict("records")
        known = drafter is not None and len(self.trace.table("drafts")) > 0
        for index, record in enumerate(records):
            anchor, drafted, accepted = (int(record[c]) for c in ("anchor", "drafted", "accepted"))
            last = min(anchor + accepted + 1, n - 1)
            starts.append(anchor + 1)
            owner[anchor + 1 : last + 1] = index
            roles[anchor + 1 : last] = ACCEPTED
            roles[last] = _closing(record)
            said = f"round {index + 1} of {len(records)}: {accepted} of {drafted} drafts accepted"
            if known and anchor >= 0 and drafted:
                draft = self.drafts(seq, str(drafter))
                reach = min(last - anchor, drafted)
                q[anchor + 1 : anchor + 1 + reach] = np.exp(draft["path_logq"][anchor, :reach])
                if roles[last] == REJECTED:
                    wrong = self.text_of(draft["token"][anchor, accepted])
                    said += f"; then drafted “{marked(wrong)}”, rejected"
            sentences.append(said)
        edges = EBF_EDGES if colour == "ebf" else STRIP_EDGES
        value = np.exp(entropy) if colour == "ebf" else entropy
        steps = np.where(np.isnan(value), -1, np.searchsorted(edges, value, side="right"))
        return {
            "steps": (steps if colour != "role" else np.zeros(n, int)).tolist(),
            "roles": roles.tolist(),
            "starts": starts,
            "round_of": owner.tolist(),
            "rounds": sentences,
            "q": [_number(each) for each in q],
            "names": list(ROLE_NAMES) if records else [_no_rounds(self.trace), *ROLE_NAMES[1:]],
            "by_role": colour == "role",
            "key": _key(colour, edges, roles, bool(np.isnan(value).any())),
        }


def marked(text: str, longest: int = 30) -> str:
    """A token for a sentence: its whitespace seen, cut."""
    cut = visible(text[:longest]) + ("…" if len(text) > longest else "")
    return cut.replace("\n", "↵").replace("\t", "→").replace(" ", "␣")


def _closing(record: Mapping[Any, Any]) -> int:
    """Role of the token that ends a round: always the target's own."""
    drafted, accepted = int(record["drafted"]), int(record["accepted"])
    if record.get("stop") in ("eos", "limit") or not drafted:
        return OWN
    return BONUS if accepted == drafted else REJECTED


def _no_rounds(trace: Trace) -> str:
    if not trace.meta.greedy and trace.meta.kind == "capture":
        return "a sampled capture gives rounds in expectation only, so none is drawn"
    return "no rounds are recorded here"


def _key(
    colour: str, edges: Sequence[float], roles: np.ndarray[Any, Any], missing: bool
) -> list[list[Any]]:
    """Lines of the legend: a title, and (class, text) of its samples."""
    lines: list[list[Any]] = []
    if colour != "role":
        title = "EBF, from:" if colour == "ebf" else "entropy in nats, from:"
        low = "1" if colour == "ebf" else "0"
        shown = [low, *(f"{e:g}" for e in edges)]
        shown[-1] += "+"
        lines.append([title, [[f"h{i}", each] for i, each in enumerate(shown)]])
        if missing:
            lines.append(["", [["n", "not recorded"]]])
    if (roles > 0).any():
        short = [(i, ROLE_NAMES[i].partition(":")[0]) for i in range(1, len(ROLE_NAMES))]
        used = [[_CLASSES[i], name] for i, name in short if (roles == i).any()]
        lines.append(["token is:" if colour == "role" else "underlined:", used])
    return lines


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


def _exp(logp: float) -> float | None:
    return None if math.isnan(logp) else float(f"{math.exp(min(float(logp), 0.0)):.4g}")
