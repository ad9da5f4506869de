"""How long a prompt can be, as far as that shows without a tokenizer.

A large body's process asks, so that what surely does not fit never reaches the server's own process: there, even to let
go of megabytes holds up every stream. Knows bodies and lengths; imports nothing of engines, since that process would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quire.server.errors import ApiError
from quire.server.protocol_completions import CompletionRequest


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
        """Refuse a body whose prompt no tokenizing can make short enough. Messages pass: what a chat template leaves
        of them is not known here. So does what the server shall cut itself.

        Raises:
            ApiError: as `too_long`.
        """
        if not isinstance(body, CompletionRequest) or body.truncate_prompt_tokens is not None:
            return
        prompts: Any = body.prompt
        if isinstance(prompts, str) or isinstance(prompts[0], int):
            prompts = [prompts]
        for prompt in prompts:
            if isinstance(prompt, str):
                self._check_text(prompt)
            elif len(prompt) >= self.max_model_len:
                raise too_long(f"has {len(prompt)} tokens", self.max_model_len, "prompt")

    def _check_text(self, text: str) -> None:
        if self.longest_token is not None and len(text) > self.longest_token * self.max_model_len:
            what = f"has {len(text)} characters, more than so many tokens can hold"
            raise too_long(what, self.max_model_len, "prompt")


def too_long(what: str, longest: int, param: str) -> ApiError:
    """The refusal of a prompt that is too long, with OpenAI's code for it."""
    return ApiError(
        400,
        f"the prompt {what}; this model's maximum context length is {longest} tokens, prompt and answer together, so "
        f"that it takes at most {longest - 1}; shorten it, or set truncate_prompt_tokens",
        param,
        "context_length_exceeded",
    )
