"""Streams on the wire: events, comments, errors, and text that is never sent too early."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from quire.kernels.loaded import has_exact_kernels
from quire.server.openai.schema import ChatCompletionChunk, Completion
from quire.server.settings import ServerSettings
from serving import MODEL, PATIENCE_S, SMALL, RunningServer, make_model, running

LONG: dict[str, Any] = {"max_tokens": 100, "ignore_eos": True, "stream": True}
LONG_FOR_CLIENT: dict[str, Any] = {
    "model": MODEL, "prompt": "Hello", "max_tokens": 200, "stream": True, "extra_body": {"ignore_eos": True},
}  # fmt: skip


def slow_down(server: RunningServer) -> None:
    """Make each step of the engine take 5 ms longer."""
    usual = server.engine.runner.execute

    def execute(out: Any) -> Any:
        time.sleep(0.005)
        return usual(out)

    server.engine.runner.execute = execute  # type: ignore[method-assign]


def events(server: RunningServer, path: str = "/v1/completions", **body: Any) -> Iterator[str]:
    """Split a stream into its events."""
    body = {"model": MODEL, "prompt": "Hello", "stream": True, **body}
    with httpx.stream("POST", server.url + path, json=body, timeout=PATIENCE_S) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        rest = ""
        for text in answer.iter_text():
            *whole, rest = (rest + text).split("\n\n")
            yield from whole
        assert rest == ""


def chunks(server: RunningServer, **body: Any) -> list[Any]:
    found = list(events(server, **body))
    assert found[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in found[:-1] if not event.startswith(":")]


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/v1/chat/completions", ChatCompletionChunk, {"logprobs": True, "top_logprobs": 2, "n": 2}),
        ("/v1/chat/completions", ChatCompletionChunk, {"return_token_ids": True, "stop": "A"}),
        ("/v1/completions", Completion, {"logprobs": 2, "n": 2}),
        ("/v1/completions", Completion, {"return_token_ids": True, "echo": True, "stop": "A"}),
        ("/v1/completions", Completion, {"logprobs": 2, "echo": True, "n": 2}),
    ],
)
def test_every_chunk_is_what_the_document_says(
    server: RunningServer, path: str, kind: type[BaseModel], body: dict[str, Any]
) -> None:
    is_chat = "chat" in path
    prompt = {"messages": [{"role": "user", "content": "Hello"}], "prompt": None} if is_chat else {"prompt": "Hello"}
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = chunks(server, path=path, **prompt, **body, max_tokens=5, ignore_eos=True, stream_options=options)
    for chunk in found:
        kind.model_validate(chunk, strict=True)
    spent = [chunk["usage"]["completion_tokens"] for chunk in found]
    assert spent == sorted(spent)
    assert spent[-1] == 5 * body.get("n", 1)


@pytest.mark.skipif(not has_exact_kernels("cpu", "float32"), reason="torch's bits depend on the batch")
def test_an_echo_with_logprobs_is_streamed_as_in_the_whole_answer(server: RunningServer) -> None:
    body = {"prompt": ["Hello", "So"], "logprobs": 2, "echo": True, "n": 2, "seed": 1, "max_tokens": 4}
    whole = server.complete(**body).json()["choices"]
    streamed = [choice for chunk in chunks(server, **body) for choice in chunk["choices"]]
    for choice in whole:
        mine = [each for each in streamed if each["index"] == choice["index"]]
        assert "".join(each["text"] for each in mine) == choice["text"]
        for name, entries in choice["logprobs"].items():
            assert [entry for each in mine for entry in each["logprobs"][name]] == entries
        assert mine[-1]["finish_reason"] == choice["finish_reason"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_usage_is_in_the_chunks_that_were_asked_for(server: RunningServer, path: str) -> None:
    prompt = {"messages": [{"role": "user", "content": "Hello"}], "prompt": None} if "chat" in path else {}
    for options, in_chunks, at_the_end in (
        (None, "absent", False),
        ({}, "absent", False),
        ({"include_usage": False, "continuous_usage_stats": True}, "absent", False),
        ({"include_usage": True}, "null", True),
        ({"include_usage": True, "continuous_usage_stats": True}, "given", True),
    ):
        found = chunks(server, path=path, **prompt, max_tokens=2, ignore_eos=True, stream_options=options)
        *parts, last = found if at_the_end else [*found, {"choices": [], "usage": {}}]
        assert last["choices"] == []
        assert not at_the_end or last["usage"]["completion_tokens"] == 2
        forms = {"absent" if "usage" not in part else "given" if part["usage"] else "null" for part in parts}
        assert forms == {in_chunks}, options


def test_token_ids_of_all_chunks_are_those_of_the_answer(server: RunningServer) -> None:
    whole = server.complete(temperature=0, return_token_ids=True).json()["choices"][0]
    found = [chunk["choices"][0] for chunk in chunks(server, temperature=0, return_token_ids=True, max_tokens=8)]
    assert found[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert [token for choice in found for token in choice["token_ids"]] == whole["token_ids"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_chunks_of_bare_text_are_what_chunks_that_show_more_are_without_that(server: RunningServer, path: str) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    prompt = {"messages": messages, "prompt": None} if "chat" in path else {"prompt": "Hello"}
    body = {"path": path, **prompt, "temperature": 0, "max_tokens": 20, "n": 2, "seed": 3}
    body["ignore_eos"] = True
    bare = chunks(server, **body)
    more = chunks(server, **body, stream_options={"include_usage": True, "continuous_usage_stats": True})[:-1]
    for chunk in (*bare, *more):
        for name in ("id", "created", "usage"):
            chunk.pop(name, None)
    assert _by_index(bare) == _by_index(more)


def _by_index(found: list[Any]) -> list[Any]:
    """Return each answer's text and its end, and all values of other fields; what a chunk has depends on timing."""
    texts: dict[int, str] = {}
    reasons, fields = [], set[tuple[str, str]]()
    for chunk in found:
        (choice,) = chunk.pop("choices")
        index, held = choice.pop("index"), choice.pop("delta", choice)
        name = "text" if held is choice else "content"
        texts[index] = texts.get(index, "") + held.pop(name, "")
        reasons += [(index, reason)] if (reason := choice.pop("finish_reason")) else []
        fields |= {(field, json.dumps(value)) for part in (chunk, choice, held) for field, value in part.items()}
    return [sorted(texts.items()), sorted(reasons), sorted(fields)]


