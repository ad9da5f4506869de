"""`quire bench`: measuring. Every command prints a table; --json and --plot write the same figures to files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.cli.figure_options import ALL_POLICIES, Json, Plot, Policies, policy_names
from quire.cli.options import engine_options, integer_range, integers, numbers
from quire.config import EngineConfig

app = typer.Typer(
    help="Measure: latency, throughput, memory, sharing, recovery, overhead.",
    epilog="Example: quire bench throughput --model random:tiny",
    no_args_is_help=True,
    rich_markup_mode=None,
)

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
    from quire.bench.memory.memory import run

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
    from quire.bench.memory.sharing import run

    run(engine, integers("widths", widths), num_requests, runs, json, plot)


@app.command(epilog="Example: quire bench recovery --model random:tiny --num-requests 12 --num-kv-blocks 48 --runs 1")
@engine_options()
def recovery(
    engine: EngineConfig,
    policies: Policies = ALL_POLICIES,
    mix: Annotated[
        str,
        typer.Option(
            metavar="short|long|mixed|shared", help="Lengths; of shared, half of the requests begin with one prefix."
        ),
    ] = "mixed",
    num_requests: Annotated[int, typer.Option(min=1, help="All at once.")] = 200,
    crossing_at: Annotated[
        int | None,
        typer.Option(min=1, metavar="TOKENS", help="Find the --swap-bandwidth by which the modes cross there."),
    ] = None,
    alternate_link: Annotated[
        str | None,
        typer.Option(metavar="FACTOR,SECONDS", help="Every so many seconds the link is slower by that, or not again."),
    ] = None,
    slow_link_at: Annotated[
        str | None,
        typer.Option(metavar="N[,N]", help="From this preemption on the link is ten times slower; until that one."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Costs that quire calibrate wrote; by default measured first.")
    ] = None,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Simulate the same requests from the measured costs, and compare.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the first run of cost (without it, of the first policy) for quire simulate --recording. "
            "Prompts and answers are in it.",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of measuring the costs.")] = 3,
    load_seed: Annotated[int, typer.Option(help="Of lengths and prompts.")] = 0,
    runs: Runs = 3,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Recovery policies on the same requests, in a pool that is too small: 512 blocks, no watermark, float32."""
    from quire.bench.recovery.recovery import RecoverySettings, run

    settings = RecoverySettings(
        policies=policy_names(policies),
        mix=mix,
        num_requests=num_requests,
        runs=runs,
        crossing_at=crossing_at,
        alternate_link=_alternation(alternate_link) if alternate_link is not None else None,
        slow_link_at=_slow_phase(slow_link_at) if slow_link_at is not None else None,
        profile=profile,
        forecast=forecast,
        record=record,
        repeats=repeats,
        seed=load_seed,
    )
    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes have said where outputs differ


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


@app.command(epilog="Example: quire bench http --model quire-mini --runs 5")
@engine_options(default_model="quire-mini")
def http(
    engine: EngineConfig,
    streams: Annotated[int, typer.Option(min=1, help="Streams at once.")] = 8,
    input_len: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 32,
    output_len: Annotated[int, typer.Option(min=8, help="Tokens of each answer.")] = 1024,
    queued: Annotated[int, typer.Option(min=1, help="Streams that wait behind them.")] = 200,
    body_size: Annotated[str, typer.Option(metavar="SIZE", help="Of the bodies that are sent beside them.")] = "50MB",
    engine_process: Annotated[
        bool, typer.Option("--engine-process", help="Measure servers whose engine has a process of its own.")
    ] = False,
    runs: Runs = 5,
    json: Json = None,
) -> None:
    """What HTTP and streaming cost over the offline engine, also with a long queue and under large bodies."""
    from quire.bench.serving.http_cost import Shape, run
    from quire.config import parse_size

    shape = Shape(streams, input_len, output_len, queued, parse_size(body_size), runs, engine_process)
    run(engine, shape, json)


