"""Server-sent events: bytes as the network cuts them, in; the data of whole events, out.

This is the event stream of the HTML standard, as far as OpenAI's protocol uses it.
"""

from __future__ import annotations

DONE = "[DONE]"  #: the data of OpenAI's last event


class EventReader:
    """One stream. Comments, event names and ids are skipped: the protocol says everything in `data`."""

    def __init__(self) -> None:
        self._rest = b""  # a line whose end has not come
        self._data: list[bytes] = []  # of the event whose end has not come
        self._is_first = True

    def feed(self, received: bytes) -> list[str]:
        """The data of the events that these bytes complete, in order. Several `data` lines join by line breaks."""
        events = []
        lines = (self._rest + received).splitlines(keepends=True)
        # A carriage return may be half of a line's end, so it waits for what follows.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            if (data := self._take(line.rstrip(b"\r\n"))) is not None:
                events.append(data)
        return events

    def close(self) -> list[str]:
        """The stream is over. An event that lacks only its empty line is given too: some servers leave that out."""
        lines = [*self._rest.splitlines(), b""]
        self._rest = b""
        return [data for line in lines if (data := self._take(line)) is not None]

    def _take(self, line: bytes) -> str | None:
        if self._is_first:
            line, self._is_first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            event, self._data = self._data, []
            return b"\n".join(event).decode(errors="replace") if event else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None
