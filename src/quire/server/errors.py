"""Errors over HTTP in OpenAI's form, {"error": {"message", "type", "param", "code"}}, or in Anthropic's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

ERROR_CODE = "error_code"  #: key of an error's code in the state of an ASGI scope, for metrics
RETRY_SOON = {"Retry-After": "1"}
#: Errors below this path have Anthropic's form, which OpenAI's clients can read, too.
ANTHROPIC_PATH = "/v1/messages"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {**_TYPES, 404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}


@dataclass
class ApiError(Exception):
    """An error that ends a request."""

    status: int
    message: str  #: cause, expectation and remedy
    param: str | None = None  #: field of the body at fault
    code: str | None = None  #: code for programs, such as model_not_found
    headers: Mapping[str, str] = field(default_factory=dict)  #: headers of the answer, such as Retry-After

    def __str__(self) -> str:
        return self.message


def invalid(message: str, param: str | None) -> ApiError:
    """Return a 400 for an invalid value of a field."""
    return ApiError(400, message, param, "invalid_value")


def required(value: Any, field: str, owner: str) -> Any:
    """Return a value that `owner` needs. Raises ApiError for None."""
    if value is None:
        raise ApiError(400, f"{field} is missing: {owner} needs it", field, "missing_required_parameter")
    return value


def error_body(error: ApiError) -> dict[str, Any]:
    """Return the body of an error, also the data of an event in a stream."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """Return the body in Anthropic's form, with our `param` and `code`; its clients look for a code in `details`."""
    kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    details = {"error_code": error.code}
    return {"type": "error", "error": {**error_body(error)["error"], "type": kind, "details": details}}


class ErrorResponse(JSONResponse):
    """Also puts the error's code into the scope's state, under `ERROR_CODE`."""

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
