"""`quire bench`: measuring. Every command prints a table; --json and --plot write the same figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quire.bench.recovery.settings import RecoverySettings
from quire.bench.serving.settings import HttpSettings, ServeSettings
from quire.bench.settings import (
    AttentionSettings,
    ColdStartSettings,
    DocumentKvSettings,
    LatencySettings,
    LinearSettings,
    LookaheadSettings,
    MemorySettings,
    OverheadSettings,
    PeersSettings,
    ProfileSettings,
    PromotionSettings,
    QualitySettings,
    RagSettings,
    SharingSettings,
    SloSettings,
    ThroughputSettings,
)
from quire.cli.client_options import failures_in_one_line
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig

app = typer.Typer(
    help="Measure: latency, throughput, memory, sharing, recovery, documents, retrieval, routing, starts, overhead.",
    epilog="Example: quire bench throughput --model random:tiny",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog="Example: quire bench latency --model random:tiny --input-len 128 --output-len 32")
@options()
def latency(engine: EngineConfig, settings: LatencySettings, json: Json = None, plot: Plot = None) -> None:
    """Time to the first token and between tokens, for one request or a few alike."""
    from quire.bench.timing import run_latency

    run_latency(engine, settings, json, plot)


@app.command(epilog="Example: quire bench throughput --model random:tiny --num-requests 8 --block-size 1,16,64")
@options(sweep=("block_size", "max_num_batched_tokens"))
def throughput(engines: list[EngineConfig], settings: ThroughputSettings, json: Json = None, plot: Plot = None) -> None:
    """Tokens a second over a workload: a file, a trace's lengths, or lengths drawn evenly."""
    from quire.bench.timing import run_throughput

    run_throughput(engines, settings, json, plot)


@app.command(epilog="Example: quire bench memory --trace AzureLLMInferenceTrace_conv.csv --plot waste.png")
@options()
def memory(settings: MemorySettings, json: Json = None, plot: Plot = None) -> None:
    """The share of KV memory wasted over a trace's lengths, by how it is reserved. No model is run."""
    from quire.bench.memory.memory import run

    run(settings, json, plot)


@app.command(epilog="Example: quire bench sharing --model random:tiny --widths 2,4 --num-requests 4")
@options()
def sharing(engine: EngineConfig, settings: SharingSettings, json: Json = None, plot: Plot = None) -> None:
    """Blocks saved, and throughput, by sharing blocks between the samples or beams of a request."""
    from quire.bench.memory.sharing import run

    run(engine, settings, json, plot)


@app.command(epilog="Example: quire bench recovery --model random:tiny --num-requests 12 --num-kv-blocks 48 --runs 1")
@options()
def recovery(engine: EngineConfig, settings: RecoverySettings, json: Json = None, plot: Plot = None) -> None:
    """Recovery policies on the same requests, in a pool that is too small: 512 blocks, no watermark, float32."""
    from quire.bench.recovery.recovery import run

    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes have said where outputs differ


@app.command(
    name="document-kv", epilog="Example: quire bench document-kv --model random:tiny --document-tokens 512 --runs 1"
)
@options()
def document_kv(engine: EngineConfig, settings: DocumentKvSettings, json: Json = None, plot: Plot = None) -> None:
    """Time to the first token of a question about a document: computed, from the device, from disk; in float32."""
    from quire.bench.document_kv import run

    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes have said where tokens differ


@app.command(epilog="Example: quire bench rag --policy query --queries 40 --json rag.json")
@options(default_model="quire-mini", without=("model",))
def rag(engine: EngineConfig, settings: RagSettings, json: Json = None, plot: Plot = None) -> None:
    """Questions about documents, routed to two models at once, by what KV is on disk: none, an empty directory, all."""
    try:
        from quire.bench.rag.experiment import run
    except ModuleNotFoundError as error:
        raise ValueError(f"retrieval needs {error.name}, which is not installed: pip install 'quire[rag]'") from None
    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes have said where tokens differ


@app.command(
    epilog="Example: quire bench coldstart --model DIR --pack PACK --storage-bandwidth 125MB,none --plot bars.png"
)
@options(without=("storage_bandwidth", "load_overlap"))
def coldstart(settings: ColdStartSettings, engine: EngineConfig, json: Json = None, plot: Plot = None) -> None:
    """From a server's start to its first token and to the whole model: at once, overlapped, in stages."""
    from quire.bench.coldstart.coldstart import run

    with failures_in_one_line():
        run(engine, settings, json, plot)


@app.command(epilog="Example: quire bench read --file DIR/model.safetensors")
def read(
    file: Annotated[Path, typer.Option(help="A large file on the storage in question.")],
    runs: Annotated[int, typer.Option(min=1, help="Of each reader, in turns.")] = 5,
    json: Json = None,
) -> None:
    """How fast weights can be read from this storage: the loader's reads, and fio's where it is installed."""
    from quire.bench.coldstart.raw_read import run

    run(file, runs, json)


