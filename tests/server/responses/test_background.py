"""Background responses through the official client: polled, streamed, cancelled, counted and dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from quire.server.settings import ServerSettings
from scripted import HeldScript
from serving import MODEL, RunningServer, make_model, running, wait_until

SAID = "It is sunny."
ASKED: Any = {"model": MODEL, "input": "Sun?", "background": True}


SCRIPT = HeldScript(SAID)


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningServer]:
    with running(make_model(start=SCRIPT)) as server:
        yield server


@pytest.fixture(scope="module")
def client(agent: RunningServer) -> Iterator[openai.OpenAI]:
    with agent.client() as client:
        yield client


@pytest.fixture(autouse=True)
def held() -> Iterator[None]:
    SCRIPT.may_step.clear()
    yield
    SCRIPT.may_step.set()


def finish(client: openai.OpenAI, response_id: str) -> Any:
    SCRIPT.may_step.set()
    wait_until(lambda: client.responses.retrieve(response_id).status not in ("queued", "in_progress"))
    return client.responses.retrieve(response_id)


def test_a_background_response_is_answered_at_once_and_shows_its_output_at_the_end(client: openai.OpenAI) -> None:
    first = client.responses.create(**ASKED, metadata={"a": "b"})
    assert (first.status, first.background, first.output, first.usage) == ("queued", True, [], None)
    shown = client.responses.retrieve(first.id)
    assert shown.status in ("queued", "in_progress")
    with pytest.raises(openai.BadRequestError, match="has not ended"):
        client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
    ended = finish(client, first.id)
    assert (ended.status, ended.output_text, ended.metadata) == ("completed", SAID, {"a": "b"})
    assert ended.usage.output_tokens
    assert (ended.created_at, ended.error) == (first.created_at, None)
    again = client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
    assert again.output_text == SAID


def test_a_cancelled_response_ends_and_stays_so(agent: RunningServer, client: openai.OpenAI) -> None:
    first = client.responses.create(**ASKED)
    for _ in range(2):
        cancelled = client.responses.cancel(first.id)
        assert (cancelled.id, cancelled.status) == (first.id, "cancelled")
    SCRIPT.may_step.set()
    agent.wait_until_idle()
    assert client.responses.retrieve(first.id).status == "cancelled"
    ended = finish(client, client.responses.create(**ASKED).id)
    assert client.responses.cancel(ended.id).output_text == SAID, "which ended before"
    ordinary = client.responses.create(model=MODEL, input="Sun?")
    with pytest.raises(openai.BadRequestError, match="background=true"):
        client.responses.cancel(ordinary.id)
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        client.responses.cancel("resp_x")


def test_a_stream_shows_a_background_response_from_the_queue_to_the_end(client: openai.OpenAI) -> None:
    stream = client.responses.create(**ASKED, stream=True)
    opening = [next(stream), next(stream)]
    SCRIPT.may_step.set()
    events = [*opening, *stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:3] == ["created", "queued", "in_progress"]
    assert kinds[-1] == "completed"
    last = events[-1]
    assert last.type == "response.completed"
    assert client.responses.retrieve(last.response.id) == last.response


def test_a_background_response_goes_on_when_its_stream_is_closed(agent: RunningServer, client: openai.OpenAI) -> None:
    with client.responses.create(**ASKED, stream=True) as stream:
        opened = next(stream)
    assert opened.type == "response.created"
    assert finish(client, opened.response.id).output_text == SAID
    SCRIPT.may_step.clear()
    stream = client.responses.create(**ASKED, stream=True)
    opened = next(stream)
    assert opened.type == "response.created"
    client.responses.cancel(opened.response.id)
    *_, last = stream
    assert last.type == "response.failed"
    assert last.response.status == "cancelled"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.retrieve(opened.response.id, stream=True, starting_after=1)
    assert refused.value.param == "stream"


def test_background_work_counts_for_its_key_until_it_ends() -> None:
    keys = ServerSettings(api_keys=("one", "two"), tenant_secret=b"x" * 32, max_concurrent_per_key=1)
    with running(make_model(start=SCRIPT), settings=keys) as server, server.client() as client:
        mine, other = client.with_options(api_key="one"), client.with_options(api_key="two")
        first = mine.responses.create(**ASKED)
        with pytest.raises(openai.RateLimitError):
            mine.responses.create(**ASKED)
        with pytest.raises(openai.NotFoundError):
            other.responses.cancel(first.id)
        second = other.responses.create(**ASKED)
        assert mine.responses.cancel(first.id).status == "cancelled", "a key at its limit can cancel"
        third = mine.responses.create(**ASKED)
        assert finish(mine, third.id).output_text == finish(other, second.id).output_text == SAID


def test_work_ends_when_its_response_is_dropped() -> None:
    model = make_model(start=SCRIPT)
    with running(model, settings=ServerSettings(max_stored_responses=2)) as server, server.client() as client:
        first, second = (client.responses.create(**ASKED) for _ in range(2))
        third = client.responses.create(**ASKED)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        wait_until(lambda: model.async_engine.num_requests == 2)
        client.responses.delete(second.id)
        wait_until(lambda: model.async_engine.num_requests == 1)
        assert finish(client, third.id).output_text == SAID
        server.wait_until_idle()
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(second.id)


def test_a_response_that_failed_without_a_client_says_why() -> None:
    model = make_model(start=SCRIPT)
    with running(model) as server, server.client() as client:
        first = client.responses.create(**ASKED)
        asyncio.run(model.async_engine.drain(0))
        SCRIPT.may_step.set()
        failed = finish(client, first.id)
        assert failed.status == client.responses.cancel(first.id).status == "failed"
        assert "was shut down" in failed.error.message


def test_a_background_response_that_cannot_be_is_refused() -> None:
    model = make_model(start=SCRIPT, max_queue=1)
    with running(model, settings=ServerSettings(max_stored_responses=1)) as server, server.client() as client:
        with pytest.raises(openai.BadRequestError, match="store=true"):
            client.responses.create(**ASKED, store=False)
        first = client.responses.create(**ASKED)
        with pytest.raises(openai.RateLimitError):
            client.responses.create(**ASKED)
        assert finish(client, first.id).output_text == SAID, "a rejected one drops no other"
    with (
        running(make_model(start=SCRIPT), settings=ServerSettings(max_stored_responses=0)) as server,
        server.client() as client,
    ):
        for is_streamed in (False, True):
            with pytest.raises(openai.BadRequestError, match="max-stored-responses"):
                client.responses.create(**ASKED, stream=is_streamed)
        server.wait_until_idle()


def test_the_items_of_a_conversation_are_listed_in_pages(agent: RunningServer, client: openai.OpenAI) -> None:
    SCRIPT.may_step.set()
    first = client.responses.create(model=MODEL, input="Sun?", instructions="Be brief.")
    (only,) = client.responses.input_items.list(first.id)
    assert only.type == "message"
    assert only.role == "user"
    assert only.content[0].to_dict() == {"type": "input_text", "text": "Sun?"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "rain"}
    question = {"role": "user", "content": [{"type": "input_text", "text": "Sure?"}], "id": "msg_mine"}
    given: Any = [call, result, question]
    second = client.responses.create(model=MODEL, input=given, previous_response_id=first.id)
    items = list(client.responses.input_items.list(second.id, order="asc", limit=2))
    assert [item.type for item in items] == [
        "message", "message", "function_call", "function_call_output", "message"
    ]  # fmt: skip
    ids = [item.id for item in items]
    assert (ids[0], ids[1], ids[-1]) == (only.id, first.output[0].id, "msg_mine")
    page = client.responses.input_items.list(second.id, limit=2, after=ids[3])
    assert ([item.id for item in page.data], page.has_more) == ([ids[2], ids[1]], True)
    listed = f"/v1/responses/{second.id}/input_items"
    whole = agent.get(listed).json()
    assert (whole["object"], whole["first_id"], whole["last_id"]) == ("list", ids[4], ids[0])
    assert whole["has_more"] is False
    empty = agent.get(f"{listed}?after={ids[0]}").json()
    assert (empty["data"], empty["first_id"]) == ([], None)
    for query in ("limit=0", "limit=101", "order=up", "after=x"):
        answer: httpx.Response = agent.get(f"{listed}?{query}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])
