"""The fields of POST /v1/messages, of its answers and of their events, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from quire.server.bodies.conversation import FUNCTION_NAME
from quire.server.bodies.fields import Body, Count, Hint, Items, NonEmpty, Reply, StopStrings, option
from quire.server.bodies.sampling import AgentRequest


class TextBlock(Body):
    """Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["text"] = Field(description='Models here read text only: {"type": "text", "text": ...}.')
    text: str = Field(description="The text.")


class InputBlock(Body):
    """A text, a call of a tool, its result, or a thought. Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["text", "tool_use", "tool_result", "thinking"] = Field(
        description="text, tool_use, tool_result or thinking; models here read text only."
    )
    text: str | None = option("Of a text.")
    thinking: str | None = option("Of a thought.")
    id: str | None = option("Of a call: which its result names.")
    name: str | None = option("Of a call: the tool's.")
    input: dict[str, Any] | None = option("Of a call: its arguments.")
    tool_use_id: str | None = option("Of a result: the call's.")
    content: str | Items[TextBlock] | None = option("Of a result: a text, or a list of text blocks.")
    is_error: Hint = option("Of a result. A hint: the model reads the content.")


class InputMessage(Body):
    """A turn. Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["user", "assistant", "system"] = Field(description="user, assistant or system.")
    content: str | NonEmpty[InputBlock] = Field(description="A text, or a list of blocks.")


class ToolDefinition(Body):
    """A tool that the model may use. Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["custom"] | None = option("Only custom: this server has no tools of its own.")
    name: str = Field(description="1 to 128 letters, digits, _ and -.", pattern=FUNCTION_NAME)
    description: str | None = option("What it does; the model reads it.")
    input_schema: dict[str, Any] = Field(description="A JSON schema of its input: an object.")


class ChosenTool(Body):
    type: Literal["auto", "any", "tool", "none"] = Field(description="auto, any, tool (with its name) or none.")
    name: str | None = option("Of the tool that is to be used.")
    disable_parallel_tool_use: bool | None = option("Leaves out all calls of an answer but the first.")


class Thinking(Body):
    """Templates that know no enable_thinking ignore it."""

    type: Literal["enabled", "adaptive", "disabled"] = Field(
        description="enabled and adaptive set the template's variable enable_thinking to true, disabled to false."
    )
    budget_tokens: Hint = option("A hint; nothing depends on it.")
    display: Literal["summarized", "omitted"] | None = option("omitted leaves thoughts out of the answer.")


class OutputFormat(Body):
    type: Literal["json_schema"] = Field(description="Only json_schema.")
    schema_: dict[str, Any] = Field(alias="schema", description="What the answer's text must be.")


class OutputOptions(Body):
    format: OutputFormat | None = option("A JSON Schema that the answer follows.")
    effort: Annotated[str, Field(max_length=64)] | None = option("Handed to the chat template as reasoning_effort.")


class CountTokensRequest(AgentRequest):
    messages: NonEmpty[InputMessage] = Field(
        description="The conversation. The answer goes on with the last message, if that is the assistant's."
    )
    system: str | Items[TextBlock] | None = option("What comes before it: a text, or a list of text blocks.")
    tools: Annotated[list[ToolDefinition], Field(fail_fast=True, max_length=1024)] | None = option(
        "Up to 1024 tools that the model may use."
    )
    tool_choice: ChosenTool | None = option('{"type": "auto"}, the default, any, none, or tool with its name.')
    thinking: Thinking | None = option("Whether the model is to think first; by default as its template has it.")
    output_config: OutputOptions | None = option("How much effort the model is to make.")

    # Fields that clients send out of habit.
    cache_control: Hint = option("A hint: prefixes are always cached.")
    betas: Hint = option("A hint; nothing depends on it.")


class MessagesRequest(CountTokensRequest):
    max_tokens: Count = Field(description="At most so many tokens.")
    stop_sequences: StopStrings | None = option(
        "Up to 64 strings before which the answer ends; each of 1 to 1024 characters."
    )
    stream: bool | None = option("Send the answer as it grows, as server-sent events.")
    thread: Hint = option("Refused: this server holds no conversations for these clients, which then send all of it.")
    service_tier: Literal["auto", "standard_only"] | None = option(  # type: ignore[assignment]
        "There is one tier: auto and standard_only are taken."
    )


class MessageUsage(Reply):
    input_tokens: int = Field(description="Of the prompt, those whose KV had to be computed.")
    cache_creation_input_tokens: int = Field(description="Always 0.")
    cache_read_input_tokens: int = Field(description="Of the prompt, those whose KV was there already.")
    output_tokens: int


class MessageReply(Reply):
    """An answer: blocks of thoughts, text and calls."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None = Field(
        description="end_turn, max_tokens, stop_sequence, tool_use or model_context_window_exceeded."
    )
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(Reply):
    """An event of a stream; what else it has depends on its type, as in Anthropic's API."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="message_start, content_block_delta and the like.")


class TokenCount(Reply):
    input_tokens: int
