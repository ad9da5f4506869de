"""`quire bench`: measure this machine. Every command prints a table; --json and --plot write files.

Studies of the papers and of single mechanisms are scripts in benchmarks/, beside the source.
"""

from __future__ import annotations

import typer

from quire.bench.bench_settings import (
    ColdStartSettings,
    ExactSettings,
    LatencySettings,
    SpeculationSettings,
    ThroughputSettings,
)
from quire.bench.serving.serve_settings import ServeSettings
from quire.cli.client_options import failures_in_one_line
from quire.cli.command import App
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig

#: Options that `exact` chooses for each way.
SET_BY_EXACT = (
    "tensor_parallel_size", "num_kv_blocks", "kv_cache_memory", "max_num_seqs", "max_num_batched_tokens", "target_itl",
    "max_model_len", "enable_prefix_caching", "watermark", "pin_prefix", "recovery_policy", "swap_space", "kv_dir",
    "kv_dir_size", "kv_dir_keep_prompts", "skip_tokenizer_init", "load_overlap", "promotion_policy", "use_tqdm",
)  # fmt: skip

app = App(
    help="Measure this machine: latency, throughput, a server under load, cold starts, exactness.",
    epilog="Example: quire bench throughput --model random:tiny",
)


@app.command(epilog="Example: quire bench latency --model random:tiny --input-len 128 --output-len 32")
@options()
def latency(engine: EngineConfig, settings: LatencySettings, json: Json = None, plot: Plot = None) -> None:
    """Time to the first token and between tokens, for a fixed number of concurrent requests."""
    from quire.bench.timing import run_latency

    run_latency(engine, settings, json, plot)


@app.command(epilog="Example: quire bench throughput --model random:tiny --num-requests 8 --block-size 1,16,64")
@options(sweep=("block_size", "max_num_batched_tokens"))
def throughput(engines: list[EngineConfig], settings: ThroughputSettings, json: Json = None, plot: Plot = None) -> None:
    """Tokens per second on a workload: a file, a trace's lengths, or uniformly drawn lengths."""
    from quire.bench.timing import run_throughput

    run_throughput(engines, settings, json, plot)


@app.command(epilog="Example: quire bench coldstart --model DIR --pack PACK,PACK --storage-bandwidth 125MB,none")
@options(without=("storage_bandwidth", "load_overlap"))
def coldstart(settings: ColdStartSettings, engine: EngineConfig, json: Json = None) -> None:
    """Time from process start to the first token and to the full model, by loading mode."""
    from quire.bench.coldstart.cold_start_report import run

    with failures_in_one_line():
        run(engine, settings, json)


@app.command(epilog="Example: quire bench exact --model quire-mini --dtype bfloat16")
@options(without=SET_BY_EXACT)
def exact(engine: EngineConfig, settings: ExactSettings, json: Json = None) -> None:
    """Whether answers keep their bits in batches, chunks, cache hits, preemptions and restarts."""
    from quire.bench.exact import run

    with failures_in_one_line():
        if not run(engine, settings, json):
            raise typer.Exit(1)


@app.command(epilog="Example: quire bench speculation --model random:qwen2.5-0.5b --dtype bfloat16")
@options(without=("speculation", "enable_prefix_caching", "use_tqdm"))
def speculation(engine: EngineConfig, settings: SpeculationSettings, json: Json = None) -> None:
    """Measure what draft tokens gain for one stream, by the rate at which they are right, or on given prompts."""
    from quire.bench.speculation import run

    with failures_in_one_line():
        run(engine, settings, json)


@app.command(epilog="Example: quire bench serve --url http://127.0.0.1:8000 --sweep 1,2,4 --goodput ttft:500,tpot:100")
@options()
def serve(settings: ServeSettings, json: Json = None, plot: Plot = None) -> None:
    """Latencies of a running server under an open-loop load at given request rates."""
    from quire.bench.serving.serve import run_serve

    if not run_serve(settings, json, plot):
        raise typer.Exit(1)  # the notes have said what went wrong
