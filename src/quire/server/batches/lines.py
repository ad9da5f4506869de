"""Lines of batch files: requests in, answers out, both in OpenAI's form."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from quire.server.batches.schema import BatchUrl
from quire.server.bodies.fields import Body
from quire.server.errors import ApiError, invalid
from quire.server.http.body import parse

REPEATED_ID = "duplicate_custom_id"  #: code of an error
MAX_LINE_BYTES = 1 << 20  #: of a request


class LineBody(Body):
    """The JSON of a line."""

    custom_id: str = Field(min_length=1, max_length=512, description="The name of its answer, a text.")
    method: Literal["POST"] = Field("POST", description="POST.")
    url: BatchUrl = Field(description="/v1/chat/completions, /v1/completions, /v1/embeddings or /v1/responses.")
    body: dict[str, Any] = Field(description="The body of the request.")


@dataclass(frozen=True)
class Line:
    """A request, or the error of a malformed line."""

    number: int  #: from 1
    request: LineBody | None
    error: ApiError | None = None

    @property
    def key(self) -> bytes:
        """Identifies the line and its answer."""
        return key_of(None if self.request is None else self.request.custom_id, self.number)

    def answer(self, status: int = 0, request_id: str = "", body: Any = None) -> bytes:
        response = error = None
        if self.request is not None:
            response = {"status_code": status, "request_id": request_id, "body": body}
        elif self.error is not None:
            error = {"code": self.error.code, "message": self.error.message, "line": self.number}
        custom_id = None if self.request is None else self.request.custom_id
        about = {"id": f"batch_req_{secrets.token_hex(12)}", "custom_id": custom_id, "response": response}
        return json.dumps({**about, "error": error}, separators=(",", ":")).encode() + b"\n"


def key_of(custom_id: str | None, number: int) -> bytes:
    """Return a short key of a line: of its id, or of the number of a malformed one."""
    name = f"line {number}" if custom_id is None else f"id {custom_id}"
    return blake2b(name.encode(), digest_size=16).digest()


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that are not blank."""
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            try:
                if len(raw) > MAX_LINE_BYTES:
                    raise ApiError(400, f"it has more than {MAX_LINE_BYTES:,} bytes", code="line_too_long")
                if raw.strip():
                    yield Line(number, _parse(raw))
            except ApiError as error:
                yield Line(number, None, replace(error, message=f"line {number}: {error.message}"))
            while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                raw = file.readline(MAX_LINE_BYTES + 1)


def _parse(raw: bytes) -> LineBody:
    request = parse(raw, LineBody)
    for name in ("stream", "background"):
        if request.body.get(name):
            raise invalid(f"{name} does not go with a batch; leave it out", name)
    return request


def check_lines(path: Path) -> Iterator[Line]:
    """As `read_lines`, with an error in place of a request whose id an earlier one has."""
    seen: set[bytes] = set()
    for line in read_lines(path):
        if line.request is not None and line.key in seen:
            message = f"line {line.number}: an earlier line has the custom_id {line.request.custom_id!r:.100}"
            line = Line(line.number, None, ApiError(400, message, "custom_id", REPEATED_ID))
        seen.add(line.key)
        yield line
