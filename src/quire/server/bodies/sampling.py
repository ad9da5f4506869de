"""The fields of sampling and of prompts that APIs for agents take beside their own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from quire.server.bodies.fields import StopString, option
from quire.server.openai.schema import HabitualFields, Slo


class AgentRequest(HabitualFields):
    """They mean what they mean in /v1/chat/completions."""

    temperature: float | None = option("0 is greedy; by default what the model recommends, or 1.", ge=0, le=100)
    top_p: float | None = option("Keep the likeliest tokens up to this probability.", gt=0, le=1)
    top_k: int | None = option("Keep the k likeliest tokens; 0 or -1 keeps all.", ge=-1, lt=2**31)
    min_p: float | None = option("Keep tokens at least so likely as this share of the likeliest one.", ge=0, le=1)
    repetition_penalty: float | None = option("Above 1 makes tokens of prompt and answer less likely.", gt=0, le=100)
    presence_penalty: float | None = option("Taken from the logits of tokens in the answer.", ge=-2, le=2)
    frequency_penalty: float | None = option("Taken as many times as the token is in the answer.", ge=-2, le=2)
    seed: int | None = option("The same seed gives the same tokens, whatever else runs.", ge=-(2**63), lt=2**63)
    stop: StopString | Annotated[list[StopString], Field(fail_fast=True, max_length=64)] | None = option(
        "A string, or up to 64 of them, before which the answer ends; each of 1 to 1024 characters."
    )
    chat_template_kwargs: dict[str, Any] | None = option("Variables of the chat template, such as enable_thinking.")
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = option(
        "Share the prompt's KV only with requests of the same key that bring the same salt."
    )
    priority: int | None = option("Smaller goes first; 0 by default.", ge=-(2**31), lt=2**31)
    slo: Slo | None = option("With model auto: what the answer may take; the policy slo chooses by it.")

    def shared_with_chat(self) -> dict[str, Any]:
        """What was given of the fields that chat has by the same names."""
        names = {"model", *AgentRequest.model_fields.keys() - HabitualFields.model_fields.keys()}
        return {name: getattr(self, name) for name in names & self.model_fields_set}
