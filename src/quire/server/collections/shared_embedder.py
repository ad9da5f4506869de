"""The server's embedder: one process, which searches, embeddings and ingests take turns with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from quire.rag.embedder import EmbedderSource
from quire.rag.embedder_process import EmbedderProcess
from quire.rag.embedding import EmbedderFacts, Embeddings
from quire.server.collections.lanes import Turns
from quire.server.errors import RETRY_SOON, ApiError
from quire.system.child import ChildError
from quire.system.threads import default_num_threads

logger = logging.getLogger("quire.server")

_NICENESS = 5  # it gives way to engines
# Embedded together: two chunks, or many questions. A search may have to wait for that: 0.1 s of MiniLM on an idle core.
_TURN_CHARACTERS = 2048
_TURN_TEXTS = 32


class SharedEmbedder:
    """An `Embedder` for threads that share it. Its process starts with the first text, and again if it dies.

    Args:
        on_embedded: told what texts were embedded for, and how many tokens they had.
    """

    def __init__(self, source: EmbedderSource, on_embedded: Callable[[str, int], None] | None = None) -> None:
        self.source = source
        self._on_embedded = on_embedded or (lambda use, num_tokens: None)
        threads = max(1, default_num_threads() // 2)  # the engines want the cores, too
        self._process = EmbedderProcess(source, num_threads=threads, niceness=_NICENESS)
        self._turns = Turns()
        self._is_stopping = False

    @property
    def name(self) -> str:
        """By which clients know it: of a directory, its last part."""
        return Path(self.source.name).name if self.source.name.startswith("/") else self.source.name

    @property
    def place(self) -> str:
        """Where another process finds it."""
        return str(self.source.path or self.source.name)

    @property
    def facts(self) -> EmbedderFacts:
        """Raises ApiError where it cannot be loaded."""
        try:
            return self._process.facts
        except ValueError as error:
            logger.error("the embedder cannot be loaded: %s", error)
            message = "the embedder cannot be loaded; the server's log says why"
            raise ApiError(503, message, code="embedder_failed") from None
        except ChildError as error:
            raise self._lost(error) from None

    def embed(self, texts: Sequence[str], *, use: str = "ingest") -> Embeddings:
        """As an embedder does, a few texts at a time.

        Args:
            use: search, which others let pass, since somebody waits for an answer; ingest or embeddings.

        Raises:
            ApiError: its process ended.
        """
        facts = self.facts
        vectors = np.empty((len(texts), facts.dimension), np.float32)
        num_tokens: list[int] = []
        is_truncated: list[bool] = []
        while len(num_tokens) < len(texts):
            start = len(num_tokens)
            some = texts[start : start + _turn_size(texts, start)]
            try:
                with self._turns.take(hurries=use == "search"):
                    found = self._process.embed(some)
            except ChildError as error:
                raise self._lost(error) from None
            vectors[start : start + len(some)] = found.vectors
            self._on_embedded(use, sum(found.num_tokens))
            num_tokens += found.num_tokens
            is_truncated += found.is_truncated
        return Embeddings(vectors, num_tokens, is_truncated)

    def stop(self) -> None:
        """End the process; whoever waits for it gets an error."""
        self._is_stopping = True
        self._process.stop()

    def _lost(self, error: ChildError) -> ApiError:
        if self._is_stopping:
            return ApiError(503, "the server is shutting down", code="shutting_down", headers=RETRY_SOON)
        logger.error("%s", error)
        message = "the embedder's process ended; it is started again, so try once more"
        return ApiError(503, message, code="embedder_failed", headers=RETRY_SOON)


def _turn_size(texts: Sequence[str], start: int) -> int:
    """How many of the texts from `start` on are embedded in one turn."""
    count = characters = 0
    for text in texts[start : start + _TURN_TEXTS]:
        characters += len(text)
        if count and characters > _TURN_CHARACTERS:
            break
        count += 1
    return count
