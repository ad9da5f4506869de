"""From files and uploads to a collection: what is new is read, cut, embedded and added; what is as it was is left
alone.

What is done is kept, document by document, whatever stops the rest: the next ingest goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from quire.rag.chunks import Chunk, cut
from quire.rag.collections import Collection, CollectionBusy, CollectionGone
from quire.rag.document_parsing import KINDS, ParsedDocument, kind_of
from quire.rag.embedder import TokenCounter
from quire.rag.embedding import Embedder
from quire.rag.parser_process import MAX_FILE_BYTES, ParserProcess
from quire.rag.records import DocumentInfo, Metadata, NewDocument, check_metadata, size_of
from quire.system.child import ChildError

_BATCH_CHUNKS = 64  # that are embedded, and then kept, together
_VERSION = b"1"  # of how files are read: another one reads all of them again


class Source(Protocol):
    """Something that documents are read from."""

    @property
    def name(self) -> str: ...  #: for people

    @property
    def origin(self) -> str: ...  #: what documents remember of it

    @property
    def kind(self) -> str: ...  #: one of the values of `KINDS`

    @property
    def metadata(self) -> Metadata: ...  #: of its documents, beside `kind` and `title`

    def read(self) -> bytes:
        """Raises OSError or ValueError where it cannot be read."""
        ...

    def parse(self, parser: ParserProcess, data: bytes) -> list[ParsedDocument]:
        """Raises ValueError or ChildError where it is not what it says."""
        ...


@dataclass(frozen=True)
class SourceFile:
    """A file to read."""

    path: Path  #: in full
    name: str  #: for people: from the given directory's name on
    metadata: Metadata = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return _printable(self.path)

    @property
    def kind(self) -> str:
        return KINDS[self.path.suffix.lower()]

    def read(self) -> bytes:
        if self.path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB; divide it")
        return self.path.read_bytes()

    def parse(self, parser: ParserProcess, data: bytes) -> list[ParsedDocument]:
        return parser.parse(self.name, data)


@dataclass(frozen=True)
class Upload:
    """What a client sent under a name, which stands for what it sent before under that name."""

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
        if not found:  # of a file that would mean that its documents are gone
            raise ValueError("it has no text")
        return found


@dataclass
class IngestReport:
    """What an ingest did, in documents."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    num_files: int = 0
    num_chunks: int = 0  #: that were added, those of changed documents with them
    num_embedded: int = 0  #: of these, the ones whose text was not there before
    failed: list[tuple[str, str]] = field(default_factory=list)  #: files that could not be read, and why


#: Told of files that are done, of all files, and how far it is. What it raises ends the ingest.
Progress = Callable[[int, int, IngestReport], None]
#: Told of a source, of what became of some of its documents (added, changed, unchanged, removed), and how many.
Listener = Callable[[Source, str, int], None]
#: Asked before a source's documents are embedded: how many more there will be of them, and of bytes. Its ValueError
#: refuses the source.
Gate = Callable[[Source, int, int], None]
Cut = Callable[[str], Sequence[Chunk]]


def find_files(paths: Sequence[Path]) -> list[SourceFile]:
    """The files at these paths: of directories, those of a kind that is read, hidden ones left out.

    Raises:
        ValueError: there is no such path, or a folder cannot be looked into.
    """
    found: dict[Path, SourceFile] = {}
    for given in paths:
        root = _absolute(given)
        if root.is_dir():
            for folder, folders, names in os.walk(root, onerror=_refuse):
                folders[:] = sorted(each for each in folders if not each.startswith("."))
                for name in sorted(names):
                    path = Path(folder, name)
                    if not name.startswith(".") and kind_of(name) is not None and path.is_file():
                        found.setdefault(path, SourceFile(path, _printable(path.relative_to(root.parent))))
        elif root.is_file():
            found.setdefault(root, SourceFile(root, _printable(Path(root.name))))
        else:
            raise ValueError(f"{given}: there is no such file or directory")
    return list(found.values())


def _absolute(path: Path) -> Path:
    """A path in full; links are not followed."""
    return Path(os.path.abspath(path.expanduser()))