def test_text_is_held_back_while_a_stop_string_may_still_match(server: RunningServer) -> None:
    only_a = {"logit_bias": {"65": 100}, "max_tokens": 10, "return_token_ids": True}
    found = [chunk["choices"][0] for chunk in chunks(server, **only_a, stop="AAAA!")]  # starts and never ends
    shown = made = 0
    for choice in found:
        shown, made = shown + len(choice["text"]), made + len(choice["token_ids"])
        held = 0 if choice["finish_reason"] else min(4, made)  # every possible start of the stop string
        assert shown == made - held, "however many tokens a chunk has: no letter is shown too early, and none late"
    assert "".join(choice["text"] for choice in found) == "A" * 10
    found = chunks(server, **only_a, stop="AAA")
    assert "".join(chunk["choices"][0]["text"] for chunk in found) == ""
    assert found[-1]["choices"][0]["stop_reason"] == "AAA"


def test_a_chunk_never_splits_a_character(server: RunningServer) -> None:
    first, second, third = euro = list("€".encode())
    follows = {(first, second), (second, third), (third, first)}
    broken = [[a, b] for a in euro for b in euro if (a, b) not in follows]
    forced = {"allowed_token_ids": euro, "bad_words_token_ids": broken, "logit_bias": {str(first): 100}}
    texts = [chunk["choices"][0]["text"] for chunk in chunks(server, **forced, max_tokens=9)]
    assert "".join(texts) == "€€€"  # without U+FFFD in any of them


def test_events_are_ascii_so_that_no_client_breaks_their_lines(server: RunningServer) -> None:
    for event in events(server, prompt="\u2028\x85\n\r", echo=True, max_tokens=1):
        assert event.isascii()
        assert len(event.splitlines()) == 1


def test_what_is_refused_before_a_stream_begins_is_an_ordinary_error(server: RunningServer) -> None:
    answer = server.complete(stream=True, prompt=[99999])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


