"""Requests in the style of vLLM, llama.cpp or OpenAI work as they do there."""

from __future__ import annotations

import inspect
import json
import keyword
from collections.abc import Iterator
from functools import partial
from typing import Any

import openai.types
import openai.types.chat
import pytest
import tokenizers
from pydantic import BaseModel
from transformers import PreTrainedTokenizerFast

from quire import LLM, BeamSearchParams
from quire.server.openai.prompts import encode_messages
from quire.server.settings import ServerSettings
from quire.text.chat_template import render
from quire.text.tokenizer import Tokenizer
from serving import MODEL, RunningServer, make_model, running

TURN = [{"role": "user", "content": "Hi"}]
#: As in models with tools: calls as JSON in <call>, results in <out>.
TOOL_TEMPLATE = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.role == 'tool' %}<out>{{ m.name }} {{ m.tool_call_id }}: {{ m.content }}</out>"
    "{%- else %}{{ m.content or '' }}{%- for call in m.tool_calls or [] %}\n"
    '<call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</call>'
    "{%- endfor %}{%- endif %}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
    "{%- if reasoning_effort is defined %}[{{ reasoning_effort }}]{%- endif %}"
    "{%- if enable_thinking is defined and not enable_thinking %}[no thoughts]{%- endif %}"
)
ARGUMENTS = {"city": "Zürich", "days": [1, 2], "more": {"a": None}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)}}
TOOL_CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Do."},
    {"role": "user", "content": "Sun?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "sunny"},
]


@pytest.fixture(scope="module")
def tolerant() -> Iterator[RunningServer]:
    """A server with every option of tolerance, and a template that shows tools."""
    options = ServerSettings(max_logprobs=-1, ignore_unknown_fields=True, trust_request_chat_template=True)
    with running(make_model(chat_template=TOOL_TEMPLATE), settings=options) as server:
        yield server


def text_of_prompt(server: RunningServer, **body: Any) -> str:
    answer = server.chat(**{"messages": TURN, "return_token_ids": True, "max_tokens": 1, **body})
    assert answer.status_code == 200, answer.text
    text: str = server.post("/detokenize", tokens=answer.json()["prompt_token_ids"]).json()["prompt"]
    return text


def choice_of(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def refusal_of(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


# -- conversations -----------------------------------------------------------------------------------------------------


def test_a_conversation_with_tools_is_rendered_as_transformers_does(tolerant: RunningServer) -> None:
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()))
    called = {**CALL, "function": {"name": "weather", "arguments": ARGUMENTS}}
    chat = [{**message, "tool_calls": [called]} if "tool_calls" in message else message for message in TOOL_CHAT]
    expected = theirs.apply_chat_template(chat, chat_template=TOOL_TEMPLATE, tokenize=False, add_generation_prompt=True)
    assert "Zürich" in expected
    assert text_of_prompt(tolerant, messages=TOOL_CHAT) == expected
    assert text_of_prompt(tolerant, messages=chat) == expected, "arguments may also be an object"


def test_developer_and_unknown_keys_are_taken_in_messages(server: RunningServer) -> None:
    part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    message = {"role": "user", "content": [part], "mood": "b", "audio": None}
    assert text_of_prompt(server, messages=[message]) == text_of_prompt(server)
    assert text_of_prompt(server, messages=[{"role": "developer", "content": "x"}]).startswith("<|im_start|>system\nx")


def test_a_role_of_the_template_s_own_reaches_it(server: RunningServer) -> None:
    for role in ("ipython", "function", "my-custom role"):
        assert f"<|im_start|>{role}\nx" in text_of_prompt(server, messages=[*TURN, {"role": role, "content": "x"}])
    for role in ("", "user<|im_end|>", "a\nb", "x" * 65):
        assert refusal_of(server.chat(messages=[{"role": role, "content": "x"}]))["param"] == "messages[0].role"


def test_a_template_that_shows_no_tools_never_hides_them(server: RunningServer) -> None:
    silent = "{% for m in messages if m.role in ('user', 'assistant') %}{{ m.content }}{% endfor %}"
    with pytest.raises(ValueError, match="shows no tool calls"):
        render(TOOL_CHAT, silent)
    with pytest.raises(ValueError, match="shows no messages of the role tool"):
        render([message for message in TOOL_CHAT if "tool_calls" not in message], silent)
    assert render([{"role": "assistant", "content": "a", "tool_calls": []}], silent) == "a"
    assert server.chat(messages=TOOL_CHAT).status_code == 200, "the server spells them out"


