"""Options of the RAG benchmark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from quire.bench.bench_settings import refuse_repeats
from quire.settings import Settings, names, setting


@dataclass(frozen=True)
class RagSettings(Settings):
    """Options of the RAG benchmark."""

    documents: tuple[Path, ...] = setting(
        (), "Files and folders, such as a SQuAD JSON; may be repeated. Without them, a generated set."
    )
    questions: Path | None = setting(None, "Labelled questions as JSONL, as benchmarks.routing_accuracy reads them.")
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
    queries: int | None = setting(None, "Number of questions per policy, in the same mix (default: all).", at_least=2)
    output_len: int = setting(32, "Tokens of each answer.", at_least=1)
    context_tokens: int = setting(256, "Tokens of a passage, at most.", at_least=16)
    interval_ms: float = setting(25.0, "Between two queries.", above=0)
    rate: float | None = setting(
        None,
        "Also run at this rate, in queries per second; 0 is 0.7 of the throughput without a KV directory.",
        at_least=0,
        below=math.inf,
    )
    kv: tuple[str, ...] = setting(
        "off,cold,warm", "KV on disk: none, an empty directory, or all documents'.", read=names, metavar="WAY[,WAY...]"
    )
    zipf: float | None = setting(None, "Exponent of Zipf's law over documents.", above=0)
    embedder: str | None = setting(
        None, "A directory, a hub id, all-MiniLM-L6-v2 (the default), or hashing.", metavar="NAME"
    )
    seed: int = setting(0, "Seed of the questions' order and draws.", name="load_seed")
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
