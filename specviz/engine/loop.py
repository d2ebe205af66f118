"""The speculative loop, short enough to read aloud."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import torch

from specviz.engine.acceptance import Greedy, check_acceptance
from specviz.engine.certificate import Certificate, certify
from specviz.engine.inputs import Prompt, check_prompt
from specviz.engine.observe import RowStats, concatenate, row_stats, sampled_logp, token_stats
from specviz.engine.protocols import (
    Acceptance,
    Draft,
    Drafter,
    Rows,
    Target,
    Verdict,
    check_drafter,
)
from specviz.engine.record import run_trace
from specviz.engine.rounds import Past, Round
from specviz.engine.tree import shallow
from specviz.markup import escape
from specviz.policies import DraftView, FixedK, PastRound, Plan, Policy
from specviz.refuse import whole
from specviz.trace.trace import Trace


class RunClosed(RuntimeError):
    """The target went on to another sequence; this run can be read but not continued."""


class Run:
    """A generation in progress: iterate over it for its rounds, or `finish()` it.

    Made by `specviz.generate`. `token_ids`, `text` and `rounds` may be read at any time;
    `trace` holds the visited anchors.
    """

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter],
        prompt: Prompt,
        policy: Policy,
        acceptance: Acceptance,
        max_new_tokens: int,
        seed: int,
        instrument: bool,
    ) -> None:
        self.target, self.drafters = target, dict(drafters)
        self.policy, self.acceptance = policy, acceptance
        self.max_new_tokens, self.seed, self.instrument = max_new_tokens, seed, instrument
        self.prompt_ids = target.codec.encode(prompt)
        self.prompt_text = target.codec.render(prompt)
        self.token_ids: list[int] = []
        self.position_stats: list[RowStats] = []  # of every output token, in order
        self.position_tokens: list[tuple[float, float, int]] = []  # ln p, as sampled, rank
        self.log: list[Round] = []
        self._past = Past()
        self._certificate: Certificate | None = None
        self._committing = False  # an interrupt in between would leave target and run apart
        self._rng = torch.Generator().manual_seed(seed)  # the acceptance rule's, and no one else's
        taps = sorted({tap for drafter in drafters.values() for tap in drafter.taps})
        for drafter in self.drafters.values():
            drafter.attach(target)
        rows = target.prefill(self.prompt_ids, taps)
        self._session = target.session
        for drafter in self.drafters.values():
            drafter.start(self.prompt_ids, rows)
        first = acceptance(Draft(self.prompt_ids[-1]), rows, self._rng).token
        self._dice = self._rng.get_state()  # as the last committed round left it
        self._keep(rows, (first,), row_stats(rows.logits) if instrument else None, [0])

    @property
    def finished(self) -> bool:
        return self.finish_reason != "stopped"

    @property
    def finish_reason(self) -> str:
        """eos, limit, or "stopped" while more could come."""
        if self.token_ids[-1] in self.target.eos_ids:
            return "eos"
        return "limit" if len(self.token_ids) >= self.max_new_tokens else "stopped"

    @property
    def text(self) -> str:
        return self.target.codec.decode(self.token_ids)

    def __iter__(self) -> Iterator[Round]:
        return self

    def __next__(self) -> Round:
        if self.finished:
            raise StopIteration
        if self.target.session != self._session:
            raise RunClosed(
                f"{self.target.name} has started another run since: this one ends after "
                f"{len(self.token_ids)} tokens. Read it, or generate again."
            )
        if self._committing:
            raise RunClosed(
                "This run was interrupted while a round was being committed: its output so far "
                "can be read; generate again to go on."
            )
        self.log.append(self._round())
        return self.log[-1]

    def finish(self) -> Run:
        """Run to the end of text or the limit; returns the run."""
        for _ in self:
            pass
        return self

    def _round(self) -> Round:
        self.target.synchronize()  # the prompt's work, before the first round, is not a round's
        began = time.perf_counter()
        anchor = len(self.token_ids) - 1
        plan = self.policy.plan(self._past.history(anchor))
        drafter = self._drafter(plan)
        # The last token comes from the target whatever is drafted: never draft past it.
        k = min(plan.k, self.max_new_tokens - 2 - anchor)
        context = [*self.prompt_ids, *self.token_ids]

        ready = time.perf_counter()
        plan = dataclasses.replace(plan, k=k, drafter=drafter.name)
        draft = drafter.propose(context, plan, self._more, self.acceptance.pick(self.seed, anchor))
        if plan.tree is not None:  # it was grown as at any other place
            draft = shallow(draft, k)
        self.target.synchronize()
        drafted = time.perf_counter()
        rows = self.target.verify(draft)
        self.target.synchronize()
        verified = time.perf_counter()

        self._rng.set_state(self._dice)  # an interrupted round is repeated with the same draws
        verdict = self.acceptance(draft, rows, self._rng)
        path, tokens = _emitted(draft, verdict, self.target.eos_ids)
        stats = row_stats(rows.logits) if self.instrument else None
        self._committing = True
        self.target.commit(path)
        for each in self.drafters.values():
            each.observe(rows, path)
        self._keep(rows, tokens, stats, [0, *(node + 1 for node in path)])
        self.target.synchronize()  # what commit and observe queued is not the next draft's
        done = time.perf_counter()
        self._past.rounds.append(
            PastRound(anchor, drafter.name, draft.depth, len(path), done - began)
        )
        self._dice = self._rng.get_state()
        self._committing = False
        return Round(
            number=len(self.log),
            anchor=anchor,
            policy=self.policy.name,
            drafter=drafter.name,
            draft=draft,
            path=path,
            tokens=tokens,
            stats=stats,
            stop=self._stop(len(path) == draft.depth),
            draft_seconds=drafted - ready,
            verify_seconds=verified - drafted,
            other_seconds=time.perf_counter() - verified + ready - began,
            text=self.target.codec.decode(tokens),
        )

    def _more(self, view: DraftView) -> bool:
        # Rounded as the trace stores them, so that a policy sees the same live and in replay.
        logq, entropy, confidence = (
            np.asarray(column, np.float16).tolist()
            for column in (view.logq, view.entropy, view.confidence)
        )
        return self.policy.more(DraftView(view.plan, logq, entropy, confidence))

    def _drafter(self, plan: Plan) -> Drafter:
        if plan.drafter is None and len(self.drafters) > 1:
            raise ValueError(f"Say which drafter the policy uses: {', '.join(self.drafters)}.")
        name = plan.drafter or next(iter(self.drafters))
        if name not in self.drafters:
            raise ValueError(
                f"The policy asked for drafter {name!r}; this run has {', '.join(self.drafters)}."
            )
        if plan.tree is not None and not self.target.supports_trees:
            raise ValueError(
                f"{self.target.name} verifies chains only, and the policy asked for a "
                f"{plan.tree.builder} tree: use a policy of chains, such as FixedK."
            )
        if plan.k > self.drafters[name].max_k:
            raise ValueError(
                f"The policy asked {name} for {plan.k} tokens; it drafts at most "
                f"{self.drafters[name].max_k}."
            )
        return self.drafters[name]

    def _keep(
        self, rows: Rows, tokens: tuple[int, ...], stats: RowStats | None, used: list[int]
    ) -> None:
        """Append emitted tokens with the distribution each came from."""
        self.token_ids.extend(tokens)
        self._past.tokens.extend(tokens)
        if stats is None:
            return
        logits = rows.logits[used]
        emitted = torch.tensor(tokens, device=logits.device)
        logp, rank = token_stats(logits, emitted)
        sampled = sampled_logp(logits, emitted, self.acceptance.sampling)
        self.position_stats.append(stats.take(used))
        self.position_tokens.extend(
            zip(logp.tolist(), sampled.tolist(), rank.tolist(), strict=True)
        )
        self._past.see(self.position_stats[-1])

    def _stop(self, full: bool) -> str:
        if self.finished:
            return self.finish_reason
        return "full" if full else "reject"

    @property
    def rounds(self) -> pd.DataFrame:
        """The finished rounds, with the columns of the trace's `rounds` table."""
        return self.trace.rounds

    @property
    def trace(self) -> Trace:
        """What has been generated so far, as a trace of visited anchors."""
        return run_trace(self, self._certificate.to_dict() if self._certificate else None)

    @property
    def certificate(self) -> Certificate:
        """Compare the finished output with plain decoding; see `specviz.engine.certificate`.

        Decodes once more when first asked; from then on it is part of `trace`, too.
        """
        if self._certificate is None:
            self._certificate = certify(self)
        return self._certificate

    def all_stats(self) -> RowStats:
        """Statistics of every output position."""
        if not self.position_stats:
            raise ValueError("This run was not instrumented: generate(..., instrument=True).")
        return concatenate(self.position_stats)

    def __repr__(self) -> str:
        said = [f"{len(self.token_ids)} tokens", f"{len(self.log)} rounds"]
        if self.log:
            mean = (len(self.token_ids) - 1) / len(self.log)
            said.append(f"{mean:.2f} tokens per round (bonus counted)")
        models = f"{self.target.name} with {', '.join(self.drafters)}, {self.policy.name}"
        if self.acceptance.name != "greedy":
            models += f", {self.acceptance.name}{'' if self.acceptance.lossless else ' (lossy)'}"
        return f"Run({models}): {', '.join([*said, self.finish_reason])}"

    def _repr_html_(self) -> str:
        return (
            f"<div class='specviz-run'><p>{escape(repr(self))}</p>"
            f"<pre style='white-space:pre-wrap'>{escape(self.text)}</pre></div>"
        )


