"""The body of POST /v1/completions, and its answer. Knows names, types and ranges; nothing about engines."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from quire.sampling_params import MAX_LOGPROBS
from quire.server.protocol import GenerationRequest, NonEmpty, PromptLogprobs, Reply, TokenId, Usage, option


class CompletionRequest(GenerationRequest):
    prompt: str | NonEmpty[str] | NonEmpty[TokenId] | NonEmpty[NonEmpty[TokenId]] = Field(
        description="A text, a list of texts, token ids, or a list of lists of token ids.", union_mode="left_to_right"
    )
    max_tokens: int | None = option("At most so many tokens; 16 by default. 0 goes with echo.", ge=0, lt=2**31)
    echo: bool | None = option("Put the prompt before the answer; with logprobs, its log-probabilities too.")
    logprobs: int | None = option(
        "The log-probability of each token, and of so many likeliest ones.", ge=0, le=MAX_LOGPROBS
    )
    add_special_tokens: bool | None = option("Put around a text what the model expects (a bos token); true by default.")
    best_of: int | None = option("Only the same as n: as many answers are made as are shown.", ge=1, le=1024)

    @property
    def prompts(self) -> list[Any]:
        """All of them, be it one: texts, or lists of token ids."""
        given: Any = self.prompt
        return [given] if isinstance(given, str) or isinstance(given[0], int) else given


class CompletionLogprobs(Reply):
    """Lists that run in parallel, one entry a token."""

    text_offset: list[int] = Field(description="Where in the text the token begins, in characters.")
    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="Null for the first token of an echoed prompt.")
    top_logprobs: list[dict[str, float] | None] | None


class CompletionChoice(Reply):
    index: int = Field(description="Prompt by prompt, each with its n answers.")
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = Field(default=None, description="stop or length; null while a stream goes on.")
    stop_reason: int | str | None = Field(default=None, description="The stop string or stop token that ended it.")
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class Completion(Reply):
    """The answer, and each chunk of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
