"""The command line: fetch, capture, report, demo."""

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
_Drafters = Annotated[list[str], typer.Option("--drafter", help="Drafter; repeatable.")]


@app.command()
def fetch() -> None:
    """Fetch the embedded target (93 MB) and convert it, once."""
    from specviz.embedded import embedded_target_dir

    typer.echo(embedded_target_dir())


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
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "cpu",
    resume: Annotated[bool, typer.Option(help="Continue what OUT already holds.")] = True,
) -> None:
    """Decode prompts and record target and drafters at every position."""
    import specviz as sv

    chosen = sv.prompts(prompts, content_type=content_type, limit=limit)  # cheap, so first
    model = sv.load_target(target, device=device)
    drafters = [sv.load_drafter(name, model) for name in drafter]
    trace = sv.capture(
        chosen,
        model,
        drafters,
        k=k,
        max_new_tokens=tokens,
        out=out,
        resume=resume,
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

    target = sv.load_target("smollm2-135m")
    drafters = [sv.load_drafter(name, target) for name in ("ngram", "self-quant")]
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


def main() -> Any:
    """Run the command line; a refusal is one sentence, not a traceback."""
    try:
        return app()
    except (ValueError, OSError, ImportError, FetchError) as error:
        typer.echo(f"specviz: {error}", err=True)
        raise SystemExit(1) from None
