"""The official client against our server: sync and async, complete and streamed."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from serving import MODEL, RunningServer

QUESTION = [{"role": "user", "content": "Hello"}]


def test_a_chat_has_a_message_a_reason_and_a_usage(server: RunningServer) -> None:
    with server.client() as client:
        answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=6, temperature=0)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage
    assert answer.usage.completion_tokens == 6
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 6


def test_a_streamed_chat_is_the_whole_one_in_pieces(server: RunningServer) -> None:
    with server.client() as client:
        asked = {"model": MODEL, "messages": QUESTION, "max_tokens": 12, "temperature": 0}
        whole = client.chat.completions.create(**asked)
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    *grown, last = chunks
    assert grown[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in grown[1:])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in grown) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in grown if chunk.choices[0].finish_reason] == ["length"]
    assert last.choices == []
    assert whole.usage
    assert last.usage
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in grown)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_streamed_completion_is_the_whole_one_in_pieces(server: RunningServer) -> None:
    with server.client() as client:
        asked: dict[str, Any] = {"model": MODEL, "prompt": "Hello", "max_tokens": 12, "temperature": 0}
        asked["extra_body"] = {"ignore_eos": True}
        whole = client.completions.create(**asked)
        chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)


def test_several_answers_stream_side_by_side(server: RunningServer) -> None:
    with server.client() as client:
        asked = {"model": MODEL, "messages": QUESTION, "max_tokens": 6, "seed": 1, "n": 3}
        whole = client.chat.completions.create(**asked)
        texts = ["", "", ""]
        for chunk in client.chat.completions.create(**asked, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


def test_logprobs_are_those_of_the_tokens(server: RunningServer) -> None:
    with server.client() as client:
        asked = {"model": MODEL, "messages": QUESTION, "max_tokens": 5, "temperature": 0}
        asked |= {"logprobs": True, "top_logprobs": 3}
        whole = client.chat.completions.create(**asked)
        streamed = list(client.chat.completions.create(**asked, stream=True))
    assert whole.choices[0].logprobs
    content = whole.choices[0].logprobs.content
    assert content
    assert len(content) == 5
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy
        assert token.top_logprobs[0].logprob == token.logprob <= 0
        assert token.bytes
    in_chunks = [chunk.choices[0].logprobs for chunk in streamed]
    tokens = [token for part in in_chunks if part for token in part.content or ()]
    assert [token.token for token in tokens] == [token.token for token in content]


def test_many_clients_ask_at_once(server: RunningServer) -> None:
    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        messages = [{"role": "user", "content": f"Question {number}"}]
        if number % 2:
            answer = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, seed=number)
            return answer.choices[0].message.content or ""
        stream = await client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=8, seed=number, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all() -> list[str]:
        async with server.async_client() as client:
            return await asyncio.gather(*(ask(client, number) for number in range(12)))

    answers = asyncio.run(ask_all())
    assert all(answers)
    assert len(set(answers)) > 6, "they are not one answer"
    assert asyncio.run(ask_all()) == answers


def test_the_client_lists_models_and_finds_one(server: RunningServer) -> None:
    with server.client() as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).id == MODEL
        with pytest.raises(openai.NotFoundError, match=MODEL):
            client.models.retrieve("gpt-4")


def test_errors_arrive_as_the_client_s_own_exceptions(server: RunningServer) -> None:
    with server.client() as client:
        with pytest.raises(openai.NotFoundError, match=MODEL) as missing:
            client.chat.completions.create(model="gpt-4", messages=QUESTION)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(model=MODEL, prompt="Hello", temperature=-1)
        assert refused.value.param == "temperature"
        with pytest.raises(openai.BadRequestError) as too_long:
            client.completions.create(model=MODEL, prompt="Hello " * 100, stream=True)
        assert too_long.value.code == "context_length_exceeded"


def test_a_conversation_goes_on_with_what_the_client_got(server: RunningServer) -> None:
    with server.client() as client:
        first = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4)
        messages = [*QUESTION, first.choices[0].message, {"role": "user", "content": "And then?"}]
        second = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4)
        alone = client.chat.completions.create(model=MODEL, messages=messages[-1:], max_tokens=4)
    assert second.choices[0].message.content
    assert first.usage
    assert second.usage
    assert alone.usage
    assert second.usage.prompt_tokens > first.usage.prompt_tokens + alone.usage.prompt_tokens


def test_a_prefix_that_was_computed_before_counts_as_cached(server: RunningServer) -> None:
    with server.client() as client:
        prompt = "A prefix that nobody else sends, of several blocks. " * 2
        client.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
        usage = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1).usage
    assert usage
    assert usage.prompt_tokens_details
    cached = len(prompt) // 16 * 16
    assert usage.prompt_tokens_details.cached_tokens == cached
    two = server.complete(prompt=[prompt] * 2, max_tokens=3).json()["usage"]
    assert (two["prompt_tokens"], two["prompt_tokens_details"]["cached_tokens"]) == (2 * len(prompt), 2 * cached)
    with server.client() as client:
        options = {"include_usage": True}
        stream = client.completions.create(
            model=MODEL, prompt=[prompt] * 2, max_tokens=3, stream=True, stream_options=options
        )
        *_, last = stream
    assert last.usage
    assert last.usage.prompt_tokens_details
    assert last.usage.prompt_tokens_details.cached_tokens == 2 * cached, "once a prompt, however many chunks it has"
