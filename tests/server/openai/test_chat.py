"""POST /v1/chat/completions: from a conversation to a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quire import LLM
from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.sampling_params import SamplingParams
from serving import MODEL, SMALL, RunningServer, make_model, running

TURN = [{"role": "user", "content": "Hi"}]
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}{{ ' ' + m.name if m.name }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[{{ mood or 'calm' }}] {% endif %}"
)


@pytest.fixture(scope="module")
def templated() -> Iterator[RunningServer]:
    with running(make_model(chat_template=TEMPLATE)) as server:
        yield server


def prompt_of(server: RunningServer, **body: Any) -> str:
    answer = server.chat(**{"messages": TURN, "return_token_ids": True, "max_tokens": 1, **body})
    assert answer.status_code == 200, answer.text
    text: str = server.post("/detokenize", tokens=answer.json()["prompt_token_ids"]).json()["prompt"]
    return text


def test_an_answer_is_what_the_offline_api_gives(server: RunningServer) -> None:
    llm = LLM(MODEL, num_kv_blocks=64, max_model_len=256, use_tqdm=False)
    expected = llm.chat(TURN, SamplingParams(max_tokens=8, temperature=0), use_tqdm=False)[0].outputs[0]
    answer = server.chat(messages=TURN, temperature=0).json()
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": expected.text, "refusal": None},
            "logprobs": None,
            "finish_reason": expected.finish_reason,
            "stop_reason": None,
            "token_ids": None,
        }
    ]
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)


def test_an_answer_is_as_long_as_fits_by_default(server: RunningServer) -> None:
    usage = server.chat(max_tokens=None, ignore_eos=True).json()["usage"]
    assert usage["total_tokens"] == 256
    usage = server.chat(max_tokens=None, max_completion_tokens=3, ignore_eos=True).json()["usage"]
    assert usage["completion_tokens"] == 3


def test_a_template_of_the_operator_stands_in_place_of_the_model_s(templated: RunningServer) -> None:
    assert prompt_of(templated) == "[user] Hi\n[calm] "


def test_the_client_s_variables_reach_the_template(templated: RunningServer) -> None:
    assert prompt_of(templated, chat_template_kwargs={"mood": "merry"}) == "[user] Hi\n[merry] "


def test_the_assistant_s_turn_is_opened_by_default(templated: RunningServer) -> None:
    assert prompt_of(templated, add_generation_prompt=False) == "[user] Hi\n"


def test_a_final_message_is_gone_on_with(templated: RunningServer) -> None:
    messages = [*TURN, {"role": "assistant", "content": "Well,"}]
    assert prompt_of(templated, messages=messages, continue_final_message=True) == "[user] Hi\n[assistant] Well,"


def test_parts_of_a_text_are_one_text(templated: RunningServer) -> None:
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]
    assert prompt_of(templated, messages=[{"role": "user", "content": parts}]) == "[user] Hi\nthere\n[calm] "


def test_developer_is_another_word_for_system(templated: RunningServer) -> None:
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi", "name": "Ann"}]
    assert prompt_of(templated, messages=messages) == "[system] Be brief.\n[user Ann] Hi\n[calm] "


def test_a_blank_that_the_template_writes_before_answers_is_no_part_of_them() -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    template += "{% if add_generation_prompt %}[assistant]{% endif %}"
    with running(make_model(chat_template=template)) as server:
        blanks = {"messages": TURN, "logit_bias": {"32": 100}}
        assert server.chat(**blanks).json()["choices"][0]["message"]["content"] == " " * 7
        with server.client() as client:
            stream = client.chat.completions.create(model=MODEL, max_tokens=8, stream=True, **blanks)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == " " * 7
        opened = {**blanks, "add_generation_prompt": False}
        assert server.chat(**opened).json()["choices"][0]["message"]["content"] == " " * 8


def test_prompt_logprobs_are_the_conversation_s(server: RunningServer) -> None:
    answer = server.chat(messages=TURN, prompt_logprobs=0, return_token_ids=True).json()
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert [list(entry) for entry in answer["prompt_logprobs"][1:]] == [
        [str(token)] for token in answer["prompt_token_ids"][1:]
    ]


def test_a_template_that_refuses_says_why() -> None:
    template = "{{ raise_exception('only one turn') }}"
    with running(make_model(chat_template=template)) as server:
        error = server.chat(messages=TURN).json()["error"]
        assert error["param"] == "messages"
        assert "only one turn" in error["message"]


def test_a_model_without_a_template_gets_a_clear_refusal() -> None:
    def start_without_template(config: EngineConfig) -> Engine:
        engine = start_engine(config)
        assert engine.tokenizer is not None
        engine.tokenizer.chat_templates.clear()
        return engine

    with running(make_model(start=start_without_template)) as server:
        answer = server.chat(messages=TURN)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("messages", "no_chat_template")
        assert "--chat-template FILE" in error["message"]
        assert server.complete().status_code == 200


def test_a_model_without_a_tokenizer_takes_token_ids() -> None:
    config = EngineConfig(**{**vars(SMALL), "skip_tokenizer_init": True})
    with running(make_model(config)) as server:
        answer = server.complete(prompt=[1, 2, 3], return_token_ids=True, logprobs=1)
        assert len(answer.json()["choices"][0]["token_ids"]) == 8
        assert answer.json()["choices"][0]["logprobs"]["tokens"][0].startswith("token_id:")
        for refused in (server.complete(), server.chat(messages=TURN), server.complete(prompt=[1], echo=True)):
            assert refused.status_code == 400
        assert server.complete(prompt=[1], stop="a").json()["error"]["param"] == "stop"
