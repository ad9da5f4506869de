"""What a choice shows at both generating endpoints, in a whole answer and in a chunk alike.

Knows neither the text's form nor that of its logprobs: those are each endpoint's own.
"""

from __future__ import annotations

from typing import Any

from quire.async_engine import Delta
from quire.outputs import CompletionOutput
from quire.server.generation import Generation
from quire.server.protocol import GenerationRequest


class Choices:
    """Args:
    generation: what runs.
    body: what was asked for.
    has_logprobs: whether choices show any.
    """

    def __init__(self, generation: Generation, body: GenerationRequest, *, has_logprobs: bool) -> None:
        self._tokenizer = generation.model.async_engine.engine.tokenizer
        self._has_logprobs = has_logprobs
        self._has_token_ids = bool(body.return_token_ids)

    @property
    def is_only_text(self) -> bool:
        """Whether nothing but the text shows what a choice gains before its end."""
        return not self._has_logprobs and not self._has_token_ids

    def is_worth_a_chunk(self, delta: Delta) -> bool:
        return bool(delta.text or delta.finish_reason or not self.is_only_text)

    def _frame(self, index: int, gained: CompletionOutput | Delta, text: dict[str, Any]) -> dict[str, Any]:
        """The choice around its text, without logprobs."""
        shown = {"index": index, **text, "logprobs": None, "finish_reason": gained.finish_reason}
        if gained.finish_reason is not None:
            shown["stop_reason"] = gained.stop_reason
        if self._has_token_ids:
            shown["token_ids"] = gained.token_ids
        return shown
