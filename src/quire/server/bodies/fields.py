"""What all bodies and answers are made of: kinds of values, and how an optional field is written.

A field that a body does not know is refused by name (unless the server is told to ignore it). Null counts as absent.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

T = TypeVar("T")
#: Lists stop at their first bad item: a body of a million bad ones is refused as fast as a body of one.
Items = Annotated[list[T], Field(fail_fast=True)]
NonEmpty = Annotated[list[T], Field(fail_fast=True, min_length=1)]
NoItems = Annotated[list[Any], Field(max_length=0)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
MAX_STOP_STRINGS = 64
StopString = Annotated[str, Field(min_length=1, max_length=1024)]
StopStrings = Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
NumLogprobs = Annotated[int, Field(ge=-1, lt=2**31)]
Hint = Any  #: changes no token, so it may hold whatever a client likes
Plain = str | bool | int | float
#: A document's metadata.
PlainFields = dict[str, Plain]
#: The value that a field of the metadata must have, or a list of those that will do.
FilterFields = dict[str, Plain | list[Plain]]


def option(text: str, **limits: Any) -> Any:
    """An optional field, what it means and which values it takes."""
    return Field(default=None, description=text, **limits)


class Body(BaseModel):
    """A JSON object from a client."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if value is not None}
        return given


class ModelBody(Body):
    """A body that names a model."""

    model: str | None = option("One of GET /v1/models; by default the first.")


class Reply(BaseModel):
    """A JSON object to a client; fields that were not set are not shown."""

    model_config = ConfigDict(extra="forbid")
