"""What an answer may be, in the fields of a body."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from quire.server.bodies.fields import Body, option


class JsonSchemaFormat(Body):
    name: Annotated[str, Field(max_length=256)] = Field(description="For people.")
    description: str | None = option("For people; the model does not see it.")
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", description="A JSON Schema; by default anything that is JSON."
    )
    strict: bool | None = option("The answer is held to the schema either way.")


class ResponseFormat(Body):
    """What an answer may be."""

    type: Literal["text", "json_object", "json_schema"] = Field(
        description="text is no limit; json_object any JSON object; json_schema what `json_schema` says."
    )
    json_schema: JsonSchemaFormat | None = option("Goes with the type json_schema.")


class StructuredOutputs(Body):
    """The language of an answer: exactly one of the first five fields says which."""

    json_: str | bool | dict[str, Any] | None = Field(
        default=None, alias="json", description="A JSON Schema, or one as text."
    )
    regex: str | None = option("The whole answer matches it.")
    choice: Annotated[list[str], Field(fail_fast=True, min_length=1)] | None = option("The answer is one of these.")
    grammar: str | None = option("A context-free grammar, in the dialect of Lark or of llama.cpp (GBNF).")
    json_object: bool | None = option("Any JSON object.")
    disable_any_whitespace: bool | None = option("No white space between the parts of JSON.")
    whitespace_pattern: str | None = option("A regex for what may stand between the parts of JSON.")
