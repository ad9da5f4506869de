"""Base classes and value types of all bodies and answers.

A body's unknown field is rejected by name, unless the server ignores unknown fields. Null counts as absent.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from quire.sampling_params import MAX_ITEMS

T = TypeVar("T")
#: Lists stop at their first bad item: a million bad items are rejected as fast as one.
Items = Annotated[list[T], Field(fail_fast=True)]
NonEmpty = Annotated[list[T], Field(fail_fast=True, min_length=1)]
NoItems = Annotated[list[Any], Field(max_length=0)]
Tools = Annotated[list[T], Field(fail_fast=True, max_length=1024)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
MAX_STOP_STRINGS = 64
StopString = Annotated[str, Field(min_length=1, max_length=1024)]
StopStrings = Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)]
StopTokens = Annotated[Items[TokenId], Field(max_length=MAX_ITEMS["stop_token_ids"])]
AllowedTokens = Annotated[NonEmpty[TokenId], Field(max_length=MAX_ITEMS["allowed_token_ids"])]
BannedWords = Annotated[Items[NonEmpty[TokenId]], Field(max_length=MAX_ITEMS["bad_words_token_ids"])]
Biases = Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=MAX_ITEMS["logit_bias"])]
ShortText = Annotated[str, Field(max_length=256)]
Effort = Annotated[str, Field(max_length=64)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
NumLogprobs = Annotated[int, Field(ge=-1, lt=2**31)]
Hint = Annotated[Any, AfterValidator(lambda value: None)]  #: changes no token: any value is accepted, none is kept
Plain = str | bool | int | float
#: Metadata of a document.
PlainFields = dict[str, Plain]
#: A value that metadata must have, or a list of alternatives.
FilterFields = dict[str, Plain | list[Plain]]
FUNCTION_NAME = r"^[A-Za-z0-9_-]{1,128}$"


def callable_only(kind: str) -> BeforeValidator:
    """Drop tools of other types, such as a provider's own, from a list of tools with at least one of this type."""

    def drop(given: Any) -> Any:
        tools = given if isinstance(given, list) else []
        return [tool for tool in tools if not isinstance(tool, dict) or tool.get("type") in (kind, None)] or given

    return BeforeValidator(drop)


def option(text: str, **limits: Any) -> Any:
    """An optional field with its description and limits."""
    return Field(default=None, description=text, **limits)


class Body(BaseModel):
    """A JSON object from a client."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        if isinstance(given, dict) and None in given.values():
            return {name: value for name, value in given.items() if value is not None}
        return given


class LooseBody(Body):
    """Unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)


class ModelBody(Body):
    """A body that names a model."""

    model: str | None = option("Name from GET /v1/models; default: the first model.")


class Reply(BaseModel):
    """A JSON object to a client; unset fields are left out."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