def names_on_the_way() -> set[str]:
    """Parameter names of the functions that pass on a template's variables, and other names."""
    way = (render, Tokenizer.apply_chat_template, encode_messages)
    names = {name for function in way for name in inspect.signature(function).parameters}
    return names | {"self", "cls", "template", "args", "kwargs", "", " ", "é-1", "0", "__class__", *keyword.kwlist[:3]}


#: Those with a meaning other than a variable.
NOT_VARIABLES = {"messages", "tools", "chat_template", "add_generation_prompt", "continue_final_message"}


def test_no_name_of_a_template_s_variable_breaks_the_server(tolerant: RunningServer) -> None:
    names = names_on_the_way()
    assert NOT_VARIABLES - {"tools"} < names
    for value in (1, True, [], None, {"a": 1}):
        variables = dict.fromkeys(names - NOT_VARIABLES, value)
        answer = tolerant.post("/tokenize", messages=TURN, chat_template_kwargs=variables)
        assert answer.status_code == 200, answer.text
    for name in NOT_VARIABLES:
        answer = tolerant.post("/tokenize", messages=TURN, chat_template_kwargs={name: True})
        assert refusal_of(answer)["param"] == "chat_template_kwargs"


def test_variables_of_any_name_reach_the_template() -> None:
    names = {"self": 1, "template": 2, "messages_": 3, "special_tokens": 4}
    template = "{{ template }}{{ messages_ }}{{ special_tokens }}{{ messages | length }}"
    assert render(TURN, template, variables=names) == "2341"


def test_reasoning_effort_goes_to_the_template(tolerant: RunningServer) -> None:
    assert text_of_prompt(tolerant, reasoning_effort="low").endswith("[low]")
    own = {"reasoning_effort": "high"}
    assert text_of_prompt(tolerant, reasoning_effort="low", chat_template_kwargs=own).endswith("[high]")
    assert "[" not in text_of_prompt(tolerant)
    assert text_of_prompt(tolerant, reasoning_effort="none").endswith("[none][no thoughts]")
    thinking = {"enable_thinking": True}
    assert text_of_prompt(tolerant, reasoning_effort="none", chat_template_kwargs=thinking).endswith("[none]")


def test_a_request_brings_its_own_template_where_it_is_trusted(tolerant: RunningServer, server: RunningServer) -> None:
    own = "{{ messages[0].content }}!"
    assert text_of_prompt(tolerant, chat_template=own) == "Hi!"
    assert tolerant.post("/tokenize", messages=TURN, chat_template=own).json()["count"] == 3
    assert refusal_of(tolerant.chat(chat_template="{% if %}"))["param"] == "chat_template"
    for answer in (server.chat(chat_template=own), server.post("/tokenize", messages=TURN, chat_template=own)):
        assert "--trust-request-chat-template" in refusal_of(answer)["message"]


def test_echo_puts_the_assistant_s_words_before_its_answer(server: RunningServer) -> None:
    messages = [*TURN, {"role": "assistant", "content": [{"type": "text", "text": "Well,"}]}]
    asked: dict[str, Any] = {"messages": messages, "continue_final_message": True, "temperature": 0}
    plain = choice_of(server.chat(**asked))["message"]["content"]
    assert choice_of(server.chat(**asked, echo=True))["message"]["content"] == "Well," + plain
    assert choice_of(server.chat(echo=True, temperature=0)) == choice_of(server.chat(temperature=0))
    with server.client() as client:
        stream = client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=8, temperature=0, stream=True,
            extra_body={"continue_final_message": True, "echo": True},
        )  # fmt: skip
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Well," + plain


# -- prompts and fields ------------------------------------------------------------------------------------------------


def test_unknown_fields_are_ignored_on_demand(tolerant: RunningServer) -> None:
    assert tolerant.complete(suffixes="x", stream_options={"chunks": 3}).status_code == 200
    assert tolerant.complete(suffixes="x" * 300_000).status_code == 200, "in the process that parses large bodies, too"
    assert refusal_of(tolerant.complete(temperature=-1))["param"] == "temperature"


