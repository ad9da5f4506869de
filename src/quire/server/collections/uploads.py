"""Ingest documents sent by clients: parsed in a limited child process, embedded and stored, with a result for each."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from quire.rag.document_parsing import KINDS, kind_of
from quire.rag.parser_process import ParserProcess
from quire.server.collections.storage import QuotaExceeded, RemainingQuota, errors_of, run_blocking
from quire.server.errors import RETRY_SOON, ApiError
from quire.system.fair_executor import FairExecutor
from quire.system.worker_process import WorkerError

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.ingest import Source, Upload
    from quire.rag.records import CollectionInfo, Metadata
    from quire.server.collections.schema import DocumentUpload
    from quire.server.collections.shared_embedder import SharedEmbedder

logger = logging.getLogger("quire.server")

_THREADS = 2  # a key uses one at most, so a slow document delays its own key only
_MAX_JOBS = 128  # a single owner gets half of the places
_MAX_NAME = 1024
_MAX_METADATA = 16_384


def read_upload(given: DocumentUpload) -> Upload:
    """Decode a document. Raises ValueError if its kind or bytes are missing, or name or metadata are invalid."""
    from quire.rag.ingest import Upload

    metadata = given.metadata or {}
    _check_name(given.name)
    _check_metadata(metadata)
    if (given.text is None) == (given.data is None):
        raise ValueError("it needs text or data, one of the two")
    kind = given.kind or kind_of(given.name) or ("text" if given.text is not None else None)
    if kind is None:
        raise ValueError(f"its name has no known suffix; give a kind ({', '.join(sorted(set(KINDS.values())))})")
    if given.text is not None:
        return Upload(given.name, kind, given.text.encode(), metadata)
    try:
        return Upload(given.name, kind, base64.b64decode(given.data or "", validate=True), metadata)
    except binascii.Error as error:
        raise ValueError(f"its data is not base64 ({error})") from None


@dataclass
class UploadOutcome:
    """Result of one upload, in documents; a SQuAD file holds several."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)  #: added, changed, unchanged, removed
    error: str | None = None
    is_quota: bool = False  #: the error is an exceeded quota


class _ClientLeft(Exception):
    """The client disconnected during the ingest."""


class Uploads:
    """Ingests the requests of each key in order."""

    def __init__(self, embedder: SharedEmbedder) -> None:
        self._embedder = embedder
        self._executor = FairExecutor("ingests", _THREADS, _MAX_JOBS, max_running=1)
        self._parsers = threading.local()
        self._all_parsers: list[ParserProcess] = []
        self._is_stopping = False

    async def ingest(
        self,
        key_id: str,
        info: CollectionInfo,
        collection: Collection,
        given: Sequence[DocumentUpload],
        read_quota: Callable[[], RemainingQuota],
    ) -> list[UploadOutcome]:
        """Add or replace documents by name. Documents stored before an ApiError or a disconnect stay."""
        client_left = threading.Event()
        work = partial(self._ingest, info, collection, given, read_quota, client_left)
        try:
            return await run_blocking(self._executor, work, key_id)
        finally:
            client_left.set()

    def _ingest(
        self,
        info: CollectionInfo,
        collection: Collection,
        given: Sequence[DocumentUpload],
        read_quota: Callable[[], RemainingQuota],
        client_left: threading.Event,
    ) -> list[UploadOutcome]:
        from quire.rag.ingest import ingest_uploads

        quota = read_quota()  # only now, since the key's earlier requests have used some
        all_outcomes = [UploadOutcome(each.name) for each in given]
        outcomes: dict[str, UploadOutcome] = {}
        uploads = []
        for each, outcome in zip(given, all_outcomes, strict=True):
            try:
                if each.name in outcomes:
                    raise ValueError("its name comes twice in this request")
                uploads.append(read_upload(each))
                outcomes[each.name] = outcome
            except ValueError as error:
                outcome.error = str(error)

        def check_quota(source: Source, num_documents: int, num_bytes: int) -> None:
            try:
                quota.charge(num_documents, num_bytes)
            except QuotaExceeded:
                outcomes[source.name].is_quota = True
                raise

        def on_documents(source: Source, what: str, count: int) -> None:
            outcomes[source.name].counts[what] += count

        def check_stop(*_: object) -> None:
            if self._is_stopping:
                message = "the server is shutting down; added documents stay, send the others again"
                raise ApiError(503, message, code="shutting_down", headers=RETRY_SOON)
            if client_left.is_set():
                raise _ClientLeft

        parser = self._parser()
        with errors_of(info.name):
            cut = partial(
                parser.cut,
                embedder=self._embedder.location,
                readers=info.readers,
                num_tokens=info.chunk_tokens,
                overlap=info.overlap_tokens,
            )
            _check_tokenizers(cut)
            report = ingest_uploads(
                collection, uploads, embedder=self._embedder, parser=parser, cut=cut,
                check_quota=check_quota, on_documents=on_documents, on_progress=check_stop,
            )  # fmt: skip
        if report.failed:
            check_stop()  # the failure may be due to the shutdown
        for failed, reason in report.failed:
            outcomes[failed].error = reason
        return all_outcomes

    def _parser(self) -> ParserProcess:
        """The calling thread's parser."""
        if not hasattr(self._parsers, "parser"):
            self._parsers.parser = ParserProcess()
            self._all_parsers.append(self._parsers.parser)
        parser: ParserProcess = self._parsers.parser
        return parser

    def stop(self) -> None:
        """Stop the threads and their processes; pending requests fail."""
        self._is_stopping = True
        self._executor.close()
        for parser in self._all_parsers:
            parser.stop()


def _check_tokenizers(cut: Callable[[str], object]) -> None:
    """Raise ApiError if the tokenizers of the collection's models cannot be read."""
    try:
        cut("")
    except (ValueError, WorkerError) as error:
        logger.error("documents cannot be cut into chunks: %s", error)
        message = "the tokenizers of this collection's models cannot be read; the server's log says why"
        raise ApiError(503, message, code="storage_failed", headers=RETRY_SOON) from None


def _check_name(name: str) -> None:
    if not (0 < len(name) <= _MAX_NAME and name.isprintable()):
        raise ValueError(f"its name must have 1 to {_MAX_NAME} printable characters")
    if name.isascii() and name.isdigit():
        raise ValueError("its name is a number, which would be a document's id; add a letter")


def _check_metadata(metadata: Metadata) -> None:
    from quire.rag.records import check_metadata

    check_metadata(metadata)
    if (size := len(json.dumps(dict(metadata)))) > _MAX_METADATA:
        raise ValueError(f"its metadata take {size:,} characters as JSON; at most {_MAX_METADATA:,} are allowed")
