"""What each benchmark may be asked: the options of `quire bench`. Those of recovery and of serving stand beside them.

Imports nothing but how settings are defined, since the command line reads this file before it answers `--help`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.settings import REQUIRED, Settings, integer_range, integers, names, numbers, parse_size, setting

SLO_NAMES = ("ttft", "tpot", "e2el")


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


def runs(default: int = 3) -> Any:
    """The setting of how often all is measured."""
    return setting(default, "Repetitions; each shifts the token ids.", at_least=1)


def refuse_together(settings: Settings, name: str, *others: str) -> None:
    """Two settings that say the same thing must not both be other than by default."""
    clash = settings.changed(*others)
    if settings.changed(name) and clash:
        raise ValueError(
            f"--{name} and --{clash[0].replace('_', '-')} both say what is asked, or when; give one of them"
        )


def refuse_repeats(settings: Settings, name: str) -> None:
    """Raise ValueError where a setting lists nothing, or something twice."""
    given = getattr(settings, name)
    if not given or len(set(given)) < len(given):
        raise ValueError(f"{name}={','.join(map(str, given))} names something twice, or nothing")


@dataclass(frozen=True)
class LatencySettings(Settings):
    """`quire bench latency`."""

    input_len: int = setting(128, "Tokens of each prompt.", at_least=1)
    output_len: int = setting(128, "Tokens of each answer.", at_least=1)
    batch_size: tuple[int, ...] = setting("1", "Numbers of requests at once.", read=integers, at_least=1)
    runs: int = runs()


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
    runs: int = runs()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_together(self, "workload", "trace")


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
        refuse_repeats(self, "modes")
        refuse_repeats(self, "storage_bandwidth")
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
    runs: int = runs()


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
            refuse_repeats(self, name)
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
    runs: int = runs()


@dataclass(frozen=True)
class SharingSettings(Settings):
    """`quire bench sharing`."""

    widths: tuple[int, ...] = setting("2,4,6", "Samples a request, and beam widths.", read=integers, at_least=1)
    num_requests: int = setting(16, "Requests of each kind.", at_least=1)
    runs: int = runs()


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
        refuse_repeats(self, "policies")
        if "mix" in self.policies and "slo" not in self.policies[: self.policies.index("mix")]:
            raise ValueError("mix sends as many requests to the large model as slo did; name slo first, or mix:SHARE")
        if "e2el" in self.slo:
            raise ValueError("an SLO for routing is of ttft and tpot; nobody knows how long an answer will be")
