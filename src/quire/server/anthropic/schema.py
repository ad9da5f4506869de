"""Bodies, answers and events of POST /v1/messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

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
    StopStrings,
    Tools,
    callable_only,
    option,
)
from quire.server.bodies.requests import RequestReply
from quire.server.bodies.sampling import AgentRequest


class Marked(LooseBody):
    """A part of a prompt. Unknown keys are ignored."""

    cache_control: Hint = option("Mark: usage counts stored tokens. Prefixes are always cached.")


class TextBlock(Marked):
    type: Literal["text"] = Field(description='Text only: {"type": "text", "text": ...}.')
    text: str = Field(description="Text of the block.")


class InputBlock(Marked):
    """A text, a tool call, its result, or reasoning. Unknown keys are ignored."""

    type: Literal["text", "tool_use", "tool_result", "thinking", "redacted_thinking"] = Field(
        description="Type: text, tool_use, tool_result or thinking (redacted_thinking is ignored); models here read "
        "text only."
    )
    text: str | None = option("Text of a text block.")
    thinking: str | None = option("Text of a thinking block.")
    id: str | None = option("Id of a call.")
    name: str | None = option("Name of the called tool.")
    input: dict[str, Any] | None = option("Arguments of a call.")
    tool_use_id: str | None = option("Id of the call that a result answers.")
    content: str | Items[TextBlock] | None = option("Content of a result: a text, or a list of text blocks.")
    is_error: Hint = option("Hint without effect: the model reads the content.")


class InputMessage(LooseBody):
    """One message. Unknown keys are ignored."""

    role: Literal["user", "assistant", "system"] = Field(description="Role: user, assistant or system.")
    content: str | NonEmpty[InputBlock] = Field(description="Text, or a list of blocks.")


class ToolDefinition(Marked):
    """A tool that the model may call. Unknown keys are ignored."""

    type: Literal["custom"] | None = option("Always custom: this server has no tools of its own.")
    name: str = Field(description="Name: 1 to 128 letters, digits, _ and -.", pattern=FUNCTION_NAME)
    description: str | None = option("Description for the model.")
    input_schema: dict[str, Any] = Field(description="JSON schema of the arguments, an object.")
    strict: bool | None = option("Calls follow the schema.")


class ChosenTool(Body):
    type: Literal["auto", "any", "tool", "none"] = Field(description="Choice: auto, any, tool (with name) or none.")
    name: str | None = option("Name of the tool to call.")
    disable_parallel_tool_use: bool | None = option("Remove all calls but the first.")


class Thinking(Body):
    """Reasoning of the model. Templates without enable_thinking ignore it."""

    type: Literal["enabled", "adaptive", "disabled"] = Field(
        description="Value of the template's variable enable_thinking: true for enabled and adaptive, else false."
    )
    budget_tokens: Hint = option("Hint without effect.")
    display: Literal["summarized", "omitted"] | None = option("Display: omitted removes the reasoning.")


class OutputFormat(Body):
    type: Literal["json_schema"] = Field(description="Always json_schema.")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON schema of the answer's text.")


class OutputOptions(Body):
    format: OutputFormat | None = option("Format of the answer.")
    effort: Effort | None = option("Variable reasoning_effort of the chat template.")


class CountTokensRequest(AgentRequest):
    messages: NonEmpty[InputMessage] = Field(
        description="Conversation. The answer continues the last message if it is the assistant's."
    )
    system: str | Items[TextBlock] | None = option("System prompt: a text, or a list of text blocks.")
    tools: Annotated[Tools[ToolDefinition], callable_only("custom")] | None = option(
        "Tools that the model may call, up to 1024. Anthropic's own ones are left out."
    )
    tool_choice: ChosenTool | None = option('Calls: {"type": "auto"} (default), any, none, or tool with its name.')
    thinking: Thinking | None = option("Reasoning before the answer; default: as the chat template says.")
    output_config: OutputOptions | None = option("Format and effort.")

    # Fields that clients send by default.
    cache_control: Hint = option("Mark of the whole prompt, as of its blocks.")
    betas: Hint = option("Hint without effect.")
    context_management: Hint = option("Hint without effect: the model reads the whole conversation.")
    mcp_servers: NoItems | None = option("Empty list only.")
    fallbacks: NoItems | None = option("Empty list only.")
    inference_geo: Hint = option("Hint without effect.")
    diagnostics: Hint = option("Hint without effect.")
    speed: Literal["standard"] | None = option("Only standard.")

    @property
    def is_marked(self) -> bool:
        """Whether a part of the prompt has a cache_control."""
        contents = [self.system, *(message.content for message in self.messages)]
        blocks = (block for content in contents if isinstance(content, list) for block in content)
        return any("cache_control" in part.model_fields_set for part in (self, *(self.tools or ()), *blocks))


class MessagesRequest(CountTokensRequest):
    max_tokens: Count = Field(description="Maximum length of the answer in tokens.")
    stop_sequences: StopStrings | None = option("Stop strings, up to 64, of 1 to 1024 characters.")
    stream: bool | None = option("Send the answer as server-sent events while it is generated.")
    thread: Any = option("Rejected: this server keeps no conversations, and clients then send the whole one.")
    service_tier: Literal["auto", "standard_only"] | None = option(  # type: ignore[assignment]
        "Service tier: auto or standard_only, which are the same."
    )


class MessageUsage(Reply):
    input_tokens: int = Field(description="All other tokens of the prompt.")
    cache_creation_input_tokens: int = Field(
        description="Prompt tokens whose KV was computed and stored; 0 without cache_control."
    )
    cache_read_input_tokens: int = Field(description="Prompt tokens whose KV was cached.")
    output_tokens: int
    why: RequestReply | None = option("How the prompt was read, and why; with the header X-Quire-Why: 1.")


class MessageReply(Reply):
    """An answer: blocks of reasoning, text and calls."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None = Field(
        description="Reason of the end: end_turn, max_tokens, stop_sequence, tool_use or model_context_window_exceeded."
    )
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(Reply):
    """An event of a stream; its further fields depend on its type, as in Anthropic's API."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Type, such as message_start or content_block_delta.")


class TokenCount(Reply):
    input_tokens: int
