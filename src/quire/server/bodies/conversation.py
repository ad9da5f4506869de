"""The fields of messages and of tools, as OpenAPI shows them."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from quire.server.bodies.fields import Body, Items, NoItems, option

FUNCTION_NAME = r"^[A-Za-z0-9_-]{1,128}$"


class TextPart(Body):
    """Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["text"] = Field(description='Models here read text only: {"type": "text", "text": ...}.')
    text: str = Field(description="The text.")


class FunctionCall(Body):
    model_config = ConfigDict(extra="ignore", strict=True)

    name: str = Field(description="The function's name.")
    arguments: str | dict[str, Any] = Field(
        default="", description="A JSON object, as text or as it is; the chat template gets the object."
    )


class ToolCall(Body):
    """Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    id: str | None = option("Which a tool's message answers by its tool_call_id.")
    type: Literal["function"] = Field(default="function", description="Only function.")
    function: FunctionCall = Field(description="What was called.")


class Message(Body):
    """One turn of a conversation. developer is another word for system. Keys that are not here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="system, developer, user, assistant or tool."
    )
    content: str | Items[TextPart] | None = option(
        "A text, or a list of text parts. Only an assistant with tool_calls may have none."
    )
    name: str | None = option("Handed to the chat template.")
    reasoning_content: str | None = option("Handed to the chat template.")
    tool_calls: Items[ToolCall] | None = option("What the assistant called earlier; handed to the chat template.")
    tool_call_id: str | None = option("Of a tool's message: the call that it answers; handed to the chat template.")

    # Fields of some servers' answers that clients send back.
    refusal: Literal[""] | None = option("Only empty.")
    function_call: None = option("Only null: send tool_calls, which took its place.")
    annotations: NoItems | None = option("Only an empty list is taken.")

    @property
    def text(self) -> str:
        """All of its content."""
        return "\n".join(part.text for part in self.content) if isinstance(self.content, list) else self.content or ""


class FunctionDefinition(Body):
    """Other keys are handed to the chat template as they are."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str = Field(description="1 to 128 letters, digits, _ and -.", pattern=FUNCTION_NAME)
    description: str | None = option("What it does; the model reads it.")
    parameters: dict[str, Any] | None = option("A JSON schema of its arguments: an object.")
    strict: bool | None = option(
        "Calls that tool_choice forces follow the schema whatever this says; of others it is a wish."
    )


class GivenTool(Body):
    """A tool as the client wrote it: other keys are handed to the chat template as they are."""

    model_config = ConfigDict(extra="ignore", strict=True)

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
        """As the client wrote it: templates show tools key by key."""
        return self._given or self.model_dump(exclude_none=True)


class Tool(GivenTool):
    """A function that the model may call. Other keys are handed to the chat template as they are."""

    type: Literal["function"] = Field(description='Only {"type": "function", "function": {"name", ...}}.')
    function: FunctionDefinition = Field(description="What may be called.")


class ChosenFunction(Body):
    name: str = Field(description="Of one of the tools.")


class NamedToolChoice(Body):
    """This function is to be called."""

    type: Literal["function"] = Field(description="Only function.")
    function: ChosenFunction = Field(description="Which one.")


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice
