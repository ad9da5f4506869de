"""From the fields of a body to `SamplingParams`, naming the field at fault. Knows nothing about prompts or answers."""

from __future__ import annotations

import re
from typing import Any

from quire.sampling_params import SamplingParams
from quire.server.errors import ApiError, invalid
from quire.server.openai.schema import GenerationRequest
from quire.server.registry import ServedModel


def sampling_params(body: GenerationRequest, model: ServedModel, **own: Any) -> SamplingParams:
    """What the model recommends, under what the body says, under `own`, the endpoint's reading of its fields.

    Raises:
        ApiError: fields exclude each other, or name tokens that the model does not have.
    """
    engine = model.async_engine.engine
    try:
        params: SamplingParams = engine.default_sampling_params(**{**body.given_sampling(), **own})
        params.check_vocabulary(engine.vocab_size)
    except ValueError as error:
        raise refusal(error) from error
    return params


def refusal(error: ValueError) -> ApiError:
    """What the engine will not do, as the client's mistake. The engine's messages begin with the field, if one is at
    fault: `min_tokens=5 is not valid: ...`, `prompt token 70000 is not an id of this model`."""
    named = re.match(r"(\w+)(?:=| needs | token )", str(error))
    param = named[1] if named and named[1] in {"prompt", *GenerationRequest.model_fields} else None
    return invalid(str(error), param)
