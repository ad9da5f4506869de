"""A finished request in GET /v1/requests, and in `usage` if a client asks for it: how its prompt was read, and why."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quire.server.bodies.fields import Reply

NEW = "new"  #: cause of computed tokens that were not read again
#: Cause -> explanation, a sentence with {token}, {lost} (tokens) and {message} (a number).
CAUSES = {
    "first": "New: no recent prompt of this key shares more than the first {token} tokens.",
    "model_changed": "The conversation went to another model before, and models never share KV.",
    "system_changed": "The system prompt changed, and everything after token {token} was computed again.",
    "system_date_or_id": "A date, number or id in the system prompt changed at token {token}; move it behind the "
    "conversation to keep what follows.",
    "tools_reordered": "The same tools came in another order; send them in a fixed one.",
    "tools_changed": "The tools changed, and everything after token {token} was computed again.",
    "history_edited": "Message {message} of the conversation was edited.",
    "history_truncated": "Earlier messages were dropped or summarized, from message {message} on.",
    "answer_changed": "The client or the chat template changed the earlier answer, such as by trimming it or leaving "
    "out its reasoning.",
    "template_changed": "The chat template or its variables, such as the reasoning effort, changed.",
    "template_rewrites": "The chat template renders earlier messages differently once others follow.",
    "passages_changed": "Retrieval found other passages.",
    "prompt_changed": "The prompt differs from an earlier one from token {token} on.",
    "salt_changed": "The cache_salt differs from the earlier request's, and salts never share KV.",
    "evicted": "{lost} tokens were sent before, and no tier had their KV any more: it was evicted.",
    "model_reloaded": "{lost} tokens were sent before, to a process of the model that has ended; their KV was not on "
    "disk.",
    "model_promoted": "{lost} tokens were sent before, to an earlier stage of the model, whose KV is of no use now.",
    "cheaper_to_compute": "{lost} tokens lay in a slower tier, and computing them was predicted to be faster.",
    "state_not_kept": "{lost} tokens were sent before; the model goes on only from few positions, where its state was "
    "kept.",
    "not_looked_up": "{lost} tokens were sent before; prefix caching is off, or prompt_logprobs needs all computed.",
}


class FoundTokens(Reply):
    device: int = 0
    host: int = 0
    disk: int = 0
    process: int = Field(0, description="On disk, written by another process while this one ran.")
    computed: int = 0


class RibbonPart(Reply):
    source: Literal["device", "host", "disk", "process", "computed"]
    tokens: int


class DivergenceReply(Reply):
    token: int = Field(description="First token that was read again.")
    before: str = Field(description="Text there in the earlier prompt.")
    after: str = Field(description="Text there in this prompt.")
    cause: str = Field(description="Code of the cause.", examples=list(CAUSES))
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
