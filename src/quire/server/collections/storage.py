"""The collections of a server, opened when they are first needed; and what goes wrong with them, as clients see it.

Searches have a connection to the database of their own, so that they never wait for a change.
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
    """The collections in a directory.

    Attributes:
        on_deleted: told of the texts of chunks that are no more, after each change.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.on_deleted: OnDeleted | None = None
        self._opening = threading.Lock()
        self._reading: Collections | None = None
        self._writing: Collections | None = None

    @property
    def reading(self) -> Collections:
        """For what does not change anything."""
        with self._opening:
            if self._reading is None:
                self._reading = self._open()
            return self._reading

    @property
    def writing(self) -> Collections:
        """For changes."""
        with self._opening:
            if self._writing is None:
                self._writing = self._open(self._tell)
            return self._writing

    def _open(self, on_deleted: OnDeleted | None = None) -> Collections:
        try:
            from quire.rag.collections import Collections
        except ModuleNotFoundError as error:
            what = f"collections need {error.name}, which this server lacks; have `pip install 'quire[rag]'` run there"
            raise ApiError(501, what, code="not_installed") from None
        try:
            return Collections(self.directory, on_deleted)
        except ValueError as error:
            raise _broken(error) from None

    def _tell(self, info: object, texts: list[str]) -> None:
        if self.on_deleted is not None:
            self.on_deleted(info, texts)  # type: ignore[arg-type]

    def close(self) -> None:
        """Save the indexes that were searched, which spares the next start the work."""
        with self._opening:
            if self._reading is not None:
                with suppress(sqlite3.Error):
                    self._reading.save_indexes()
            for each in (self._reading, self._writing):
                if each is not None:
                    each.close()
            self._reading = self._writing = None


def not_found(name: str) -> ApiError:
    """The same for a collection that is not there and for one that is somebody else's."""
    message = f"there is no collection {name!r:.200}; GET /v1/collections lists those that there are"
    return ApiError(404, message, "collection", "collection_not_found")


@contextmanager
def errors_of(name: str, param: str | None = None) -> Iterator[None]:
    """What goes wrong with a collection, as `ApiError`.

    Args:
        name: of the collection.
        param: the field of the body that a plain ValueError is about.
    """
    from quire.rag.collection import CollectionBusy, CollectionGone

    try:
        yield
    except CollectionGone:
        raise not_found(name) from None
    except CollectionBusy:
        message = f"something else adds to collection {name!r:.200} now; try again when it is done"
        raise ApiError(409, message, code="collection_busy", headers=RETRY_SOON) from None
    except (sqlite3.Error, OSError) as error:
        raise _broken(error) from None
    except ValueError as error:
        raise invalid(str(error), param) from None


def _broken(error: Exception) -> ApiError:
    logger.error("collections cannot be used: %s", error)
    why = " (the disk is full)" if "full" in str(error) or getattr(error, "errno", None) == 28 else ""
    message = f"the server's collections cannot be used now{why}; its log says more. What was kept before stays"
    return ApiError(503, message, code="storage_failed", headers=RETRY_SOON)
