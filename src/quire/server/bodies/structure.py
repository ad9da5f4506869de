"""Constraints on an answer, as fields of bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from quire.server.bodies.fields import Body, ShortText, option


class JsonSchemaFormat(Body):
    name: ShortText = Field(description="Label for people.")
    description: str | None = option("Note for people; the model does not see it.")
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", description="JSON Schema of the answer; default: any JSON."
    )
    strict: bool | None = option("Hint: the answer follows the schema in any case.")


class ResponseFormat(Body):
    """The format of an answer."""

    type: Literal["text", "json_object", "json_schema"] = Field(
        description="Format: text (no constraint), json_object (any object) or json_schema (as `json_schema` says)."
    )
    json_schema: JsonSchemaFormat | None = option("Schema for the type json_schema.")


class StructuredOutputs(Body):
    """The language of an answer: exactly one of the first five fields."""

    json_: str | bool | dict[str, Any] | None = Field(
        default=None, alias="json", description="JSON Schema, or its text."
    )
    regex: str | None = option("Regular expression that matches the whole answer.")
    choice: Annotated[list[str], Field(fail_fast=True, min_length=1)] | None = option("Possible answers.")
    grammar: str | None = option("Context-free grammar in the dialect of Lark or of llama.cpp (GBNF).")
    json_object: bool | None = option("Any JSON object.")
    disable_any_whitespace: bool | None = option("Forbid whitespace between the parts of JSON.")
    whitespace_pattern: str | None = option("Regular expression for whitespace between the parts of JSON.")
