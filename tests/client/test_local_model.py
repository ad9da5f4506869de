"""A local model answers as `LLM` does, and frees its blocks when its listener leaves."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from quire import LLM, SamplingParams
from quire.client.local_model import LocalModel
from quire.config import EngineConfig
from quire.text import tokenizer_process

HELLO = [{"role": "user", "content": "Hello"}]
CONFIG = EngineConfig("random:tiny", num_kv_blocks=32, use_tqdm=False)


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel(CONFIG)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("random:tiny", num_kv_blocks=32, use_tqdm=False)


def test_a_chat_and_a_completion_are_what_the_offline_api_gives(model: LocalModel, llm: LLM) -> None:
    params = SamplingParams(max_tokens=12, temperature=0)
    for chunks, expected in (
        (model.chat(HELLO, max_tokens=12, temperature=0), llm.chat(HELLO, params, use_tqdm=False)),
        (model.complete("Hello", max_tokens=12, temperature=0), llm.generate("Hello", params, use_tqdm=False)),
    ):
        heard = list(chunks)
        output = expected[0].outputs[0]
        assert "".join(chunk.text for chunk in heard) == output.text
        assert heard[-1].finish_reason == output.finish_reason
        assert heard[-1].usage is not None
        assert heard[-1].usage.completion_tokens == len(output.token_ids)
        assert heard[-1].usage.prompt_tokens == len(expected[0].prompt_token_ids)
        assert sum(chunk.is_token for chunk in heard) == len(output.token_ids)


def test_a_chat_runs_to_the_context_s_end_and_a_completion_stops_as_offline() -> None:
    model = LocalModel(replace(CONFIG, max_model_len=128))
    [chunk] = model.chat(HELLO, stream=False, ignore_eos=True, temperature=0)
    assert chunk.usage is not None
    assert chunk.usage.prompt_tokens + chunk.usage.completion_tokens == 128
    [chunk] = model.complete("Hello", stream=False, ignore_eos=True, temperature=0)
    assert chunk.usage is not None
    assert chunk.usage.completion_tokens == SamplingParams().max_tokens


def test_an_answer_may_come_whole(model: LocalModel, llm: LLM) -> None:
    params = SamplingParams(max_tokens=5, temperature=0)
    [chunk] = model.complete("Hello", stream=False, max_tokens=5, temperature=0)
    assert chunk.text == llm.generate("Hello", params, use_tqdm=False)[0].outputs[0].text


def test_closing_the_answer_frees_its_blocks(model: LocalModel) -> None:
    with closing(model.complete("Hello", max_tokens=100, ignore_eos=True)) as chunks:
        next(chunks)
        assert model._llm.engine.has_unfinished()
    assert not model._llm.engine.has_unfinished()
    pool = model._llm.engine.scheduler.kv.pool
    assert pool.num_used == 0


def test_what_cannot_be_served_is_a_value_error(model: LocalModel) -> None:
    with pytest.raises(ValueError, match="temperature=-1"):
        list(model.complete("Hello", temperature=-1))
    with pytest.raises(ValueError, match="max_model_len"):
        list(model.complete("word " * 2000))
    with pytest.raises(ValueError, match="skip_tokenizer_init"):
        LocalModel(EngineConfig("random:tiny", skip_tokenizer_init=True))


def test_a_chat_template_may_be_given() -> None:
    plain = LocalModel(CONFIG, chat_template="{{ messages[0].content }}")
    expected = list(plain.complete("Hello", max_tokens=4, temperature=0))
    assert [c.text for c in plain.chat(HELLO, max_tokens=4, temperature=0)] == [c.text for c in expected]


def test_a_hostile_template_or_text_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_process, "RENDER_S", 0.5)
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    model = LocalModel(CONFIG, chat_template=loops)
    with pytest.raises(ValueError, match="took more than"):
        list(model.chat([{"role": "user", "content": "Hello"}]))
    assert list(model.complete("Hello", max_tokens=2)), "the next text is served"
    model.close()
