"""A finished request in GET /v1/requests, and in `usage` if a client asks for it: how its prompt was read, and why."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quire.server.bodies.fields import Reply


class FoundTokens(Reply):
    device: int = 0
    host: int = 0
    disk: int = 0
    computed: int = 0


class RibbonPart(Reply):
    source: Literal["device", "host", "disk", "computed"]
    tokens: int


class DivergenceReply(Reply):
    token: int = Field(description="First token that was read again.")
    before: str = Field(description="Text there in the earlier prompt.")
    after: str = Field(description="Text there in this prompt.")
    cause: str = Field(description="Code of the cause.")
    explanation: str = Field(description="The cause in a sentence.")


class RequestReply(Reply):
    id: str = Field(description="Id of the answer; with several prompts, followed by - and the prompt's number.")
    model: str
    created: int = Field(description="Seconds since 1970.")
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None = Field(description="Seconds from arrival to first token.")
    found: FoundTokens = Field(description="Prompt tokens by the tier that had their KV; the others were computed.")
    ribbon: list[RibbonPart] = Field(description="The same in the order of the prompt.")
    missed_s: float | None = Field(description="Predicted seconds to compute the tokens that were not found.")
    divergence: DivergenceReply | None = Field(description="Where and why tokens were read again; null if none were.")


class RequestList(Reply):
    object: Literal["list"]
    data: list[RequestReply]
