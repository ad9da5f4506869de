"""Messages and tools in bodies."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator
from pydantic_core import from_json

from quire.server.bodies.fields import FUNCTION_NAME, Body, Items, LooseBody, NoItems, option


class TextPart(LooseBody):
    type: Literal["text"] = Field(description='Text only: {"type": "text", "text": ...}.')
    text: str = Field(description="Text of the part.")


class FunctionCall(LooseBody):
    name: str = Field(description="Name of the function.")
    arguments: str | dict[str, Any] = Field(
        default="", description="JSON object, or its text; the chat template receives the object."
    )


def read_cut_arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments, as far as a text that may be cut off has them; {} for another text."""
    try:
        found = from_json(text, allow_partial=True)
        json.dumps(found, allow_nan=False)  # raises for numbers that JSON lacks
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class ToolCall(LooseBody):
    id: str | None = option("Id to answer in a tool message's tool_call_id.")
    type: Literal["function"] = Field(default="function", description="Always function.")
    function: FunctionCall = Field(description="Called function and its arguments.")


class Message(LooseBody):
    """One message of a conversation. Unknown keys are ignored."""

    role: str = Field(
        description="Role: system, developer (the same as system), user, assistant, tool, or another of the chat "
        "template, such as ipython.",
        pattern=r"^[A-Za-z0-9_. -]{1,64}$",
    )
    content: str | Items[TextPart] | None = option(
        "Text, or a list of text parts. Only an assistant with tool_calls may leave it out."
    )
    name: str | None = option("Name of the author, for the chat template.")
    reasoning_content: str | None = option("Reasoning of the assistant, for the chat template.")
    reasoning: Any = option("Newer name of reasoning_content: a text, anything else is ignored.")
    tool_calls: Items[ToolCall] | None = option("Earlier calls of the assistant, for the chat template.")
    tool_call_id: str | None = option("Id of the call that a tool message answers, for the chat template.")

    # Fields of some servers' answers that clients send back.
    refusal: Literal[""] | None = option("Empty text only.")
    function_call: None = option("Null only; use tool_calls.")
    annotations: NoItems | None = option("Empty list only.")

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content) if isinstance(self.content, list) else self.content or ""


class FunctionDefinition(LooseBody):
    """A function. Unknown keys are passed to the chat template."""

    name: str = Field(description="Name: 1 to 128 letters, digits, _ and -.", pattern=FUNCTION_NAME)
    description: str | None = option("Description for the model.")
    parameters: dict[str, Any] | None = option("JSON schema of the arguments, an object.")
    strict: bool | None = option("Calls follow the schema; those that tool_choice forces do in any case.")


class GivenTool(LooseBody):
    """A tool as the client wrote it: the chat template receives every key."""

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        tool = handler(given)
        if isinstance(given, dict):
            tool._given = given
        return tool

    @property
    def given(self) -> dict[str, Any]:
        return self._given or self.model_dump(exclude_none=True)


class Tool(GivenTool):
    """A function that the model may call. Unknown keys are passed to the chat template."""

    type: Literal["function"] = Field(description='Always function: {"type": "function", "function": {"name", ...}}.')
    function: FunctionDefinition = Field(description="Definition of the function.")


class ChosenFunction(Body):
    name: str = Field(description="Name of one of the tools.")


class NamedToolChoice(Body):
    """A forced call of one function."""

    type: Literal["function"] = Field(description="Always function.")
    function: ChosenFunction = Field(description="Function to call.")


class AllowedTools(Body):
    mode: Literal["auto", "required"] = Field(description="Value of tool_choice for these tools.")
    tools: Items[NamedToolChoice] = Field(description="Tools that the model sees; others are left out.")


class AllowedToolChoice(Body):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"] = Field(description="Always allowed_tools.")
    allowed_tools: AllowedTools = Field(description="The tools, and whether one must be called.")


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice | AllowedToolChoice
