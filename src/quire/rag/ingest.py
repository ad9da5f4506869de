"""Ingest files and uploads into a collection: parse, cut, embed and store what is new as it is finished."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from quire.rag.chunks import Chunk, cut
from quire.rag.collection import Collection, CollectionBusy, CollectionGone
from quire.rag.document_parsing import KINDS, ParsedDocument, kind_of
from quire.rag.embedder import TokenCounter
from quire.rag.embedding import Embedder
from quire.rag.parser_process import MAX_FILE_BYTES, ParserProcess
from quire.rag.records import DocumentInfo, Metadata, NewDocument, check_metadata, size_of
from quire.system.worker_process import WorkerError

_BATCH_CHUNKS = 64  # embedded and stored together
_NO_VECTORS = np.empty((0, 0), np.float32)
_VERSION = b"2"  # of the parsers; a new one has all files parsed again


@dataclass(frozen=True)
class SourceFile:
    path: Path  #: absolute
    name: str  #: relative to the parent of the given directory
    metadata: Metadata = field(default_factory=dict)  #: for its documents, beside `kind` and `title`

    @property
    def origin(self) -> str:
        """Identifies the file in stored documents."""
        return _printable(self.path)

    @property
    def kind(self) -> str:
        return KINDS[self.path.suffix.lower()]

    def read(self) -> bytes:
        if self.path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB; split it")
        return self.path.read_bytes()

    def parse(self, parser: ParserProcess, data: bytes) -> list[ParsedDocument]:
        return parser.parse(self.name, data)


@dataclass(frozen=True)
class Upload:
    """A document sent by a client; it replaces an earlier one of the same name."""

    name: str
    kind: str
    data: bytes = field(repr=False)
    metadata: Metadata = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return self.name

    def read(self) -> bytes:
        return self.data

    def parse(self, parser: ParserProcess, data: bytes) -> list[ParsedDocument]:
        found = parser.parse_as(self.kind, data)
        if not found:  # an empty file would delete its documents
            raise ValueError("it has no text")
        return found


Source = SourceFile | Upload


@dataclass
class IngestReport:
    """Counts of documents, files and chunks."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    num_files: int = 0
    num_chunks: int = 0  #: stored, for added and changed documents
    num_embedded: int = 0  #: stored chunks whose text is new
    failed: list[tuple[str, str]] = field(default_factory=list)  #: source name and reason
    empty: list[str] = field(default_factory=list)  #: names of files without text
    skipped: dict[str, int] = field(default_factory=Counter)  #: files of unsupported kinds in folders, by suffix


#: Receives (finished files, all files, report). An exception ends the ingest.
ProgressListener = Callable[[int, int, IngestReport], None]
#: Receives (source, "added", "changed", "unchanged" or "removed", number of documents).
DocumentListener = Callable[[Source, str, int], None]
#: Receives (source, additional documents, additional bytes) before embedding. Its ValueError rejects the source.
QuotaCheck = Callable[[Source, int, int], None]
Cut = Callable[[str], Sequence[Chunk]]


def find_files(paths: Sequence[Path], skipped: dict[str, int] | None = None) -> list[SourceFile]:
    """List the given files and, of directories, all visible files of a supported kind; count others by suffix in
    `skipped`, a Counter. Raises ValueError."""
    found: dict[Path, SourceFile] = {}
    for given in paths:
        root = _absolute(given)
        if root.is_dir():
            for folder, folders, names in os.walk(root, onerror=_raise_unreadable):
                folders[:] = sorted(each for each in folders if not each.startswith("."))
                for name in sorted(names):
                    path = Path(folder, name)
                    if name.startswith(".") or not path.is_file():
                        continue
                    if kind_of(name) is not None:
                        found.setdefault(path, SourceFile(path, _printable(path.relative_to(root.parent))))
                    elif skipped is not None:
                        skipped[_printable(Path(path.suffix.lower())) if path.suffix else "no suffix"] += 1
        elif root.is_file():
            found.setdefault(root, SourceFile(root, _printable(Path(root.name))))
        else:
            raise ValueError(f"{given}: there is no such file or directory")
    return list(found.values())


def _absolute(path: Path) -> Path:
    """The absolute path, without resolving links."""
    return Path(os.path.abspath(path.expanduser()))


def _printable(path: Path) -> str:
    """Escape bytes that are not Unicode, and characters that control a terminal."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _raise_unreadable(error: OSError) -> None:
    """Fail on an unreadable folder, since its documents would count as removed."""
    raise ValueError(f"{error.filename} cannot be read: {error.strerror}")


def ingest(
    collection: Collection,
    paths: Sequence[Path],
    *,
    embedder: Embedder,
    parser: ParserProcess,
    counters: Sequence[TokenCounter],
    metadata: Metadata | None = None,
    report: IngestReport | None = None,
    on_progress: ProgressListener = lambda done, total, report: None,
) -> IngestReport:
    """Synchronize a collection with the files at these paths; documents from elsewhere, and of unreadable files, stay.
    `report` is filled during the run. ValueError for a missing path, another embedder or a concurrent ingest,
    WorkerError if the embedder's process ends."""
    report = report or IngestReport()
    files = [replace(file, metadata=dict(metadata or {})) for file in find_files(paths, report.skipped)]
    check_metadata(metadata or {})
    collection.check_embedder(embedder.facts)
    info = collection.info
    cut_up = partial(cut, counters=counters, num_tokens=info.chunk_tokens, overlap=info.overlap_tokens)
    with collection.changing():
        run = _Ingest(collection, embedder, parser, cut_up, report)
        run.run(files, on_progress)
        run.remove_missing({file.origin for file in files}, [_absolute(path) for path in paths])
        on_progress(len(files), len(files), run.report)
    return run.report


def ingest_uploads(
    collection: Collection,
    uploads: Sequence[Upload],
    *,
    embedder: Embedder,
    parser: ParserProcess,
    cut: Cut,
    check_quota: QuotaCheck = lambda source, num_documents, num_bytes: None,
    on_documents: DocumentListener = lambda source, what, count: None,
    on_progress: ProgressListener = lambda done, total, report: None,
) -> IngestReport:
    """Store uploads with distinct names, replacing differing documents of the same names. A rejected upload, also by a
    ValueError or WorkerError of `cut`, is reported, and its stored documents stay. Raises CollectionGone,
    CollectionBusy, and WorkerError if the embedder's process ends."""
    with collection.changing():
        run = _Ingest(collection, embedder, parser, cut, IngestReport(), check_quota, on_documents)
        run.run(uploads, on_progress)
    return run.report


@dataclass
class _Draft:
    """A document that is cut but not embedded yet."""

    source: Source
    document: NewDocument  #: without vectors
    completes: bytes = b""  #: the source's hash, if this is its last document

    @property
    def texts(self) -> list[str]:
        return [self.document.text[chunk.start : chunk.end] for chunk in self.document.chunks]


