"""`report()`: one offline HTML page that says what a trace shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd

from specviz import figures
from specviz.analysis import (
    Replay,
    entropy_by,
    length_by_k,
    optimal_k,
    replay,
    survival_by,
)
from specviz.cost import CostModel
from specviz.markup import counted, escape, number, page_html, table_html
from specviz.policies import FixedK
from specviz.presets import free_drafts, t4_like
from specviz.reporting.findings import (
    best_k_cell,
    best_k_sentence,
    contrast,
    entropy_sentences,
    length_sentence,
    live_rounds,
    live_sentence,
    positions_by_type,
    shown_types,
)
from specviz.reporting.page import Page, write_whole
from specviz.reporting.provenance import (
    about,
    cost_models,
    decoding,
    distinct,
    provenance,
    whose,
)
from specviz.reporting.science import add_sampled_lengths, add_science
from specviz.reporting.strips import strips
from specviz.trace.trace import Trace, need_trace

#: The draft length that the headline and the strips speak of.
HEADLINE_K = 7
#: More content types than this would make the pictures and the headline unreadable.
MOST_TYPES = 12
_SURVIVAL = ["content_type", "depth", "at_risk", "rejected", "hazard_accept", "survival", "low"]
_SURVIVAL += ["high", "n_rounds", "n_prompts"]


def report(
    trace: Trace,
    path: str | Path,
    costs: CostModel | Sequence[CostModel] | None = None,
    drafter: str | None = None,
) -> Path:
    """Write what a trace shows as one self-contained HTML page.

    The page loads nothing: plotly is inlined once, and a content security policy forbids
    every request. Speed-ups are shown under each cost model kept in the trace, each one given
    here, the T4-like preset and free drafts.

    Parameters
    ----------
    trace
        A capture gives everything. A live run or an imported log gives what can be said of it;
        the page names what is missing.
    path
        File to write; its folder is created, and the file appears whole or not at all.
    costs
        Further cost models, such as `measure_cost` returns.
    drafter
        Show this drafter only.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    ValueError
        When `path` is a folder or no path, `costs` holds something else than cost models, or
        the trace has no such drafter.

    Examples
    --------
    >>> import specviz as sv                                     # doctest: +SKIP
    >>> sv.report(sv.load_trace("out/demo"), "out/report.html")  # doctest: +SKIP
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"path must name the file to write, such as report.html, not {path!r}.")
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"{target} is a folder: give the name of a file, such as report.html.")
    if drafter is not None:
        trace = need_trace(trace).select(drafter=drafter)
    write_whole(target, _Report(need_trace(trace), cost_models(costs)).html())
    return target


