"""Chunks of both endpoints, with extensions of other servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quire.client.chunk import AnswerChunk, TokenUsage, read_chunk
from quire.client.errors import RemoteError


def read(choice: dict[str, Any] | None, **more: Any) -> AnswerChunk:
    choices = [] if choice is None else [{"index": 0, "finish_reason": None, **choice}]
    return read_chunk(json.dumps({"choices": choices, **more}))


def test_text_is_a_token_on_either_endpoint() -> None:
    assert read({"text": "a"}) == AnswerChunk("a", is_token=True)
    assert read({"delta": {"content": "a"}}) == AnswerChunk("a", is_token=True)
    assert read({"delta": {"role": "assistant", "content": "a"}}) == AnswerChunk("a", is_token=True)


def test_a_token_whose_text_is_held_back_is_a_token() -> None:
    assert read({"text": ""}) == AnswerChunk("", is_token=True)
    assert read({"delta": {"content": ""}}) == AnswerChunk("", is_token=True)


def test_the_opening_of_a_turn_and_its_end_are_no_tokens() -> None:
    assert read({"delta": {"role": "assistant", "content": ""}}) == AnswerChunk()
    assert read({"delta": {"role": "assistant"}}) == AnswerChunk()
    assert read({"delta": {}, "finish_reason": "stop"}) == AnswerChunk(finish_reason="stop")
    assert read({"text": "", "finish_reason": "length"}) == AnswerChunk(finish_reason="length")


def test_a_last_token_may_come_with_the_end() -> None:
    assert read({"text": "x", "finish_reason": "stop"}) == AnswerChunk("x", is_token=True, finish_reason="stop")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_tokens_but_no_answer(name: str) -> None:
    assert read({"delta": {name: "hm", "content": None}}) == AnswerChunk(reasoning="hm", is_token=True)


def test_usage_with_and_without_details() -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 5}
    assert read(None, usage=counts).usage == TokenUsage(3, 5)
    details = {"prompt_tokens_details": {"cached_tokens": 2}}
    assert read(None, usage={**counts, **details}).usage == TokenUsage(3, 5, 2)
    assert read({"text": "a"}, usage=None).usage is None
    assert read(None, usage={**counts, "prompt_tokens_details": None}).usage == TokenUsage(3, 5)


def test_an_answer_that_came_whole() -> None:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
    assert read_chunk(json.dumps(body)) == AnswerChunk("yes", is_token=True, finish_reason="stop")


def test_only_the_first_choice_counts() -> None:
    assert read_chunk(json.dumps({"choices": [{"index": 1, "text": "b"}]})) == AnswerChunk()


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        ('{"error": {"message": "out of luck"}}', "stream_error", "out of luck"),
        ('{"error": "out of luck"}', "stream_error", "out of luck"),
        ("<html>", "not_sse", "not JSON"),
        ("[1]", "not_sse", "not an object"),
    ],
)
def test_what_is_no_chunk_is_an_error_by_kind(data: str, kind: str, words: str) -> None:
    with pytest.raises(RemoteError, match=words) as caught:
        read_chunk(data)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "said",
    [
        {"choices": 5},
        {"choices": [{"text": 5}]},
        {"choices": [{"delta": {"content": ["a"]}}]},
        {"choices": [{"text": "a", "finish_reason": 1}]},
        {"choices": [], "usage": {"completion_tokens": "many"}},
        {"choices": [], "usage": {"completion_tokens": -1}},
        {"choices": [], "usage": {"prompt_tokens": 1.5}},
    ],
)
def test_what_is_no_chunk_of_openai_s_is_told_and_breaks_nothing_later(said: dict[str, Any]) -> None:
    with pytest.raises(RemoteError, match="not in OpenAI's format") as raised:
        read_chunk(json.dumps(said))
    assert raised.value.kind == "not_openai"


def test_an_event_without_end_in_its_depth_is_told() -> None:
    with pytest.raises(RemoteError, match="not JSON"):
        read_chunk("[" * 100_000)
