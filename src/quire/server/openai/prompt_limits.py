"""How long a prompt can be, as far as that shows without a tokenizer.

The process that parses large bodies asks, so that a prompt that cannot fit never reaches the server's own process: even
freeing megabytes there holds up every stream. Nothing of engines is imported here, since that process would load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.server.errors import ApiError
from quire.server.openai.schema import CompletionRequest, DetokenizeRequest, TokenizeRequest

ORDINARY_CHARACTERS = 16  #: a token of text has some 4; beyond this it is worth asking how long tokens can be
_ALWAYS_TOKENIZED = 2**18  # characters, however small the model is
_ALWAYS_DETOKENIZED = 2**16  # token ids


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
        """Raise `ApiError` for a body whose prompt is too long for any tokenizer.

        Messages pass: a chat template may drop most of them."""
        match body:
            case CompletionRequest():
                for prompt in body.prompts:
                    self._check_prompt(prompt, is_truncated=body.truncate_prompt_tokens is not None)
            case TokenizeRequest(prompt=str() as text):
                self.check_long_text(text, "prompt")
            case DetokenizeRequest():
                self.check_long_ids(body.tokens)

    def _check_prompt(self, prompt: Any, *, is_truncated: bool) -> None:
        if not isinstance(prompt, str):
            if not is_truncated:
                check_num_tokens(len(prompt), self.max_model_len, "prompt")
        elif is_truncated:
            self.check_long_text(prompt, "prompt")
        else:
            self.check_text(prompt, "prompt")

    def check_text(self, text: str, param: str) -> None:
        """Raise `ApiError` for a text, from the field `param`, that is longer than the tokens of any prompt."""
        if self.longest_token is not None and len(text) > self.longest_token * self.max_model_len:
            what = f"has {len(text)} characters, more than so many tokens can hold"
            raise _too_long(what, self.max_model_len, param)

    def check_long_text(self, text: str, param: str) -> None:
        """Raise `ApiError` for a text that is to be counted or cut, and is longer than some four contexts of text:
        tokenizing takes 200 bytes a character."""
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
