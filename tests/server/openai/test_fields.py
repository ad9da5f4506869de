"""Every accepted field works, and unsupported ones are rejected by name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from annotated_types import Ge, Gt, Le, Lt

from quire.sampling_params import SamplingParams
from quire.server.bodies.sampling import HabitualFields
from quire.server.openai.schema import ChatCompletionRequest, CompletionRequest
from serving import MODEL, PATIENCE_S, RunningServer


def text_of(server: RunningServer, **body: Any) -> str:
    answer = server.complete(**{"temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_every_field_of_the_engine_s_sampling_is_a_field_of_both_endpoints() -> None:
    names = {field.name for field in fields(SamplingParams)} - {"pooling"}  # of /v1/embeddings
    assert names <= set(CompletionRequest.model_fields)
    assert names <= set(ChatCompletionRequest.model_fields)


def bounds() -> list[tuple[str, float, bool]]:
    """Yield (field, value, is valid) at both ends of every documented range."""
    cases = []
    sampled = {field.name for field in fields(SamplingParams)}
    for name, field in CompletionRequest.model_fields.items():
        if name not in sampled or name == "max_tokens":  # 0 is the endpoint's own
            continue
        is_whole = "int" in str(field.annotation)
        for limit in field.metadata:
            match limit:
                case Ge(ge=low):
                    cases += [(name, low, True), (name, low - 1, False)]
                case Gt(gt=low):
                    cases += [(name, low, False), (name, low + 1e-6, True)]
                case Le(le=high):
                    cases += [(name, high, True), (name, high + (1 if is_whole else 1e-3), False)]
                case Lt(lt=high):
                    cases += [(name, high - 1, True), (name, high, False)]
    return cases  # type: ignore[return-value]


@pytest.mark.parametrize(("name", "value", "is_valid"), bounds())
def test_the_documented_range_of_a_field_is_the_engine_s(name: str, value: float, is_valid: bool) -> None:
    given: dict[str, Any] = {name: value, "max_tokens": None}
    if is_valid:
        SamplingParams(**given)
    else:
        with pytest.raises(ValueError, match=name):
            SamplingParams(**given)


def test_null_counts_as_absent(server: RunningServer) -> None:
    nothing = dict.fromkeys([*CompletionRequest.model_fields, "a_field_that_does_not_exist"])
    nothing |= {"model": MODEL, "prompt": "Hello", "temperature": 0}
    assert text_of(server, **nothing) == text_of(server, max_tokens=None)


@pytest.mark.parametrize(
    "field",
    [
        {"service_tier": "auto"}, {"stream": False}, {"stream_options": {}},
        {"n": 1}, {"top_k": -1}, {"logit_bias": {}}, {"stop": []}, {"priority": 0},
    ],
)  # fmt: skip
def test_what_clients_send_without_meaning_anything_is_taken(server: RunningServer, field: dict[str, Any]) -> None:
    assert server.complete(**field).status_code == 200
    assert server.chat(**field).status_code == 200


#: Fields of other servers without effect: accepted at this value, rejected by name at the other.
NEUTRAL: dict[str, tuple[Any, Any]] = {
    "use_beam_search": (False, "yes"), "length_penalty": (1.0, 2.0),
    "return_tokens_as_token_ids": (False, 1), "truncation_side": ("left", "middle"),
}  # fmt: skip


def test_fields_of_other_servers_are_taken_where_they_ask_for_nothing(server: RunningServer) -> None:
    neutral = {name: value for name, (value, _) in NEUTRAL.items()}
    for ask in (server.complete, server.chat):
        plain, given = ask(temperature=0), ask(temperature=0, **neutral)
        assert given.status_code == 200, given.text
        assert given.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize("name", NEUTRAL)
def test_fields_of_other_servers_are_refused_by_name_where_they_ask_for_more(server: RunningServer, name: str) -> None:
    for ask in (server.complete, server.chat):
        answer = ask(**{name: NEUTRAL[name][1]})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == name


HINTS = (
    "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "metadata",
    "store", "verbosity",
)  # fmt: skip


@pytest.mark.parametrize("value", ["x", True, 7, {"a": ["b"]}])
def test_hints_change_no_token_whatever_they_hold(server: RunningServer, value: Any) -> None:
    for ask in (server.complete, server.chat):
        plain, given = ask(temperature=0), ask(temperature=0, **dict.fromkeys(HINTS, value))
        assert given.status_code == 200, given.text
        assert given.json()["choices"] == plain.json()["choices"]


def test_the_docs_name_every_habitual_field() -> None:
    docs = Path("docs/reference/api.md").read_text()
    assert {*HINTS, *NEUTRAL, "service_tier"} >= set(HabitualFields.model_fields) - {"model"}
    assert [name for name in (*HINTS, *NEUTRAL) if f"`{name}" not in docs] == []


@pytest.mark.parametrize(
    "field",
    [
        {"response_format": {"type": "text"}},
        {"tools": []}, {"tool_choice": "none"}, {"parallel_tool_calls": True},
        {"functions": []}, {"modalities": ["text"]}, {"max_completion_tokens": 4, "max_tokens": None},
        {"max_completion_tokens": 8, "max_tokens": 8},
    ],
)  # fmt: skip
def test_what_chat_clients_send_without_meaning_anything_is_taken(server: RunningServer, field: dict[str, Any]) -> None:
    assert server.chat(**field).status_code == 200


def test_best_of_is_taken_where_it_is_n(server: RunningServer) -> None:
    assert server.complete(best_of=1).status_code == 200
    assert server.complete(best_of=2, n=2).status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"suffix": "the end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"guided_json": 7}, "guided_json"),
        ({"guided_json": {}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regexp": "a"}}, "structured_outputs.regexp"),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos"),
        ({"structured_outputs": {"regex": "a"}, "use_beam_search": True}, "structured_outputs"),
        ({"max_token": 3}, "max_token"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty"),
        ({"bad_words_token_ids": [[1]] * 5000}, "bad_words_token_ids"),
        ({"allowed_token_ids": [1] * 300_000}, "allowed_token_ids"),
        ({"stop_token_ids": [1] * 2000}, "stop_token_ids"),
        ({"logit_bias": dict.fromkeys(map(str, range(20_000)), 1)}, "logit_bias"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"min_tokens": 9}, "min_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": "a", "detokenize": False}, "stop"),
        ({"stop_token_ids": [99999]}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        *(({"logit_bias": {key: 1}}, "logit_bias") for key in (" 5", "5_0", "+5", "-0", "05", "٥", "1e1", "")),
        ({"logprobs": -2}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": 101}, "prompt_logprobs"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"logprob_token_ids": [], "logprobs": 1}, "logprob_token_ids"),
        ({"logprob_token_ids": [99999], "logprobs": 1}, "logprob_token_ids"),
        ({"logprob_token_ids": list(range(101)), "logprobs": 1}, "logprob_token_ids"),
        ({"logprob_token_ids": [1], "logprobs": 1, "echo": True}, "logprob_token_ids"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"use_beam_search": True, "stream": True}, "use_beam_search"),
        ({"use_beam_search": True, "temperature": 0.5}, "temperature"),
        ({"use_beam_search": True, "logprobs": 0}, "logprobs"),
        ({"use_beam_search": True, "prompt_logprobs": 0}, "prompt_logprobs"),
        ({"use_beam_search": True, "stop": "a"}, "stop"),
        ({"use_beam_search": True, "detokenize": False}, "detokenize"),
        ({"use_beam_search": True, "n": 51}, "n"),
        ({"use_beam_search": True, "n": 2, "length_penalty": 11}, "length_penalty"),
        ({"request_id": "a b"}, "request_id"),
        ({"request_id": "a\r\nSet-Cookie: b"}, "request_id"),
        ({"request_id": "é"}, "request_id"),
        ({"request_id": "x" * 129}, "request_id"),
        ({"request_id": "a\n"}, "request_id"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"logit_bias": {"1": "much"}}, "logit_bias.1"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"logprobs": 101}, "logprobs"),
        ({"n": 0}, "n"),
        ({"n": 65}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [[-1]]}, "prompt[0][0]"),
        ({"prompt": ["Hello", ""]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a"] * 20, "n": 60}, "n"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"chunks": 3}}, "stream_options.chunks"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_completions_cannot_do_is_refused_by_name(server: RunningServer, body: dict[str, Any], param: str) -> None:
    answer = server.complete(**body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["code"]
    assert param.partition("[")[0].partition(".")[0] in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": 1}}}, "response_format.json_schema.name"),
        ({"modalities": ["audio"]}, "modalities[0]"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"top_logprobs": 101, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"max_completion_tokens": 4}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": 2}, "logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": ["Hello"]}, "messages[0]"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": 1, "content": "Hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "Hello"}, {}]}, "messages[1].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"content": "Hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "tool_call_id": "a"}]}, "messages[0].content"),
        ({"messages": [{"role": "<|user|>", "content": "Hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
            "messages[0].content[0].type",
        ),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "chat_template_kwargs"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ],
)
def test_what_chat_cannot_do_is_refused_by_name(server: RunningServer, body: dict[str, Any], param: str) -> None:
    answer = server.chat(**body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert param.rpartition("[")[0].partition("[")[0] in error["message"]


def test_an_error_shows_little_of_what_was_sent(server: RunningServer) -> None:
    of_chat = ChatCompletionRequest.model_fields.keys() - CompletionRequest.model_fields
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    long = "x" * 20_000
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        for path, plain, names in (
            ("/v1/completions", {"prompt": "Hello"}, [*CompletionRequest.model_fields, long]),
            ("/v1/chat/completions", chat, of_chat),
        ):
            for body in [{name: value} for name in sorted(names) for value in ([long], {long: 1})]:
                answer = client.post(path, json={**plain, "max_tokens": 1, **body})
                assert answer.status_code == 200 or len(answer.content) < 4000, (*body,)


def test_all_unknown_fields_are_named_at_once(server: RunningServer) -> None:
    error = server.complete(suffix="x", best_off=2).json()["error"]
    assert "suffix" in error["message"]
    assert "best_off" in error["message"]


def test_a_wrong_model_name_lists_the_right_ones(server: RunningServer) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "Hello"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("/tokenize", {"prompt": "Hello"}),
        ("/detokenize", {"tokens": [1]}),
    ):
        answer = server.post(path, model="gpt-4", **body)
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert MODEL in error["message"]


def test_without_a_model_s_name_the_first_one_answers(server: RunningServer) -> None:
    assert server.complete(model=None).json()["model"] == MODEL


# -- fields that change what is made ---------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_text(server: RunningServer) -> None:
    assert text_of(server, temperature=1, seed=3) == text_of(server, temperature=1, seed=3)
    assert text_of(server, temperature=1, seed=3) != text_of(server, temperature=1, seed=4)


def test_sampling_fields_reach_the_sampler(server: RunningServer) -> None:
    greedy = text_of(server)
    assert text_of(server, temperature=5, top_k=1) == greedy
    assert text_of(server, temperature=5, top_p=1e-6) == greedy
    assert text_of(server, temperature=5, min_p=1) == greedy
    assert text_of(server, logit_bias={"65": 100}) == "A" * 8
    assert text_of(server, allowed_token_ids=[66]) == "B" * 8
    assert text_of(server, allowed_token_ids=[65, 66], bad_words=["A"]) == "B" * 8
    assert text_of(server, allowed_token_ids=[65, 66], bad_words_token_ids=[[66]]) == "A" * 8
    both_positive = {"logit_bias": {"65": 50, "66": 50}}
    assert text_of(server, **both_positive, repetition_penalty=100) not in ("A" * 8, "B" * 8)
    only_two = {"allowed_token_ids": [65, 66], "temperature": 0}
    for penalty in ({"presence_penalty": 2}, {"frequency_penalty": 2}):
        prompts = [f"{n}" for n in range(20)]  # for some of which both tokens are nearly as likely
        pairs = [
            (text_of(server, prompt=p, **only_two, **penalty), text_of(server, prompt=p, **only_two)) for p in prompts
        ]
        assert any(first != second for first, second in pairs)


def test_ends_are_where_they_were_asked_for(server: RunningServer) -> None:
    def ending(**body: Any) -> tuple[str, str, Any]:
        choice = server.complete(**body).json()["choices"][0]
        return choice["text"], choice["finish_reason"], choice["stop_reason"]

    only_a = {"logit_bias": {"65": 100}}
    assert ending(**only_a, stop="AAA") == ("", "stop", "AAA")
    assert ending(**only_a, stop=["x", "AAA"], include_stop_str_in_output=True) == ("AAA", "stop", "AAA")
    assert ending(**only_a, stop="AAA", min_tokens=5)[0] == "AA"
    assert ending(**only_a, stop_token_ids=[65]) == ("", "stop", 65)
    later = server.complete(**only_a, stop_token_ids=[65], min_tokens=3).json()
    assert later["usage"]["completion_tokens"] == 4
    end = {"logit_bias": {"256": 100}}
    assert ending(**end) == ("", "stop", None)
    assert ending(**end, ignore_eos=True)[1] == "length"
    assert ending(**end, ignore_eos=True, skip_special_tokens=False)[0] == "<|endoftext|>" * 8
    assert ending(**only_a, detokenize=False)[0] == ""


def test_fields_that_leave_no_token_are_the_client_s_mistake(server: RunningServer) -> None:
    answer = server.complete(allowed_token_ids=[65, 66], bad_words_token_ids=[[66], [65, 65]])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "allowed_token_ids"


def test_priority_goes_before_arrival(server: RunningServer) -> None:
    assert server.complete(priority=-5).status_code == 200
    assert server.complete(priority=2**40).json()["error"]["param"] == "priority"


def test_token_ids_are_shown_where_they_are_asked_for(server: RunningServer) -> None:
    choice = server.complete(return_token_ids=True, temperature=0, ignore_eos=True).json()["choices"][0]
    assert choice["prompt_token_ids"] == list(b"Hello")
    assert len(choice["token_ids"]) == 8
    again = server.complete(prompt=choice["prompt_token_ids"], temperature=0, ignore_eos=True).json()["choices"][0]
    assert again["text"] == choice["text"]
    chat = server.chat(return_token_ids=True, ignore_eos=True).json()
    assert chat["prompt_token_ids"][-1] == ord("\n")
    assert len(chat["choices"][0]["token_ids"]) == 8
    assert server.chat().json()["choices"][0]["token_ids"] is None


def test_a_long_prompt_is_cut_to_its_end(server: RunningServer) -> None:
    long = "x" * 500 + "Hello"
    choice = server.complete(prompt=long, truncate_prompt_tokens=5, return_token_ids=True, echo=True).json()["choices"][
        0
    ]
    assert choice["prompt_token_ids"] == list(b"Hello")
    assert choice["text"].startswith("Hello")
    usage = server.complete(prompt=long, truncate_prompt_tokens=-1).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (248, 8)
    assert server.chat(messages=[{"role": "user", "content": long}], truncate_prompt_tokens=-1).status_code == 200


def test_a_prompt_that_is_too_long_is_refused_with_the_length_that_fits(server: RunningServer) -> None:
    for prompt in ("x" * 256, list(range(256)), "x" * 100_000):
        error = server.complete(prompt=prompt).json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
        assert "255" in error["message"]
    error = server.chat(messages=[{"role": "user", "content": "x" * 300}]).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
