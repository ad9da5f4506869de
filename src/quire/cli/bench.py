"""`quire bench`: measuring. Every command prints a table; --json and --plot write the same figures to files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from quire.cli.options import engine_options, integer_range, integers
from quire.config import EngineConfig

app = typer.Typer(
    help="Measure: latency, throughput, memory, sharing, overhead.",
    epilog="Example: quire bench throughput --model random:tiny",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures for programs.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a picture (PNG, SVG or PDF).")]
Runs = Annotated[int, typer.Option(min=1, help="Repetitions; each shifts the token ids.")]


@app.command(epilog="Example: quire bench latency --model random:tiny --input-len 128 --output-len 32")
@engine_options()
def latency(
    engine: EngineConfig,
    input_len: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 128,
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 128,
    batch_size: Annotated[str, typer.Option(metavar="N[,N...]", help="So many requests at once.")] = "1",
    runs: Runs = 3,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Time to the first token and between tokens, for one request or a few alike."""
    from quire.bench.timing import run_latency

    run_latency(engine, input_len, output_len, integers("batch_size", batch_size), runs, json, plot)


@app.command(epilog="Example: quire bench throughput --model random:tiny --num-requests 8 --block-size 1,16,64")
@engine_options(sweep=("block_size", "max_num_batched_tokens"))
def throughput(
    engines: list[EngineConfig],
    workload: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Workload files; several in turn.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Lengths from a trace CSV (Azure's form).")] = None,
    num_requests: Annotated[int, typer.Option(min=1, help="So many requests are made, or taken of a trace.")] = 32,
    input_len: Annotated[str, typer.Option(metavar="N[-N]", help="Prompt lengths, drawn evenly.")] = "64-512",
    output_len: Annotated[str, typer.Option(metavar="N[-N]", help="Answer lengths, drawn evenly.")] = "32-128",
    shared_prefix: Annotated[int, typer.Option(min=0, help="So many first tokens are the same in all prompts.")] = 0,
    arrivals: Annotated[
        bool, typer.Option("--arrivals", help="Keep to arrival_s; by default all come at once.")
    ] = False,
    compare_prefix_caching: Annotated[
        bool, typer.Option("--compare-prefix-caching", help="Each engine with prefix caching and without.")
    ] = False,
    save_workload: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the workload that was made.")
    ] = None,
    runs: Runs = 3,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Tokens a second over a workload: a file, a trace's lengths, or lengths drawn evenly."""
    from quire.bench.timing import run_throughput
    from quire.bench.workload import make_workload, read_trace, read_workload, uniform_lengths, write_workload

    if workload and trace:
        raise ValueError("--workload and --trace both say what to run; give one of them")
    if workload:
        workloads = [read_workload(path) for path in workload]
    elif trace:
        lengths = read_trace(trace).first(num_requests)
        workloads = [make_workload(trace.stem, lengths, shared_prefix=shared_prefix)]
    else:
        ranges = integer_range("input_len", input_len), integer_range("output_len", output_len)
        workloads = [make_workload("uniform", uniform_lengths(num_requests, *ranges), shared_prefix=shared_prefix)]
    if save_workload is not None:
        write_workload(workloads[0], save_workload)
    if compare_prefix_caching:
        engines = [replace(engine, enable_prefix_caching=on) for engine in engines for on in (True, False)]
    run_throughput(engines, workloads, runs, json, plot, keep_arrivals=arrivals)


@app.command(epilog="Example: quire bench memory --trace AzureLLMInferenceTrace_conv.csv --plot waste.png")
def memory(
    trace: Annotated[Path, typer.Option(metavar="FILE", help="CSV with TIMESTAMP,ContextTokens,GeneratedTokens.")],
    max_model_len: Annotated[
        str | None,
        typer.Option(metavar="N[,N...]", help="Limits to reserve; by default 2048 and one that cuts no request."),
    ] = None,
    block_size: Annotated[str, typer.Option(metavar="N[,N...]", help="Tokens a block.")] = "1,2,4,8,16,32,64,128,256",
    num_requests: Annotated[int | None, typer.Option(min=1, help="Only the first so many.")] = None,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """The share of KV memory wasted over a trace's lengths, by how it is reserved. No model is run."""
    from quire.bench.memory import run

    limits = integers("max_model_len", max_model_len) if max_model_len is not None else []
    sizes = integers("block_size", block_size)
    run(trace, max_model_lens=limits, block_sizes=sizes, num_requests=num_requests, json_path=json, plot_path=plot)


@app.command(epilog="Example: quire bench sharing --model random:tiny --widths 2,4 --num-requests 4")
@engine_options()
def sharing(
    engine: EngineConfig,
    widths: Annotated[str, typer.Option(metavar="N[,N...]", help="Samples a request, and beam widths.")] = "2,4,6",
    num_requests: Annotated[int, typer.Option(min=1, help="Requests of each kind.")] = 16,
    runs: Runs = 3,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Blocks saved, and throughput, by sharing blocks between the samples or beams of a request."""
    from quire.bench.sharing import run

    run(engine, integers("widths", widths), num_requests, runs, json, plot)


@app.command(epilog="Example: quire bench overhead --model random:qwen2.5-0.5b")
@engine_options()
def overhead(
    engine: EngineConfig,
    num_requests: Annotated[int, typer.Option(min=1, help="Running requests, where deciding is timed.")] = 256,
    context: Annotated[int, typer.Option(min=2, help="Their tokens.")] = 2048,
    rows: Annotated[int, typer.Option(min=1, help="Sequences a step, where sampling is timed.")] = 32,
    json: Json = None,
) -> None:
    """What a step costs beside the model: scheduling, batch building, sampling."""
    from quire.bench.overhead import run

    run(engine, num_requests, context, rows, json)
