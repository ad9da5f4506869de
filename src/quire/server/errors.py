"""What went wrong, in OpenAI's form: {"error": {"message", "type", "param", "code"}}.

The one place that knows how an error looks over HTTP. Knows nothing about who raises it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse

RETRY_SOON = {"Retry-After": "1"}  #: header of a refusal that may be over in a second
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


@dataclass
class ApiError(Exception):
    """A request ends with this status and these words.

    Attributes:
        status: of the HTTP answer.
        message: what was wrong, what was expected and how to mend it.
        param: the field of the body that is at fault, if one is.
        code: a short word for programs, such as model_not_found.
        headers: of the answer, such as Retry-After.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


def invalid(message: str, param: str | None) -> ApiError:
    """A value that cannot be served, and the field that has it."""
    return ApiError(400, message, param, "invalid_value")


def error_type(status: int) -> str:
    """The word by which clients of OpenAI's API sort errors."""
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def error_body(error: ApiError) -> dict[str, Any]:
    """The body of the answer; within a stream, the data of its last event but [DONE]."""
    return {
        "error": {
            "message": error.message,
            "type": error_type(error.status),
            "param": error.param,
            "code": error.code,
        }
    }


def error_response(error: ApiError) -> JSONResponse:
    return JSONResponse(error_body(error), error.status, dict(error.headers))
