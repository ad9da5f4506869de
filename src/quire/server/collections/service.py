"""The server's collections and embedder, with the access rights of API keys."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from quire.server.collections.storage import (
    RemainingQuota,
    Storage,
    check_collections,
    errors_of,
    not_found,
    run_blocking,
)
from quire.server.collections.uploads import UploadOutcome, Uploads
from quire.server.errors import ApiError, invalid
from quire.server.http.keys import admin_ids
from quire.server.http.middleware import PUBLIC_KEY_ID, is_admin
from quire.server.metrics import Metrics
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings
from quire.system.fair_executor import FairExecutor

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.embedder import EmbedderSource
    from quire.rag.embedding import EmbedderInput, Embeddings
    from quire.rag.records import CollectionInfo, Filter, OnDeleted, Passage
    from quire.server.collections.schema import DocumentUpload
    from quire.server.collections.shared_embedder import SharedEmbedder
    from quire.settings import RankBy


T = TypeVar("T")
MAX_QUERY_CHARACTERS = 16_384  #: longer queries are truncated
_MAX_VECTORS = 1_000_000  # in memory, at 776 bytes each for 384 dimensions
_MAX_FILTER_FIELDS = 32
_MAX_FIELD_VALUES = 100
_MAX_FILTER_VALUES = 256  # over all fields
_SEARCH_THREADS = 4
_EMBED_THREADS = 4  # a key uses one, since the embedder takes turns between them
_OTHER_THREADS = 3
_MAX_JOBS = 2048  # a single owner gets half of the places


@dataclass(frozen=True)
class SearchResult:
    collection: CollectionInfo
    passages: list[Passage]
    num_query_tokens: int


class CollectionService:
    """Collections in a directory and their embedder, either None if disabled. Blocking work runs in its own threads.
    The chunks of a new collection fit `models`. Admin keys may create public collections and change those of the
    command line; without keys, every client may."""

    def __init__(
        self,
        directory: Path | None = None,
        embedder: EmbedderSource | None = None,
        *,
        settings: ServerSettings | None = None,
        models: Iterable[ServedModel] = (),
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self.on_deleted: OnDeleted = lambda info, texts: None  #: receives, in a thread, the texts of deleted chunks
        self._storage = None if directory is None else Storage(directory, lambda *gone: self.on_deleted(*gone))
        self._embedder: SharedEmbedder | None = None
        self._uploads: Uploads | None = None
        if embedder is not None:
            from quire.server.collections.shared_embedder import SharedEmbedder

            self._embedder = SharedEmbedder(embedder, self._metrics.observe_embedded)
            self._uploads = Uploads(self._embedder)
        self._settings, self._models = settings or ServerSettings(), models
        self._admins = admin_ids(self._settings)
        self._searches = FairExecutor("searches", _SEARCH_THREADS, _MAX_JOBS)
        self._embeddings = FairExecutor("embeddings", _EMBED_THREADS, _MAX_JOBS, max_running=1)
        self._others = FairExecutor("collections", _OTHER_THREADS, _MAX_JOBS)

    @property
    def storage(self) -> Storage:
        """The open collections. Raises ApiError if they are disabled."""
        if self._storage is None:
            message = "this server keeps no collections; start it with --rag-dir DIR"
            raise ApiError(404, message, code="collections_off")
        return self._storage

    @property
    def embedder_name(self) -> str | None:
        """The embedder's name for clients; None if it is disabled."""
        return None if self._embedder is None else self._embedder.name

    @property
    def embedder(self) -> SharedEmbedder:
        """The embedder. Raises ApiError if it is disabled."""
        if self._embedder is None:
            message = "this server has no embedder; name a model, or start it with --embedder all-MiniLM-L6-v2"
            raise ApiError(404, message, code="embeddings_off")
        return self._embedder

    async def search(
        self, key_id: str, name: str, query: str, top_k: int, where: Filter | None, by: RankBy | None
    ) -> SearchResult:
        """Search a collection that the key may read, by query and metadata. Raises ApiError for any failure."""
        started, query = time.monotonic(), query[:MAX_QUERY_CHARACTERS]

        def work() -> SearchResult:
            found = self.find(key_id, name)
            with errors_of(name, "filter"):
                info = found.info
                self.check_embedder(info)
                _check_filter(where)
                embeddings = self.embedder.embed([query], use="search")
                passages = found.search(embeddings.vectors[0], top_k, where, query, by)
                self.storage.reading.trim_indexes(_MAX_VECTORS)
            return SearchResult(info, passages, embeddings.num_tokens[0])

        found = await run_blocking(self._searches, work, key_id)
        self._metrics.searches.observe(time.monotonic() - started)
        return found

    async def embed(self, key_id: str, texts: Sequence[EmbedderInput], max_tokens: int | None) -> Embeddings:
        """Embed texts. Raises ApiError if the embedder is disabled or fails, ValueError for foreign token ids."""
        embedder = self.embedder
        work = partial(embedder.embed, texts, max_tokens, use="embeddings", owner=key_id)
        return await run_blocking(self._embeddings, work, key_id)

    def find(self, key_id: str, name: str) -> Collection:
        """Find a readable collection: the key's own, then the command line's for admins, then a public one. Blocks."""
        reading = self.storage.reading
        with errors_of(name):
            for owner in self._owners(key_id):
                if (found := reading.find(name, owner)) is not None:
                    return found
            if (found := reading.find_public(name)) is not None:
                return found
        raise not_found(name)

    def find_own(self, key_id: str, name: str) -> Collection:
        """Find a collection that the key may change (else ApiError 404 or 403), opened for changes. Blocks."""
        found = self.find(key_id, name)
        with errors_of(name):
            if found.info.owner not in self._owners(key_id):
                message = f"collection {name!r:.200} is public, and only the key that created it may change it"
                raise ApiError(403, message, "collection", "not_owner")
            return self.storage.writing.by_id(found.id)

    async def infos(self, key_id: str) -> list[CollectionInfo]:
        """List readable collections by name."""
        return await self.run(key_id, lambda: self.storage.reading.infos(*self._owners(key_id), and_public=True), "")

    async def create(
        self, key_id: str, name: str, *, is_public: bool, chunk_tokens: int | None, overlap_tokens: int | None
    ) -> CollectionInfo:
        """Create a collection whose chunks fit the served models. Raises ApiError 400, 403, 409 or 413."""
        if is_public and not self.is_admin(key_id):
            message = "only an admin key creates public collections; leave public out"
            raise ApiError(403, message, "public", "not_admin")
        return await self.run(key_id, lambda: self._create(key_id, name, is_public, chunk_tokens, overlap_tokens), name)

    def _create(
        self, key_id: str, name: str, is_public: bool, chunk_tokens: int | None, overlap_tokens: int | None
    ) -> CollectionInfo:
        from quire.rag.collections import DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP_TOKENS
        from quire.rag.records import check_name

        try:
            check_name(name)
        except ValueError as error:
            raise invalid(str(error), "name") from None
        owner, writing = self.owner(key_id), self.storage.writing
        check_collections(self._settings, writing.usage(owner))
        if writing.find(name, owner) is not None or (is_public and writing.find_public(name) is not None):
            message = f"collection {name!r} exists already; delete it first, or choose another name"
            raise ApiError(409, message, "name", "collection_exists")
        facts, models = self.embedder.facts, [model for model in self._models if model.source]
        limit = min([facts.max_tokens, *map(_longest_chunk, models)])
        if chunk_tokens is not None and not 8 <= chunk_tokens <= limit:
            message = f"chunk_tokens={chunk_tokens}; the embedder and half of each model's context allow 8 to {limit}"
            raise invalid(message, "chunk_tokens")
        size = chunk_tokens or min(DEFAULT_CHUNK_TOKENS, limit)
        if overlap_tokens is not None and overlap_tokens > size // 2:
            message = f"overlap_tokens={overlap_tokens} is more than half of the {size} tokens of a chunk; take less"
            raise invalid(message, "overlap_tokens")
        overlap = min(DEFAULT_OVERLAP_TOKENS, size // 2) if overlap_tokens is None else overlap_tokens
        sources = [model.source for model in models]
        return writing.create(
            name, facts, chunk_tokens=size, overlap_tokens=overlap, readers=sources, owner=owner, is_public=is_public
        ).info

    async def delete(self, key_id: str, name: str) -> str:
        """Delete a collection and its documents, and return its id."""

        def work() -> str:
            found = self.find_own(key_id, name)
            self.storage.writing.delete_by_id(found.id)
            self.storage.reading.release_index(found.id)
            return found.id

        return await self.run(key_id, work, name)

    async def add(self, key_id: str, name: str, given: Sequence[DocumentUpload]) -> list[UploadOutcome]:
        """Add documents, or replace those of the same names. Raises ApiError; see `Uploads.ingest`."""

        def prepare() -> tuple[CollectionInfo, Collection]:
            found = self.find_own(key_id, name)
            info = found.info
            self.check_embedder(info)
            return info, found

        def read_quota() -> RemainingQuota:
            with errors_of(name):
                return RemainingQuota(self._settings, self.storage.reading.usage(info.owner))

        info, found = await self.run(key_id, prepare, name)
        assert self._uploads is not None  # else `prepare` has failed
        outcomes = await self._uploads.ingest(key_id, info, found, given, read_quota)
        for outcome in outcomes:
            self._metrics.observe_documents({**outcome.counts, "failed": int(outcome.error is not None)})
        return outcomes

    async def run(self, key_id: str, work: Callable[[], T], name: str) -> T:
        """Run `work` on a collection in a thread, and translate its errors to ApiError."""

        def translated() -> T:
            assert self.storage.reading is not None  # opens it, or fails with an ApiError
            with errors_of(name):
                return work()

        return await run_blocking(self._others, translated, key_id)

    def owner(self, key_id: str) -> str:
        """The value of `CollectionInfo.owner` for a key."""
        return "" if key_id == PUBLIC_KEY_ID else key_id

    def is_admin(self, key_id: str) -> bool:
        """Whether a key may create public collections and change those of the command line."""
        return is_admin(key_id, self._admins)

    def _owners(self, key_id: str) -> list[str]:
        """Owners whose collections a key may change. Without keys, or for admins, "" (the command line) is one."""
        own = self.owner(key_id)
        return [own, ""] if own and self.is_admin(key_id) else [own]

    def check_embedder(self, info: CollectionInfo) -> None:
        """Raise ApiError if another embedder made a collection's vectors."""
        if info.fingerprint != self.embedder.facts.fingerprint:
            raise ApiError(
                409,
                f"collection {info.name!r} has vectors of another embedder than the server's {self.embedder.name}; "
                "delete and create it again, or start the server with its --embedder",
                code="other_embedder",
            )

    def stop(self) -> None:
        """Kill the processes: running work fails, and stored documents stay."""
        if self._uploads is not None:
            self._uploads.stop()
        if self._embedder is not None:
            self._embedder.stop()

    def close(self) -> None:
        """Stop the processes and the threads."""
        self.stop()
        for executor in (self._searches, self._embeddings, self._others):
            executor.close()
        if self._storage is not None:
            self._storage.close()


def _longest_chunk(model: ServedModel) -> int:
    """Return a length that leaves half of the context for question and answer."""
    from quire.rag.reader_models import chunk_limit

    engine = model.async_engine
    return engine.engine.max_model_len // 2 if engine.is_known else chunk_limit([model.source]) or 0


def _check_filter(where: Filter | None) -> None:
    """Raise ValueError for a filter that is too large for a query."""
    if where is None:
        return
    if len(where) > _MAX_FILTER_FIELDS:
        raise ValueError(f"the filter has {len(where)} fields; the limit is {_MAX_FILTER_FIELDS}")
    counts = [len(wanted) if isinstance(wanted, list | tuple) else 1 for wanted in where.values()]
    if sum(counts) > _MAX_FILTER_VALUES or max(counts, default=0) > _MAX_FIELD_VALUES:
        limits = f"the limits are {_MAX_FILTER_VALUES} and {_MAX_FIELD_VALUES}"
        raise ValueError(f"the filter has {sum(counts):,} values, up to {max(counts):,} in a field; {limits}")


def make_service(
    registry: ModelRegistry, settings: ServerSettings, metrics: Metrics | None = None
) -> CollectionService:
    """Build the service, possibly without collections or embedder. Raises ValueError for unusable settings."""
    directory = settings.rag_dir.expanduser() if settings.rag_dir is not None else None
    source = None
    if settings.embedder or directory is not None:
        from quire.rag.embedder import DEFAULT_EMBEDDER, find_embedder

        source = find_embedder(settings.embedder or DEFAULT_EMBEDDER)
    if directory is not None:
        from quire.rag.database import Database

        try:
            Database(directory).close()
        except (OSError, sqlite3.OperationalError) as error:
            raise ValueError(f"--rag-dir {directory} cannot be written ({error}); choose another place") from None

    return CollectionService(directory, source, settings=settings, models=registry, metrics=metrics)
