"""What a server keeps for retrieval: collections, the embedder, and who may see and change what."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Collection as AnyOf
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from quire.rag.embedding import Embeddings
from quire.server.collections.lanes import Lane
from quire.server.collections.quotas import Quotas, RemainingQuota, check_collections
from quire.server.collections.shared_embedder import SharedEmbedder
from quire.server.collections.storage import Storage, errors_of, not_found
from quire.server.collections.uploads import DocumentInput, UploadOutcome, Uploads
from quire.server.errors import ApiError, invalid
from quire.server.http.auth import PUBLIC_KEY_ID
from quire.server.metrics.metrics import Metrics

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.embedder import EmbedderSource
    from quire.rag.records import CollectionInfo, Filter, Passage

T = TypeVar("T")
MAX_QUERY_CHARACTERS = 16_384  #: of a longer query, the beginning counts
_MAX_VECTORS = 1_000_000  # of searched collections, in memory: 776 bytes each for 384 dimensions
_MAX_FILTER_FIELDS = 32
_MAX_FILTER_VALUES = 100
_SEARCH_THREADS = 4
_EMBED_THREADS = 2
_OTHER_THREADS = 3
_MAX_WAITING = 1024


@dataclass(frozen=True)
class ReaderModel:
    """A model that chunks are to fit."""

    source: str  #: the directory, hub id or preset that it is loaded from
    max_model_len: int | None  #: None where it is not known yet

    def limit(self) -> int:
        """The longest chunk that leaves half of its context for the question and the answer."""
        from quire.rag.reader_models import chunk_limit

        return self.max_model_len // 2 if self.max_model_len is not None else chunk_limit([self.source]) or 0


@dataclass(frozen=True)
class SearchResult:
    """What a search found."""

    collection: CollectionInfo
    passages: list[Passage]
    num_query_tokens: int


class CollectionService:
    """Collections in a directory and the embedder that they share. What blocks runs in threads of its own.

    Args:
        directory: of the collections; None for none.
        embedder: None for none.
        admins: the ids of keys that may make public collections, and change those of the command line. Where a server
            has no keys, everyone is one.
        quotas: of each key.
        readers: the models that chunks of a new collection are to fit.

    Attributes:
        on_deleted: told, in a thread, of a collection and of the texts of its chunks that are no more.
    """

    def __init__(
        self,
        directory: Path | None = None,
        embedder: EmbedderSource | None = None,
        *,
        admins: AnyOf[str] = (),
        quotas: Quotas | None = None,
        readers: Callable[[], Sequence[ReaderModel]] = tuple,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self._storage = Storage(directory) if directory is not None else None
        self._embedder = SharedEmbedder(embedder, self._metrics.observe_embedded) if embedder is not None else None
        self._uploads = Uploads(self._embedder) if self._embedder is not None else None
        self._admins = frozenset(admins)
        self._quotas = quotas or Quotas()
        self._readers = readers
        self._searches = Lane("searches", _SEARCH_THREADS, _MAX_WAITING)
        self._embeddings = Lane("embeddings", _EMBED_THREADS, _MAX_WAITING)
        self._others = Lane("collections", _OTHER_THREADS, _MAX_WAITING)

    @property
    def on_deleted(self) -> Callable[[CollectionInfo, list[str]], None] | None:
        return self._storage.on_deleted if self._storage is not None else None

    @on_deleted.setter
    def on_deleted(self, listener: Callable[[CollectionInfo, list[str]], None] | None) -> None:
        if self._storage is not None:
            self._storage.on_deleted = listener

    @property
    def storage(self) -> Storage:
        """Raises ApiError where the server has no collections."""
        if self._storage is None:
            message = "this server keeps no collections; start it with --rag-dir DIR"
            raise ApiError(404, message, code="collections_off")
        return self._storage

    @property
    def embedder(self) -> SharedEmbedder:
        """Raises ApiError where the server has none."""
        if self._embedder is None:
            message = "this server has no embedder; start it with --embedder NAME, such as all-MiniLM-L6-v2"
            raise ApiError(404, message, code="embeddings_off")
        return self._embedder

    async def search(
        self, key_id: str, collection: str, query: str, *, top_k: int, where: Filter | None
    ) -> SearchResult:
        """The passages nearest to a query, best first.

        Args:
            key_id: of the key that asks.
            collection: the name of one that it may read.
            where: by fields of the documents' metadata.

        Raises:
            ApiError: 404 where the key may read no such collection; 400, 409, 429, 503 with what was wrong.
        """
        begin = time.monotonic()
        found = await self._searches.run(lambda: self._search(key_id, collection, query, top_k, where))
        self._metrics.observe_search(time.monotonic() - begin)
        return found

    def _search(self, key_id: str, name: str, query: str, top_k: int, where: Filter | None) -> SearchResult:
        found = self.find(key_id, name)
        with errors_of(name, "filter"):
            info = found.info
            self.check_embedder(info)
            _check_filter(where)
            embeddings = self.embedder.embed([query[:MAX_QUERY_CHARACTERS]], use="search")
            passages = found.search(embeddings.vectors[0], top_k, where)
            self.storage.reading.trim_indexes(_MAX_VECTORS)
        return SearchResult(info, passages, embeddings.num_tokens[0])

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """The vectors of texts. Raises ApiError where there is no embedder, or it fails."""
        embedder = self.embedder
        return await self._embeddings.run(lambda: embedder.embed(texts, use="embeddings"))

    def find(self, key_id: str, name: str) -> Collection:
        """A collection that a key may read: its own, then, for admins, the command line's, then a public one. Blocks.

        Raises:
            ApiError: 404, there is none.
        """
        reading = self.storage.reading
        with errors_of(name):
            for owner in self._owners(key_id):
                if (found := reading.find(name, owner)) is not None:
                    return found
            if (found := reading.find_public(name)) is not None:
                return found
        raise not_found(name)

    def find_own(self, key_id: str, name: str) -> Collection:
        """As `find`, of those that a key may change, ready to be changed. Blocks.

        Raises:
            ApiError: 404, there is none; 403, it is public, and somebody else's.
        """
        found = self.find(key_id, name)
        with errors_of(name):
            if found.info.owner not in self._owners(key_id):
                message = f"collection {name!r:.200} is public, and only the key that made it changes it"
                raise ApiError(403, message, "collection", "not_owner")
            return self.storage.writing.by_id(found.id)

    async def infos(self, key_id: str) -> list[CollectionInfo]:
        """The collections that a key may read, by name."""
        return await self.run(lambda: self.storage.reading.infos(*self._owners(key_id), and_public=True), "")

    async def create(
        self, key_id: str, name: str, *, is_public: bool, chunk_tokens: int | None, overlap_tokens: int | None
    ) -> CollectionInfo:
        """A new collection, whose chunks fit the served models.

        Raises:
            ApiError: 400, 403, 409 where the key has one of that name, 413 where it has too many.
        """
        if is_public and not self.is_admin(key_id):
            message = "only an admin key makes public collections; leave public out"
            raise ApiError(403, message, "public", "not_admin")
        return await self.run(lambda: self._create(key_id, name, is_public, chunk_tokens, overlap_tokens), name)

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
        check_collections(self._quotas, writing.usage(owner))
        if writing.find(name, owner) is not None or (is_public and writing.find_public(name) is not None):
            message = f"there is a collection {name!r} already; delete it first, or choose another name"
            raise ApiError(409, message, "name", "collection_exists")
        facts, readers = self.embedder.facts, self._readers()
        limit = min([facts.max_tokens, *(reader.limit() for reader in readers)])
        if chunk_tokens is not None and not 8 <= chunk_tokens <= limit:
            message = (
                f"chunk_tokens={chunk_tokens}: chunks that fit the embedder and half of the context of each model "
            )
            raise invalid(message + f"have 8 to {limit} tokens", "chunk_tokens")
        size = chunk_tokens or min(DEFAULT_CHUNK_TOKENS, limit)
        if overlap_tokens is not None and overlap_tokens > size // 2:
            message = f"overlap_tokens={overlap_tokens} is more than half of the {size} tokens of a chunk; take less"
            raise invalid(message, "overlap_tokens")
        overlap = min(DEFAULT_OVERLAP_TOKENS, size // 2) if overlap_tokens is None else overlap_tokens
        sources = [reader.source for reader in readers]
        return writing.create(
            name, facts, chunk_tokens=size, overlap_tokens=overlap, readers=sources, owner=owner, is_public=is_public
        ).info

    async def delete(self, key_id: str, name: str) -> str:
        """Delete a collection with all that is in it, and give its id."""

        def work() -> str:
            found = self.find_own(key_id, name)
            self.storage.writing.delete_by_id(found.id)
            self.storage.reading.release_index(found.id)
            return found.id

        return await self.run(work, name)

    async def add(self, key_id: str, name: str, given: Sequence[DocumentInput]) -> list[UploadOutcome]:
        """Add documents, or replace those of the same names. See `Uploads.take`.

        Raises:
            ApiError: what the collection or the embedder lack.
        """

        def prepare() -> tuple[CollectionInfo, Collection]:
            found = self.find_own(key_id, name)
            info = found.info
            self.check_embedder(info)
            return info, found

        def make_room() -> RemainingQuota:
            with errors_of(name):
                return RemainingQuota(self._quotas, self.storage.reading.usage(info.owner))

        info, found = await self.run(prepare, name)
        assert self._uploads is not None  # or `prepare` has said that there is no embedder
        outcomes = await self._uploads.take(key_id, info, found, given, make_room)
        for outcome in outcomes:
            self._metrics.observe_documents({**outcome.counts, "failed": int(outcome.error is not None)})
        return outcomes

    async def run(self, work: Callable[[], T], name: str) -> T:
        """The result of `work` on a collection of that name, from a thread; what goes wrong there is an ApiError."""

        def translated() -> T:
            storage = self.storage  # first of all
            assert storage.reading is not None
            with errors_of(name):
                return work()

        return await self._others.run(translated)

    def owner(self, key_id: str) -> str:
        """What a key is in `CollectionInfo.owner`."""
        return "" if key_id == PUBLIC_KEY_ID else key_id

    def is_admin(self, key_id: str) -> bool:
        """Whether a key may make public collections, and change those of the command line."""
        return key_id == PUBLIC_KEY_ID or key_id in self._admins

    def _owners(self, key_id: str) -> list[str]:
        """Whose collections are a key's own. Those of the command line have the owner "": where a server has no keys
        they are everyone's, else the admins'."""
        own = self.owner(key_id)
        return [own, ""] if own and self.is_admin(key_id) else [own]

    def check_embedder(self, info: CollectionInfo) -> None:
        """Raise ApiError where another embedder made a collection's vectors."""
        if info.fingerprint != self.embedder.facts.fingerprint:
            raise ApiError(
                409,
                f"collection {info.name!r} was embedded by another embedder than {self.embedder.name}, which this "
                "server runs; delete it and make it again, or start the server with the --embedder that made it",
                code="other_embedder",
            )

    def stop(self) -> None:
        """End the processes: what goes on ends with an error, and what it has kept stays."""
        if self._uploads is not None:
            self._uploads.stop()
        if self._embedder is not None:
            self._embedder.stop()

    def close(self) -> None:
        """`stop`, and end the threads, too."""
        self.stop()
        for lane in (self._searches, self._embeddings, self._others):
            lane.close()
        if self._storage is not None:
            self._storage.close()


def _check_filter(where: Filter | None) -> None:
    """Raise ValueError where a filter is larger than the database should be asked."""
    if where is None:
        return
    if len(where) > _MAX_FILTER_FIELDS:
        raise ValueError(f"the filter has {len(where)} fields; at most {_MAX_FILTER_FIELDS} are taken")
    for key, wanted in where.items():
        if isinstance(wanted, list | tuple) and len(wanted) > _MAX_FILTER_VALUES:
            raise ValueError(
                f"the filter has {len(wanted)} values of {key!r:.60}; at most {_MAX_FILTER_VALUES} are taken"
            )
