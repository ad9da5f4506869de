"""Run an embedder in a child process: its callers import no models and survive its death."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import numpy as np

from quire.rag.embedder import EmbedderSource, load_embedder
from quire.rag.embedding import EmbedderFacts, EmbedderInput, Embeddings
from quire.system.threads import default_num_threads, set_num_threads, spin_briefly
from quire.system.worker_process import Worker, WorkerLimits, WorkerProcess

_LIMITS = WorkerLimits(memory_bytes=None, cpu_s=None, wall_s=600.0)  # loading a trusted checkpoint may take memory


class EmbedderProcess(WorkerProcess):
    """An `Embedder` whose child process starts with the first call. Call `close` at the end. `num_threads` defaults to
    one per core; engines go before a process with higher `niceness`."""

    def __init__(self, source: EmbedderSource, *, num_threads: int | None = None, niceness: int = 0) -> None:
        self.source = source
        make = partial(_make_worker, source, num_threads or default_num_threads())
        super().__init__(make, "embedder", limits=_LIMITS, niceness=niceness)
        self._facts: EmbedderFacts | None = None

    @property
    def facts(self) -> EmbedderFacts:
        """Facts of the loaded embedder. Raises ValueError if loading fails, WorkerError if the process ends."""
        if self._facts is None:
            self._facts = EmbedderFacts(**json.loads(self.ask(b"[]")))
        return self._facts

    def embed(self, texts: Sequence[EmbedderInput], max_tokens: int | None = None) -> Embeddings:
        facts = self.facts
        if not texts:
            return Embeddings(np.empty((0, facts.dimension), np.float32), [], [])
        answer = self.ask(json.dumps([list(texts), max_tokens]).encode())
        head, _, data = answer.partition(b"\n")
        vectors = np.frombuffer(data, np.float32).reshape(len(texts), facts.dimension)
        return Embeddings(vectors, *json.loads(head))


def _make_worker(source: EmbedderSource, num_threads: int) -> Worker:
    spin_briefly()
    if source.path is not None:
        set_num_threads(num_threads)
    embedder = load_embedder(source)

    def answer(question: bytes) -> bytes:
        asked = json.loads(question)
        if not asked:
            return json.dumps(asdict(embedder.facts)).encode()
        found = embedder.embed(*asked)
        head = json.dumps([found.num_tokens, [bool(each) for each in found.is_truncated]])
        return head.encode() + b"\n" + np.ascontiguousarray(found.vectors, np.float32).tobytes()

    return answer
