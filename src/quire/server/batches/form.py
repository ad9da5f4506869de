"""Uploads: a multipart form (RFC 7578), read in pieces."""

from __future__ import annotations

import re

from quire.server.errors import ApiError, invalid

_MAX_HEAD_BYTES = 4096  # of a part
_MAX_FIELD_CHARACTERS = 1024


class FormReader:
    """Separates the content of `file` from the other fields. Raises ApiError for a broken form."""

    def __init__(self, content_type: str) -> None:
        found = re.match(r'multipart/form-data;.*\bboundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', content_type, re.I)
        if found is None:
            raise ApiError(415, "an upload is a form; send Content-Type: multipart/form-data with file and purpose")
        self.fields: dict[str, str] = {}
        self.file_name = "batch.jsonl"
        self.is_complete = False
        self._part = ""  #: name of the field that is read; "" before the first
        self._mark = b"\r\n--" + (found[1] or found[2]).encode()
        self._buffer = bytearray(b"\r\n")

    def feed(self, data: bytes) -> bytes:
        """Read a piece of the form, and return the content of `file` in it."""
        self._buffer += data
        content = b""
        while not self.is_complete:
            at = self._buffer.find(self._mark)
            if at < 0:
                return content + self._take(max(0, len(self._buffer) - len(self._mark)))
            content += self._take(at)
            head, end, _ = self._buffer[len(self._mark) :].partition(b"\r\n\r\n")
            self.is_complete = head.startswith(b"--")
            if not self.is_complete:
                if len(head) > _MAX_HEAD_BYTES:
                    raise invalid("the form has a field with a long head", None)
                if not end:
                    return content
                self._begin(bytes(head).decode(errors="replace"))
                del self._buffer[: len(self._mark) + len(head) + len(end)]
        return content

    def finish(self) -> dict[str, str]:
        """Return the fields besides the file. Raises ApiError if the form is not complete."""
        if not self.is_complete or self.fields.pop("file", None) is None:
            raise ApiError(400, "the form has no complete file", "file", "missing_required_parameter")
        return self.fields

    def _take(self, num_bytes: int) -> bytes:
        """Take bytes of the current part, and return them if it is the file."""
        taken = bytes(self._buffer[:num_bytes])
        del self._buffer[:num_bytes]
        if taken and not self._part:
            raise invalid("the form does not begin with its boundary", None)
        if self._part == "file":
            return taken
        if taken:
            self.fields[self._part] += taken.decode(errors="replace")
            if len(self.fields[self._part]) > _MAX_FIELD_CHARACTERS:
                raise invalid(f"{self._part} is too long", self._part)
        return b""

    def _begin(self, head: str) -> None:
        names = dict(re.findall(r'[;\s](name|filename)="([^"]*)"', head))
        self._part = names.get("name", "")[:64]
        if self._part not in ("file", "purpose") or self._part in self.fields:
            message = f"the field {self._part!r} comes twice, or is not one of file and purpose"
            raise ApiError(400, message, self._part, "unknown_parameter")
        self.fields[self._part] = ""
        if self._part == "file":
            self.file_name = names.get("filename") or self.file_name