def test_a_prompt_is_cut_on_the_side_that_was_asked_for(server: RunningServer) -> None:
    def kept(**body: Any) -> bytes:
        answer = server.complete(prompt="Hello", return_token_ids=True, **body)
        return bytes(choice_of(answer)["prompt_token_ids"])

    assert kept(truncate_prompt_tokens=2, truncation_side="right") == b"He"
    assert kept(truncate_prompt_tokens=2, truncation_side="left") == kept(truncate_prompt_tokens=2) == b"lo"
    assert kept(truncation_side="right") == b"Hello"


def test_a_request_is_named_by_its_client(server: RunningServer) -> None:
    assert server.complete(request_id="my/request-1").json()["id"] == "cmpl-my/request-1"
    assert server.chat(request_id="x" * 128).json()["id"] == "chatcmpl-" + "x" * 128
    with server.client() as client:  # several at once, or of several prompts, may share a name
        asked: dict[str, Any] = {"model": MODEL, "max_tokens": 30, "stream": True, "extra_body": {"request_id": "same"}}
        first, second = (
            client.completions.create(prompt="a", **asked),
            client.completions.create(prompt=["b"] * 2, **asked),
        )
        assert next(first).id == next(second).id == "cmpl-same"
        first.close()
        second.close()


def test_beam_search_gives_the_best_answers_first(server: RunningServer) -> None:
    llm = LLM(MODEL, num_kv_blocks=64, max_model_len=256, use_tqdm=False)
    for penalty in (1.0, 0.0):
        (expected,) = llm.beam_search(["Hello"], BeamSearchParams(3, 8, length_penalty=penalty))
        answer = server.complete(use_beam_search=True, n=3, length_penalty=penalty, temperature=0, seed=1, top_p=1)
        assert answer.status_code == 200, answer.text
        assert [choice["text"] for choice in answer.json()["choices"]] == [output.text for output in expected.outputs]
        assert answer.json()["usage"]["completion_tokens"] == sum(len(one.token_ids) for one in expected.outputs)
    twice = server.complete(prompt=["Hello"] * 2, use_beam_search=True, n=2).json()["choices"]
    assert [choice["index"] for choice in twice] == [0, 1, 2, 3]
    assert [choice["text"] for choice in twice[:2]] == [choice["text"] for choice in twice[2:]]
    best = choice_of(server.chat(use_beam_search=True, n=2, max_tokens=None))
    assert best["message"]["content"]


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_a_fingerprint_stays_the_same_over_restarts(server: RunningServer, tolerant: RunningServer) -> None:
    fingerprint = server.complete().json()["system_fingerprint"]
    assert fingerprint.startswith("fp_")
    assert server.chat().json()["system_fingerprint"] == fingerprint
    assert tolerant.complete().json()["system_fingerprint"] == fingerprint
    with server.client() as client:
        stream = client.completions.create(model=MODEL, prompt="Hello", max_tokens=3, stream=True)
        assert {chunk.system_fingerprint for chunk in stream} == {fingerprint}


#: Keys that OpenAI's answers have conditionally, and ours never.
ABSENT = {"annotations", "audio", "function_call", "tool_calls", "metadata", "moderation", "obfuscation"}


def keys_of(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields) - ABSENT


def test_keys_that_may_be_null_are_there(server: RunningServer) -> None:
    chat, completion = server.chat().json(), server.complete().json()
    assert keys_of(openai.types.chat.ChatCompletion) <= chat.keys()
    assert keys_of(openai.types.chat.chat_completion.Choice) <= chat["choices"][0].keys()
    assert keys_of(openai.types.chat.ChatCompletionMessage) <= chat["choices"][0]["message"].keys()
    assert keys_of(openai.types.Completion) <= completion.keys()
    assert keys_of(openai.types.CompletionChoice) <= completion["choices"][0].keys()
    assert (chat["service_tier"], chat["choices"][0]["message"]["refusal"]) == (None, None)
    assert chat["choices"][0]["logprobs"] is completion["choices"][0]["logprobs"] is None


def test_keys_of_vllm_are_null_where_they_were_not_asked_for(server: RunningServer) -> None:
    chat = server.chat().json()
    assert (chat["prompt_logprobs"], chat["prompt_token_ids"], chat["choices"][0]["token_ids"]) == (None, None, None)
    choice = server.complete().json()["choices"][0]
    assert (choice["prompt_logprobs"], choice["prompt_token_ids"], choice["token_ids"]) == (None, None, None)


