"""Fields of generating bodies: sampling parameters, constraints on the answer, hints of OpenAI's clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from quire.server.bodies.fields import Body, Hint, ModelBody, ShortText, StopString, StopStrings, option


class Slo(Body):
    """Latency targets, by which the routing policy chooses a model."""

    ttft_s: float | None = option("Seconds until the first token.", gt=0, le=86400)
    tpot_s: float | None = option("Seconds for each further token.", gt=0, le=86400)


class HabitualFields(ModelBody):
    """Hints of OpenAI's clients, which change no token."""

    user: Hint = option("Hint without effect.")
    safety_identifier: Hint = option("Hint without effect.")
    prompt_cache_key: Hint = option("Hint without effect: prefixes are found by their tokens.")
    prompt_cache_retention: Hint = option("Hint without effect.")
    prompt_cache_options: Hint = option("Hint without effect.")
    metadata: Hint = option("Hint without effect.")
    store: Hint = option("Hint without effect: nothing is stored.")
    verbosity: Hint = option("Hint without effect.")
    service_tier: Literal["auto", "default"] | None = option("Service tier: auto or default, which are the same.")


class SamplingFields(HabitualFields):
    """Sampling parameters, with the names and ranges of `SamplingParams`."""

    temperature: float | None = option("Temperature; 0 is greedy. Default: the model's own, or 1.", ge=0, le=100)
    top_p: float | None = option("Probability mass of the likeliest tokens to keep.", gt=0, le=1)
    top_k: int | None = option("Number of likeliest tokens to keep; 0 or -1 keeps all.", ge=-1, lt=2**31)
    min_p: float | None = option("Minimum probability, relative to the likeliest token's.", ge=0, le=1)
    repetition_penalty: float | None = option(
        "Penalty of tokens in prompt and answer; above 1 makes them less likely.", ge=0.01, le=100
    )
    presence_penalty: float | None = option("Subtrahend for logits of tokens in the answer.", ge=-2, le=2)
    frequency_penalty: float | None = option("Subtrahend for each occurrence of a token in the answer.", ge=-2, le=2)
    seed: int | None = option("Seed: the same seed gives the same tokens, under any load.", ge=-(2**63), lt=2**63)
    stop: StopString | StopStrings | None = option(
        "Stop string, or up to 64 of them, of 1 to 1024 characters; the answer ends before it."
    )
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = option(
        "Salt: share the prompt's KV only with requests of the same key and salt."
    )
    priority: int | None = option("Priority; smaller runs first. Default 0.", ge=-(2**31), lt=2**31)
    slo: Slo | None = option("Latency targets for model auto with the policy slo.")


class AgentRequest(SamplingFields):
    """Fields of the APIs for agents, with their meaning in /v1/chat/completions."""

    chat_template_kwargs: dict[str, Any] | None = option("Variables of the chat template, such as enable_thinking.")

    def shared_with_chat(self) -> dict[str, Any]:
        """Return the given fields that chat has under the same names."""
        names = {"model", *AgentRequest.model_fields.keys() - HabitualFields.model_fields.keys()}
        return {name: getattr(self, name) for name in names & self.model_fields_set}


class JsonSchemaFormat(Body):
    name: ShortText | None = option("Label for people.")
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
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", description="JSON Schema for the type json_object; default: any object."
    )


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
