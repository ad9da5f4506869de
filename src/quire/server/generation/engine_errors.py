"""Errors of the engine as API errors: status, message, field at fault. All other errors are raised as `ApiError`."""

from __future__ import annotations

import re
from dataclasses import fields

from quire.async_engine.messages import EngineLost, EngineUnavailable, QueueFull, RequestFailed
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED
from quire.sampling_params import SamplingParams
from quire.server.errors import RETRY_SOON, ApiError, invalid

_RENAMED = {"beam_width": "n"}  # the engine's name -> the field of a body
_FIELDS = {"prompt", "length_penalty", "min_stage", "priority", "response_format", "guided_whitespace_pattern"}
_FIELDS |= {f"guided_{name}" for name in ("json", "regex", "choice", "grammar")}
_FIELDS |= {field.name for field in fields(SamplingParams)}
_QUEUE_RETRY_AFTER = {"Retry-After": "5"}  # a full queue takes longer to move


def as_api_error(error: Exception) -> ApiError:
    """Return the API error for an error of the engine."""
    match error:
        case QueueFull():
            return ApiError(429, str(error), code="queue_full", headers=_QUEUE_RETRY_AFTER)
        case EngineUnavailable():
            return ApiError(503, str(error), code="engine_unavailable", headers=RETRY_SOON)
        case RequestFailed(args=(message,)) if message == EVERY_TOKEN_IS_BANNED:
            return invalid(message, "allowed_token_ids")
        case RequestFailed(args=(message,)) if message.startswith(BROKEN_GRAMMAR):
            return invalid(message, "structured_outputs")
        case EngineLost():
            return ApiError(500, str(error), code="engine_lost")
        case RequestFailed():
            return ApiError(500, str(error), code="request_failed")
        case ValueError():
            # Messages begin with the field: `min_tokens=5 is not valid: ...`, `prompt token 70000 is not an id ...`.
            named = re.match(r"(\w+)(?:=| needs | token )", str(error))
            field = _RENAMED.get(named[1], named[1]) if named else None
            return invalid(str(error), field if field in _FIELDS else None)
    raise error
