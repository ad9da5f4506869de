"""POST /v1/messages through the official client: complete, streamed, with tools and reasoning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from family_templates import ANSWERS, QWEN, WEATHER
from quire.server.settings import ServerSettings
from scripted import Script
from serving import MODEL, PATIENCE_S, RunningServer, make_model, running

KEY = "secret"
FUNCTION = WEATHER["function"]
TOOL: Any = {
    "name": "weather", "description": FUNCTION["description"], "input_schema": FUNCTION["parameters"],
    "cache_control": {"type": "ephemeral"},
}  # fmt: skip
ARGUMENTS = {"city": "Zürich", "days": [1, 2]}
QUESTION: Any = {"role": "user", "content": "Sun?"}
SCRIPT = Script(after_results="Sunny it is.", texts=[*ANSWERS.values(), "Sunny it is."])


def library() -> Any:
    """Import the client when it is needed, which takes seconds."""
    import anthropic

    return anthropic


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningServer]:
    settings = ServerSettings(api_keys=(KEY,), tenant_secret=b"x" * 32)
    with running(make_model(start=SCRIPT, chat_template=QWEN), settings=settings) as server:
        yield server


@pytest.fixture(scope="module")
def client(agent: RunningServer) -> Iterator[Any]:
    with library().Anthropic(base_url=agent.url, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client:
        yield client


def test_an_agent_s_loop_goes_on_with_what_it_got(agent: RunningServer, client: Any) -> None:
    SCRIPT.says = ANSWERS["qwen"]
    asked: Any = {"model": MODEL, "max_tokens": 500, "tools": [TOOL]}
    system: Any = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    first = client.messages.create(**asked, messages=[QUESTION], system=system)
    thought, said, call = first.content
    assert (thought.type, said.type, call.type) == ("thinking", "text", "tool_use")
    assert (thought.thinking, said.text) == ("They ask for weather.", "I look.")
    assert (call.name, call.input, first.stop_reason) == ("weather", ARGUMENTS, "tool_use")

    SCRIPT.says = "Sunny it is."
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    more = {"type": "text", "text": "So?"}
    messages: Any = [
        QUESTION,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result, more]},
    ]
    second = client.messages.create(**asked, messages=messages)
    assert [block.to_dict() for block in second.content] == [{"type": "text", "text": "Sunny it is."}]
    assert (second.stop_reason, second.role, second.type) == ("end_turn", "assistant", "message")
    counted = client.messages.count_tokens(model=MODEL, messages=messages, tools=[TOOL]).input_tokens
    usage = second.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert counted == usage.input_tokens + cached
    tool = {"type": "function", "function": {**FUNCTION}}
    tool["function"].pop("strict")
    history = [
        {"role": "user", "content": "Sun?"},
        {
            "role": "assistant", "content": "I look.", "reasoning_content": "They ask for weather.",
            "tool_calls": [{"id": "x", "function": {"name": "weather", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "tool_call_id": "x", "content": "sunny"},
        {"role": "user", "content": "So?"},
    ]  # fmt: skip
    headers = {"x-api-key": KEY}
    chat = agent.send("POST", "/tokenize", json={"messages": history, "tools": [tool]}, headers=headers).json()
    assert counted == chat["count"], "as it is in chat"


def test_the_client_s_tool_runner_calls_functions_and_goes_on(client: Any) -> None:
    """The client asks for a stored thread, and accepts a rejection."""
    asked = []

    @library().beta_tool
    def weather(city: str, days: list[int]) -> str:
        """Tells the weather."""
        asked.append((city, days))
        return "sunny"

    SCRIPT.says = ANSWERS["qwen"]
    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=500, tools=[weather], messages=[QUESTION])
    *_, last = runner
    assert asked == [("Zürich", [1, 2])]
    assert last.content[0].to_dict() == {"type": "text", "text": "Sunny it is."}


def test_a_stream_is_the_whole_answer_in_pieces(client: Any) -> None:
    SCRIPT.says = ANSWERS["qwen"]
    asked: Any = {"model": MODEL, "max_tokens": 500, "tools": [TOOL], "messages": [QUESTION]}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        final = stream.get_final_message()

    def anonymous(message: Any) -> Any:
        return [{**block.to_dict(), "id": ""} for block in message.content]

    assert anonymous(final) == anonymous(whole)
    assert (final.stop_reason, final.usage.output_tokens) == ("tool_use", whole.usage.output_tokens)
    events = list(client.messages.create(**asked, stream=True))
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    starts = [place for place, kind in enumerate(kinds) if kind == "content_block_start"]
    assert len(starts) == 3
    for start, following in zip(starts, [*starts[1:], len(kinds) - 2], strict=True):
        assert set(kinds[start + 1 : following - 1]) == {"content_block_delta"}
        assert kinds[following - 1] == "content_block_stop"


def test_why_an_answer_ended_is_said(client: Any) -> None:
    SCRIPT.says = "Sunny it is."
    asked: Any = {"model": MODEL, "max_tokens": 500, "messages": [QUESTION], "thinking": {"type": "disabled"}}
    stopped = client.messages.create(**asked, stop_sequences=[" it", "x"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " it")
    cut = client.messages.create(**{**asked, "max_tokens": 2})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
    SCRIPT.says = "y it is."
    begun: Any = [QUESTION, {"role": "assistant", "content": "Sunn"}]
    plain = client.messages.create(**asked).usage
    more = client.messages.create(
        **{**asked, "messages": begun, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    )
    assert more.content[0].to_dict() == {"type": "text", "text": "y it is."}, "the answer goes on with its beginning"
    assert more.usage.input_tokens + (more.usage.cache_read_input_tokens or 0) < plain.input_tokens + (
        plain.cache_read_input_tokens or 0
    )
    SCRIPT.says = ANSWERS["qwen"]
    shown = client.messages.create(**{**asked, "thinking": {"type": "adaptive", "display": "omitted"}})
    assert [block.type for block in shown.content] == ["text"]


def test_errors_arrive_as_the_client_s_own_exceptions(agent: RunningServer, client: Any) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 5, "messages": [QUESTION]}
    with pytest.raises(library().AuthenticationError) as stranger:
        client.with_options(api_key="wrong").messages.create(**asked)
    assert stranger.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    with pytest.raises(library().NotFoundError, match="not_found_error"):
        client.messages.create(**{**asked, "model": "claude"})
    by_token = library().Anthropic(base_url=agent.url, auth_token=KEY, api_key=None, max_retries=0)
    assert by_token.messages.create(**asked).type == "message"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "messages[0].content[0].type"),
        ({"tools": [{"type": "web_search_20250305", "name": "x"}]}, "tools[0].type"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"container": "x"}, "container"),
        ({"stop_sequences": ["a"] * 40, "stop": ["b"] * 30}, "stop_sequences"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(agent: RunningServer, body: dict[str, Any], param: str) -> None:
    given = {"max_tokens": 5, "messages": [QUESTION], **body}
    answer = agent.send("POST", "/v1/messages", json=given, headers={"x-api-key": KEY})
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "error"
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
