"""Files to documents, and texts to chunks, in a child process with limits of time and memory: files are hostile."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from quire.rag.document_parsing import KINDS, ParsedDocument, kind_of, parse
from quire.system.child import Child, Limits, Worker

if TYPE_CHECKING:
    from quire.rag.chunks import Chunk
    from quire.rag.embedder import TokenCounter

MAX_FILE_BYTES = 256 << 20
_NICENESS = 10  # reading can wait, an engine cannot


class ParserProcess:
    """Owns the child process; it starts with the first file, and again after one that ended it.

    Args:
        limits: what a file may take.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._child = Child(_make_worker, "reading", limits=limits or Limits(), niceness=_NICENESS)

    def parse(self, name: str, data: bytes) -> list[ParsedDocument]:
        """The documents in a file; the end of its name says how it is read.

        Raises:
            ValueError: it is of no kind that is read, or not what its name says.
            ChildError: reading it took more than the limits, or ended the process.
        """
        kind = kind_of(name)
        if kind is None:
            raise ValueError(f"it is of no kind that is read ({', '.join(KINDS)})")
        return self.parse_as(kind, data)

    def parse_as(self, kind: str, data: bytes) -> list[ParsedDocument]:
        """As `parse`, of a kind among the values of `KINDS`."""
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB; divide it")
        head, _, texts = self._child.ask(json.dumps(["parse", kind]).encode() + b"\n" + data).partition(b"\n")
        found, start = [], 0
        for size, title in json.loads(head):
            found.append(ParsedDocument(texts[start : start + int(size)].decode(), str(title)))
            start += int(size)
        return found

    def cut(self, text: str, *, embedder: str, readers: Sequence[str], num_tokens: int, overlap: int) -> list[Chunk]:
        """The chunks of a text, as `chunks.cut` makes them.

        Args:
            embedder: its name: a directory, a hub id or the like.
            readers: the models that read the chunks.

        Raises:
            ValueError: a tokenizer cannot be read.
            ChildError: it took more than the limits.
        """
        from quire.rag.chunks import Chunk

        question = json.dumps(["cut", embedder, list(readers), num_tokens, overlap]).encode() + b"\n" + text.encode()
        return [Chunk(*map(int, each)) for each in json.loads(self._child.ask(question))]

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def stop(self) -> None:
        """End the process at once, and for good: whoever waits for it gets a ChildError."""
        self._child.stop()


# -- in the process --------------------------------------------------------------------------------------------------


def _make_worker() -> Worker:
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # on many cores their stacks alone would be more than it may have
    counters: dict[str, list[TokenCounter]] = {}

    def answer(question: bytes) -> bytes:
        head, _, data = question.partition(b"\n")
        task, *rest = json.loads(head)
        return _parse(data, *rest) if task == "parse" else _cut(counters, data.decode(), *rest)

    return answer


def _parse(data: bytes, kind: str) -> bytes:
    found = [(each.title, each.text.encode()) for each in parse(kind, data)]
    return json.dumps([(len(text), title) for title, text in found]).encode() + b"\n" + b"".join(t for _, t in found)


def _cut(
    known: dict[str, list[TokenCounter]], text: str, embedder: str, readers: list[str], num_tokens: int, overlap: int
) -> bytes:
    from quire.rag.chunks import cut
    from quire.rag.embedder import find_embedder
    from quire.rag.reader_models import counters

    key = json.dumps([embedder, readers])
    if key not in known:
        known.clear()  # those of one collection are enough
        known[key] = counters(find_embedder(embedder), readers)
    return json.dumps([astuple(chunk) for chunk in cut(text, known[key], num_tokens, overlap)]).encode()
