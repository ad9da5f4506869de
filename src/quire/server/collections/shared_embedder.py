"""The server's embedder: one process shared by searches, embedding requests and ingests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from quire.rag.embedder import EmbedderSource
from quire.rag.embedder_process import EmbedderProcess
from quire.rag.embedding import EmbedderFacts, EmbedderInput, Embeddings
from quire.server.errors import RETRY_SOON, ApiError
from quire.system.fair_executor import FairExecutor
from quire.system.threads import default_num_threads
from quire.system.worker_process import WorkerError

logger = logging.getLogger("quire.server")

_NICENESS = 5  # engines go first
# One call embeds two chunks, or many questions. A search may wait for one: 0.1 s of MiniLM on an idle core.
_TURN_CHARACTERS = 2048
_TURN_TEXTS = 32
_TOKEN_CHARACTERS = 4


class SharedEmbedder:
    """A thread-safe `Embedder` in a process that restarts. `on_embedded` receives the use and number of tokens."""

    def __init__(self, source: EmbedderSource, on_embedded: Callable[[str, int], None] | None = None) -> None:
        self.source = source
        self._on_embedded = on_embedded or (lambda use, num_tokens: None)
        threads = max(1, default_num_threads() // 2)  # leave cores to the engines
        self._process = EmbedderProcess(source, num_threads=threads, niceness=_NICENESS)
        self._executor = FairExecutor("embedder")
        self._is_stopping = False

    @property
    def name(self) -> str:
        """The name shown to clients; for a directory, its last part."""
        if self.source.served_name is not None:
            return self.source.served_name
        return Path(self.source.name).name if self.source.name.startswith("/") else self.source.name

    @property
    def location(self) -> str:
        """Its path or name, for other processes."""
        return str(self.source.path or self.source.name)

    @property
    def facts(self) -> EmbedderFacts:
        """Facts of the embedder. Raises ApiError if it cannot be loaded."""
        try:
            return self._process.facts
        except ValueError as error:
            logger.error("the embedder cannot be loaded: %s", error)
            message = "the embedder cannot be loaded; the server's log says why"
            raise ApiError(503, message, code="embedder_failed") from None
        except WorkerError as error:
            raise self._lost(error) from None

    def embed(
        self, texts: Sequence[EmbedderInput], max_tokens: int | None = None, *, use: str = "ingest", owner: str = ""
    ) -> Embeddings:
        """Embed texts, a few at a time, for search (which goes first), ingest or embeddings; owners take turns. Raises
        ApiError, and ValueError for token ids of another tokenizer."""
        facts = self.facts
        vectors = np.empty((len(texts), facts.dimension), np.float32)
        num_tokens: list[int] = []
        is_truncated: list[bool] = []
        while len(num_tokens) < len(texts):
            start = len(num_tokens)
            some = texts[start : start + _turn_size(texts, start)]
            try:
                work = partial(self._process.embed, some, max_tokens)
                found = self._executor.submit(work, owner, is_urgent=use == "search").result()
            except WorkerError as error:
                raise self._lost(error) from None
            vectors[start : start + len(some)] = found.vectors
            self._on_embedded(use, sum(found.num_tokens))
            num_tokens += found.num_tokens
            is_truncated += found.is_truncated
        return Embeddings(vectors, num_tokens, is_truncated)

    def stop(self) -> None:
        """Kill the process; pending calls fail."""
        self._is_stopping = True
        self._process.stop()

    def _lost(self, error: WorkerError) -> ApiError:
        if self._is_stopping:
            return ApiError(503, "the server is shutting down", code="shutting_down", headers=RETRY_SOON)
        logger.error("%s", error)
        message = "the embedder's process ended and is restarting; try again"
        return ApiError(503, message, code="embedder_failed", headers=RETRY_SOON)


def _turn_size(texts: Sequence[EmbedderInput], start: int) -> int:
    """Return the number of texts from `start` on to embed in one call."""
    count = characters = 0
    for text in texts[start : start + _TURN_TEXTS]:
        characters += len(text) * (1 if isinstance(text, str) else _TOKEN_CHARACTERS)
        if count and characters > _TURN_CHARACTERS:
            break
        count += 1
    return count