def test_a_stream_that_is_preempted_says_so_in_comments_and_goes_on() -> None:
    config = replace(SMALL, num_kv_blocks=12, max_model_len=128)
    with running(make_model(config)) as server:
        slow_down(server)  # else a busy server takes in the end of a wait with its beginning
        prompts = [f"Reader {number}" for number in range(2)]  # from one body, so they arrive together
        body = {**LONG, "temperature": 0}
        found = list(events(server, prompt=prompts, **body))
        assert found.count(": preempted") == found.count(": resumed") > 0
        data = [json.loads(event[6:]) for event in found if event.startswith("data: {")]
        for number, prompt in enumerate(prompts):
            whole = server.complete(prompt=prompt, **{**body, "stream": False}).json()
            parts = [chunk["choices"][0]["text"] for chunk in data if chunk["choices"][0]["index"] == number]
            assert "".join(parts) == whole["choices"][0]["text"]


def test_every_chunk_has_the_usage_so_far_where_the_operator_says_so() -> None:
    settings = ServerSettings(enable_force_include_usage=True, return_tokens_as_token_ids=True)
    with running(make_model(), settings=settings) as server:
        for body in ({}, {"stream_options": {"include_usage": False}}, {"stream_options": {"include_usage": True}}):
            *parts, last = chunks(server, max_tokens=3, ignore_eos=True, **body)
            assert last["usage"]["completion_tokens"] == 3
            counts = [part["usage"]["completion_tokens"] for part in parts]
            assert counts == sorted(counts)
            assert all(part["usage"]["prompt_tokens"] for part in parts)
        whole = server.complete(max_tokens=3, logprobs=0).json()
        assert whole["usage"]
        assert all(token.startswith("token_id:") for token in whole["choices"][0]["logprobs"]["tokens"])


def test_clients_do_not_see_comments() -> None:
    settings = ServerSettings(keep_alive_s=0.01)
    with running(make_model(replace(SMALL, max_num_seqs=1)), settings=settings) as server, server.client() as client:
        busy = client.completions.create(**{**LONG_FOR_CLIENT, "max_tokens": 60})
        waiting = client.completions.create(model=MODEL, prompt="Second", max_tokens=3, stream=True)
        assert "".join(chunk.choices[0].text for chunk in waiting)
        assert "".join(chunk.choices[0].text for chunk in busy)


def test_a_stream_that_waits_is_open_and_kept_alive() -> None:
    settings = ServerSettings(keep_alive_s=0.01)
    with running(make_model(replace(SMALL, max_num_seqs=1)), settings=settings) as server:
        slow_down(server)
        first = events(server, **{**LONG, "max_tokens": 60})
        next(first)
        found = list(events(server, max_tokens=1))
        assert found[0] == ": keep-alive"
        assert found[-1] == "data: [DONE]"
        assert list(first)[-1] == "data: [DONE]"


def test_what_fails_in_the_middle_of_a_stream_is_an_event_and_then_the_end() -> None:
    with running(make_model()) as server, server.client() as client:
        stream = client.completions.create(**LONG_FOR_CLIENT)
        next(iter(stream))
        runner = server.engine.runner
        runner.execute = _fail  # type: ignore[method-assign]
        with pytest.raises(openai.APIError, match="the test broke it"):
            list(stream)


def _fail(_: Any) -> Any:
    raise RuntimeError("the test broke it")


def test_a_server_that_shuts_down_tells_its_streams() -> None:
    with running(make_model()) as server, server.client() as client:
        stream = client.completions.create(**LONG_FOR_CLIENT)
        next(iter(stream))
        server.registry.get(None).async_engine.shutdown()
        with pytest.raises(openai.APIError, match="shut down"):
            list(stream)
        answer = server.complete()
        assert answer.status_code == 503
        assert answer.headers["retry-after"]


def test_a_slow_reader_gets_everything(server: RunningServer) -> None:
    found = []
    for event in events(server, **{**LONG, "max_tokens": 50}):
        time.sleep(0.005)
        found.append(event)
    data = [json.loads(event[6:]) for event in found if event.startswith("data: {")]
    assert data[-1]["choices"][0]["finish_reason"] == "length"