@app.command(epilog="Example: quire bench lookahead --model random:tiny --num-requests 8 --runs 1")
@options()
def lookahead(engine: EngineConfig, settings: LookaheadSettings, json: Json = None, plot: Plot = None) -> None:
    """Documents loaded for requests that wait for their turn: the same arrivals, with and without; in float32."""
    from quire.bench.lookahead import run

    if not run(engine, settings, json, plot):
        raise typer.Exit(1)


@app.command(epilog="Example: quire bench promotion --model random:tiny --layers-out 2 --num-requests 8 --runs 1")
@options()
def promotion(engine: EngineConfig, settings: PromotionSettings, json: Json = None, plot: Plot = None) -> None:
    """What running streams notice of a model's promotions from stage to stage, by each policy."""
    from quire.bench.promotion import run

    if not run(engine, settings, json, plot):
        raise typer.Exit(1)


@app.command(epilog="Example: quire bench overhead --model random:qwen2.5-0.5b")
@options()
def overhead(engine: EngineConfig, settings: OverheadSettings, json: Json = None) -> None:
    """What a step costs beside the model: scheduling, batch building, sampling."""
    from quire.bench.overhead import run

    run(engine, settings, json)


@app.command(epilog="Example: quire bench attention --model random:qwen2.5-0.5b --running 1,8,32 --context 512")
@options(without=("device", "max_num_seqs", "max_model_len", "num_kv_blocks", "kv_cache_memory"))
def attention(engine: EngineConfig, settings: AttentionSettings, json: Json = None) -> None:
    """Decode steps with the CPU kernel for attention and with torch's, in turns."""
    from quire.bench.kernels.attention import run

    run(engine, settings, json)


@app.command(
    epilog="Example: quire bench peers PEERS --model DIR --num-threads 2 --max-model-len 4096 --json peers.json"
)
@options()
def peers(
    folder: Annotated[Path, typer.Argument(help="With the peers' scripts, peers.yaml and workloads/.")],
    engine: EngineConfig,
    settings: PeersSettings,
    json: Json = None,
) -> None:
    """Other engines beside ours on the same workloads, in turns, against the marks and the machine's limits.

    A peer's command runs in the folder and is given --workload FILE... --runs 1 --threads N --label NAME; it prints a
    JSON line a workload. With --num-threads all engines take so many threads. Exits with 1 where a mark is missed.
    """
    from quire.bench.peers.peers import run

    with failures_in_one_line():
        all_kept = run(folder, engine, settings, json)
    if not all_kept:
        raise typer.Exit(1)


@app.command(epilog="Example: quire bench profile --model random:qwen2.5-0.5b --running 1,8,32 --prefill 512")
@options(without=("device", "max_num_seqs", "max_model_len", "num_kv_blocks", "kv_cache_memory"))
def profile(engine: EngineConfig, settings: ProfileSettings, json: Json = None) -> None:
    """Where a step's time goes on a CPU, part by part, each against the machine's limit."""
    from quire.bench.profile.profile import run

    run(engine, settings, json)


@app.command(epilog="Example: quire bench linear --model random:qwen2.5-0.5b --rows 1,16 --weights plain,int8")
@options(without=("quantization", "device"))
def linear(settings: LinearSettings, engine: EngineConfig, json: Json = None) -> None:
    """All linear layers of a model once, by rows and kind of weight, against the time to read their bytes."""
    from quire.bench.weights.linear import run

    run(engine, settings, json)


@app.command(epilog="Example: quire bench quality --model quire-mini --quantization int8,int4")
@options(default_model="quire-mini", without=("quantization", "device"))
def quality(settings: QualitySettings, engine: EngineConfig, json: Json = None) -> None:
    """What weights of fewer bits cost: perplexity, exact match of answers, and how near logits stay."""
    from quire.bench.weights.quality import run

    if not run(engine, settings, json):
        raise typer.Exit(1)  # the notes have said which mark is missed


@app.command(epilog="Example: quire bench slo --slo ttft:1000,tpot:50 --factor 4 --num-requests 100")
@options()
def slo(settings: SloSettings, json: Json = None, plot: Plot = None) -> None:
    """Routing over two models under a rising load, simulated: how many requests keep their SLO, and by which model."""
    from quire.bench.slo import run

    run(settings, json, plot)


@app.command(epilog="Example: quire bench http --model quire-mini --runs 5")
@options(default_model="quire-mini")
def http(engine: EngineConfig, settings: HttpSettings, json: Json = None) -> None:
    """What HTTP and streaming cost over the offline engine, also with a long queue and under large bodies."""
    from quire.bench.serving.http_cost import run

    with failures_in_one_line():
        run(engine, settings, json)


@app.command(epilog="Example: quire bench serve --url http://127.0.0.1:8000 --sweep 1,2,4 --goodput ttft:500,tpot:100")
@options()
def serve(settings: ServeSettings, json: Json = None, plot: Plot = None) -> None:
    """Latencies of a server under load: requests come at a rate, whether or not it keeps up (an open loop)."""
    from quire.bench.serving.serve import run_serve

    if not run_serve(settings, json, plot):
        raise typer.Exit(1)  # the notes have said what went wrong
