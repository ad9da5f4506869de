"""POST /v1/responses through the official client: complete, streamed, with tools, and continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from family_templates import ANSWERS, QWEN, WEATHER
from quire.server.openai.endpoint import ChatEndpoint
from quire.server.responses.endpoint import ResponseStore, StoredResponse
from quire.server.responses.schema import InputItem
from quire.server.settings import ServerSettings
from scripted import Script
from serving import MODEL, RunningServer, make_model, running

TOOL: Any = {"type": "function", **WEATHER["function"]}
ARGUMENTS = {"city": "Zürich", "days": [1, 2]}
SCRIPT = Script(texts=ANSWERS.values())


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningServer]:
    with running(make_model(start=SCRIPT, chat_template=QWEN)) as server:
        yield server


@pytest.fixture(scope="module")
def client(agent: RunningServer) -> Iterator[openai.OpenAI]:
    with agent.client() as client:
        yield client


def test_an_agent_s_loop_goes_on_from_what_is_stored_or_sent_back(agent: RunningServer, client: openai.OpenAI) -> None:
    SCRIPT.says = ANSWERS["qwen"]
    asked: Any = {"model": MODEL, "tools": [TOOL], "temperature": 0}
    question: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Sun?"}]}]
    first = client.responses.create(**asked, input=question, instructions="Be kind.")
    thought, said, call = first.output
    assert (thought.type, said.type, call.type) == ("reasoning", "message", "function_call")
    assert thought.content
    assert (thought.content[0].text, first.output_text) == ("They ask for weather.", "I look.")
    assert (call.name, json.loads(call.arguments), call.status) == ("weather", ARGUMENTS, "completed")
    assert (first.status, first.object, first.instructions, first.tools[0].name) == (
        "completed", "response", "Be kind.", "weather"
    )  # fmt: skip
    assert first.usage
    assert 0 < first.usage.output_tokens_details.reasoning_tokens < first.usage.output_tokens
    assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens

    SCRIPT.says = "It is sunny."
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    stored = client.responses.create(**asked, previous_response_id=first.id, input=[result])
    sent: Any = [*question, *(item.to_dict() for item in first.output), result]
    again = client.responses.create(**asked, input=sent, store=False)
    assert stored.output_text == again.output_text == "It is sunny."
    assert stored.usage
    assert again.usage
    assert stored.usage.input_tokens == again.usage.input_tokens, "both are the same conversation"
    history = [
        {"role": "user", "content": "Sun?"},
        {
            "role": "assistant", "content": "I look.", "reasoning_content": "They ask for weather.",
            "tool_calls": [{"id": "x", "function": {"name": "weather", "arguments": call.arguments}}],
        },
        {"role": "tool", "tool_call_id": "x", "content": "sunny"},
    ]  # fmt: skip
    tokens = agent.post("/tokenize", messages=history, tools=[WEATHER]).json()["count"]
    assert tokens == again.usage.input_tokens, "as it is in chat"

    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    for gone in (first.id, again.id):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            client.responses.create(**asked, previous_response_id=gone, input="And?")


def test_a_stream_tells_of_each_item_in_order(client: openai.OpenAI) -> None:
    SCRIPT.says = ANSWERS["qwen"]
    asked: Any = {"model": MODEL, "input": "Sun?", "tools": [TOOL], "temperature": 0}
    whole = client.responses.create(**asked)
    events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == [number for number, _ in zip(count(), events, strict=False)]
    kinds = [event.type for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.done",
        "response.output_item.done", "response.output_text.delta", "response.output_text.done",
        "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.completed",
    ]  # fmt: skip
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 3
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == whole.output_text
    last = events[-1]
    assert last.type == "response.completed"

    def anonymous(response: Any) -> Any:
        return [{**item, "id": "", "call_id": ""} for item in response.to_dict()["output"]]

    assert anonymous(last.response) == anonymous(whole)
    assert last.response.usage
    assert whole.usage
    assert last.response.usage.output_tokens == whole.usage.output_tokens
    with client.responses.stream(**asked) as stream:
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert client.responses.retrieve(final.id).output_text == whole.output_text, "a streamed one is stored, too"


def test_an_answer_that_was_cut_short_says_so(client: openai.OpenAI) -> None:
    SCRIPT.says = "One two three four five six."
    asked: Any = {"model": MODEL, "input": "Count.", "max_output_tokens": 10, "extra_body": {"seed": 3}}
    whole = client.responses.create(**asked)
    assert whole.incomplete_details
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert whole.output[0].type == "message"
    assert whole.output[0].status == "incomplete"
    *_, last = client.responses.create(**asked, stream=True)
    assert last.type == "response.incomplete"
    assert last.response.output_text == whole.output_text == "One two th"


def test_an_answer_follows_a_schema(client: openai.OpenAI) -> None:
    class Size(BaseModel):
        size: Literal["S", "M"]

    SCRIPT.says = None
    off: Any = {"chat_template_kwargs": {"enable_thinking": False}}
    asked: Any = {"model": MODEL, "input": "Which?", "max_output_tokens": 200, "extra_body": off}
    parsed = client.responses.parse(**asked, text_format=Size)
    assert parsed.output_parsed
    assert parsed.output_parsed.size in ("S", "M")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "[1]"}]},
         "input"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"background": True, "store": False}, "background"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"conversation": "x"}, "conversation"),
    ],
)  # fmt: skip
def test_what_a_response_cannot_be_is_refused_by_name(agent: RunningServer, body: dict[str, Any], param: str) -> None:
    answer = agent.post("/v1/responses", **{"input": "Hello", **body})
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["param"] == param


def test_truncation_drops_the_oldest_turns(client: openai.OpenAI) -> None:
    SCRIPT.says = "Yes."
    turns = [[{"role": "user", "content": "x" * 300}, {"role": "assistant", "content": "Yes."}] for _ in range(9)]
    system = {"role": "developer", "content": "Be brief."}
    question = {"role": "user", "content": "Sun?"}
    asked: Any = {"model": MODEL, "input": [system, *(item for turn in turns for item in turn), question]}
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.responses.create(**asked)
    cut = client.responses.create(**asked, truncation="auto")
    assert (cut.output_text, cut.truncation) == ("Yes.", "auto")
    kept = client.responses.create(
        model=MODEL, input=[system, *(item for turn in turns[3:] for item in turn), question]
    )
    assert cut.usage
    assert kept.usage
    assert cut.usage.input_tokens == kept.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.responses.create(model=MODEL, input="x" * 3000, truncation="auto")


def test_truncation_of_a_long_conversation_renders_a_few_times(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    SCRIPT.says = "Yes."
    sizes: list[int] = []
    prepare = ChatEndpoint.prepare

    async def counted(self: ChatEndpoint, request: Any, body: Any, **options: Any) -> Any:
        sizes.append(len(body.messages))
        return await prepare(self, request, body, **options)

    monkeypatch.setattr(ChatEndpoint, "prepare", counted)
    items: Any = [{"role": "user", "content": f"Question {number} of many?"} for number in range(4000)]
    answer = client.responses.create(model=MODEL, input=items, truncation="auto")
    assert answer.output_text == "Yes."
    assert max(sizes) < 1000
    assert len(sizes) < 12


def test_a_response_is_found_by_its_owner_only() -> None:
    script = Script("Well.", texts=["Well."])
    keys = ServerSettings(api_keys=("one", "two"), tenant_secret=b"x" * 32)
    with running(make_model(start=script), settings=keys) as server, server.client() as client:
        mine = client.with_options(api_key="one")
        response = mine.responses.create(model=MODEL, input="Hello")
        assert mine.responses.create(model=MODEL, input="And?", previous_response_id=response.id).output_text == "Well."
        with pytest.raises(openai.NotFoundError):
            client.with_options(api_key="two").responses.retrieve(response.id)


def test_the_store_is_bounded() -> None:
    def response(size: int, owner: str = "me") -> StoredResponse:
        return StoredResponse(owner, {}, [InputItem(role="user", content="x" * size)])

    store = ResponseStore(2, max_characters=10_000)
    for number in range(3):
        store.add(str(number), response(10))
        assert store.find("0", "me") is not None, "it is used, and so kept"
    assert (store.find("1", "me"), len(store)) == (None, 2)
    store.add("large", response(20_000))
    assert len(store) == 0
    store = ResponseStore(4, max_characters=10_000)
    store.add("mine", response(10))
    for number in range(10):
        store.add(str(number), response(10, "greedy"))
    store.add("long", response(9_800, "greedy"))
    assert store.find("mine", "me") is not None, "the owner with the most responses loses one"
    assert store.find("9", "greedy") is None
    none = ResponseStore(0)
    none.add("0", response(1))
    assert none.find("0", "me") is None