def _emitted(
    draft: Draft, verdict: Verdict, eos_ids: frozenset[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Accepted path and emitted tokens, cut at an end of text.

    The last emitted token is always the target's own, so a drafted end of text ends the path
    before it and is emitted as the target's.
    """
    for depth, node in enumerate(verdict.path):
        if draft.tokens[node] in eos_ids:
            kept = verdict.path[:depth]
            return kept, (*(draft.tokens[n] for n in kept), draft.tokens[node])
    return verdict.path, (*(draft.tokens[n] for n in verdict.path), verdict.token)


def generate(
    target: Target,
    drafter: Drafter | Mapping[str, Drafter],
    prompt: Prompt,
    *,
    policy: Policy = FixedK(7),  # noqa: B008 - frozen, and the default is worth showing
    acceptance: Acceptance = Greedy(),  # noqa: B008
    max_new_tokens: int = 96,
    seed: int = 0,
    instrument: bool = True,
) -> Run:
    """Start speculative generation; iterate over the result for its rounds.

    Parameters
    ----------
    target, drafter
        From `load_target` and `load_drafter`; several drafters as a mapping by name.
    prompt
        Chat messages ({"role", "content"}: the chat template is applied), text (used as it
        is), or token ids.
    policy
        How many tokens to draft in each round; `FixedK(7)` by default.
    acceptance
        Which drafted tokens are kept, and how tokens are sampled; `Greedy()` by default.
    max_new_tokens
        Output tokens at most, the first one (from prefill) included.
    seed
        For sampling; recorded in the trace.
    instrument
        Record the target's distribution at every verified row. Without it a run has tokens
        and times only, and policies see no entropies.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        When the prompt is empty, a token is outside the vocabulary, the drafter does not fit
        the target, or the policy asks for more than the drafter can draft, or for a tree where
        drafter, target or acceptance rule take chains only.

    Examples
    --------
    >>> from specviz.drafters.markov import MarkovDrafter
    >>> from specviz.targets.toy import MarkovModel, ToyTarget
    >>> chain = MarkovModel.random(8, seed=1)
    >>> run = generate(ToyTarget(chain), MarkovDrafter(chain), "abc", max_new_tokens=17)
    >>> run.finish().rounds.emitted.tolist()                     # a perfect drafter, k = 7
    [8, 8]
    """
    check_prompt(prompt)
    if not isinstance(drafter, Mapping):
        check_drafter(drafter)
        drafter = {drafter.name: drafter}
    drafters = dict(drafter)
    if not drafters:
        raise ValueError("Give at least one drafter.")
    for name, each in drafters.items():
        check_drafter(each)
        if name != each.name:
            raise ValueError(f"The drafter called {name!r} names itself {each.name!r}: use that.")
    if not isinstance(policy, Policy):
        raise ValueError(f"A policy has name, replayable, plan and more; {policy!r:.60} has not.")
    check_acceptance(acceptance)
    max_new_tokens = whole("max_new_tokens", max_new_tokens, least=1)
    seed = whole("seed", seed, least=0)
    return Run(target, drafters, prompt, policy, acceptance, max_new_tokens, seed, instrument)
