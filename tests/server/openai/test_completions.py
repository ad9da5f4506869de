"""POST /v1/completions: all forms of prompts, echo, log-probabilities."""

from __future__ import annotations

from typing import Any

import pytest

from quire import LLM, SamplingParams
from quire.kernels.loaded import has_exact_kernels
from serving import MODEL, RunningServer


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(MODEL, num_kv_blocks=64, max_model_len=256, use_tqdm=False)


def test_a_completion_is_what_the_offline_api_gives(server: RunningServer, llm: LLM) -> None:
    body = server.complete(max_tokens=6, temperature=0).json()
    expected = llm.generate("Hello", SamplingParams(max_tokens=6, temperature=0), use_tqdm=False)[0].outputs[0]
    assert body["choices"] == [
        {
            "index": 0,
            "text": expected.text,
            "logprobs": None,
            "finish_reason": expected.finish_reason,
            "stop_reason": None,
            "token_ids": None,
            "prompt_token_ids": None,
            "prompt_logprobs": None,
        }
    ]
    assert (body["object"], body["model"]) == ("text_completion", MODEL)
    assert body["id"].startswith("cmpl-")


def test_it_generates_16_tokens_by_default(server: RunningServer) -> None:
    assert server.complete(max_tokens=None, ignore_eos=True).json()["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("prompt", [["Hello", "World"], [list(b"Hello"), list(b"World")]])
def test_several_prompts_with_several_samples_are_numbered_through(server: RunningServer, prompt: Any) -> None:
    answer = server.complete(prompt=prompt, n=2, seed=5, max_tokens=3, ignore_eos=True).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 10
    assert answer["usage"]["completion_tokens"] == 12
    alone = server.complete(prompt="World", n=2, seed=5, max_tokens=3, ignore_eos=True).json()
    assert [c["text"] for c in answer["choices"][2:]] == [c["text"] for c in alone["choices"]]


def test_where_one_of_several_prompts_cannot_be_served_none_is(server: RunningServer) -> None:
    assert server.complete(prompt=[[72], [99999]]).status_code == 400
    answer = server.complete(prompt=[[72], [99999]], stream=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"
    server.wait_until_idle()


def test_an_echo_is_the_prompt_and_then_the_answer(server: RunningServer) -> None:
    alone = server.complete(temperature=0).json()["choices"][0]["text"]
    assert server.complete(temperature=0, echo=True).json()["choices"][0]["text"] == "Hello" + alone
    ids = list(b"Hello")
    assert server.complete(prompt=ids, temperature=0, echo=True).json()["choices"][0]["text"] == "Hello" + alone


def test_an_echo_with_logprobs_scores_the_prompt(server: RunningServer, llm: LLM) -> None:
    answer = server.complete(temperature=0, echo=True, logprobs=2, max_tokens=3).json()
    logprobs = answer["choices"][0]["logprobs"]
    params = SamplingParams(max_tokens=3, temperature=0, logprobs=2, prompt_logprobs=2)
    expected = llm.generate("Hello", params, use_tqdm=False)[0]
    ids = expected.prompt_token_ids + expected.outputs[0].token_ids
    entries = [*(expected.prompt_logprobs or []), *(expected.outputs[0].logprobs or [])]
    assert logprobs["tokens"] == [llm.tokenizer.token_text(token) for token in ids]
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    scores = [entry[token].logprob for token, entry in zip(ids[1:], entries[1:], strict=True) if entry]
    assert logprobs["token_logprobs"][1:] == pytest.approx(scores, abs=1e-4)
    assert all(2 <= len(top) <= 3 for top in logprobs["top_logprobs"][1:])
    assert logprobs["text_offset"][:6] == [0, 1, 2, 3, 4, 5]


def test_a_prompt_can_be_scored_without_an_answer(server: RunningServer) -> None:
    answer = server.complete(echo=True, logprobs=0, max_tokens=0).json()
    (choice,) = answer["choices"]
    assert choice["text"] == "Hello"
    assert len(choice["logprobs"]["tokens"]) == 5
    assert answer["usage"]["completion_tokens"] == 0
    assert answer["usage"]["total_tokens"] == 5


def test_prompt_logprobs_come_by_token_id(server: RunningServer) -> None:
    (choice,) = server.complete(prompt_logprobs=1, logprobs=3, echo=True).json()["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    for token, entry in zip(b"ello", others, strict=True):
        assert set(entry[str(token)]) == {"logprob", "rank", "decoded_token"}
        assert len(entry) <= 2
        assert min(found["rank"] for found in entry.values()) == 1
    assert [len(top) for top in choice["logprobs"]["top_logprobs"][1:]] <= [4] * 12


def test_logprobs_know_where_their_tokens_begin_even_within_characters(server: RunningServer) -> None:
    prompt = "aé€b"  # characters of 1, 2, 3 and 1 tokens
    (choice,) = server.complete(prompt=prompt, echo=True, logprobs=0, max_tokens=0).json()["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2, 2, 2, 3]


def test_streamed_logprobs_are_those_of_the_whole_answer(server: RunningServer) -> None:
    with server.client() as client:
        asked: dict[str, Any] = {"model": MODEL, "prompt": "Hello", "max_tokens": 6, "temperature": 0, "logprobs": 2}
        whole = client.completions.create(**asked).choices[0].logprobs
        parts = [chunk.choices[0].logprobs for chunk in client.completions.create(**asked, stream=True)]
    assert whole
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        joined = [entry for part in parts if part for entry in getattr(part, name)]
        assert joined == getattr(whole, name)


def test_log_probabilities_know_where_their_tokens_begin_while_text_is_held_back(server: RunningServer) -> None:
    with server.client() as client:
        asked: dict[str, Any] = {"model": MODEL, "prompt": "Hello", "max_tokens": 10, "logprobs": 0, "stop": "AAAA!"}
        asked |= {"logit_bias": {"65": 100}}
        stream = [chunk.choices[0] for chunk in client.completions.create(**asked, stream=True)]
    assert "".join(choice.text for choice in stream) == "A" * 10
    assert [at for choice in stream if choice.logprobs for at in choice.logprobs.text_offset or ()] == [*range(10)]


def test_zero_log_probabilities_show_the_chosen_token_alone(server: RunningServer) -> None:
    answer = server.complete(prompt=["Hello", "ab"], logprobs=0, prompt_logprobs=0, temperature=1, max_tokens=3).json()
    for choice, num_tokens in zip(answer["choices"], (5, 2), strict=True):
        shown = choice["logprobs"]
        assert [[*top] for top in shown["top_logprobs"]] == [[token] for token in shown["tokens"]]
        assert [entry and len(entry) for entry in choice["prompt_logprobs"]] == [None] + [1] * (num_tokens - 1)


def test_samples_differ_and_end_each_on_its_own_streamed_too(server: RunningServer) -> None:
    with server.client() as client:
        asked: dict[str, Any] = {"model": MODEL, "prompt": "abc", "n": 4, "seed": 7, "max_tokens": 30}
        # about one in ten tokens ends a sample
        asked["extra_body"] = {"allowed_token_ids": [*range(65, 73)], "stop_token_ids": [66], "temperature": 3}
        whole = client.completions.create(**asked).choices
        texts, reasons = [""] * 4, [[] for _ in range(4)]  # type: ignore[var-annotated]
        for chunk in client.completions.create(**asked, stream=True):
            (choice,) = chunk.choices
            texts[choice.index] += choice.text
            reasons[choice.index] += [choice.finish_reason] if choice.finish_reason else []
    assert texts == [choice.text for choice in whole]
    assert reasons == [[choice.finish_reason] for choice in whole]
    assert len({len(text) for text in texts}) > 1
    assert len(set(texts)) == 4


def test_a_streamed_echo_comes_first(server: RunningServer) -> None:
    with server.client() as client:
        stream = client.completions.create(
            model=MODEL, prompt=["Hello", "World"], echo=True, max_tokens=2, n=2, stream=True
        )
        first: dict[int, str] = {}
        for chunk in stream:
            first.setdefault(chunk.choices[0].index, chunk.choices[0].text)
    assert first == {0: "Hello", 1: "Hello", 2: "World", 3: "World"}


@pytest.mark.skipif(not has_exact_kernels("cpu", "float32"), reason="torch's bits depend on the batch")
@pytest.mark.parametrize("echo", [False, True])
def test_a_large_answer_is_encoded_in_pieces_with_the_same_json(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, echo: bool
) -> None:
    body: dict[str, Any] = {"prompt": ["Hello there", "you"], "max_tokens": 6, "temperature": 0, "logprobs": 20, "n": 2}
    body |= {"prompt_logprobs": 20, "echo": echo}
    chat: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 20}
    plain = [server.complete(**body), server.chat(**chat, prompt_logprobs=20)]
    for module in ("generation.generation", "openai.chunks"):
        monkeypatch.setattr(f"quire.server.{module}.MANY_LOGPROBS", 30)
    pieces = [server.complete(**body), server.chat(**chat, prompt_logprobs=20)]
    for whole, answer in zip(plain, pieces, strict=True):
        assert "content-length" not in answer.headers
        found, expected = answer.json(), whole.json()
        assert found["choices"] == expected["choices"]
        assert found["usage"] == expected["usage"]
        assert found.get("prompt_logprobs") == expected.get("prompt_logprobs")
        assert found.keys() == expected.keys()


def test_log_probabilities_over_all_tokens_are_limited(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.openai.prompts.MAX_LOGPROBS", 100)
    error = server.complete(prompt=["Hello there"] * 3, prompt_logprobs=20).json()["error"]
    assert error["param"] == "prompt_logprobs"
    assert "100 at most" in error["message"]
    error = server.complete(max_tokens=11, n=2, logprobs=4).json()["error"]
    assert error["param"] == "logprobs"
    assert server.complete(max_tokens=10, n=2, logprobs=4).status_code == 200
    choice = server.chat(logprobs=True, top_logprobs=4, max_tokens=None, ignore_eos=True).json()["choices"][0]
    assert (len(choice["logprobs"]["content"]), choice["finish_reason"]) == (20, "length")