@app.command(epilog="Example: quire bench serve --url http://127.0.0.1:8000 --sweep 1,2,4 --goodput ttft:500,tpot:100")
def serve(
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]URL", help="A server (default: http://127.0.0.1:8000); several are compared."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The server's name for a model; by default its first one.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="QUIRE_API_KEY", show_envvar=True, help="The key that the servers want.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask /v1/chat/completions; by default /v1/completions.")] = False,
    request_rate: Annotated[
        float | None, typer.Option(help="Requests a second on average; inf lets all come at once.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="RATE[,RATE...]", help="Several request rates, one after another.")
    ] = None,
    burstiness: Annotated[
        float | None,
        typer.Option(help="Shape of the gamma-distributed gaps: 1 (default) is Poisson, less is burstier."),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Seconds for which requests come; 60 if nothing else bounds them.")
    ] = None,
    num_requests: Annotated[int | None, typer.Option(min=1, help="So many requests, or the first of a file.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Times and lengths from a trace CSV (Azure's form).")
    ] = None,
    time_scale: Annotated[
        float | None, typer.Option(help="The trace's times are multiplied by this: 0.5 is twice as fast.")
    ] = None,
    length_scale: Annotated[float | None, typer.Option(help="The trace's lengths are multiplied by this.")] = None,
    max_input_len: Annotated[int | None, typer.Option(min=1, help="The trace's prompts are cut to this.")] = None,
    max_output_len: Annotated[int | None, typer.Option(min=1, help="The trace's answers are cut to this.")] = None,
    workload: Annotated[Path | None, typer.Option(metavar="FILE", help="A workload file.")] = None,
    input_len: Annotated[
        str | None, typer.Option(metavar="N[-N]", help="Prompt lengths, drawn evenly (default: 64-512).")
    ] = None,
    output_len: Annotated[
        str | None, typer.Option(metavar="N[-N]", help="Answer lengths, drawn evenly (default: 32-128).")
    ] = None,
    shared_prefix: Annotated[int, typer.Option(min=0, help="So many first tokens are the same in all prompts.")] = 0,
    goodput: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="Count requests within limits in ms: ttft:500,tpot:100,e2el:5000."),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Prompts are words; by default token ids, where the vocabulary is known.")
    ] = False,
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="Of the model, where the server does not say it; for token ids.")
    ] = None,
    ignore_eos: Annotated[bool, typer.Option(help="Answers go on to their full length.")] = True,
    extra_body: Annotated[str | None, typer.Option(metavar="JSON", help="More fields of every request.")] = None,
    timeout: Annotated[float, typer.Option(help="Give a request up so many seconds after it was due.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Of arrivals, lengths and prompts.")] = 0,
    save_requests: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every request's times, a JSON object a line.")
    ] = None,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Latencies of a server under load: requests come at a rate, whether or not it keeps up (an open loop)."""
    from quire.bench.serving.figures import parse_goodput
    from quire.bench.serving.serve import ServeSettings, run_serve

    drawn: dict[str, Any] = {"input_len": input_len, "output_len": output_len}
    of_trace: dict[str, Any] = {"time_scale": time_scale, "length_scale": length_scale}
    of_trace |= {"max_input_len": max_input_len, "max_output_len": max_output_len}
    _refuse_together("--trace", trace, {"--workload": workload, "--burstiness": burstiness, **_as_options(drawn)})
    _refuse_together("--workload", workload, {**_as_options(drawn), "--shared-prefix": shared_prefix or None})
    _refuse_together("--sweep", sweep, {"--request-rate": request_rate})
    if trace is None:
        for option, value in _as_options(of_trace).items():
            if value is not None:
                raise ValueError(f"{option} is for a trace; give --trace FILE, or leave it out")
    given = {name: value for name, value in of_trace.items() if value is not None}
    given |= {name: integer_range(name, value) for name, value in drawn.items() if value is not None}
    settings = ServeSettings(
        urls=url or ["http://127.0.0.1:8000"],
        model=model,
        api_key=api_key,
        chat=chat,
        rates=numbers("sweep", sweep) if sweep is not None else [request_rate] if request_rate is not None else [],
        burstiness=1.0 if burstiness is None else burstiness,
        num_requests=num_requests,
        duration_s=duration,
        trace=trace,
        workload=workload,
        shared_prefix=shared_prefix,
        text=text,
        vocab_size=vocab_size,
        ignore_eos=ignore_eos,
        extra_body=_json_object("extra_body", extra_body) if extra_body is not None else {},
        timeout_s=timeout,
        goodput=parse_goodput(goodput) if goodput is not None else {},
        seed=seed,
        **given,
    )
    if not run_serve(settings, json, plot, save_requests):
        raise typer.Exit(1)  # the notes have said what went wrong


def _as_options(values: dict[str, Any]) -> dict[str, Any]:
    return {"--" + name.replace("_", "-"): value for name, value in values.items()}


def _refuse_together(option: str, value: Any, others: dict[str, Any]) -> None:
    for other, given in others.items():
        if value is not None and given is not None:
            raise ValueError(f"{option} and {other} both say what is asked, or when; give one of them")


def _alternation(text: str) -> tuple[float, float]:
    given = numbers("alternate_link", text)
    if len(given) != 2:
        raise ValueError(f"alternate_link={text!r}: expected a factor and seconds, such as 10,5")
    return given[0], given[1]


def _slow_phase(text: str) -> tuple[int, int | None]:
    given = integers("slow_link_at", text)
    if len(given) > 2 or given != sorted(set(given)) or given[0] < 0:
        raise ValueError(
            f"slow_link_at={text!r}: expected one number of preemptions, or two that grow, such as 100,200"
        )
    return given[0], given[1] if len(given) == 2 else None


def _json_object(name: str, text: str) -> dict[str, Any]:
    from json import loads

    try:
        value = loads(text)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f'{name}={text} is not a JSON object such as {{"top_k": 5}}')
    return value
