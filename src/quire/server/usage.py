"""How many tokens a request cost, counted while it runs. Knows the engine's outputs; nothing about HTTP."""

from __future__ import annotations

from quire.outputs import RequestOutput
from quire.server.protocol import PromptTokensDetails, Usage


class UsageCount:
    """The tokens of one HTTP request: all its prompts and all their answers."""

    def __init__(self) -> None:
        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0
        self.num_output_tokens = 0

    def add_prompt(self, num_tokens: int, num_cached_tokens: int) -> None:
        self.num_prompt_tokens += num_tokens
        self.num_cached_tokens += num_cached_tokens

    def add_output(self, output: RequestOutput) -> None:
        """Count a whole answer."""
        self.add_prompt(len(output.prompt_token_ids), output.num_cached_tokens)
        self.num_output_tokens += sum(len(completion.token_ids) for completion in output.outputs)

    def to_usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=self.num_output_tokens,
            total_tokens=self.num_prompt_tokens + self.num_output_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self.num_cached_tokens),
        )
