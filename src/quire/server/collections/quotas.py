"""How much a tenant may keep in collections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.config import format_size
from quire.server.errors import ApiError

if TYPE_CHECKING:
    from quire.rag.records import StorageUsage


@dataclass(frozen=True)
class Quotas:
    """Of each key; where a server has no keys, of all together."""

    collections: int = 100
    documents: int = 100_000
    bytes: int = 1 << 30  #: of texts, metadata and vectors


class QuotaExceeded(ValueError):
    """A document finds no room."""


class RemainingQuota:
    """What an owner may still add, counted down while an ingest goes on."""

    def __init__(self, quotas: Quotas, usage: StorageUsage) -> None:
        self._quotas = quotas
        self._documents, self._bytes = usage.num_documents, usage.num_bytes

    def take(self, num_documents: int, num_bytes: int) -> None:
        """Count what is to be added; negative numbers give room back.

        Raises:
            QuotaExceeded: it is more than there is room for; nothing is counted.
        """
        documents, size = self._documents + num_documents, self._bytes + num_bytes
        if num_documents > 0 and documents > self._quotas.documents:
            raise QuotaExceeded(
                f"it would be document {documents:,} of this key, and {self._quotas.documents:,} is its limit; delete "
                "some, or have the server run with a larger --max-documents-per-key"
            )
        if num_bytes > 0 and size > self._quotas.bytes:
            raise QuotaExceeded(
                f"it takes {format_size(num_bytes)} with its vectors, and {format_size(self._bytes)} of the "
                f"{format_size(self._quotas.bytes)} that this key may keep are used; delete some documents, or have "
                "the server run with a larger --max-collection-bytes-per-key"
            )
        self._documents, self._bytes = documents, size


def check_collections(quotas: Quotas, usage: StorageUsage) -> None:
    """Raise ApiError where an owner has as many collections as it may."""
    if usage.num_collections >= quotas.collections:
        raise ApiError(
            413,
            f"this key has {usage.num_collections:,} collections, which is its limit; delete one, or have the server "
            "run with a larger --max-collections-per-key",
            code="quota_exceeded",
        )
