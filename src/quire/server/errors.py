"""The form of an error over HTTP, which is OpenAI's: {"error": {"message", "type", "param", "code"}}.

An error's text stands where its `ApiError` is raised; `openai/errors.py` makes one of each error of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

ERROR_CODE = "error_code"  #: in the state of an ASGI scope: the code of the error that answers it
RETRY_SOON = {"Retry-After": "1"}  #: header of a refusal that may be over in a second
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass
class ApiError(Exception):
    """A request ends with this status and these words."""

    status: int
    message: str  #: what was wrong, what was expected and how to mend it
    param: str | None = None  #: the field of the body that is at fault, if one is
    code: str | None = None  #: a short word for programs, such as model_not_found
    headers: Mapping[str, str] = field(default_factory=dict)  #: of the answer, such as Retry-After

    def __str__(self) -> str:
        return self.message


def invalid(message: str, param: str | None) -> ApiError:
    """A value that cannot be served, and the field that has it."""
    return ApiError(400, message, param, "invalid_value")


def error_body(error: ApiError) -> dict[str, Any]:
    """The body of the answer; within a stream, the data of its last event but [DONE]."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def error_response(error: ApiError) -> JSONResponse:
    return _ErrorResponse(error)


class _ErrorResponse(JSONResponse):
    """Notes the error's code under `ERROR_CODE`, for those who count."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error_body(error), error.status, dict(error.headers))
        self._code = error.code or "other"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})[ERROR_CODE] = self._code
        await super().__call__(scope, receive, send)
