"""How long a prompt can be, as far as that shows without a tokenizer.

The process that parses large bodies asks, so that a prompt that cannot fit never reaches the server's own process: even
freeing megabytes there holds up every stream. Nothing of engines is imported here, since that process would load it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quire.server.errors import ApiError
from quire.server.openai.schema import CompletionRequest


@dataclass(frozen=True)
class PromptLimits:
    """What no prompt of a model is longer than.

    Attributes:
        max_model_len: tokens, prompt and answer together.
        longest_token: characters; None where the model reads no text.
    """

    max_model_len: int
    longest_token: int | None

    def check(self, body: Any) -> None:
        """Raise `ApiError` for a body whose prompt no tokenizing can make short enough. Messages pass, since a chat
        template may leave little of them, and so does a prompt that the server is to cut."""
        if not isinstance(body, CompletionRequest) or body.truncate_prompt_tokens is not None:
            return
        for prompt in body.prompts:
            if isinstance(prompt, str):
                self.check_text(prompt, "prompt")
            else:
                check_num_tokens(len(prompt), self.max_model_len, "prompt")

    def check_text(self, text: str, param: str) -> None:
        """Raise `ApiError` for a text, from the field `param`, that is longer than the tokens of any prompt."""
        if self.longest_token is not None and len(text) > self.longest_token * self.max_model_len:
            what = f"has {len(text)} characters, more than so many tokens can hold"
            raise _too_long(what, self.max_model_len, param)


def check_num_tokens(num_tokens: int, max_model_len: int, param: str) -> None:
    """Raise `ApiError` for a prompt, from the field `param`, that leaves no room for an answer."""
    if num_tokens >= max_model_len:
        raise _too_long(f"has {num_tokens} tokens", max_model_len, param)


def _too_long(what: str, max_model_len: int, param: str) -> ApiError:
    """With OpenAI's code for it."""
    return ApiError(
        400,
        f"the prompt {what}; this model's maximum context length is {max_model_len} tokens, prompt and answer "
        f"together, so that it takes at most {max_model_len - 1}; shorten it, or set truncate_prompt_tokens",
        param,
        "context_length_exceeded",
    )
