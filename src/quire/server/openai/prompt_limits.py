"""Limits on the length of prompts that can be checked without a tokenizer.

The process that parses large bodies checks them, so that a prompt that cannot fit never reaches the server's process:
even freeing megabytes there stalls every stream. This file imports no engine, which that process would load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.server.errors import ApiError
from quire.server.openai.schema import CompletionRequest, DetokenizeRequest, TokenizeRequest

ORDINARY_CHARACTERS = 16  #: a token of text has some 4; longer texts are compared with the longest token
_ALWAYS_TOKENIZED = 2**18  # characters, for any model
_ALWAYS_DETOKENIZED = 2**16  # token ids, for any model


@dataclass(frozen=True)
class PromptLimits:
    """The limits of one model.

    Attributes:
        max_model_len: maximum tokens of prompt and answer together.
        longest_token: maximum characters of a token; None for a model without a tokenizer.
    """

    max_model_len: int
    longest_token: int | None

    def check(self, body: Any) -> None:
        """Raise `ApiError` for a body whose prompt is too long for any tokenizer.

        Messages pass: a chat template may drop most of them.
        """
        match body:
            case CompletionRequest():
                is_truncated = body.truncate_prompt_tokens is not None
                for prompt in body.prompts:
                    if isinstance(prompt, str):
                        (self.check_long_text if is_truncated else self.check_text)(prompt, "prompt")
                    elif not is_truncated:
                        check_num_tokens(len(prompt), self.max_model_len, "prompt")
            case TokenizeRequest(prompt=str() as text):
                self.check_long_text(text, "prompt")
            case DetokenizeRequest():
                self.check_long_ids(body.tokens)

    def check_text(self, text: str, param: str) -> None:
        """Raise `ApiError` for a text that is longer than the tokens of any prompt."""
        if self.longest_token is not None and len(text) > self.longest_token * self.max_model_len:
            what = f"has {len(text)} characters, more than so many tokens can hold"
            raise _too_long(what, self.max_model_len, param)

    def check_long_text(self, text: str, param: str) -> None:
        """Raise `ApiError` for a text to count or cut that is longer than some four contexts: tokenizing takes 200
        bytes a character."""
        most = max(_ALWAYS_TOKENIZED, ORDINARY_CHARACTERS * self.max_model_len)
        if len(text) > most:
            message = f"{param} has {len(text)} characters, and at most {most} are tokenized here at once; send pieces"
            raise ApiError(400, message, param, "context_length_exceeded")

    def check_long_ids(self, token_ids: Sequence[int]) -> None:
        """Raise `ApiError` for more token ids than four contexts."""
        most = max(_ALWAYS_DETOKENIZED, 4 * self.max_model_len)
        if len(token_ids) > most:
            message = f"tokens has {len(token_ids)} ids, and at most {most} are detokenized here at once; send pieces"
            raise ApiError(400, message, "tokens", "context_length_exceeded")


def check_num_tokens(num_tokens: int, max_model_len: int, param: str) -> None:
    """Raise `ApiError` for a prompt that leaves no room for an answer."""
    if num_tokens >= max_model_len:
        raise _too_long(f"has {num_tokens} tokens", max_model_len, param)


def _too_long(what: str, max_model_len: int, param: str) -> ApiError:
    return ApiError(
        400,
        f"the prompt {what}; this model's maximum context length is {max_model_len} tokens, prompt and answer "
        f"together, so that it takes at most {max_model_len - 1}; shorten it, or set truncate_prompt_tokens",
        param,
        "context_length_exceeded",  # OpenAI's code
    )
