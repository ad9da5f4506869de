"""Open a server's collections on first use, and translate their errors for clients.

Searches use a database connection of their own, so they never wait for a change.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from quire.server.errors import RETRY_SOON, ApiError, invalid

if TYPE_CHECKING:
    from quire.rag.collections import Collections
    from quire.rag.records import OnDeleted

logger = logging.getLogger("quire.server")


class Storage:
    """The collections in a directory. `on_deleted` receives the texts of deleted chunks after each change."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.on_deleted: OnDeleted | None = None
        self._opening = threading.Lock()
        self._reading: Collections | None = None
        self._writing: Collections | None = None

    @property
    def reading(self) -> Collections:
        """The connection for reading."""
        with self._opening:
            if self._reading is None:
                self._reading = self._open()
            return self._reading

    @property
    def writing(self) -> Collections:
        """The connection for changes."""
        with self._opening:
            if self._writing is None:
                self._writing = self._open(self._report_deleted)
            return self._writing

    def _open(self, on_deleted: OnDeleted | None = None) -> Collections:
        try:
            from quire.rag.collections import Collections
        except ModuleNotFoundError as error:
            what = f"collections need {error.name}, which this server lacks; run `pip install 'quire[rag]'` there"
            raise ApiError(501, what, code="not_installed") from None
        try:
            return Collections(self.directory, on_deleted)
        except ValueError as error:
            raise _broken(error) from None

    def _report_deleted(self, info: object, texts: list[str]) -> None:
        if self.on_deleted is not None:
            self.on_deleted(info, texts)  # type: ignore[arg-type]

    def close(self) -> None:
        """Save the searched indexes for the next start, and close both connections."""
        with self._opening:
            if self._reading is not None:
                with suppress(sqlite3.Error):
                    self._reading.save_indexes()
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
