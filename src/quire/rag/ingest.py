"""From paths to a collection: what is new is read, cut, embedded and added; what is as it was is left alone.

What is done is kept, document by document, whatever stops the rest: the next ingest goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quire.rag.child import ChildError
from quire.rag.chunks import Chunk, cut
from quire.rag.collections import Collection, DocumentInfo, Metadata, NewDocument, check_metadata
from quire.rag.embedder import TokenCounter
from quire.rag.embedding import Embedder
from quire.rag.parse import KINDS, ParsedDocument, kind_of
from quire.rag.parser import MAX_FILE_BYTES, Parser

_BATCH_CHUNKS = 64  # that are embedded, and then kept, together
_VERSION = b"1"  # of how files are read: another one reads all of them again


@dataclass(frozen=True)
class SourceFile:
    """A file to read."""

    path: Path  #: in full
    name: str  #: for people: from the given directory's name on

    @property
    def origin(self) -> str:
        """What documents remember of it."""
        return _printable(self.path)


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


#: Told of files that are done, of all files, and how far it is.
Progress = Callable[[int, int, IngestReport], None]


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
    parser: Parser,
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
    files = find_files(paths)
    check_metadata(metadata or {})
    collection.check_embedder(embedder.facts)
    with collection.changing():
        run = _Ingest(collection, embedder, parser, counters, dict(metadata or {}), report or IngestReport())
        try:
            run.run(files, [_absolute(path) for path in paths], on_progress)
        finally:
            collection.save_index()
    return run.report


@dataclass
class _Draft:
    """A document that was cut, and waits to be embedded."""

    file: SourceFile
    parsed: ParsedDocument
    metadata: Metadata
    content_hash: bytes
    chunks: Sequence[Chunk]
    replaces: int | None
    completes: bytes = b""  #: the hash of its file, if it is the last one of it

    @property
    def texts(self) -> list[str]:
        return [self.parsed.text[chunk.start : chunk.end] for chunk in self.chunks]


class _Ingest:
    def __init__(
        self,
        collection: Collection,
        embedder: Embedder,
        parser: Parser,
        counters: Sequence[TokenCounter],
        metadata: Metadata,
        report: IngestReport,
    ) -> None:
        self.collection, self.embedder, self.parser, self.counters = collection, embedder, parser, counters
        self.metadata, self.report = metadata, report
        self.info = collection.info
        self.drafts: list[_Draft] = []

    def run(self, files: Sequence[SourceFile], roots: Sequence[Path], on_progress: Progress) -> None:
        known: dict[str, list[DocumentInfo]] = {}
        for document in self.collection.documents():
            known.setdefault(document.origin, []).append(document)
        for number, file in enumerate(files):
            on_progress(number, len(files), self.report)
            self._take(file, known.get(file.origin, []))
            self.report.num_files += 1
            while sum(len(draft.chunks) for draft in self.drafts) >= _BATCH_CHUNKS:
                self._keep_some()
                on_progress(number, len(files), self.report)
        while self.drafts:
            self._keep_some()
            on_progress(len(files), len(files), self.report)
        origins, places = {file.origin for file in files}, {Path(_printable(root)) for root in roots}
        self._remove(
            document
            for origin, documents in known.items()
            if origin not in origins and places & {Path(origin), *Path(origin).parents}
            for document in documents
        )
        on_progress(len(files), len(files), self.report)

    def _take(self, file: SourceFile, known: Sequence[DocumentInfo]) -> None:
        """Compare a file with what is known of it, and draft what is new."""
        try:
            if file.path.stat().st_size > MAX_FILE_BYTES:
                raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB; divide it")
            data = file.path.read_bytes()
            origin_hash = self._hash(data)
            if known and all(document.origin_hash == origin_hash for document in known):
                self.report.unchanged += len(known)
                return
            parsed = self.parser.parse(file.name, data)
        except OSError as error:
            self.report.failed.append((file.name, error.strerror or str(error)))
            return
        except (ValueError, ChildError) as error:
            self.report.failed.append((file.name, str(error)))
            return
        kind = KINDS[file.path.suffix.lower()]
        hashes: dict[bytes, tuple[ParsedDocument, Metadata]] = {}  # what stands twice in a file is kept once
        for each in parsed:
            title = {"title": each.title} if each.title else {}
            metadata: Metadata = {"kind": kind, **title, **self.metadata}
            hashes.setdefault(self._hash(each.text.encode(), json.dumps(metadata).encode()), (each, metadata))
        old = [document for document in known if document.content_hash not in hashes]
        known_hashes = {document.content_hash for document in known}
        self.report.unchanged += len(known) - len(old)
        if known:  # whoever stops this from now on, it will be read again
            self.collection.mark(file.origin, b"")
        drafts: list[_Draft] = []
        for content_hash, (each, metadata) in hashes.items():
            if content_hash not in known_hashes:
                chunks = cut(each.text, self.counters, self.info.chunk_tokens, self.info.overlap_tokens)
                replaces = old.pop(0).id if old else None  # in the order in which they stand in the file
                drafts.append(_Draft(file, each, metadata, content_hash, chunks, replaces))
        self._remove(old)
        if drafts:
            drafts[-1].completes = origin_hash
            self.drafts += drafts
        else:
            self.collection.mark(file.origin, origin_hash)

    def _hash(self, *parts: bytes) -> bytes:
        digest = hashlib.sha256(_VERSION + json.dumps(sorted(self.metadata.items())).encode())
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()

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
        complete = {draft.file.origin: draft.completes for draft in drafts if draft.completes}
        self.collection.change([self._finish(draft, vectors) for draft in drafts], complete=complete)
        del self.drafts[:count]
        self.report.added += sum(draft.replaces is None for draft in drafts)
        self.report.changed += sum(draft.replaces is not None for draft in drafts)
        self.report.num_chunks += num_chunks
        self.report.num_embedded += len(new)

    def _finish(self, draft: _Draft, vectors: dict[str, np.ndarray]) -> NewDocument:
        return NewDocument(
            origin=draft.file.origin,
            name=draft.file.name,
            metadata=draft.metadata,
            text=draft.parsed.text,
            content_hash=draft.content_hash,
            chunks=draft.chunks,
            vectors=np.stack([vectors[text] for text in draft.texts]),
            replaces=draft.replaces,
        )

    def _remove(self, documents: Iterable[DocumentInfo]) -> None:
        ids = [document.id for document in documents]
        if ids:
            self.collection.change(removed=ids)
            self.report.removed += len(ids)
