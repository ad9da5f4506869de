"""Errors of the engine and of sampling parameters, as clients see them: status, text, field at fault.

Every other error's text stands where it is raised, as an `ApiError`.
"""

from __future__ import annotations

import re

from quire.async_engine.messages import EngineLost, EngineUnavailable, QueueFull, RequestFailed
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED
from quire.server.errors import RETRY_SOON, ApiError, invalid
from quire.server.openai.schema import GenerationRequest

_FIELDS = {"beam_width": "n"}  # where the engine has another word
_QUEUE_RETRY_AFTER = {"Retry-After": "5"}  # a full queue takes longer to move


def as_api_error(error: Exception) -> ApiError:
    """An engine's error, as clients see it."""
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
            return _refusal(error)
    raise error


def _refusal(error: ValueError) -> ApiError:
    """A refusal of the engine, as the client's mistake. The engine's messages begin with the field, if one is at fault:
    `min_tokens=5 is not valid: ...`, `prompt token 70000 is not an id of this model`."""
    named = re.match(r"(\w+)(?:=| needs | token )", str(error))
    field = _FIELDS.get(named[1], named[1]) if named else None
    param = field if field in {"prompt", *GenerationRequest.model_fields} else None
    return invalid(str(error), param)