@dataclass
class _Ingest:
    collection: Collection
    embedder: Embedder
    parser: ParserProcess
    cut: Cut
    report: IngestReport
    check_quota: QuotaCheck = lambda source, num_documents, num_bytes: None
    on_documents: DocumentListener = lambda source, what, count: None
    drafts: list[_Draft] = field(default_factory=list)

    def run(self, sources: Sequence[Source], on_progress: ProgressListener) -> None:
        for number, source in enumerate(sources):
            on_progress(number, len(sources), self.report)
            try:
                self._draft(source, self.collection.documents_of(source.origin))
            except OSError as error:
                self.report.failed.append((source.name, error.strerror or str(error)))
            except (CollectionGone, CollectionBusy):
                raise
            except (ValueError, WorkerError) as error:
                self.report.failed.append((source.name, str(error)))
            self.report.num_files += 1
            while sum(len(draft.document.chunks) for draft in self.drafts) >= _BATCH_CHUNKS:
                self._store_batch()
                on_progress(number, len(sources), self.report)
        while self.drafts:
            self._store_batch()
            on_progress(len(sources), len(sources), self.report)

    def remove_missing(self, origins: Set[str], roots: Sequence[Path]) -> None:
        """Remove documents under these roots whose files are gone."""
        under = {Path(_printable(root)) for root in roots}
        gone = [
            document
            for document in self.collection.documents()
            if document.origin not in origins and under & {Path(document.origin), *Path(document.origin).parents}
        ]
        self.report.removed += self._remove(gone)

    def _draft(self, source: Source, known: Sequence[DocumentInfo]) -> None:
        """Compare a source with its stored documents, and draft the new ones."""
        data = source.read()
        own = source.metadata
        origin_hash = _hash(own, data)
        if known and all(document.origin_hash == origin_hash for document in known):
            self._report(source, "unchanged", len(known))
            return
        hashes: dict[bytes, tuple[ParsedDocument, Metadata]] = {}  # also drops duplicates within a source
        found = source.parse(self.parser, data)
        if not found:
            self.report.empty.append(source.name)
        for each in found:
            title = {"title": each.title} if each.title else {}
            metadata: Metadata = {"kind": source.kind, **title, **own}
            hashes.setdefault(_hash(own, each.text.encode(), json.dumps(metadata).encode()), (each, metadata))
        old = [document for document in known if document.content_hash not in hashes]
        known_hashes = {document.content_hash for document in known}
        dimension = self.embedder.facts.dimension
        drafts, num_bytes = list[_Draft](), 0
        for key, (each, metadata) in hashes.items():
            if key not in known_hashes:
                about = (source.origin, source.name, metadata, each.text, key)
                new = NewDocument(*about, self.cut(each.text), _NO_VECTORS, page_starts=each.page_starts)
                num_bytes += size_of(source.name, metadata, each.text, len(new.chunks) * dimension)
                drafts.append(_Draft(source, new))
        self.check_quota(source, len(drafts) - len(old), num_bytes - sum(document.num_bytes for document in old))
        self._report(source, "unchanged", len(known) - len(old))
        if known:  # after an interruption from here on the source is read again
            self.collection.set_origin_hash(source.origin, b"")
        for draft, replaced in zip(drafts, old, strict=False):  # in the source's order
            draft.document = replace(draft.document, replaces=replaced.id)
        self._report(source, "removed", self._remove(old[len(drafts) :]))
        if drafts:
            drafts[-1].completes = origin_hash
            self.drafts += drafts
        else:
            self.collection.set_origin_hash(source.origin, origin_hash)

    def _report(self, source: Source, what: str, count: int) -> None:
        setattr(self.report, what, getattr(self.report, what) + count)
        self.on_documents(source, what, count)

    def _store_batch(self) -> None:
        """Embed and store the first drafts: one batch, at least one draft."""
        count = num_chunks = 0
        while count < len(self.drafts) and num_chunks < _BATCH_CHUNKS:
            num_chunks += len(self.drafts[count].document.chunks)
            count += 1
        drafts = self.drafts[:count]
        vectors: dict[str, np.ndarray] = {}
        for draft in drafts:
            if draft.document.replaces is not None:
                vectors |= self.collection.vectors_of(draft.document.replaces)
        new = list(dict.fromkeys(text for draft in drafts for text in draft.texts if text not in vectors))
        for start in range(0, len(new), _BATCH_CHUNKS):  # a long document exceeds one batch
            some = new[start : start + _BATCH_CHUNKS]
            vectors |= zip(some, self.embedder.embed(some).vectors, strict=True)
        complete = {draft.source.origin: draft.completes for draft in drafts if draft.completes}
        finished = [
            replace(draft.document, vectors=np.stack([vectors[text] for text in draft.texts])) for draft in drafts
        ]
        self.collection.change(finished, complete=complete)
        del self.drafts[:count]
        for draft in drafts:
            self._report(draft.source, "added" if draft.document.replaces is None else "changed", 1)
        self.report.num_chunks += num_chunks
        self.report.num_embedded += len(new)

    def _remove(self, documents: Sequence[DocumentInfo]) -> int:
        if documents:
            self.collection.change(removed=[document.id for document in documents])
        return len(documents)


def _hash(metadata: Metadata, *parts: bytes) -> bytes:
    digest = hashlib.sha256(_VERSION + json.dumps(sorted(metadata.items())).encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