def _printable(path: Path) -> str:
    """A name may hold bytes that are no Unicode, and signs that a terminal obeys: they are written out."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _refuse(error: OSError) -> None:
    """What is not seen would be taken for removed."""
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
    on_progress: Progress = lambda done, total, report: None,
) -> IngestReport:
    """Make a collection hold what is at these paths now. Documents from elsewhere stay.

    A file that cannot be read is reported, and what was read of it before stays.

    Args:
        counters: of the models that read the chunks, the embedder's among them.
        metadata: of all documents, beside `kind` and `title`.
        report: counts what is done while it is done, for whoever interrupts this.

    Raises:
        ValueError: there is no such path, another embedder made the collection, or another process adds to it.
        ChildError: the embedder's process ended. What was added before is kept.
    """
    files = [replace(file, metadata=dict(metadata or {})) for file in find_files(paths)]
    check_metadata(metadata or {})
    collection.check_embedder(embedder.facts)
    info = collection.info
    cut_up = partial(cut, counters=counters, num_tokens=info.chunk_tokens, overlap=info.overlap_tokens)
    with collection.changing():
        run = _Ingest(collection, embedder, parser, cut_up, report or IngestReport())
        try:
            run.run(files, on_progress)
            run.remove_missing({file.origin for file in files}, [_absolute(path) for path in paths])
            on_progress(len(files), len(files), run.report)
        finally:
            collection.save_index()
    return run.report


def ingest_uploads(
    collection: Collection,
    uploads: Sequence[Upload],
    *,
    embedder: Embedder,
    parser: ParserProcess,
    cut: Cut,
    gate: Gate = lambda source, num_documents, num_bytes: None,
    listener: Listener = lambda source, what, count: None,
    on_progress: Progress = lambda done, total, report: None,
) -> IngestReport:
    """Add what was uploaded; what was uploaded before under the same names is replaced where it differs.

    An upload that cannot be read is reported, and what was there under its name stays.

    Args:
        uploads: each with a name of its own.
        cut: a text into chunks that fit all of the collection's readers. Its ValueError or ChildError refuses an
            upload.

    Raises:
        ValueError: the collection was deleted (CollectionGone), or another process adds to it (CollectionBusy).
        ChildError: the embedder's process ended. What was added before is kept.
    """
    with collection.changing():
        run = _Ingest(collection, embedder, parser, cut, IngestReport(), gate, listener)
        run.run(uploads, on_progress)
    return run.report


@dataclass
class _Draft:
    """A document that was cut, and waits to be embedded."""

    source: Source
    parsed: ParsedDocument
    metadata: Metadata
    content_hash: bytes
    chunks: Sequence[Chunk]
    replaces: int | None
    completes: bytes = b""  #: the hash of its source, if it is the last one of it

    @property
    def texts(self) -> list[str]:
        return [self.parsed.text[chunk.start : chunk.end] for chunk in self.chunks]


@dataclass
class _Ingest:
    collection: Collection
    embedder: Embedder
    parser: ParserProcess
    cut: Cut
    report: IngestReport
    gate: Gate = lambda source, num_documents, num_bytes: None
    listener: Listener = lambda source, what, count: None
    drafts: list[_Draft] = field(default_factory=list)

    def run(self, sources: Sequence[Source], on_progress: Progress) -> None:
        for number, source in enumerate(sources):
            on_progress(number, len(sources), self.report)
            try:
                self._take(source, self.collection.documents_of(source.origin))
            except OSError as error:
                self.report.failed.append((source.name, error.strerror or str(error)))
            except (CollectionGone, CollectionBusy):
                raise
            except (ValueError, ChildError) as error:
                self.report.failed.append((source.name, str(error)))
            self.report.num_files += 1
            while sum(len(draft.chunks) for draft in self.drafts) >= _BATCH_CHUNKS:
                self._keep_some()
                on_progress(number, len(sources), self.report)
        while self.drafts:
            self._keep_some()
            on_progress(len(sources), len(sources), self.report)

    def remove_missing(self, origins: Set[str], roots: Sequence[Path]) -> None:
        """Remove the documents from these places whose files are gone."""
        places = {Path(_printable(root)) for root in roots}
        gone = [
            document
            for document in self.collection.documents()
            if document.origin not in origins and places & {Path(document.origin), *Path(document.origin).parents}
        ]
        self.report.removed += self._remove(gone)

    def _take(self, source: Source, known: Sequence[DocumentInfo]) -> None:
        """Compare a source with what is known of it, and draft what is new."""
        data = source.read()
        own = source.metadata
        origin_hash = _hash(own, data)
        if known and all(document.origin_hash == origin_hash for document in known):
            self._tell(source, "unchanged", len(known))
            return
        hashes: dict[bytes, tuple[ParsedDocument, Metadata]] = {}  # what stands twice in a source is kept once
        for each in source.parse(self.parser, data):
            title = {"title": each.title} if each.title else {}
            metadata: Metadata = {"kind": source.kind, **title, **own}
            hashes.setdefault(_hash(own, each.text.encode(), json.dumps(metadata).encode()), (each, metadata))
        old = [document for document in known if document.content_hash not in hashes]
        known_hashes = {document.content_hash for document in known}
        drafts = [
            _Draft(source, each, metadata, content_hash, self.cut(each.text), None)
            for content_hash, (each, metadata) in hashes.items()
            if content_hash not in known_hashes
        ]
        dimension = self.embedder.facts.dimension
        num_bytes = sum(
            size_of(source.name, each.metadata, each.parsed.text, len(each.chunks) * dimension) for each in drafts
        )
        self.gate(source, len(drafts) - len(old), num_bytes - sum(document.num_bytes for document in old))
        self._tell(source, "unchanged", len(known) - len(old))
        if known:  # whoever stops this from now on, it will be read again
            self.collection.mark(source.origin, b"")
        for draft, replaced in zip(drafts, old, strict=False):  # in the order in which they stand in the source
            draft.replaces = replaced.id
        self._tell(source, "removed", self._remove(old[len(drafts) :]))
        if drafts:
            drafts[-1].completes = origin_hash
            self.drafts += drafts
        else:
            self.collection.mark(source.origin, origin_hash)

    def _tell(self, source: Source, what: str, count: int) -> None:
        setattr(self.report, what, getattr(self.report, what) + count)
        self.listener(source, what, count)

    def _keep_some(self) -> None:
        """Embed and keep the first drafts: as many as fill a batch, and one at least."""
        count = num_chunks = 0
        while count < len(self.drafts) and num_chunks < _BATCH_CHUNKS:
            num_chunks += len(self.drafts[count].chunks)
            count += 1
        drafts = self.drafts[:count]
        vectors: dict[str, np.ndarray] = {}
        for draft in drafts:
            if draft.replaces is not None:
                vectors |= self.collection.vectors_of(draft.replaces)
        new = list(dict.fromkeys(text for draft in drafts for text in draft.texts if text not in vectors))
        for start in range(0, len(new), _BATCH_CHUNKS):  # a long document has many
            some = new[start : start + _BATCH_CHUNKS]
            vectors |= zip(some, self.embedder.embed(some).vectors, strict=True)
        complete = {draft.source.origin: draft.completes for draft in drafts if draft.completes}
        self.collection.change([self._finish(draft, vectors) for draft in drafts], complete=complete)
        del self.drafts[:count]
        for draft in drafts:
            self._tell(draft.source, "added" if draft.replaces is None else "changed", 1)
        self.report.num_chunks += num_chunks
        self.report.num_embedded += len(new)

    def _finish(self, draft: _Draft, vectors: dict[str, np.ndarray]) -> NewDocument:
        return NewDocument(
            origin=draft.source.origin,
            name=draft.source.name,
            metadata=draft.metadata,
            text=draft.parsed.text,
            content_hash=draft.content_hash,
            chunks=draft.chunks,
            vectors=np.stack([vectors[text] for text in draft.texts]),
            replaces=draft.replaces,
        )

    def _remove(self, documents: Sequence[DocumentInfo]) -> int:
        if documents:
            self.collection.change(removed=[document.id for document in documents])
        return len(documents)


def _hash(metadata: Metadata, *parts: bytes) -> bytes:
    digest = hashlib.sha256(_VERSION + json.dumps(sorted(metadata.items())).encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
