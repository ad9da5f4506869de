"""What answers are made of that several endpoints show: sources, usage, how far a model has come, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from starlette.responses import Response

from quire.server.bodies.fields import Reply
from quire.server.bodies.retrieval import RetrievalReply

if TYPE_CHECKING:
    from quire.outputs import LoadProgress


class RoutingReply(Reply):
    policy: str
    why: str
    numbers: dict[str, float] = Field(description="What was compared.")


class Generated(Reply):
    """The head of an answer, and of each chunk of a streamed one."""

    id: str
    object: str
    created: int = Field(description="Seconds since 1970.")
    model: str
    system_fingerprint: str | None = Field(default=None, description="Of weights and arithmetic.")
    retrieval: RetrievalReply | None = Field(
        default=None, description="What was found, where that was asked for; of a stream in the first chunk."
    )
    routing: RoutingReply | None = Field(default=None, description="Why this model, for model auto; likewise.")


class PromptTokensDetails(Reply):
    cached_tokens: int = Field(description="Of the prompt's tokens, those whose KV was there already.")
    cached_tokens_by_tier: dict[str, int] | None = Field(
        default=None,
        description="The same by where it was: device, host or disk; shown where not all was on the device.",
    )


class StageTokens(Reply):
    stage: int = Field(description="1 is the pruned model, the last one the original.")
    tokens: int = Field(description="That it made.")


class Usage(Reply):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    stages: list[StageTokens] | None = Field(
        default=None, description="Which stage made the tokens, of a model that arrives in stages."
    )


class LoadedSoFar(Reply):
    """How far a model has arrived; what is not known yet is left out."""

    stage: int | None = Field(default=None, description="That is served; 0 is none yet.")
    num_stages: int | None = Field(default=None, description="The last of them is the original; 1 where it has none.")
    bytes_loaded: int | None = Field(default=None, description="Of weights.")
    bytes_total: int | None = None
    seconds_left: float | None = Field(default=None, description="Until all is there, by the bandwidth so far.")

    @staticmethod
    def fields_of(progress: LoadProgress) -> dict[str, Any]:
        """The fields as far as they are known."""
        known: dict[str, Any] = {"stage": progress.stage, "num_stages": progress.num_stages}
        if progress.bytes_total:
            known |= {"bytes_loaded": progress.bytes_loaded, "bytes_total": progress.bytes_total}
        if progress.seconds_left is not None:
            known["seconds_left"] = round(progress.seconds_left, 1)
        return known


class ShownLogprob(Reply):
    logprob: float
    rank: int | None = Field(default=None, description="1 is the likeliest.")
    decoded_token: str | None = None


#: A token of the prompt: the log-probabilities of it and of the likeliest ones, by token id.
PromptLogprobs = list[dict[str, ShownLogprob] | None]


class ErrorDetail(Reply):
    message: str = Field(description="What was wrong, what was expected and how to mend it.")
    type: str = Field(description="invalid_request_error, rate_limit_error, server_error and the like.")
    param: str | None = Field(description="The field of the body that is at fault.")
    code: str | None = Field(description="For programs, such as context_length_exceeded.")
    details: dict[str, str | None] | None = Field(
        default=None, description="Below /v1/messages: `error_code`, the code where Anthropic's clients look for one."
    )


class ErrorBody(Reply):
    type: Literal["error"] | None = Field(default=None, description="Below /v1/messages.")
    error: ErrorDetail


#: Errors of any endpoint, as OpenAPI shows them.
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The body asks for what cannot be done; `param` names the field."},
    404: {"model": ErrorBody, "description": "There is no such model; the message lists those that there are."},
    "4XX": {"model": ErrorBody, "description": "The request cannot be taken: no key, too large, too many."},
    503: {"model": ErrorBody, "description": "The model is loading, has failed, or the server is shutting down."},
    "5XX": {"model": ErrorBody, "description": "The server failed."},
}


def json_reply(answer: Reply) -> Response:
    """Return the fields of an answer that were set, as JSON."""
    return Response(answer.model_dump_json(exclude_unset=True), media_type="application/json")
