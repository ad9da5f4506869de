"""What each benchmark may be asked: the options of `quire bench`, `quire simulate` and `quire calibrate`.

Imports nothing but how settings are defined, since the command line reads this file before it answers `--help`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.settings import (
    REQUIRED,
    Settings,
    check_unit,
    integer_range,
    integers,
    names,
    numbers,
    parse_size,
    setting,
    share_range,
)

SLO_NAMES = ("ttft", "tpot", "e2el")
_POLICIES = "recompute,swap,threshold:1024,cost"
_POLICIES_HELP = "Of recompute, swap, threshold:N, threshold:N:swap-above and cost."


def parse_goodput(text: str) -> dict[str, float]:
    """Limits in seconds by name, from text in milliseconds such as ttft:500,tpot:100.

    Raises:
        ValueError: a name is not known, or a limit is no number above 0.
    """
    limits = {}
    for part in names(text):
        name, _, value = part.partition(":")
        try:
            limit = float(value) / 1e3
        except ValueError:
            limit = 0.0
        if name not in SLO_NAMES or not limit > 0:
            known = ", ".join(SLO_NAMES)
            raise ValueError(f"{text!r}: expected limits in ms such as ttft:500,tpot:100, of {known}")
        limits[name] = limit
    return limits


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f'{text!r} is not a JSON object such as {{"top_k": 5}}')
    return value


def _policies() -> Any:
    return setting(_POLICIES, _POLICIES_HELP, read=names, metavar="POLICY[,POLICY...]")


def _runs(default: int = 3) -> Any:
    return setting(default, "Repetitions; each shifts the token ids.", at_least=1)


def _refuse_together(settings: Settings, name: str, *others: str) -> None:
    """Two settings that say the same thing must not both be other than by default."""
    clash = settings.changed(*others)
    if settings.changed(name) and clash:
        raise ValueError(
            f"--{name} and --{clash[0].replace('_', '-')} both say what is asked, or when; give one of them"
        )


def _refuse_repeats(settings: Settings, name: str) -> None:
    given = getattr(settings, name)
    if not given or len(set(given)) < len(given):
        raise ValueError(f"{name}={','.join(map(str, given))} names something twice, or nothing")


@dataclass(frozen=True)
class LatencySettings(Settings):
    """`quire bench latency`."""

    input_len: int = setting(128, "Tokens of each prompt.", at_least=1)
    output_len: int = setting(128, "Tokens of each answer.", at_least=1)
    batch_size: tuple[int, ...] = setting("1", "Numbers of requests at once.", read=integers, at_least=1)
    runs: int = _runs()


@dataclass(frozen=True)
class ThroughputSettings(Settings):
    """`quire bench throughput`."""

    workload: tuple[Path, ...] = setting((), "Workload files; several in turn.")
    trace: Path | None = setting(None, "Lengths from a trace CSV (Azure's form).")
    num_requests: int = setting(32, "Requests to make, or to take of a trace.", at_least=1)
    input_len: tuple[int, int] = setting("64-512", "Prompt lengths, drawn evenly.", read=integer_range)
    output_len: tuple[int, int] = setting("32-128", "Answer lengths, drawn evenly.", read=integer_range)
    shared_prefix: int = setting(0, "First tokens that are the same in all prompts.", at_least=0)
    arrivals: bool = setting(False, "Keep to arrival_s; by default all come at once.", is_flag=True)
    compare_prefix_caching: bool = setting(False, "Each engine with prefix caching and without.", is_flag=True)
    save_workload: Path | None = setting(None, "Write the workload that was made.")
    runs: int = _runs()

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_together(self, "workload", "trace")


@dataclass(frozen=True)
class PeersSettings(Settings):
    """`quire bench peers`."""

    commands: Path | None = setting(
        None,
        "How each peer is run, as YAML: NAME: {command: $PYTHON script.py --model DIR, precision: bf16, workloads: "
        "[W1]}, the last of which may be left out. By default peers.yaml in the folder.",
    )
    peers: tuple[str, ...] | None = setting(
        None, "Of these; by default those with weights of our own precision.", read=names, metavar="NAME[,NAME...]"
    )
    workload: tuple[Path, ...] = setting((), "Workload files; by default W*.json in the folder's workloads.")
    more: bool = setting(
        False, "Also a burst, long prompts with short answers, and turns over one prefix.", is_flag=True
    )
    timeout_s: float = setting(1200.0, "Seconds after which an engine's turn is given up.", name="timeout", above=0)
    runs: int = setting(3, "Turns; in each, every engine plays all workloads once.", at_least=1)


@dataclass(frozen=True)
class MemorySettings(Settings):
    """`quire bench memory`."""

    trace: Path = setting(REQUIRED, "CSV with TIMESTAMP,ContextTokens,GeneratedTokens.")
    max_model_len: tuple[int, ...] | None = setting(
        None, "Limits to reserve; by default 2048 and one that cuts no request.", read=integers, at_least=2
    )
    block_size: tuple[int, ...] = setting("1,2,4,8,16,32,64,128,256", "Tokens a block.", read=integers, at_least=1)
    num_requests: int | None = setting(None, "Only the first requests of the trace.", at_least=1)


COLD_STARTS = ("transformers", "at-once", "overlap", "staged")


def _bandwidths(text: str) -> tuple[float, ...]:
    """From text such as 125MB,none; none is infinite."""
    return tuple(math.inf if name == "none" else float(parse_size(name)) for name in names(text))


@dataclass(frozen=True)
class ColdStartSettings(Settings):
    """`quire bench coldstart`."""

    pack: Path | None = setting(None, "The model in stages, as quire stages pack writes it; for the mode staged.")
    modes: tuple[str, ...] = setting(
        ",".join(COLD_STARTS),
        "Of transformers (without a bandwidth alone), at-once (all layers before the first token), overlap (its step "
        "beside loading), staged (the pack).",
        read=names,
        metavar="MODE[,MODE...]",
    )
    storage_bandwidth: tuple[float, ...] = setting(
        "none",
        "Reads are held to so many bytes a second, such as 125MB; none: not at all. Several in turns.",
        read=_bandwidths,
        metavar="SIZE[,SIZE...]",
        at_least=1,
    )
    prompt_len: int = setting(32, "Tokens of the first prompt.", at_least=1)
    quality: Path | None = setting(
        None, "What quire stages evaluate --json wrote of the pack: the plot is of exact match over time, then."
    )
    running: int = setting(0, "So many streams run while the pack arrives: what that costs them.", at_least=0)
    runs: int = setting(3, "Cold starts of each kind, in turns.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_repeats(self, "modes")
        _refuse_repeats(self, "storage_bandwidth")
        if unknown := [mode for mode in self.modes if mode not in COLD_STARTS]:
            raise ValueError(f"modes={unknown[0]} is none of {', '.join(COLD_STARTS)}")
        if self.running and self.pack is None:
            raise ValueError("streams that run while layers arrive need stages; give --pack")


@dataclass(frozen=True)
class DocumentKvSettings(Settings):
    """`quire bench document-kv`."""

    document_tokens: int = setting(1024, "Tokens of each document.", at_least=16)
    question_tokens: int = setting(32, "Tokens after the document.", at_least=1)
    output_len: tuple[int, ...] = setting("1,32,128", "Tokens of the answers.", read=integers, at_least=1)
    bandwidth: tuple[float, ...] = setting(
        "0.3,1,3",
        "The disk held to so many times the bandwidth at which loading and computing take as long; 0: not at all.",
        read=numbers,
        at_least=0,
    )
    runs: int = _runs()


@dataclass(frozen=True)
class RagSettings(Settings):
    """`quire bench rag`."""

    documents: tuple[Path, ...] = setting(
        (), "Files and folders, such as a SQuAD JSON; may be repeated. Without them, a generated set."
    )
    questions: Path | None = setting(None, "Labelled questions as JSONL, as quire route --evaluate reads them.")
    policy: tuple[str, ...] = setting(
        "round-robin,query,domain", "How questions are routed.", read=names, metavar="POLICY[,POLICY...]"
    )
    preset: str = setting(
        "embedded", "Models: embedded (quire-mini, quire-chat), or the paper's shapes.", metavar="embedded|paper",
        choices=("embedded", "paper"),
    )  # fmt: skip
    models: str | None = setting(
        None,
        "Other models by role: small and large, and for domain those of the examples (by default reading is large, "
        "and chat small).",
        metavar="ROLE=MODEL,...",
    )
    queries: int | None = setting(None, "So many of each policy's questions, in the same mix.", at_least=2)
    output_len: int = setting(32, "Tokens of each answer.", at_least=1)
    context_tokens: int = setting(256, "Tokens of a passage, at most.", at_least=16)
    interval_ms: float = setting(25.0, "Between two queries.", above=0)
    rate: float | None = setting(
        None,
        "Queries a second, as well; 0 takes seven tenths of what was answered without a KV directory.",
        at_least=0,
        below=math.inf,
    )
    kv: tuple[str, ...] = setting(
        "off,cold,warm", "KV on disk: none, an empty directory, or all documents'.", read=names, metavar="WAY[,WAY...]"
    )
    zipf: float | None = setting(None, "Documents are asked about by Zipf's law with this exponent.", above=0)
    embedder: str | None = setting(
        None, "A directory, a hub id, all-MiniLM-L6-v2 (the default), or hashing.", metavar="NAME"
    )
    seed: int = setting(0, "Of the questions' order, and of what is drawn.", name="load_seed")
    runs: int = setting(1, "Repetitions; the ways take turns.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.documents) != (self.questions is not None):
            raise ValueError("--documents and --questions belong together; give both, or none for the generated set")
        for name, known in (("policy", ("round-robin", "query", "domain")), ("kv", ("off", "cold", "warm"))):
            _refuse_repeats(self, name)
            if unknown := [each for each in getattr(self, name) if each not in known]:
                raise ValueError(f"{name}={unknown[0]!r} is none of {', '.join(known)}")
        if self.models is not None and self.preset != "embedded":
            raise ValueError("--preset and --models both name the models; give one of them")
        if self.rate == 0 and "off" not in self.kv:
            raise ValueError("--rate 0 is found by answering without a KV directory; add off to --kv, or give a rate")


@dataclass(frozen=True)
class LookaheadSettings(Settings):
    """`quire bench lookahead`."""

    num_requests: int = setting(16, "Requests, each about a document of its own.", at_least=4)
    document_tokens: int = setting(256, "Tokens of each document.", at_least=16)
    question_tokens: int = setting(16, "Tokens after the document.", at_least=1)
    output_len: int = setting(16, "Tokens of each answer.", at_least=2)
    seats: int = setting(4, "Requests that run at once (max_num_seqs).", at_least=1)
    load: float = setting(1.0, "Requests a second, by what the engine holds without lookahead.", above=0)
    bandwidth: float = setting(
        3.0, "The disk held to so many times the bandwidth at which loading and computing take as long.", above=0
    )
    seed: int = setting(0, "Of the arrivals.", name="load_seed")
    runs: int = setting(3, "Pairs of runs, with and without.", at_least=1)

    @property
    def of_documents(self) -> DocumentKvSettings:
        """Those of the documents that are asked about."""
        lengths = {name: getattr(self, name) for name in ("document_tokens", "question_tokens")}
        return DocumentKvSettings(output_len=(self.output_len,), **lengths)


@dataclass(frozen=True)
class PromotionSettings(Settings):
    """`quire bench promotion`."""

    num_requests: int = setting(16, "Streams.", at_least=1)
    input_len: int = setting(128, "Tokens of each prompt.", at_least=1)
    output_len: int = setting(64, "Tokens of each answer.", at_least=2)
    rate: float = setting(
        0.0, "Requests a second, by a Poisson process; 0 is twice what the engine answers of all at once.", at_least=0
    )
    layers_out: int = setting(8, "Layers that stage 1 of a model without a pack lacks.", at_least=1)
    stages: int = setting(3, "Stages of a model without a pack.", at_least=2)
    seed: int = setting(0, "Of prompts and arrivals.", name="load_seed")
    runs: int = _runs()


@dataclass(frozen=True)
class SharingSettings(Settings):
    """`quire bench sharing`."""

    widths: tuple[int, ...] = setting("2,4,6", "Samples a request, and beam widths.", read=integers, at_least=1)
    num_requests: int = setting(16, "Requests of each kind.", at_least=1)
    runs: int = _runs()


@dataclass(frozen=True)
class OverheadSettings(Settings):
    """`quire bench overhead`."""

    num_requests: int = setting(256, "Running requests, where deciding is timed.", at_least=1)
    context: int = setting(2048, "Their tokens.", at_least=2)
    rows: int = setting(32, "Sequences a step, where sampling is timed.", at_least=1)


@dataclass(frozen=True)
class AttentionSettings(Settings):
    """`quire bench attention`."""

    running: tuple[int, ...] = setting("1,8,32", "Sequences a step.", read=integers, at_least=1)
    context: int = setting(512, "Their tokens.", at_least=1)
    shared: int = setting(0, "So many of them are the same for all, in the same blocks.", at_least=0)
    runs: int = setting(5, "Turns of each.", at_least=1)


@dataclass(frozen=True)
class ProfileSettings(Settings):
    """`quire bench profile`."""

    running: tuple[int, ...] = setting("1,8,32", "Sequences a step.", read=integers, at_least=1)
    context: int = setting(512, "Their tokens.", at_least=1)
    prefill: tuple[int, ...] | None = setting(
        None, "Also prompts of so many tokens, one a step.", read=integers, at_least=1
    )
    runs: int = setting(10, "Steps of each, and as many with timers.", at_least=1)


@dataclass(frozen=True)
class LinearSettings(Settings):
    """`quire bench linear`."""

    rows: tuple[int, ...] = setting("1,4,16,32,256", "Of each product.", read=integers, at_least=1)
    weights: tuple[str, ...] = setting(
        "plain,onednn,int8,int4",
        "Kinds of weights: plain are the model's own, onednn the same for oneDNN.",
        read=names,
        metavar="KIND[,...]",
    )
    runs: int = setting(5, "Turns of each.", at_least=1)


@dataclass(frozen=True)
class QualitySettings(Settings):
    """`quire bench quality`."""

    quantization: tuple[str, ...] = setting(
        "int8,int4", "Of linear layers, each beside the model as it is.", read=names, metavar="int8|int4[,...]"
    )
    text: Path | None = setting(
        None,
        "Text whose perplexity counts: plain, or questions; by default those of --questions with their answers, or "
        "what the model writes itself.",
        metavar="FILE",
    )
    questions: Path | None = setting(
        None, "In SQuAD's form (.json), or open ones with lists of answers (.jsonl).", metavar="FILE"
    )
    num_questions: int = setting(400, "The first so many.", at_least=1)
    num_texts: int = setting(64, "At most; evenly spread over the file. Of a random model 4.", at_least=1)
    num_tokens: int = setting(256, "Of a text, at most.", at_least=16)
    start: str = setting("Context:", "What texts begin with that the model writes itself.", metavar="TEXT")


@dataclass(frozen=True)
class CalibrateSettings(Settings):
    """`quire calibrate`."""

    lengths: tuple[int, ...] | None = setting(
        None, "Tokens; by default 64, 96, 128, 192 and so on to max_model_len.", read=integers
    )
    repeats: int = setting(3, "Of every measurement, in turns.", at_least=1)


def _alternation(text: str) -> tuple[float, ...]:
    given = numbers(text)
    if len(given) != 2:
        raise ValueError(f"{text!r}: expected a factor and seconds, such as 10,5")
    return given


def _slow_phase(text: str) -> tuple[int, ...]:
    given = integers(text)
    if len(given) > 2 or list(given) != sorted(set(given)):
        raise ValueError(f"{text!r}: expected one number of preemptions, or two that grow, such as 100,200")
    return given


@dataclass(frozen=True)
class RecoverySettings(Settings):
    """`quire bench recovery`."""

    policies: tuple[str, ...] = _policies()
    mix: str = setting(
        "mixed", "Lengths; of shared, half of the requests begin with one prefix.", metavar="short|long|mixed|shared"
    )
    num_requests: int = setting(200, "All at once.", at_least=1)
    crossing_at: int | None = setting(
        None, "Find the --swap-bandwidth by which the modes cross there.", metavar="TOKENS", at_least=1
    )
    alternate_link: tuple[float, float] | None = setting(
        None,
        "Slow the link down by FACTOR, and speed it up again, every SECONDS.",
        read=_alternation,
        metavar="FACTOR,SECONDS",
        above=0,
    )
    slow_link_at: tuple[int, ...] | None = setting(
        None,
        "From this preemption on the link is ten times slower; until that one.",
        read=_slow_phase,
        metavar="N[,N]",
        at_least=0,
    )
    profile: Path | None = setting(None, "Costs that quire calibrate wrote; by default measured first.")
    forecast: bool = setting(False, "Simulate the same requests from the measured costs, and compare.", is_flag=True)
    record: Path | None = setting(
        None,
        "Write the first run of cost (without it, of the first policy) for quire simulate --recording. "
        "Prompts and answers are in it.",
    )
    repeats: int = setting(3, "Of measuring the costs.", at_least=1)
    seed: int = setting(0, "Of lengths and prompts.", name="load_seed")
    runs: int = _runs()

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_repeats(self, "policies")
        if self.forecast and (self.alternate_link or self.slow_link_at):
            raise ValueError(
                "--forecast simulates a link that stays as it is; leave out --alternate-link and --slow-link-at"
            )


@dataclass(frozen=True)
class SimulateSettings(Settings):
    """`quire simulate`."""

    profile: str = setting(
        "cps-paper", "A published machine, or a file that quire calibrate wrote.", metavar="cps-paper|FILE"
    )
    recording: Path | None = setting(
        None,
        "Play a run again that quire bench recovery --record wrote, and see that its schedule comes out; with "
        "--profile also simulate its requests, and compare.",
    )
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's form).")
    lengths: str | None = setting(
        None, "Draw the CPS paper's mix, all at once (the default without --trace).", metavar="short-long"
    )
    policies: tuple[str, ...] = _policies()
    num_blocks: int = setting(512, "KV blocks of the pool.", at_least=1)
    block_size: int = setting(16, "Tokens a KV block holds.", at_least=1)
    swap_space: int = setting("4GiB", "Of the swap tier; 0 is none.", read=parse_size)
    max_num_seqs: int | None = setting(None, "Most sequences that run at once; by default the profile's.", at_least=1)
    max_num_batched_tokens: int | None = setting(
        None, "Token budget of one step; by default the profile's.", at_least=1
    )
    max_model_len: int | None = setting(None, "Longest sequence; by default what the pool holds.", at_least=1)
    enable_prefix_caching: bool | None = setting(
        None, "Find a preempted request's blocks again; by default the profile's."
    )
    watermark: float = setting(0.0, "Share of the pool that admission leaves free.", at_least=0, below=1)
    num_requests: int | None = setting(None, "Requests to draw (default: 200), or to take of a trace.", at_least=1)
    speed_up: float = setting(1.0, "A trace's requests come this many times as fast.")
    seeds: int | None = setting(None, "Loads to draw (default: 20).", at_least=1)
    decode_scale: tuple[float, ...] = setting(
        "1", "The paper gives no decode steps: multiply the assumed decode steps by this.", read=numbers
    )
    prompt_share: tuple[float, float] = setting(
        "0.1-0.9", "Of a drawn request's tokens, the prompt's; the rest is its answer.", read=share_range
    )
    swap_is_synchronous: bool | None = setting(
        None, "Whether the engine stands still while blocks are copied; by default the profile's."
    )
    enable_lookahead: bool = setting(True, "Load documents for requests that wait for their turn.")
    documents: int | None = setting(
        None, "Each request is about one of so many documents, drawn by Zipf's law; by default about none.", at_least=1
    )
    document_tokens: int = setting(1024, "Tokens of each document, before a request's own prompt.", at_least=1)
    kv_dir_bandwidth: int | None = setting(
        None,
        "Also keep documents' KV on a disk that moves so many bytes a second, and compare; by default on the profile's "
        "own disk, if one was measured.",
        read=parse_size,
        at_least=1,
    )
    replicas: tuple[int, ...] | None = setting(
        None,
        "Fleets of so many replicas behind the router of quire serve --ray, compared by routing policy, instead of "
        "recovery policies on one engine.",
        read=integers,
        at_least=1,
        metavar="N[,N...]",
    )
    routing: tuple[str, ...] = setting(
        "round-robin,least-loaded,prefix,slo",
        "With --replicas: of round-robin, least-loaded, prefix and slo.",
        read=names,
        metavar="POLICY[,POLICY...]",
    )
    slo: Mapping[str, float] = setting(
        "ttft:1000,tpot:50", "With --replicas: what requests are to keep, in ms.", read=parse_goodput, metavar="LIMITS"
    )
    conversations: float | None = setting(
        None,
        "With --replicas, instead of --trace: conversations of several turns, of which so many begin in a second.",
        above=0,
    )
    cold_start: tuple[float, ...] | None = setting(
        None,
        "With --replicas: their number follows the load from --min-replicas on; one serves after FIRST seconds, and "
        "all of its model is there after WHOLE.",
        read=numbers,
        at_least=0,
        metavar="FIRST[,WHOLE]",
    )
    first_stage_share: float = setting(
        0.75, "Of the whole model's steps, that the first stage's take.", above=0, at_most=1
    )
    min_replicas: int = setting(0, "With --cold-start: replicas that always stay.", at_least=0)
    target_requests: float = setting(16.0, "With --cold-start: requests that each replica is to have at once.", above=0)
    idle: float = setting(30.0, "With --cold-start: seconds after which a replica too many is given up.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unit(swap_space=self.swap_space, kv_dir_bandwidth=self.kv_dir_bandwidth)
        self._check_replicas()
        _refuse_repeats(self, "policies")
        _refuse_repeats(self, "decode_scale")
        of_documents = self.changed("document_tokens", "kv_dir_bandwidth")
        if self.documents is None and of_documents:
            raise ValueError(f"--{of_documents[0].replace('_', '-')} is for documents; give --documents N")
        if self.documents is not None and self.document_tokens < self.block_size:
            raise ValueError(
                f"document_tokens={self.document_tokens} is less than a block of {self.block_size}, and only whole "
                "blocks are shared; make documents longer or --block-size smaller"
            )
        if self.kv_dir_bandwidth is not None and self.enable_prefix_caching is False:
            raise ValueError("blocks on disk are found by prefix caching; leave out --no-enable-prefix-caching")

    def _check_replicas(self) -> None:
        _refuse_repeats(self, "routing")
        of_fleets = self.changed("routing", "slo", "conversations", "cold_start")
        of_scaling = self.changed("first_stage_share", "min_replicas", "target_requests", "idle")
        if self.replicas is None:
            if of_fleets or of_scaling:
                raise ValueError(f"--{(of_fleets + of_scaling)[0].replace('_', '-')} is for fleets; give --replicas N")
            return
        if self.cold_start is None and of_scaling:
            raise ValueError(
                f"--{of_scaling[0].replace('_', '-')} is for replicas that come and go; give --cold-start FIRST"
            )
        if self.cold_start is not None and len(self.cold_start) > 2:
            raise ValueError(f"--cold-start is FIRST or FIRST,WHOLE in seconds, got {len(self.cold_start)} numbers")
        if "e2el" in self.slo:
            raise ValueError("an SLO for routing is of ttft and tpot; nobody knows how long an answer will be")
        if self.changed("lengths", "documents", "decode_scale", "recording"):
            (other, *_) = self.changed("lengths", "documents", "decode_scale", "recording")
            raise ValueError(f"--{other.replace('_', '-')} is for one engine, and not beside --replicas")
        if self.trace is not None and self.conversations is not None:
            raise ValueError("--trace and --conversations both say what is asked; give one of them")


@dataclass(frozen=True)
class SloSettings(Settings):
    """`quire bench slo`."""

    policies: tuple[str, ...] = setting(
        "slo,large,small,round-robin,mix",
        "Of slo, large, small (always that one), round-robin, mix:SHARE (to the large one, by lot; without SHARE: as "
        "many as slo sent there).",
        read=names,
        metavar="POLICY[,POLICY...]",
    )
    slo: Mapping[str, float] = setting(
        "ttft:1000,tpot:50", "What requests are to keep, in ms.", read=parse_goodput, metavar="LIMITS"
    )
    profile: str = setting(
        "cps-paper", "The small model's machine, or a file of quire calibrate.", metavar="cps-paper|FILE"
    )
    factor: float = setting(
        4.0, "The large model's steps take so many times as long, on a machine of its own.", above=0
    )
    loads: tuple[float, ...] = setting(
        "0.2,0.4,0.6,0.8,1,1.2,1.4,1.6,1.8,2",
        "Request rates one after the other, as shares of what both can serve.",
        read=numbers,
        above=0,
    )
    num_requests: int = setting(300, "Requests at each rate.", at_least=1)
    seed: int = setting(0, "Of arrivals and lengths.", name="load_seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_repeats(self, "policies")
        if "mix" in self.policies and "slo" not in self.policies[: self.policies.index("mix")]:
            raise ValueError("mix sends as many requests to the large model as slo did; name slo first, or mix:SHARE")
        if "e2el" in self.slo:
            raise ValueError("an SLO for routing is of ttft and tpot; nobody knows how long an answer will be")


@dataclass(frozen=True)
class HttpSettings(Settings):
    """`quire bench http`."""

    streams: int = setting(8, "Streams at once.", at_least=1)
    input_len: int = setting(32, "Tokens of each prompt.", at_least=1)
    output_len: int = setting(1024, "Tokens of each answer.", at_least=8)
    queued: int = setting(200, "Streams that wait behind them.", at_least=1)
    body_size: int = setting("50MB", "Of the bodies that are sent beside them.", read=parse_size)
    engine_process: bool = setting(False, "Measure servers whose engine has a process of its own.", is_flag=True)
    runs: int = _runs(5)
    settle_s: float = 1.5  #: from when all are queued; streams that wait get their heads within it


@dataclass(frozen=True)
class ServeSettings(Settings):
    """`quire bench serve`."""

    urls: tuple[str, ...] = setting(
        ("http://127.0.0.1:8000",), "A server; several are compared.", name="url", metavar="[NAME=]URL"
    )
    model: str | None = setting(None, "The server's name for a model; by default its first one.")
    api_key: str | None = setting(None, "The key that the servers want.", envvar="QUIRE_API_KEY", repr=False)
    chat: bool = setting(False, "Ask /v1/chat/completions; by default /v1/completions.", is_flag=True)
    request_rate: float | None = setting(None, "Requests a second on average; inf lets all come at once.", above=0)
    sweep: tuple[float, ...] | None = setting(
        None, "Several request rates, one after another.", read=numbers, metavar="RATE[,RATE...]", above=0
    )
    burstiness: float = setting(
        1.0, "Shape of the gamma-distributed gaps: 1 is Poisson, less is burstier.", above=0, below=math.inf
    )
    duration_s: float | None = setting(
        None, "Seconds for which requests come; 60 if nothing else bounds them.", name="duration", above=0
    )
    num_requests: int | None = setting(None, "Number of requests, or of the first ones of a file.", at_least=1)
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's form).")
    time_scale: float = setting(
        1.0, "The trace's times are multiplied by this: 0.5 is twice as fast.", above=0, below=math.inf
    )
    length_scale: float = setting(1.0, "The trace's lengths are multiplied by this.", above=0, below=math.inf)
    max_input_len: int | None = setting(None, "The trace's prompts are cut to this.", at_least=1)
    max_output_len: int | None = setting(None, "The trace's answers are cut to this.", at_least=1)
    workload: Path | None = setting(None, "A workload file.")
    input_len: tuple[int, int] = setting("64-512", "Prompt lengths, drawn evenly.", read=integer_range)
    output_len: tuple[int, int] = setting("32-128", "Answer lengths, drawn evenly.", read=integer_range)
    shared_prefix: int = setting(0, "First tokens that are the same in all prompts.", at_least=0)
    goodput: Mapping[str, float] | None = setting(
        None, "Count requests within limits in ms: ttft:500,tpot:100,e2el:5000.", read=parse_goodput, metavar="LIMITS"
    )
    text: bool = setting(False, "Prompts are words; by default token ids, where the vocabulary is known.", is_flag=True)
    vocab_size: int | None = setting(None, "Of the model, where the server does not say it; for token ids.", at_least=1)
    ignore_eos: bool = setting(True, "Answers go on to their full length.")
    extra_body: Mapping[str, Any] | None = setting(
        None, "More fields of every request.", read=_json_object, metavar="JSON"
    )
    timeout_s: float = setting(
        600.0, "Seconds after which a request is given up, from when it was due.", name="timeout", above=0
    )
    seed: int = setting(0, "Of arrivals, lengths and prompts.")
    save_requests: Path | None = setting(None, "Write every request's times, a JSON object a line.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_together(self, "trace", "workload", "burstiness", "input_len", "output_len")
        _refuse_together(self, "workload", "input_len", "output_len", "shared_prefix")
        _refuse_together(self, "sweep", "request_rate")
        of_trace = self.changed("time_scale", "length_scale", "max_input_len", "max_output_len")
        if self.trace is None and of_trace:
            raise ValueError(f"--{of_trace[0].replace('_', '-')} is for a trace; give --trace FILE, or leave it out")

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The request rates; None is a recording's own."""
        return self.sweep or (self.request_rate,)
