"""Storage of collections: opening, quotas, blocking work in executors, and errors for clients.

Searches use a database connection of their own, so they never wait for a change.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from quire.config import format_size
from quire.server.errors import RETRY_SOON, ApiError, invalid
from quire.server.settings import ServerSettings
from quire.system.fair_executor import FairExecutor, TooManyJobs

if TYPE_CHECKING:
    from quire.rag.collections import Collections
    from quire.rag.records import OnDeleted, StorageUsage


T = TypeVar("T")


async def run_blocking(executor: FairExecutor, work: Callable[[], T], owner: str = "") -> T:
    """Return the result of `work`; owners take turns. ApiError 429: too much work is queued; 503: closed."""
    try:
        future = executor.submit(work, owner)
    except TooManyJobs as error:
        raise ApiError(429, f"{error}; try again soon", code="queue_full", headers=RETRY_SOON) from None
    except RuntimeError:
        raise _closed() from None
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if future.cancelled() and waiting is not None and not waiting.cancelling():  # by `close`
            raise _closed() from None
        raise


def _closed() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down", headers=RETRY_SOON)


class QuotaExceeded(ValueError):
    """A document exceeds its owner's quota."""


class RemainingQuota:
    """An owner's quota of documents and bytes, counted during an ingest."""

    def __init__(self, settings: ServerSettings, usage: StorageUsage) -> None:
        self._most_documents, self._most_bytes = settings.max_documents_per_key, settings.max_collection_bytes_per_key
        self._documents, self._bytes = usage.num_documents, usage.num_bytes

    def charge(self, num_documents: int, num_bytes: int) -> None:
        """Count an addition (negative: a removal). Raises QuotaExceeded, and counts nothing, over the limit."""
        documents, size = self._documents + num_documents, self._bytes + num_bytes
        if num_documents > 0 and documents > self._most_documents:
            raise QuotaExceeded(
                f"it would be document {documents:,} of this key, and {self._most_documents:,} is its limit; delete "
                "some, or raise the server's --max-documents-per-key"
            )
        if num_bytes > 0 and size > self._most_bytes:
            raise QuotaExceeded(
                f"it takes {format_size(num_bytes)} with its vectors, and {format_size(self._bytes)} of this key's "
                f"{format_size(self._most_bytes)} are used; delete some documents, or raise the server's "
                "--max-collection-bytes-per-key"
            )
        self._documents, self._bytes = documents, size


def check_collections(settings: ServerSettings, usage: StorageUsage) -> None:
    """Raise ApiError if an owner has the maximum number of collections."""
    if usage.num_collections >= settings.max_collections_per_key:
        raise ApiError(
            413,
            f"this key has {usage.num_collections:,} collections, its limit; delete one, or raise the server's "
            "--max-collections-per-key",
            code="quota_exceeded",
        )


logger = logging.getLogger("quire.server")


class Storage:
    """The collections in a directory. `on_deleted` receives the texts of deleted chunks after each change."""

    def __init__(self, directory: Path, on_deleted: OnDeleted) -> None:
        self.directory = directory
        self._on_deleted = on_deleted
        self._opening = threading.Lock()
        self._reading: Collections | None = None
        self._writing: Collections | None = None

    @property
    def reading(self) -> Collections:
        with self._opening:
            if self._reading is None:
                self._reading = self._open()
            return self._reading

    @property
    def writing(self) -> Collections:
        with self._opening:
            if self._writing is None:
                self._writing = self._open(self._on_deleted)
            return self._writing

    def _open(self, on_deleted: OnDeleted | None = None) -> Collections:
        try:
            from quire.rag.collections import Collections
        except ModuleNotFoundError as error:
            what = f"collections need {error.name}, which this server lacks; run `pip install 'quire-llm[rag]'` there"
            raise ApiError(501, what, code="not_installed") from None
        try:
            return Collections(self.directory, on_deleted)
        except ValueError as error:
            raise _broken(error) from None

    def close(self) -> None:
        with self._opening:
            for each in (self._reading, self._writing):
                if each is not None:
                    each.close()
            self._reading = self._writing = None


def not_found(name: str) -> ApiError:
    """The error for a missing collection, and for one that the key must not see."""
    message = f"there is no collection {name!r:.200}; GET /v1/collections lists the readable ones"
    return ApiError(404, message, "collection", "collection_not_found")


@contextmanager
def errors_of(name: str, param: str | None = None) -> Iterator[None]:
    """Translate errors of the collection `name` to `ApiError`; a ValueError concerns the body's field `param`."""
    from quire.rag.collection import CollectionBusy, CollectionGone

    try:
        yield
    except CollectionGone:
        raise not_found(name) from None
    except CollectionBusy:
        message = f"another request adds to collection {name!r:.200} now; try again when it is done"
        raise ApiError(409, message, code="collection_busy", headers=RETRY_SOON) from None
    except (sqlite3.Error, OSError) as error:
        raise _broken(error) from None
    except ValueError as error:
        raise invalid(str(error), param) from None


def _broken(error: Exception) -> ApiError:
    logger.error("collections cannot be used: %s", error)
    why = " (the disk is full)" if "full" in str(error) or getattr(error, "errno", None) == 28 else ""
    message = f"the server's collections cannot be used now{why}; its log says more. Stored documents are safe"
    return ApiError(503, message, code="storage_failed", headers=RETRY_SOON)
