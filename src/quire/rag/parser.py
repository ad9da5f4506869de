"""Files to documents in a child process with limits of time and memory, since files are hostile."""

from __future__ import annotations

import json

from quire.rag.child import Child, Limits, Worker
from quire.rag.parse import KINDS, ParsedDocument, kind_of, parse

MAX_FILE_BYTES = 256 << 20
_NICENESS = 10  # reading can wait, an engine cannot


class Parser:
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
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB; divide it")
        answer = json.loads(self._child.ask(kind.encode() + b"\n" + data))
        return [ParsedDocument(str(text), str(title)) for text, title in answer]

    def close(self) -> None:
        """End the process."""
        self._child.close()


def _make_worker() -> Worker:
    def answer(question: bytes) -> bytes:
        kind, _, data = question.partition(b"\n")
        return json.dumps([(each.text, each.title) for each in parse(kind.decode(), data)]).encode()

    return answer
