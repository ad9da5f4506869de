"""How the answers to one request are to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.server.tools.answer_reader import AnswerReader
from quire.server.tools.parser import ToolParser
from quire.server.tools.reasoning import ReasoningMarkers, ReasoningParser


@dataclass(frozen=True)
class AnswerForm:
    """What the model may write, and in which words.

    Attributes:
        reasoning: None where it does not think.
        is_thinking: the prompt ends within its thoughts.
        shows_reasoning: False leaves them out of the answer.
        tools: None where it calls nothing.
        tool_names: the functions that there are.
        is_parallel: False leaves out all calls but the first.
        specials: the ids of special tokens that its text must have.
    """

    reasoning: ReasoningMarkers | None = None
    is_thinking: bool = False
    shows_reasoning: bool = True
    tools: type[ToolParser] | None = None
    tool_names: frozenset[str] = frozenset()
    is_parallel: bool = True
    specials: tuple[int, ...] = ()

    def reader(self) -> AnswerReader:
        """A reader for one answer."""
        return AnswerReader(
            None if self.reasoning is None else ReasoningParser(self.reasoning, is_open=self.is_thinking),
            None if self.tools is None else self.tools(self.tool_names),
            is_parallel=self.is_parallel,
            shows_reasoning=self.shows_reasoning,
        )


def num_reasoning_tokens(form: AnswerForm, token_ids: Sequence[int], tokenizer: Any) -> int:
    """Of an answer's tokens, those up to the end of its thoughts; all of them where it has no such end."""
    if form.reasoning is None:
        return 0
    closing = tokenizer.backend.token_to_id(form.reasoning.closing)
    if closing in token_ids:
        return token_ids.index(closing)
    text: str = tokenizer.decode(token_ids, skip_special_tokens=False)
    thought, marker, _ = text.partition(form.reasoning.closing)
    return len(tokenizer.encode(thought, add_special_tokens=False)) if marker else len(token_ids)
