"""The bodies of POST /tokenize and POST /detokenize, and their answers. Knows nothing about tokenizers or HTTP."""

from __future__ import annotations

from pydantic import Field

from quire.server.protocol import Items, ModelBody, NonEmpty, Reply, TokenId, option
from quire.server.protocol_chat import Message, TemplateOptions


class TokenizeRequest(TemplateOptions, ModelBody):
    """A prompt, or messages."""

    prompt: str | None = option("A text.")
    messages: NonEmpty[Message] | None = option("A conversation, which the chat template makes a text of.")
    add_special_tokens: bool | None = option(
        "Put around the text what the model expects (a bos token); by default for a prompt, not for messages."
    )
    return_token_strs: bool | None = option("Show each token as text too.")


class TokenizeReply(Reply):
    count: int
    max_model_len: int = Field(description="The longest sequence, prompt and answer together.")
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(ModelBody):
    tokens: Items[TokenId] = Field(description="The token ids.")


class DetokenizeReply(Reply):
    prompt: str = Field(description="The text, special tokens included.")