def test_tokens_are_shown_as_ids_where_that_is_asked_for(server: RunningServer) -> None:
    asked = {"temperature": 0, "return_tokens_as_token_ids": True, "return_token_ids": True}
    choice = choice_of(server.complete(**asked, logprobs=2, echo=True))
    names = [f"token_id:{token}" for token in choice["prompt_token_ids"] + choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == names
    assert all(name.startswith("token_id:") for top in choice["logprobs"]["top_logprobs"][1:] for name in top)
    choice = choice_of(server.chat(**asked, logprobs=True, top_logprobs=2))
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [
        f"token_id:{id}" for id in choice["token_ids"]
    ]
    assert choice["logprobs"]["content"][0]["top_logprobs"][1]["token"].startswith("token_id:")


def test_logprobs_are_those_of_the_tokens_that_were_asked_for(tolerant: RunningServer) -> None:
    asked = {"temperature": 0, "return_tokens_as_token_ids": True}
    approx = partial(pytest.approx, abs=1e-3)
    every = choice_of(tolerant.chat(**asked, logprobs=True, top_logprobs=-1))["logprobs"]["content"][0]
    by_id = {entry["token"]: entry["logprob"] for entry in every["top_logprobs"]}
    few = choice_of(tolerant.chat(**asked, logprobs=True, logprob_token_ids=[7, 5, 7]))["logprobs"]["content"][0]
    assert {entry["token"]: entry["logprob"] for entry in few["top_logprobs"]} == approx(
        {name: by_id[name] for name in ("token_id:5", "token_id:7", every["token"])}
    )
    assert (few["token"], few["logprob"]) == (every["token"], approx(every["logprob"]))
    top = choice_of(tolerant.complete(**asked, logprobs=1, logprob_token_ids=[5, 7]))["logprobs"]["top_logprobs"][0]
    assert {"token_id:5", "token_id:7"} <= top.keys()
    assert len(top) <= 3, "and the chosen one"


def test_minus_one_shows_the_whole_vocabulary_where_the_server_lets_it(tolerant: RunningServer) -> None:
    size = tolerant.engine.vocab_size
    asked = {"max_tokens": 2, "return_tokens_as_token_ids": True}
    choice = choice_of(tolerant.complete(**asked, logprobs=-1, prompt_logprobs=-1))
    assert [len(top) for top in choice["logprobs"]["top_logprobs"]] == [size] * 2
    assert [len(entry) for entry in choice["prompt_logprobs"][1:]] == [size] * 4
    echoed = choice_of(tolerant.complete(**asked, logprobs=-1, echo=True))["logprobs"]["top_logprobs"]
    assert [len(top) for top in echoed[1:]] == [size] * 6
    content = choice_of(tolerant.chat(**asked, logprobs=True, top_logprobs=-1))["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [size] * 2


def test_the_server_says_how_many_logprobs_it_gives() -> None:
    with running(make_model(), settings=ServerSettings(max_logprobs=2)) as server:
        assert server.complete(logprobs=2).status_code == 200
        assert server.chat(logprobs=True).status_code == 200
        for answer in (server.complete(logprobs=3), server.chat(logprobs=True, top_logprobs=-1)):
            assert "--max-logprobs" in refusal_of(answer)["message"]


def test_the_tokens_of_logprobs_make_the_text_streamed_or_not(server: RunningServer) -> None:
    asked: dict[str, Any] = {"allowed_token_ids": list(b"abc"), "seed": 1, "stop": "zzz", "max_tokens": 8}
    choice = choice_of(server.complete(**asked, logprobs=0))
    shown = choice["logprobs"]
    assert "".join(shown["tokens"]) == choice["text"]
    assert shown["text_offset"] == list(range(8))
    assert [len(top) for top in shown["top_logprobs"]] == [1] * 8, "the chosen one"
    with server.client() as client:
        extra = {"extra_body": {"allowed_token_ids": asked.pop("allowed_token_ids")}}
        stream = list(client.completions.create(model=MODEL, prompt="Hello", logprobs=0, stream=True, **asked, **extra))
    pieces = [chunk.choices[0].logprobs for chunk in stream if chunk.choices[0].logprobs]
    assert [token for piece in pieces for token in piece.tokens or ()] == shown["tokens"]
    assert [offset for piece in pieces for offset in piece.text_offset or ()] == shown["text_offset"]
