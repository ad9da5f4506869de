"""What a server keeps for retrieval: collections, the embedder, and who may see and change what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Collection as AnyOf
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quire.rag.embedding import Embeddings
from quire.server.collections.lanes import Lane
from quire.server.collections.shared_embedder import SharedEmbedder
from quire.server.collections.storage import Storage, errors_of, not_found
from quire.server.errors import ApiError
from quire.server.http.auth import PUBLIC_KEY_ID

if TYPE_CHECKING:
    from quire.rag.collections import Collection, CollectionInfo, Filter, Passage
    from quire.rag.embedder import EmbedderSource

MAX_QUERY_CHARACTERS = 16_384  #: of a longer query, the beginning counts
_MAX_FILTER_FIELDS = 32
_MAX_FILTER_VALUES = 100
_SEARCH_THREADS = 4
_EMBED_THREADS = 2
_MAX_WAITING = 1024


@dataclass(frozen=True)
class Found:
    """What a search found."""

    collection: CollectionInfo
    passages: list[Passage]
    num_query_tokens: int


class Library:
    """Collections in a directory and the embedder that they share. What blocks runs in threads of its own.

    Args:
        directory: of the collections; None for none.
        embedder: None for none.
        admins: the ids of keys that may make public collections, and change those of the command line. Where a server
            has no keys, everyone is one.

    Attributes:
        on_deleted: told, in a thread, of a collection and of the texts of its chunks that are no more.
    """

    def __init__(
        self,
        directory: Path | None = None,
        embedder: EmbedderSource | None = None,
        *,
        admins: AnyOf[str] = (),
    ) -> None:
        self._storage = Storage(directory) if directory is not None else None
        self._embedder = SharedEmbedder(embedder) if embedder is not None else None
        self._admins = frozenset(admins)
        self._searches = Lane("searches", _SEARCH_THREADS, _MAX_WAITING)
        self._embeddings = Lane("embeddings", _EMBED_THREADS, _MAX_WAITING)

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

    async def search(self, key_id: str, collection: str, query: str, *, top_k: int, where: Filter | None) -> Found:
        """The passages nearest to a query, best first.

        Args:
            key_id: of the key that asks.
            collection: the name of one that it may read.
            where: by fields of the documents' metadata.

        Raises:
            ApiError: 404 where the key may read no such collection; 400, 409, 429, 503 with what was wrong.
        """
        return await self._searches.run(lambda: self._search(key_id, collection, query, top_k, where))

    def _search(self, key_id: str, name: str, query: str, top_k: int, where: Filter | None) -> Found:
        found = self.find(key_id, name)
        with errors_of(name, "filter"):
            info = found.info
            self.check_embedder(info)
            _check_filter(where)
            embeddings = self.embedder.embed([query[:MAX_QUERY_CHARACTERS]], hurries=True)
            passages = found.search(embeddings.vectors[0], top_k, where)
        return Found(info, passages, embeddings.num_tokens[0])

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """The vectors of texts. Raises ApiError where there is no embedder, or it fails."""
        embedder = self.embedder
        return await self._embeddings.run(lambda: embedder.embed(texts))

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

    def is_admin(self, key_id: str) -> bool:
        """Whether a key may make public collections, and change those of the command line."""
        return key_id == PUBLIC_KEY_ID or key_id in self._admins

    def _owners(self, key_id: str) -> list[str]:
        """Whose collections are a key's own. Those of the command line have the owner "": where a server has no keys
        they are everyone's, else the admins'."""
        own = [] if key_id == PUBLIC_KEY_ID else [key_id]
        return [*own, ""] if self.is_admin(key_id) else own

    def check_embedder(self, info: CollectionInfo) -> None:
        """Raise ApiError where another embedder made a collection's vectors."""
        if info.fingerprint != self.embedder.facts.fingerprint:
            raise ApiError(
                409,
                f"collection {info.name!r} was embedded by another embedder than {self.embedder.name}, which this "
                "server runs; delete it and make it again, or start the server with the --embedder that made it",
                code="other_embedder",
            )

    def close(self) -> None:
        """End the embedder's process and the threads; keep what was learnt."""
        for lane in (self._searches, self._embeddings):
            lane.close()
        if self._embedder is not None:
            self._embedder.close()
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
