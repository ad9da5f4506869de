"""Tools over chat completions: calls, streams, and conversations that continue with results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from family_templates import ANSWERS, FAMILIES, QWEN, WEATHER
from quire.server.settings import ServerSettings
from scripted import Script
from serving import MODEL, RunningServer, make_model, running

QUESTION = [{"role": "user", "content": "Sun?"}]
ARGUMENTS = {"city": "Zürich", "days": [1, 2]}
#: The skeleton of gpt-oss's.
HARMONY = """\
{%- if tools %}<|start|>developer<|message|># Tools
{%- for tool in tools %}{{ tool | tojson }}{% endfor %}<|end|>{% endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|start|>assistant to=functions.' + message.tool_calls[0].function.name }}
        {{- '<|channel|>commentary json<|message|>' + message.tool_calls[0].function.arguments | tojson + '<|call|>' }}
    {%- elif message.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ message.content }}<|end|>
    {%- elif message.role == 'tool' %}
        {{- '<|start|>functions to=assistant<|channel|>commentary<|message|>' + message.content + '<|end|>' }}
    {%- else %}{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}
{#- <|channel|>analysis -#}
"""
CHANNELS = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>", "<|return|>"]
SCRIPT = Script(texts=ANSWERS.values(), specials=["<tool_call>", "</tool_call>", "[TOOL_CALLS]", *CHANNELS])


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningServer]:
    options = ServerSettings(trust_request_chat_template=True)
    with running(make_model(start=SCRIPT), settings=options) as server:
        yield server


def ask(server: RunningServer, says: str | None = None, **body: Any) -> dict[str, Any]:
    """Ask and return the first choice."""
    SCRIPT.says = says
    answer = server.chat(**{"messages": QUESTION, "max_tokens": None, **body})
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def refusal_of(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


@pytest.mark.parametrize("family", FAMILIES)
def test_an_agent_s_loop_is_what_the_family_s_model_was_trained_on(agent: RunningServer, family: str) -> None:
    """A call arrives in the official client's format, complete or streamed; sent back with its result it is rendered as
    `transformers` does.
    """
    SCRIPT.says = ANSWERS[family]
    own = {"chat_template": FAMILIES[family]}
    asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "tools": [WEATHER], "extra_body": own}
    with agent.client() as client:
        choice = client.chat.completions.create(**asked).choices[0]
        with client.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion().choices[0]
    message = choice.message
    assert (choice.finish_reason, streamed.finish_reason) == ("tool_calls", "tool_calls")
    assert message.tool_calls
    (call,) = message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", ARGUMENTS)
    assert streamed.message.tool_calls
    (again,) = streamed.message.tool_calls
    assert (again.function.name, again.function.arguments) == (call.function.name, call.function.arguments)
    assert (message.content or None) == (streamed.message.content or None) == ("I look." if family == "qwen" else None)
    thoughts = getattr(message, "reasoning_content", None)
    assert thoughts == getattr(streamed.message, "reasoning_content", None)
    assert thoughts == ("They ask for weather." if family == "qwen" else None)
    told = {"role": "tool", "tool_call_id": call.id, "content": '{"sun": "ja & <nein>"}'}
    history = [*QUESTION, message.to_dict(), told]
    text = agent.post("/apply-template", messages=history, tools=[WEATHER], **own).json()["prompt"]
    assert text == rendered_by_transformers(history, FAMILIES[family])
    if family == "qwen":  # the model's exact words
        assert SCRIPT.says in text
        assert '"strict": true, "description": "Tells the weather & <wind>."' in text, "in the client's order"


def test_gpt_oss_thinks_and_calls_in_channels(agent: RunningServer) -> None:
    own: dict[str, Any] = {"chat_template": HARMONY}
    thought = "<|channel|>analysis<|message|>They ask for weather.<|end|><|start|>assistant"
    call = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    call += json.dumps(ARGUMENTS, ensure_ascii=False)
    message = ask(agent, thought + call, tools=[WEATHER], **own)["message"]
    assert (message["reasoning_content"], message["content"]) == ("They ask for weather.", None)
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == ARGUMENTS
    message = ask(agent, thought + "<|channel|>final<|message|>Sunny.", **own)["message"]
    assert (message["reasoning_content"], message["content"]) == ("They ask for weather.", "Sunny.")
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["sun"]}}}
    message = ask(agent, thought.removesuffix("<|start|>assistant") + '"sun"', response_format=asked, **own)["message"]
    assert (message["reasoning_content"], message["content"]) == ("They ask for weather.", '"sun"')


def rendered_by_transformers(messages: list[dict[str, Any]], template: str) -> str:
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()),
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    chat = []
    for message in messages:
        shown = {name: value for name, value in message.items() if name != "refusal"}
        if "tool_calls" in message:
            shown["tool_calls"] = [
                {**call, "function": {"name": call["function"]["name"], "arguments": ARGUMENTS}}
                for call in message["tool_calls"]
            ]
        chat.append(shown)
    text: str = theirs.apply_chat_template(
        chat, chat_template=template, tools=[WEATHER], tokenize=False, add_generation_prompt=True
    )
    return text


def test_a_streamed_call_is_its_name_and_then_pieces_of_its_arguments(agent: RunningServer) -> None:
    SCRIPT.says = ANSWERS["qwen"]
    with agent.client() as client:
        stream = client.chat.completions.create(
            model=MODEL, messages=QUESTION, tools=[WEATHER], stream=True, extra_body={"chat_template": QWEN}
        )
        deltas = [chunk.choices[0].delta for chunk in stream]
    assert "".join(delta.content or "" for delta in deltas) == "I look."
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "They ask for weather."
    (first, *rest) = [call for delta in deltas for call in delta.tool_calls or ()]
    assert first.function
    assert (first.index, first.type, first.function.name, first.function.arguments) == (0, "function", "weather", "")
    assert first.id
    assert len(rest) > 1, "in pieces; a slow reader gets larger ones"
    assert all(call.id is None and call.function and call.function.name is None for call in rest)
    assert json.loads("".join(call.function.arguments or "" for call in rest if call.function)) == ARGUMENTS


def test_tools_work_with_a_template_that_knows_none(agent: RunningServer) -> None:
    choice = ask(agent, ANSWERS["qwen"].partition("</think>\n\n")[2], tools=[WEATHER])
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
    told = {"role": "tool", "tool_call_id": "x", "content": "sunny"}
    history = [*QUESTION, choice["message"], told, {**told, "content": "cold"}]
    text = agent.post("/apply-template", messages=history, tools=[WEATHER]).json()["prompt"]
    assert text.startswith("<|im_start|>system\n")
    assert json.dumps(WEATHER, ensure_ascii=False) in text
    assert '<|im_start|>assistant\nI look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"' in text
    results = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\ncold\n</tool_response>"
    assert f"<|im_start|>user\n{results}<|im_end|>\n" in text
    without_system = (
        "{% for m in messages %}{{ raise_exception('no') if m.role == 'system' }}[{{ m.role }}] {{ m.content }}"
        "{% endfor %}"
    )
    body = {"chat_template": without_system, "messages": history, "tools": [WEATHER]}
    text = agent.post("/apply-template", **body).json()["prompt"]
    assert text.startswith("[user] You can call functions.")
    assert "returns comes back between <tool_response> and </tool_response>.\n\nSun?" in text


def test_the_choice_of_tools_is_kept(agent: RunningServer) -> None:
    two = ANSWERS["qwen"] + '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    body = {"tools": [WEATHER], "chat_template": QWEN}
    assert len(ask(agent, two, **body)["message"]["tool_calls"]) == 2
    assert len(ask(agent, two, **body, parallel_tool_calls=False)["message"]["tool_calls"]) == 1
    unseen = ask(agent, "No.", **body, tool_choice="none")
    assert unseen["message"] == {"role": "assistant", "content": "No.", "refusal": None}
    texts = [
        agent.post("/tokenize", messages=QUESTION, chat_template=QWEN, **more).json()["count"]
        for more in ({"tools": [WEATHER]}, {})
    ]
    prompt = agent.chat(messages=QUESTION, max_tokens=1, **body, tool_choice="none").json()["usage"]["prompt_tokens"]
    assert texts[0] > texts[1] == prompt, "none shows no tools"
    cut = ask(agent, ANSWERS["qwen"], **body, max_tokens=35)
    assert cut["finish_reason"] == "length"
    assert cut["message"]["tool_calls"][0]["function"]["name"] == "weather"


#: A tool with short arguments for any model output.
CLOTHES: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "clothes",
        "parameters": {
            "type": "object",
            "properties": {"size": {"$ref": "#/$defs/size"}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["size", "count"],
            "additionalProperties": False,
            "$defs": {"size": {"enum": ["S", "M"]}},
        },
    },
}
SWITCH = {"type": "function", "function": {"name": "switch", "parameters": {"type": "object", "maxProperties": 0}}}


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "clothes"}}], ids=["required", "named"]
)
def test_a_call_can_be_forced_of_any_model(agent: RunningServer, choice: Any) -> None:
    SCRIPT.says = None
    asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "tools": [CLOTHES, SWITCH], "tool_choice": choice}
    asked |= {"seed": 2, "max_tokens": 300}
    asked["extra_body"] = {"chat_template": QWEN, "chat_template_kwargs": {"enable_thinking": False}}
    with agent.client() as client:
        whole = client.chat.completions.create(**asked, parallel_tool_calls=False).choices[0]
        with client.chat.completions.stream(**asked, parallel_tool_calls=False) as stream:
            streamed = stream.get_final_completion().choices[0]
    assert (whole.finish_reason, streamed.finish_reason) == ("tool_calls", "tool_calls")
    assert whole.message.content is None
    for message in (whole.message, streamed.message):
        assert message.tool_calls
        (call,) = message.tool_calls
        assert call.type == "function"
        arguments = json.loads(call.function.arguments)
        if choice != "required" or call.function.name == "clothes":
            assert call.function.name == "clothes"
            assert arguments["size"] in ("S", "M")
            assert 1 <= arguments["count"] <= 9
        else:
            assert (call.function.name, arguments) == ("switch", {})
    both = {"tools": [CLOTHES], "tool_choice": "required", "structured_outputs": {"json_object": True}}
    assert refusal_of(agent.chat(**both))["param"] == "structured_outputs"


def test_a_strict_tool_s_arguments_follow_its_schema_and_text_is_free(agent: RunningServer) -> None:
    strict = {"type": "function", "function": {**CLOTHES["function"], "strict": True}}
    wild = 'I look.\n<tool_call>\n{"name": "clothes", "arguments": {"size": "XL", "count": "many"}}\n</tool_call>'
    own: dict[str, Any] = {"chat_template": QWEN, "max_tokens": 300, "seed": 2}
    for tools, is_valid in (([CLOTHES], False), ([strict], True)):
        message = ask(agent, wild, tools=tools, **own)["message"]
        arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
        assert message["content"] == "I look."
        assert (arguments["size"] in ("S", "M") and arguments["count"] in range(1, 10)) is is_valid
    SCRIPT.says = wild
    named = {"name": "clothes", "strict": True}
    about: dict[str, Any] = {
        "model": MODEL,
        "messages": QUESTION,
        "max_tokens": 300,
        "tools": [{**named, "input_schema": CLOTHES["function"]["parameters"]}],
    }
    (call,) = (each for each in agent.post("/v1/messages", **about).json()["content"] if each["type"] == "tool_use")
    assert call["input"]["size"] in ("S", "M")
    about = {
        "model": MODEL,
        "input": "Hi",
        "max_output_tokens": 300,
        "tools": [{"type": "function", **CLOTHES["function"], **named}],
    }
    (item,) = (each for each in agent.post("/v1/responses", **about).json()["output"] if "call_id" in each)
    assert json.loads(item["arguments"])["size"] in ("S", "M")
    assert ask(agent, "<think>Hm.</think>Yes. <b>", tools=[strict], **own)["message"]["content"] == "Yes. <b>"
    schema = {"type": "object", "not": {"type": "object"}}
    unusual = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    assert "not" in refusal_of(agent.chat(tools=[unusual], chat_template=QWEN))["message"]


def test_a_response_format_holds_for_text_and_not_for_forced_calls(agent: RunningServer) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"type": "object", "maxProperties": 0}}}
    forced = {"tools": [SWITCH], "tool_choice": "required", "parallel_tool_calls": False}
    choice = ask(agent, None, **forced, response_format=schema, max_tokens=200)
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("switch", {})
    text = {"format": {"type": "json_schema", "name": "it", "schema": {"type": "object", "maxProperties": 0}}}
    tool = {"type": "function", **SWITCH["function"]}
    body = {"input": "Hello", "tools": [tool], "tool_choice": "required", "text": text, "max_output_tokens": 200}
    answer = agent.post("/v1/responses", **body)
    assert [item["type"] for item in answer.json()["output"]][:1] == ["function_call"], answer.text


def test_reasoning_has_both_names_and_is_counted(agent: RunningServer) -> None:
    SCRIPT.says = "<think>\nHm.\n</think>\n\nYes."
    asked: dict[str, Any] = {"messages": QUESTION, "max_tokens": None, "chat_template": QWEN}
    whole = agent.chat(**asked).json()
    message, usage = whole["choices"][0]["message"], whole["usage"]
    assert message["reasoning"] == message["reasoning_content"] == "Hm."
    num_thought = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < num_thought < usage["completion_tokens"]
    streamed = agent.chat(**asked, stream=True, stream_options={"include_usage": True}).text
    chunks = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "Hm."
    assert chunks[-1]["usage"] == {**usage, "prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]}
    hidden = agent.chat(**asked, include_reasoning=False).json()
    assert hidden["usage"]["completion_tokens_details"]["reasoning_tokens"] == num_thought, "spent all the same"
    SCRIPT.says = "Yes."
    assert agent.chat(**asked).json()["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    told = {
        "chat_template": QWEN,
        "messages": [*QUESTION, {"role": "assistant", "content": "Yes.", "reasoning": "Hm."}],
    }
    assert "<think>\nHm.\n</think>" in agent.post("/apply-template", **told).json()["prompt"]


def test_reasoning_is_separated_from_content(agent: RunningServer) -> None:
    def message(says: str, **body: Any) -> dict[str, Any]:
        shown: dict[str, Any] = ask(agent, says, **{"chat_template": QWEN, **body})["message"]
        return {name: value for name, value in shown.items() if name in ("content", "reasoning_content")}

    thought = {"content": "Yes.", "reasoning_content": "Hm."}
    assert message("<think>\nHm.\n</think>\n\nYes.") == thought
    forced = {"chat_template_kwargs": {"forced_thinking": True}}
    assert message("Hm.\n</think>\n\nYes.", **forced) == thought, "which the prompt began"
    assert message("Hm.", **forced) == {"content": None, "reasoning_content": "Hm."}
    closed = {"chat_template_kwargs": {"enable_thinking": False}}
    assert message("Hm.\n", **closed) == message("Hm.\n") == {"content": "Hm.\n"}
    assert message("<think>Hm.</think>Yes.", include_reasoning=False) == {"content": "Yes."}
    plain = "{{ messages[0].content }}"
    assert message("<think>Hm.</think>Yes.", chat_template=plain) == {"content": "<think>Hm.</think>Yes."}


def test_choices_logprobs_and_token_ids_go_with_calls(agent: RunningServer) -> None:
    SCRIPT.says = ANSWERS["qwen"]
    with agent.client() as client:
        stream = client.chat.completions.create(
            model=MODEL, messages=QUESTION, tools=[WEATHER], stream=True, n=2, logprobs=True, top_logprobs=1,
            extra_body={"chat_template": QWEN, "return_token_ids": True},
        )  # fmt: skip
        chunks = [chunk.choices[0] for chunk in stream]
    for index in (0, 1):
        mine = [choice for choice in chunks if choice.index == index]
        ids = [token for choice in mine for token in getattr(choice, "token_ids", None) or ()]
        told = agent.post("/detokenize", tokens=ids[:-1]).json()["prompt"]
        assert told == SCRIPT.says
        tokens = [entry for choice in mine if choice.logprobs for entry in choice.logprobs.content or ()]
        assert len(tokens) == len(ids)
        assert [choice.finish_reason for choice in mine if choice.finish_reason] == ["tool_calls"]
        assert sum(bool(call.id) for choice in mine for call in choice.delta.tool_calls or ()) == 1


FUNCTION = WEATHER["function"]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "function"),
        ({"tools": [WEATHER, {"type": "function"}]}, "tools[1].function", "missing"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "letters"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "tools[0] too"),
        ({"tools": [{**WEATHER, "function": {"name": "a", "parameters": []}}]},
         "tools[0].function.parameters", "object"),
        ({"tools": [{**WEATHER, "function": {"name": "a", "parameters": {"type": "array"}}}]},
         "tools[0].function.parameters", "object"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tool_choice": "any"}, "tool_choice", "required"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
         "tool_choice", "'weather'"),
        ({"tools": [WEATHER], "chat_template": "{{ tools | tojson if tools }}{{ messages[0].content }}"}, "tools",
         "--tool-call-parser"),
        ({"chat_template_kwargs": {"tools": [WEATHER]}}, "chat_template_kwargs", "field of the body"),
        ({"functions": [FUNCTION]}, "functions", "use tools"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_refused_by_name(
    agent: RunningServer, body: dict[str, Any], param: str, words: str
) -> None:
    error = refusal_of(agent.chat(**body))
    assert error["param"] == param
    assert words in error["message"]


def test_an_operator_says_how_models_call_and_think() -> None:
    says = ANSWERS["mistral"]
    mistral, none = (ServerSettings(tool_call_parser=name, reasoning_parser="none") for name in ("mistral", "none"))
    with running(make_model(start=Script(says), chat_template=QWEN), settings=mistral) as server:
        message = server.chat(tools=[WEATHER], max_tokens=None).json()["choices"][0]["message"]
        assert message["tool_calls"][0]["function"]["name"] == "weather"
    with running(make_model(start=Script("<think>Hm.</think>"), chat_template=QWEN), settings=none) as server:
        assert "--tool-call-parser none" in refusal_of(server.chat(tools=[WEATHER]))["message"]
        assert server.chat(max_tokens=None).json()["choices"][0]["message"]["content"] == "<think>Hm.</think>"
