"""The fields of POST /v1/responses, of its answers and of their events' payloads, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from quire.server.bodies.conversation import FUNCTION_NAME, GivenTool
from quire.server.bodies.fields import Body, Count, Hint, Items, NoItems, Reply, option
from quire.server.bodies.sampling import AgentRequest


class TextItemPart(Body):
    """Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"] = Field(
        description="Models here read text only: input_text, and output_text in what they said."
    )
    text: str = Field(description="The text.")


class InputItem(Body):
    """A message, a call of a function, what it returned, or what the model thought. Keys that are not here are
    ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = Field(
        default="message", description="message, function_call, function_call_output or reasoning."
    )
    role: Literal["system", "developer", "user", "assistant"] | None = option(
        "Of a message: system, developer, user or assistant."
    )
    content: str | Items[TextItemPart] | None = option("Of a message or of reasoning: a text, or a list of text parts.")
    call_id: str | None = option("Of a call, and of what it returned.")
    name: str | None = option("Of a call: the function's.")
    arguments: str | None = option("Of a call: a JSON object, as text.")
    output: str | Items[TextItemPart] | None = option("What a call returned: a text, or a list of text parts.")
    summary: Items[TextItemPart] | None = option("Of reasoning, where it has no content.")


class FunctionTool(GivenTool):
    """A function that the model may call. Keys that are not here are handed to the chat template."""

    type: Literal["function"] = Field(description='Only {"type": "function", "name": ...}.')
    name: str = Field(description="1 to 128 letters, digits, _ and -.", pattern=FUNCTION_NAME)
    description: str | None = option("What it does; the model reads it.")
    parameters: dict[str, Any] | None = option("A JSON schema of its arguments: an object.")
    strict: bool | None = option("Calls that tool_choice forces follow the schema whatever this says.")


class NamedFunction(Body):
    """This function is to be called."""

    type: Literal["function"] = Field(description="Only function.")
    name: str = Field(description="Of one of the tools.")


class ReasoningOptions(Body):
    effort: Annotated[str, Field(max_length=64)] | None = option("Handed to the chat template as reasoning_effort.")
    summary: Hint = option("A hint: reasoning is shown as it is.")
    generate_summary: Hint = option("A hint, likewise.")


class TextFormat(Body):
    """What the answer's text may be."""

    type: Literal["text", "json_object", "json_schema"] = Field(
        description="text is no limit; json_object any JSON object; json_schema what `schema` says."
    )
    name: Annotated[str, Field(max_length=256)] | None = option("For people.")
    description: str | None = option("For people; the model does not see it.")
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", description="A JSON Schema; goes with the type json_schema."
    )
    strict: bool | None = option("The answer is held to the schema either way.")


class TextOptions(Body):
    format: TextFormat | None = option("Plain text, a JSON object or what a schema says.")
    verbosity: Hint = option("A hint; nothing depends on it.")


class ResponseStreamOptions(Body):
    include_obfuscation: bool | None = option("Nothing is obfuscated here, whatever it says.")


class ResponsesRequest(AgentRequest):
    input: str | Annotated[list[InputItem], Field(fail_fast=True, min_length=1)] = Field(
        description="A text of the user's, or a list of items: messages, calls, what they returned, reasoning."
    )
    instructions: str | None = option("A message of the system, before all others; of this answer only.")
    previous_response_id: str | None = option("Go on with the conversation of a response that was stored.")
    store: bool | None = option("Keep the answer for previous_response_id, for a while; true by default.")
    max_output_tokens: Count | None = option("At most so many tokens; by default as many as fit.")
    tools: Annotated[list[FunctionTool], Field(fail_fast=True, max_length=1024)] | None = option(
        "Up to 1024 functions that the model may call."
    )
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = option(
        'auto, the default, none, required, or {"type": "function", "name": ...}.'
    )
    parallel_tool_calls: bool | None = option("False leaves out all calls of an answer but the first.")
    reasoning: ReasoningOptions | None = option("How much the model is to think.")
    text: TextOptions | None = option("The form of the answer's text.")
    include: Items[Annotated[str, Field(max_length=256)]] | None = option(
        "With message.output_text.logprobs, the tokens of the answer's text with their log-probabilities; others are "
        "hints."
    )
    top_logprobs: int | None = option(
        "Log-probabilities, too, of so many likeliest tokens at each place.", ge=0, lt=2**31
    )
    metadata: dict[str, Any] | None = option("Shown again with the response.")
    stream: bool | None = option("Send the answer as it grows, as server-sent events.")
    stream_options: ResponseStreamOptions | None = option("Only with stream.")

    # Fields that clients send out of habit.
    max_tool_calls: Hint = option("It counts calls of built-in tools, and there are none.")
    truncation: Literal["disabled"] | None = option("Only disabled: what is too long is refused.")
    background: Literal[False] | None = option("Only false.")
    context_management: NoItems | None = option("Only an empty list.")


class InputTokensDetails(Reply):
    cached_tokens: int = Field(description="Of the prompt's tokens, those whose KV was there already.")
    cache_write_tokens: int = Field(description="Always 0.")


class OutputTokensDetails(Reply):
    reasoning_tokens: int = Field(description="Of the answer's tokens, those that the model thought with.")


class ResponseUsage(Reply):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseReply(Reply):
    """A response; its output is a list of items: reasoning, messages, calls."""

    id: str
    object: Literal["response"]
    created_at: int = Field(description="Seconds since 1970.")
    completed_at: int | None = None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None = Field(description='{"reason": "max_output_tokens"}.')
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None = None
    model: str
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, Any]
    service_tier: Literal["default"]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: None = None
    metadata: dict[str, Any]


class ResponseEvent(Reply):
    """An event of a stream; what else it has depends on its type, as in OpenAI's API."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="response.created, response.output_text.delta and the like.")
    sequence_number: int = Field(description="From 0, without gaps.")


class DeletedResponse(Reply):
    id: str
    object: Literal["response.deleted"]
    deleted: Literal[True]
