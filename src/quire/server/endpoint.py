"""What both generating endpoints do: find the model, check that it may be asked, and run a body's prompts on it.

Knows requests, settings and engines; knows nothing about the form of an answer.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from quire.outputs import RequestOutput
from quire.sampling_params import SamplingParams
from quire.server.access_log import note_usage
from quire.server.auth import PUBLIC_KEY_ID, domains_of
from quire.server.connection import run_while_connected
from quire.server.errors import invalid
from quire.server.generation import Generation, check_ready
from quire.server.prompts import Prompt
from quire.server.protocol import GenerationRequest, Reply, Usage
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings
from quire.server.usage import UsageCount


class Endpoint:
    """One way to ask the models of a server."""

    def __init__(self, registry: ModelRegistry, settings: ServerSettings) -> None:
        self.registry = registry
        self.settings = settings

    def find_model(self, request: Request, body: GenerationRequest) -> ServedModel:
        """The model that a body names, if it can be asked now.

        Raises:
            ApiError: there is none, or it is not ready; or fields exclude each other.
        """
        model = self.registry.get(body.model)
        note_usage(request.scope, model=model.name)
        check_ready(model)
        check_streaming(body)
        return model

    def begin(
        self,
        request: Request,
        body: GenerationRequest,
        model: ServedModel,
        prompts: Sequence[Prompt],
        params: SamplingParams,
        prefix: str,
    ) -> Generation:
        """What is to run, under an id of its own."""
        key_id = request.scope.get("state", {}).get("key_id", PUBLIC_KEY_ID)
        return Generation(
            model,
            prompts,
            params,
            request_id=f"{prefix}-{secrets.token_hex(12)}",
            created=int(time.time()),
            priority=body.priority or 0,
            domains=domains_of(key_id, self.settings),
        )

    async def run(self, request: Request, generation: Generation) -> tuple[list[RequestOutput], Usage]:
        """The whole answers and what they cost. A client that goes away ends them.

        Raises:
            ApiError: they failed.
            ClientDisconnected: the client went away.
        """
        outputs = await run_while_connected(request.receive, generation.outputs())
        count = UsageCount()
        for output in outputs:
            count.add_output(output)
        note_usage(
            request.scope,
            model=generation.model.name,
            prompt_tokens=count.num_prompt_tokens,
            completion_tokens=count.num_output_tokens,
        )
        return outputs, count.to_usage()


def check_streaming(body: GenerationRequest) -> None:
    """Refuse fields that do not go with stream, or only with it.

    Raises:
        ApiError: naming the field.
    """
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs are not streamed; leave out stream or prompt_logprobs", "prompt_logprobs")
    if not body.stream and (body.wants_usage or body.wants_running_usage):
        raise invalid("stream_options go with stream=true; a whole answer has its usage", "stream_options")


def json_reply(answer: Reply) -> Response:
    """What was set of an answer, as JSON."""
    return Response(answer.model_dump_json(exclude_unset=True), media_type="application/json")
