"""A conversation keeps what was said, and drops failed turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from quire.client.answer_cost import AnswerCost
from quire.client.chunk import AnswerChunk, TokenUsage
from quire.client.conversation import Conversation


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Echo:
    """Repeats the last message, one word per chunk, and fails on demand."""

    name = "echo"

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fails_after = 1_000

    def chat(self, messages: Any, **sampling: Any) -> Iterator[AnswerChunk]:
        self.asked.append((list(messages), sampling))
        words = messages[-1]["content"].split()
        for number, word in enumerate(words):
            if number == self.fails_after:
                raise RuntimeError("failed")
            yield AnswerChunk(f"{word} ", is_token=True)
        yield AnswerChunk(finish_reason="stop", usage=TokenUsage(len(messages), len(words), 1))


def roles(conversation: Conversation) -> list[str]:
    return [f"{m['role']}: {m['content']}" for m in conversation.messages]


def test_every_turn_is_asked_with_all_before_it() -> None:
    echo = Echo()
    conversation = Conversation(echo, system="be kind", temperature=0)
    assert "".join(chunk.text for chunk in conversation.say("one two")) == "one two "
    list(conversation.say("three"))
    expected = ["system: be kind", "user: one two", "assistant: one two ", "user: three", "assistant: three "]
    assert roles(conversation) == expected
    messages, sampling = echo.asked[-1]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert sampling == {"temperature": 0}


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_came() -> None:
    conversation = Conversation(Echo())
    with closing(conversation.say("one two three")) as chunks:
        next(chunks)
        next(chunks)
    assert roles(conversation) == ["user: one two three", "assistant: one two "]


def test_an_answer_that_fails_on_its_way_is_kept_too() -> None:
    echo = Echo()
    echo.fails_after = 1
    conversation = Conversation(echo)
    with pytest.raises(RuntimeError):
        list(conversation.say("one two"))
    assert roles(conversation) == ["user: one two", "assistant: one "]


def test_a_message_without_an_answer_is_taken_back() -> None:
    echo = Echo()
    echo.fails_after = 0
    conversation = Conversation(echo, system="be kind")
    with pytest.raises(RuntimeError):
        list(conversation.say("one"))
    list(conversation.say(""))
    assert roles(conversation) == ["system: be kind"]
    assert conversation.costs == []


def test_a_reset_keeps_the_system_message_only() -> None:
    conversation = Conversation(Echo(), system="be kind")
    list(conversation.say("one"))
    conversation.reset()
    assert roles(conversation) == ["system: be kind"]
    assert conversation.costs == []


def test_the_cost_of_an_answer_by_hand() -> None:
    clock = Clock()

    def chunks() -> Iterator[AnswerChunk]:
        clock.now = 0.5
        yield AnswerChunk()  # the event that opens the turn
        for now in (2.0, 2.5, 4.0):
            clock.now = now
            yield AnswerChunk("x", is_token=True)
        clock.now = 9.0
        yield AnswerChunk(finish_reason="length", usage=TokenUsage(1_000, 5, 16))

    cost = AnswerCost(clock)
    list(cost.watch(chunks()))
    assert (cost.first_s, cost.total_s, cost.num_chunks, cost.num_tokens) == (2.0, 4.0, 3, 5)
    assert cost.tokens_per_s == 2.0
    assert str(cost) == "1,000 tokens in (16 cached), 5 out (length), first after 2,000 ms, then 2.0 tokens/s"


def test_without_usage_the_chunks_are_counted_and_it_says_so() -> None:
    cost = AnswerCost(Clock())
    list(cost.watch([AnswerChunk("x", is_token=True), AnswerChunk("y", is_token=True)]))
    assert str(cost).startswith("about 2 out")
