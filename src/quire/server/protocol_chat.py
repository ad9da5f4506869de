"""The body of POST /v1/chat/completions, and its answers. Knows names, types and ranges; nothing about engines."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from quire.sampling_params import MAX_LOGPROBS
from quire.server.protocol import (
    Body,
    Count,
    GenerationRequest,
    Items,
    NoItems,
    NonEmpty,
    PromptLogprobs,
    Reply,
    Usage,
    option,
)


class TextPart(Body):
    type: Literal["text"] = Field(description='Models here read text only: {"type": "text", "text": ...}.')
    text: str = Field(description="The text.")


class Message(Body):
    """One turn of a conversation. developer is another word for system."""

    role: Literal["system", "developer", "user", "assistant"] = Field(
        description="system, developer, user or assistant. Tools are not served yet."
    )
    content: str | Items[TextPart] = Field(description="A text, or a list of text parts.")
    name: str | None = option("Handed to the chat template.")
    reasoning_content: str | None = option("Handed to the chat template.")

    # What an answer of some server had, and its client sends back.
    refusal: Literal[""] | None = option("Only empty.")
    tool_calls: NoItems | None = option("Tools are not served yet: only an empty list is taken.")
    annotations: NoItems | None = option("Only an empty list is taken.")


class ResponseFormat(Body):
    type: Literal["text"] = Field(description='Answers are plain text: only {"type": "text"} is taken.')


class TemplateOptions(Body):
    """How messages become a prompt; /tokenize takes the same."""

    add_generation_prompt: bool | None = option(
        "Open the assistant's turn at the end; true by default, but with continue_final_message."
    )
    continue_final_message: bool | None = option("Leave the last message open: the answer goes on with it.")
    chat_template_kwargs: dict[str, Any] | None = option("Variables of the chat template, such as enable_thinking.")
    add_special_tokens: bool | None = option(
        "Put around the rendered template what the model expects; false by default: templates write it themselves."
    )


class ChatCompletionRequest(TemplateOptions, GenerationRequest):
    messages: NonEmpty[Message] = Field(description="The conversation: at least one message.")
    max_completion_tokens: Count | None = option("At most so many tokens; by default as many as fit.")
    max_tokens: Count | None = option("The older name of max_completion_tokens.")
    logprobs: bool | None = option("The log-probability of each token.")
    top_logprobs: int | None = option(
        "Also those of so many likeliest tokens; goes with logprobs.", ge=0, le=MAX_LOGPROBS
    )

    # What clients send without meaning anything by it.
    response_format: ResponseFormat | None = option("Answers are plain text.")
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = option('Only ["text"].')
    tools: NoItems | None = option("Tools are not served yet: only an empty list is taken.")
    tool_choice: Literal["none", "auto"] | None = option("Tools are not served yet: none and auto are taken.")
    parallel_tool_calls: bool | None = option("Nothing depends on it without tools.")
    functions: NoItems | None = option("Functions are not served: only an empty list is taken.")
    function_call: Literal["none", "auto"] | None = option("Functions are not served: none and auto are taken.")


class TopLogprob(Reply):
    token: str
    logprob: float
    bytes: list[int] | None = Field(description="Tokens may be parts of a character: its bytes in UTF-8.")


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Reply):
    content: list[TokenLogprob]
    refusal: None = None


class AssistantMessage(Reply):
    role: Literal["assistant"]
    content: str


class ChatChoice(Reply):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str = Field(description="stop or length.")
    stop_reason: int | str | None = Field(default=None, description="The stop string or stop token that ended it.")
    token_ids: list[int] | None = None


class ChatCompletion(Reply):
    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class MessageDelta(Reply):
    role: Literal["assistant"] | None = Field(default=None, description="In the first chunk of each choice.")
    content: str | None = None


class ChatChunkChoice(Reply):
    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(Reply):
    """One event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
