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
#: Below this path errors have Anthropic's form, whoever raises them; OpenAI's clients can read that, too.
ANTHROPIC_PATH = "/v1/messages"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {**_TYPES, 404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}


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


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """The same as Anthropic's clients know it, with our `param` and `code`; `details` is where they look for a code."""
    kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    details = {"error_code": error.code}
    return {"type": "error", "error": {**error_body(error)["error"], "type": kind, "details": details}}


def error_response(error: ApiError) -> JSONResponse:
    return _ErrorResponse(error)


class _ErrorResponse(JSONResponse):
    """Notes the error's code under `ERROR_CODE`, for those who count."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error_body(error), error.status, dict(error.headers))
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})[ERROR_CODE] = self._error.code or "other"
        if scope["path"].startswith(ANTHROPIC_PATH):
            other = JSONResponse(anthropic_body(self._error), self._error.status, dict(self._error.headers))
            await other(scope, receive, send)
            return
        await super().__call__(scope, receive, send)
