"""Parse server-sent events (HTML standard), as far as OpenAI's protocol uses them."""

from __future__ import annotations

DONE = "[DONE]"  #: data of OpenAI's last event


class EventReader:
    """Parser of one stream. Comments, event names and ids are ignored, since the protocol uses `data` only."""

    def __init__(self) -> None:
        self._rest = b""  # an incomplete line
        self._data: list[bytes] = []  # lines of an incomplete event
        self._is_first = True

    def feed(self, received: bytes) -> list[str]:
        """Return the data of the events that these bytes complete; several `data` lines are joined by line breaks."""
        events = []
        lines = (self._rest + received).splitlines(keepends=True)
        # A carriage return may be half of a line end, so it waits for the next bytes.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            if (data := self._read_line(line.rstrip(b"\r\n"))) is not None:
                events.append(data)
        return events

    def close(self) -> list[str]:
        """End the stream and return an event that lacks only its empty line, which some servers omit."""
        lines = [*self._rest.splitlines(), b""]
        self._rest = b""
        return [data for line in lines if (data := self._read_line(line)) is not None]

    def _read_line(self, line: bytes) -> str | None:
        if self._is_first:
            line, self._is_first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            event, self._data = self._data, []
            return b"\n".join(event).decode(errors="replace") if event else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None