class _Report:
    """The page in the making: headline sentences and sections, in the order they are found."""

    def __init__(self, trace: Trace, costs: Sequence[CostModel]) -> None:
        self.trace = trace
        kept = [CostModel.from_dict(raw) for raw in trace.meta.cost_models]
        self.costs = distinct([*kept, *costs, t4_like(), free_drafts()])
        self.headline: list[str] = []
        self.page = Page()
        self.advice: list[dict[str, str]] = []
        self.pair: tuple[str, str] | None = None
        self.shown = shown_types(trace, None, MOST_TYPES)
        self.replays: dict[str, Replay] = {}
        self.lengths: dict[str, float] = {}  # tokens per round of every drafter

    def html(self) -> str:
        trace = self.trace
        self._entropy()
        drawn = trace.meta.kind == "capture" and not trace.meta.greedy
        section = self._sampled if drawn else self._lengths
        worked = [name for name in trace.drafters if self._tried(section, name)]
        replayed = [] if drawn else worked
        self._comparison(replayed)
        examples = strips(trace, [(self.replays[n], self._k(n)) for n in replayed], self.shown)
        if trace.rounds.empty and not worked:
            self.page.missing(
                "No drafts were recorded, so nothing can be said about accepted tokens or the "
                "best k: capture the same prompts with a drafter."
            )
        if not trace.rounds.empty:
            self._live()
        if worked:
            name = max(worked, key=self.lengths.__getitem__)
            add_science(self.page, trace, name, self._k(name), self.pair or self.shown[:1])
        self._costs()
        name = trace.meta.target.get("name", "unknown target")
        title = f"Speculative decoding on {name}"
        sentences = self.headline or ["This trace holds nothing that could be measured."]
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        body = [
            f'<header><h1>{escape(title)}</h1><p class="lede">{escape(self._lede())}</p></header>',
            f'<ul class="headline">{items}</ul><p class="note">Brackets hold 95 % intervals from '
            f"resampling whole prompts.{escape(self._left_out())}</p>",
            self._advice(),
            examples,
            *self.page.parts,
            f"<footer><h2>Where this comes from</h2>{provenance(trace)}</footer>",
        ]
        return page_html(title, "\n".join(body), self.page.head)

    # -- sections -------------------------------------------------------------------------

    def _entropy(self) -> None:
        trace = self.trace
        if trace.positions.empty:
            self.page.missing(
                f"This {trace.meta.kind} trace has no positions, so the target's entropy is not "
                "known here: capture the same prompts with specviz."
            )
            return
        table = entropy_by(trace)
        self.pair = contrast(table)
        self.shown = shown_types(trace, self.pair, MOST_TYPES)
        self.headline += entropy_sentences(trace, table)
        self.page.heading("How widely the text branches")
        self.page.plot(
            figures.plot_entropy_by_type(self._room(positions_by_type(trace)), self._room(table)),
            "Entropy H is −Σ p ln p of the target's raw next-token distribution (temperature 1) "
            "at every output position; EBF is exp(H). Boxes hold half of the positions, whiskers "
            "90 %; diamonds are means with 95 % intervals from resampling prompts.",
            _rounded(table),
        )
        fresh = entropy_by(trace, repeated=False) if trace.positions["repeated"].any() else None
        if fresh is not None and not fresh.empty:
            self.page.details(
                "Without repeated text",
                table_html(
                    _rounded(fresh),
                    caption="The same, over positions that do not end a 12-token sequence the "
                    "output already contains.",
                ),
            )

    def _lengths(self, drafter: str) -> None:
        """One drafter's section; raises a sentence where the trace cannot be replayed."""
        trace = self.trace
        k = self._k(drafter)
        rounds = self.replays[drafter] = replay(trace, FixedK(k), drafter)
        self.lengths[drafter] = rounds.tokens_per_round
        survival = survival_by(rounds.rounds)
        table = length_by_k(trace, drafter)
        self.headline.append(length_sentence(trace, rounds, k, self.pair, self.shown))
        drafts = trace.meta.drafters[drafter]
        self.page.heading(f"Drafter {drafter}")
        self.page.note(about(drafts))
        self.page.plot(
            figures.plot_length_by_k(self._room(table), drafter=drafter),
            "Tokens emitted per round, the bonus token counted, replayed exactly for every fixed "
            "k from one greedy capture. Intervals (95 %) resample prompts: bands, or tooltips "
            "where the picture is full. It stops at the drafter's K = "
            f"{drafts.get('k', trace.meta.k)}.",
            table,
        )
        self.page.plot(
            figures.plot_survival(self._room(survival), k=k, drafter=drafter),
            "Survival is P(accepted ≥ j); the panel beside it is P(token j accepted, given that "
            "the ones before it were). Rounds that ran out of draft or text are censored there, "
            "not rejected (Kaplan-Meier). It may rise with depth: only drafts in easy text get "
            "that far. Hollow marks rest on fewer than 20 rounds.",
            survival[_SURVIVAL],
        )
        both = rounds.by("content_type").assign(text="all rounds")
        fresh = rounds.by("content_type", repeated=False).assign(text="without repeated text")
        columns = ["content_type", "text", "tokens_per_round", "low", "high", "n_rounds"]
        self.page.details(
            f"With and without repeated text, k = {k}",
            table_html(
                pd.concat([both, fresh])[[*columns, "n_prompts"]].sort_values(
                    ["content_type", "text"]
                ),
                caption="Tokens per round, bonus counted. A round is left out when the token "
                "after its anchor ends a 12-token sequence that the output already contains.",
            ),
        )
        self._speedups(drafter)

    def _sampled(self, drafter: str) -> None:
        """One drafter's section of a sampled capture."""
        self.lengths[drafter] = add_sampled_lengths(
            self.page, self.trace, drafter, self._k(drafter)
        )

    def _speedups(self, drafter: str) -> None:
        found, skipped = [], []
        for cost in self.costs:
            try:
                found.append((cost, optimal_k(self.trace, cost, drafter=drafter)))
            except ValueError as error:
                skipped.append(str(error))
        for note in skipped:
            self.page.missing(note)
        if not found:
            return
        sources = {cost.name: whose(cost, drafter, self.trace) for cost, _ in found}
        best = pd.concat([result.table for _, result in found], ignore_index=True)
        curves = pd.concat([result.curve for _, result in found], ignore_index=True)
        first = next(iter(found))[1].table
        named = _named(first["cost"].iloc[0], sources)
        self.headline.append(best_k_sentence(self._room(first), drafter, named))
        for _, result in found:
            name = str(result.table["cost"].iloc[0])
            cells = {row["content_type"]: best_k_cell(row) for row in _records(result.table)}
            self.advice.append({"drafter": drafter, "cost": _named(name, sources), **cells})
        self.page.plot(
            figures.plot_speedup_by_k(
                self._room(curves), self._room(best), provenance=sources, drafter=drafter
            ),
            "Modelled speed-up: seconds of plain decoding over seconds of the replayed rounds, "
            "for the same tokens. Above the dashed line drafting pays. Stars mark the best k "
            "whose 95 % interval (resampling prompts) lies above 1; k = 0 means do not draft. "
            "The intervals cover the choice of prompts, not the noise of the timings. "
            "Whose cost: " + "; ".join(_named(n, sources) for n in sources) + ".",
            best[[c for c in best.columns if c not in ("drafter", "second_k", "second_speedup")]],
        )
        sentences = [s for _, result in found for s in result.sentences.values()]
        items = "".join(f"<li>{escape(s)}</li>" for s in sentences)
        self.page.details("What to do, content type by content type", f"<ul>{items}</ul>")
        tables = [
            table_html(
                result.curve.pivot(index="k", columns="content_type", values="speedup")
                .reset_index()
                .assign(k=lambda frame: frame["k"].astype(int)),
                caption=f"Modelled speed-up over plain decoding, {_named(cost.name, sources)}.",
            )
            for cost, result in found
        ]
        self.page.details("Speed-up at every k", "".join(tables))

    def _advice(self) -> str:
        if not self.advice:
            return ""
        return "<h2>How many tokens to draft</h2>" + table_html(
            self.advice,
            caption="Best fixed k by drafter, cost and content type, with its modelled speed-up "
            "over plain decoding. Do not draft: no k has a 95 % interval wholly above 1.",
        )

    def _comparison(self, drafters: Sequence[str]) -> None:
        if len(drafters) < 2:
            return
        rows = []
        for name in drafters:
            table = self.replays[name].by("content_type")
            for row in _records(table):
                low, high = number(row["low"]), number(row["high"])
                span = f"{number(row['tokens_per_round'])} ({low}–{high})"
                rows.append(
                    {"drafter": name, "k": self._k(name), "type": row["content_type"], "v": span}
                )
        wide = pd.DataFrame(rows).pivot(index=["drafter", "k"], columns="type", values="v")
        self.page.heading("Drafters side by side")
        self.page.html(
            table_html(
                wide.reset_index(),
                caption="Tokens per round, bonus counted, with 95 % intervals from resampling "
                "prompts.",
            )
        )

    def _live(self) -> None:
        """Rounds as they were run: what a live trace knows by itself."""
        table = live_rounds(self.trace)
        self.headline += [live_sentence(row) for row in _records(self._room(table))]
        self.page.heading("Rounds as they were run")
        self.page.html(
            table_html(
                table,
                caption="Tokens per round count the bonus token; draft yield is accepted / "
                "drafted. Intervals (95 %) resample prompts.",
            )
        )

    def _costs(self) -> None:
        if not self.advice:
            return
        self.page.heading("Whose cost")
        if not self.trace.meta.cost_models and len(self.costs) == 2:
            self.page.missing(
                "No cost was measured with this trace, so speed-ups use presets only: pass "
                "costs=measure_cost(target, drafter)."
            )
        for cost in self.costs:
            named = _named(cost.name, {cost.name: cost.provenance})
            self.page.details(named, cost._repr_html_())

    # -- small things ---------------------------------------------------------------------

    def _tried(self, section: Callable[[str], None], drafter: str) -> bool:
        """Run a section; where the trace cannot support it, print the sentence instead."""
        before = len(self.page.parts), len(self.headline)
        try:
            section(drafter)
        except ValueError as error:
            del self.page.parts[before[0] :], self.headline[before[1] :]
            self.page.heading(f"Drafter {drafter}")
            self.page.missing(str(error))
            return False
        return True

    def _room(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of content types that the pictures and the headline have room for."""
        return frame[frame["content_type"].isin(self.shown)]

    def _left_out(self) -> str:
        every = self.trace.sequences["content_type"].nunique()
        if every == len(self.shown):
            return ""
        first = f"{' and '.join(self.pair)}, then " if self.pair else ""
        return (
            f" Pictures, strips and these sentences show {len(self.shown)} of {every:,} content "
            f"types ({first}those with the most prompts); the other {every - len(self.shown):,} "
            "are in the tables."
        )

    def _k(self, drafter: str) -> int:
        return min(HEADLINE_K, int(self.trace.meta.drafters[drafter].get("k", self.trace.meta.k)))

    def _lede(self) -> str:
        meta = self.trace.meta
        tokens = len(self.trace.positions)
        parts = [
            str(meta.target.get("caption") or meta.target.get("name", "unknown target")),
            counted(self.trace.sequences["prompt_id"].nunique(), "prompt")
            + (f", {counted(tokens, 'output token')}" if tokens else ""),
            decoding(self.trace),
            "drafters: " + (", ".join(self.trace.drafters) or "none"),
        ]
        lossy = ["LOSSY acceptance: the output is not the target's own"] if meta.lossy else []
        partial = [] if meta.complete else ["this capture is not complete"]
        return " · ".join([*parts, *lossy, *partial])


def _named(cost: str, sources: Mapping[str, str]) -> str:
    return cost if sources[cost] == cost else f"{cost} ({sources[cost]})"


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", frame.to_dict("records"))


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    return table.rename(columns=lambda c: str(c).replace("ebf", "EBF"))
