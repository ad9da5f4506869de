"""Parse files and cut texts in a child process with time and memory limits, since files may be hostile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from quire.rag.document_parsing import KINDS, ParsedDocument, kind_of, parse
from quire.system.worker_process import Worker, WorkerLimits, WorkerProcess

if TYPE_CHECKING:
    from quire.rag.chunks import Chunk
    from quire.rag.embedder import TokenCounter

MAX_FILE_BYTES = 256 << 20
MAX_CHUNKS = 20_000  #: of one uploaded document, whose vectors are in memory together
_NICENESS = 10  # engines go first


class ParserProcess(WorkerProcess):
    """Starts with the first file, and again after a file that ended it."""

    def __init__(self, limits: WorkerLimits | None = None) -> None:
        super().__init__(_make_worker, "reading", limits=limits or WorkerLimits(), niceness=_NICENESS)

    def parse(self, name: str, data: bytes) -> list[ParsedDocument]:
        """Parse a file by its suffix. Raises ValueError for other content, WorkerError if a limit is exceeded."""
        kind = kind_of(name)
        if kind is None:
            raise ValueError(f"its suffix is of no kind that is parsed ({', '.join(KINDS)})")
        return self.parse_as(kind, data)

    def parse_as(self, kind: str, data: bytes) -> list[ParsedDocument]:
        """As `parse`, with the format given as one of the values of `KINDS`."""
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB; split it")
        head, _, texts = self.ask(json.dumps(["parse", kind]).encode() + b"\n" + data).partition(b"\n")
        found, start = [], 0
        for size, title, page_starts in json.loads(head):
            text = texts[start : start + int(size)].decode()
            found.append(ParsedDocument(text, str(title), tuple(map(int, page_starts))))
            start += int(size)
        return found

    def cut(self, text: str, *, embedder: str, readers: Sequence[str], num_tokens: int, overlap: int) -> list[Chunk]:
        """Cut a text by `chunks.cut`. Raises ValueError for a bad tokenizer, WorkerError over a limit."""
        from quire.rag.chunks import Chunk

        question = json.dumps(["cut", embedder, list(readers), num_tokens, overlap]).encode() + b"\n" + text.encode()
        found = json.loads(self.ask(question))
        if len(found) > MAX_CHUNKS:
            what = f"it has {len(found):,} chunks of {num_tokens} tokens, and {MAX_CHUNKS:,} are allowed"
            raise ValueError(f"{what}; split it, or make a collection with larger chunks")
        return [Chunk(*map(int, each)) for each in found]


# -- in the process --------------------------------------------------------------------------------------------------


def _make_worker() -> Worker:
    counters: dict[str, list[TokenCounter]] = {}

    def answer(question: bytes) -> bytes:
        head, _, data = question.partition(b"\n")
        task, *rest = json.loads(head)
        return _parse(data, *rest) if task == "parse" else _cut(counters, data.decode(), *rest)

    return answer


def _parse(data: bytes, kind: str) -> bytes:
    found = parse(kind, data)
    texts = [each.text.encode() for each in found]
    head = [(len(text), each.title, each.page_starts) for text, each in zip(texts, found, strict=True)]
    return json.dumps(head).encode() + b"\n" + b"".join(texts)


def _cut(
    known: dict[str, list[TokenCounter]], text: str, embedder: str, readers: list[str], num_tokens: int, overlap: int
) -> bytes:
    from quire.rag.chunks import cut
    from quire.rag.embedder import find_embedder
    from quire.rag.reader_models import counters

    key = json.dumps([embedder, readers])
    if key not in known:
        known.clear()  # keep the tokenizers of one collection only
        known[key] = counters(find_embedder(embedder), readers)
    return json.dumps([astuple(chunk) for chunk in cut(text, known[key], num_tokens, overlap)]).encode()
