"""Bodies, answers and events of POST /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from quire.server.bodies.conversation import GivenTool
from quire.server.bodies.fields import (
    FUNCTION_NAME,
    Body,
    Count,
    Effort,
    Hint,
    Items,
    LooseBody,
    NoItems,
    NonEmpty,
    Reply,
    ShortText,
    Tools,
    callable_only,
    option,
)
from quire.server.bodies.requests import RequestReply
from quire.server.bodies.sampling import AgentRequest, JsonSchemaFormat
from quire.server.tools.parser import random_id


class TextItemPart(LooseBody):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"] = Field(
        description="Type of text: input_text, or output_text for the model's own; models here read text only."
    )
    text: str = Field(description="Text of the part.")


class InputItem(LooseBody):
    """A message, a function call, its output, or reasoning. Unknown keys are ignored."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = Field(
        default="message", description="Type: message, function_call, function_call_output or reasoning."
    )
    id: str = Field(default_factory=lambda: f"item_{random_id(24)}", description="Id; default: a new one.")
    role: Literal["system", "developer", "user", "assistant"] | None = option(
        "Role of a message: system, developer, user or assistant."
    )
    content: str | Items[TextItemPart] | None = option("Content of a message or of reasoning: text or text parts.")
    call_id: str | None = option("Id of a call, also in its output.")
    name: str | None = option("Name of the called function.")
    arguments: str | None = option("Arguments of a call: a JSON object as text.")
    output: str | Items[TextItemPart] | None = option("Output of a call: text or text parts.")
    summary: Items[TextItemPart] | None = option("Summary of reasoning without content.")

    def shown(self) -> dict[str, Any]:
        """Return the item as lists show it."""
        shown = self.model_dump(exclude_none=True)
        if self.type == "message" and isinstance(self.content, str):
            kind = "output_text" if self.role == "assistant" else "input_text"
            shown["content"] = [{"type": kind, "text": self.content}]
        return {**shown, "status": "completed"}


class FunctionTool(GivenTool):
    """A function that the model may call. Unknown keys are passed to the chat template."""

    type: Literal["function"] = Field(description='Always function: {"type": "function", "name": ...}.')
    name: str = Field(description="Name: 1 to 128 letters, digits, _ and -.", pattern=FUNCTION_NAME)
    description: str | None = option("Description for the model.")
    parameters: dict[str, Any] | None = option("JSON schema of the arguments, an object.")
    strict: bool | None = option("Calls follow the schema; those that tool_choice forces do in any case.")


class NamedFunction(Body):
    """A forced call of one function."""

    type: Literal["function"] = Field(description="Always function.")
    name: str = Field(description="Name of one of the tools.")


class AllowedFunctions(Body):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"] = Field(description="Always allowed_tools.")
    mode: Literal["auto", "required"] = Field(description="Value of tool_choice for these tools.")
    tools: Items[NamedFunction] = Field(description="Tools that the model sees; others are left out.")


class ReasoningOptions(Body):
    effort: Effort | None = option("Variable reasoning_effort of the chat template.")
    summary: Hint = option("Hint without effect: reasoning is shown in full.")
    generate_summary: Hint = option("Hint without effect: reasoning is shown in full.")


class TextFormat(JsonSchemaFormat):
    """The format of the answer's text."""

    type: Literal["text", "json_object", "json_schema"] = Field(
        description="Format: text (no constraint), json_object (any JSON object) or json_schema (as `schema` says)."
    )
    schema_: dict[str, Any] | None = Field(default=None, alias="schema", description="Schema for the type json_schema.")


class TextOptions(Body):
    format: TextFormat | None = option("Format: plain text, a JSON object, or JSON of a schema.")
    verbosity: Hint = option("Hint without effect.")


class ResponseStreamOptions(Body):
    include_obfuscation: bool | None = option("Hint without effect: nothing is obfuscated.")


class ResponsesRequest(AgentRequest):
    input: str | NonEmpty[InputItem] = Field(
        description="Text of the user, or a list of items: messages, calls, their outputs, reasoning."
    )
    instructions: str | None = option("System message before all others, for this answer only.")
    previous_response_id: str | None = option("Id of a stored response whose conversation to continue.")
    store: bool | None = option("Keep the response for previous_response_id, in memory. Default true.")
    max_output_tokens: Count | None = option("Maximum length of the answer in tokens; default: as many as fit.")
    tools: Annotated[Tools[FunctionTool], callable_only("function")] | None = option(
        "Functions that the model may call, up to 1024. OpenAI's own tools are left out of a list with functions."
    )
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | AllowedFunctions | None = option(
        'Calls: auto (default), none, required, {"type": "function", "name": ...}, or '
        '{"type": "allowed_tools", "mode", "tools"}, which leaves out other functions.'
    )
    parallel_tool_calls: bool | None = option("False removes all calls but the first.")
    reasoning: ReasoningOptions | None = option("Options for reasoning.")
    text: TextOptions | None = option("Options for the answer's text.")
    include: Items[ShortText] | None = option(
        "Hints without effect, but for message.output_text.logprobs, which is rejected."
    )
    top_logprobs: Literal[0] | None = option("Only 0: a response has no log-probabilities.")
    metadata: dict[str, Any] | None = option("Metadata to return with the response.")
    stream: bool | None = option("Send the answer as server-sent events while it is generated.")
    stream_options: ResponseStreamOptions | None = option("Options for stream.")

    # Fields that clients send with a neutral value.
    client_metadata: Hint = option("Hint without effect.")
    max_tool_calls: Hint = option("Hint without effect: it limits built-in tools, which this server lacks.")
    truncation: Literal["auto", "disabled"] | None = option(
        "Input that is too long: auto drops the oldest turns, disabled (default) rejects it."
    )
    background: bool | None = option("Answer at once with the state, which GET shows until it has the output.")
    context_management: NoItems | None = option("Empty list only.")


class InputTokensDetails(Reply):
    cached_tokens: int = Field(description="Prompt tokens whose KV was cached.")
    cache_write_tokens: int = Field(description="Prompt tokens whose KV was computed and stored.")


class OutputTokensDetails(Reply):
    reasoning_tokens: int = Field(description="Generated tokens of reasoning.")


class ResponseUsage(Reply):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int
    why: RequestReply | None = option("How the prompt was read, and why; with the header X-Quire-Why: 1.")


class ResponseReply(Reply):
    """A response, with a list of items as its output: reasoning, messages, calls."""

    id: str
    object: Literal["response"]
    created_at: int = Field(description="Seconds since 1970.")
    completed_at: int | None = None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None = Field(description='Reason: {"reason": "max_output_tokens"}.')
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
    top_logprobs: Literal[0]
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: None = None
    metadata: dict[str, Any]


class ResponseEvent(Reply):
    """An event of a stream; its further fields depend on its type, as in OpenAI's API."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Type, such as response.created or response.output_text.delta.")
    sequence_number: int = Field(description="Number of the event, from 0.")


class InputItemList(Reply):
    object: Literal["list"]
    data: list[dict[str, Any]] = Field(description="Items of the conversation before the answer.")
    first_id: str | None
    last_id: str | None
    has_more: bool
