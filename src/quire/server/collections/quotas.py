"""Storage quotas of collections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.config import format_size
from quire.server.errors import ApiError

if TYPE_CHECKING:
    from quire.rag.records import StorageUsage


@dataclass(frozen=True)
class Quotas:
    """Limits per API key, or for the whole server if it has no keys."""

    collections: int = 100
    documents: int = 100_000
    bytes: int = 1 << 30  #: texts, metadata and vectors


class QuotaExceeded(ValueError):
    """A document exceeds its owner's quota."""


class RemainingQuota:
    """An owner's quota, counted during an ingest."""

    def __init__(self, quotas: Quotas, usage: StorageUsage) -> None:
        self._quotas = quotas
        self._documents, self._bytes = usage.num_documents, usage.num_bytes

    def charge(self, num_documents: int, num_bytes: int) -> None:
        """Count an addition (negative: a removal). Raises QuotaExceeded, and counts nothing, over the limit."""
        documents, size = self._documents + num_documents, self._bytes + num_bytes
        if num_documents > 0 and documents > self._quotas.documents:
            raise QuotaExceeded(
                f"it would be document {documents:,} of this key, and {self._quotas.documents:,} is its limit; delete "
                "some, or raise the server's --max-documents-per-key"
            )
        if num_bytes > 0 and size > self._quotas.bytes:
            raise QuotaExceeded(
                f"it takes {format_size(num_bytes)} with its vectors, and {format_size(self._bytes)} of this key's "
                f"{format_size(self._quotas.bytes)} are used; delete some documents, or raise the server's "
                "--max-collection-bytes-per-key"
            )
        self._documents, self._bytes = documents, size


def check_collections(quotas: Quotas, usage: StorageUsage) -> None:
    """Raise ApiError if an owner has the maximum number of collections."""
    if usage.num_collections >= quotas.collections:
        raise ApiError(
            413,
            f"this key has {usage.num_collections:,} collections, its limit; delete one, or raise the server's "
            "--max-collections-per-key",
            code="quota_exceeded",
        )
