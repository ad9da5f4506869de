"""The fields of every body that asks for an answer: how tokens are chosen, and what clients send out of habit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from quire.server.bodies.fields import Body, Hint, ModelBody, StopString, StopStrings, option


class Slo(Body):
    """What an answer may take; models are chosen by it."""

    ttft_s: float | None = option("Seconds until the first token.", gt=0, le=86400)
    tpot_s: float | None = option("Seconds a token after that.", gt=0, le=86400)


class HabitualFields(ModelBody):
    """Fields that clients of other servers send out of habit: hints, which change no token, and fields that ask for
    nothing at the one value that is taken."""

    user: Hint = option("OpenAI's hint; nothing depends on it.")
    safety_identifier: Hint = option("OpenAI's hint; nothing depends on it.")
    prompt_cache_key: Hint = option("OpenAI's hint; prefixes are found by their tokens, nothing depends on it.")
    prompt_cache_retention: Hint = option("OpenAI's hint; nothing depends on it.")
    metadata: Hint = option("OpenAI's hint; nothing depends on it.")
    store: Hint = option("OpenAI's hint; nothing is stored, whatever it says.")
    verbosity: Hint = option("OpenAI's hint; nothing depends on it.")
    prediction: Hint = option("OpenAI's hint for speed; nothing depends on it.")
    service_tier: Literal["auto", "default"] | None = option("There is one tier: auto and default are taken.")


class SamplingFields(HabitualFields):
    """Of every body that asks for an answer. Fields of SamplingParams have their names and ranges."""

    temperature: float | None = option("0 is greedy; by default what the model recommends, or 1.", ge=0, le=100)
    top_p: float | None = option("Keep the likeliest tokens up to this probability.", gt=0, le=1)
    top_k: int | None = option("Keep the k likeliest tokens; 0 or -1 keeps all.", ge=-1, lt=2**31)
    min_p: float | None = option("Keep tokens at least so likely as this share of the likeliest one.", ge=0, le=1)
    repetition_penalty: float | None = option("Above 1 makes tokens of prompt and answer less likely.", gt=0, le=100)
    presence_penalty: float | None = option("Taken from the logits of tokens in the answer.", ge=-2, le=2)
    frequency_penalty: float | None = option("Taken as many times as the token is in the answer.", ge=-2, le=2)
    seed: int | None = option("The same seed gives the same tokens, whatever else runs.", ge=-(2**63), lt=2**63)
    stop: StopString | StopStrings | None = option(
        "A string, or up to 64 of them, before which the answer ends; each of 1 to 1024 characters."
    )
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = option(
        "Share the prompt's KV only with requests of the same key that bring the same salt."
    )
    priority: int | None = option("Smaller goes first; 0 by default.", ge=-(2**31), lt=2**31)
    slo: Slo | None = option("With model auto: what the answer may take; the policy slo chooses by it.")


class AgentRequest(SamplingFields):
    """Of an API for agents. They mean what they mean in /v1/chat/completions."""

    chat_template_kwargs: dict[str, Any] | None = option("Variables of the chat template, such as enable_thinking.")

    def shared_with_chat(self) -> dict[str, Any]:
        """What was given of the fields that chat has by the same names."""
        names = {"model", *AgentRequest.model_fields.keys() - HabitualFields.model_fields.keys()}
        return {name: getattr(self, name) for name in names & self.model_fields_set}
