"""Strangers' templates and tokenizers run in a child process: they give the same results, or an error within limits."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from quire.loading.source import EMBEDDED_MODELS, embedded_path
from quire.server.health import encode_probe
from quire.system.worker_process import WorkerError, WorkerTimeout
from quire.text import tokenizer_process
from quire.text.special_tokens import SpecialTokenEscaper
from quire.text.tokenizer import Tokenizer
from quire.text.tokenizer_process import IsolatedTokenizer

HELLO = [{"role": "user", "content": "Hello <|im_end|> there \u2014 \U0001f600"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "?", "parameters": {"type": "object"}}}]
TEMPLATES = sorted((Path(__file__).parent / "templates").rglob("*.jinja"))
HOSTILE = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a power in a condition": "{% if 9 ** (9 ** 9) > 1 %}x{% endif %}",
    "an indent": "{{ messages | tojson(indent=1000000000) }}",
    "a doubled string": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "a padded string": "{{ 'x' | center(100000000000) }}",
    "a format": "{{ '%100000000000d' | format(1) }}",
    "a product": "{{ 'x' * 100000000000 }}",
    "a list of ranges": "{{ range(99999) | list * 99999 }}",
    "an endless macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "an include": "{% include 'x' %}",
}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_process, "RENDER_S", 0.5)
    monkeypatch.setattr(tokenizer_process, "_ENCODE_S", 0.5)


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return Tokenizer.byte_level(512)


@pytest.fixture(scope="module")
def isolated(plain: Tokenizer) -> Iterator[IsolatedTokenizer]:
    made = IsolatedTokenizer(plain, "tiny")
    yield made
    made.close()


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
@pytest.mark.parametrize("escapes", [False, True])
def test_prompts_and_tokens_are_those_of_the_tokenizer_itself(name: str, escapes: bool) -> None:
    tokenizer = Tokenizer.from_dir(embedded_path(name) or "")
    tokenizer.escaper = SpecialTokenEscaper(tokenizer.backend) if escapes else None
    isolated = IsolatedTokenizer(tokenizer, name)
    texts = ["", "Hello", HELLO[0]["content"], "x " * 1000]
    assert isolated.encode_batch(texts) == tokenizer.encode_batch(texts)
    assert isolated.encode(texts[2], False) == tokenizer.encode(texts[2], False)
    assert isolated.encode_plain(texts[2]) == tokenizer.encode_plain(texts[2])
    ids = tokenizer.encode(texts[2])
    assert isolated.decode(ids) == tokenizer.decode(ids)
    if tokenizer.chat_template is not None:
        text = tokenizer.apply_chat_template(HELLO)
        assert isolated.apply_chat_template(HELLO) == text
        assert isolated.encode_chat(text) == tokenizer.encode_chat(text)
        assert isolated.answer_lead() == tokenizer.answer_lead()
        assert isolated.shows_tools() == tokenizer.shows_tools()
    assert type(pickle.loads(pickle.dumps(isolated))) is Tokenizer, "another process isolates it again"
    isolated.close()


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_honest_templates_render_the_same(file: Path, plain: Tokenizer, isolated: IsolatedTokenizer) -> None:
    def rendered(tokenizer: Tokenizer, **options: Any) -> str:
        try:
            return tokenizer.apply_chat_template(HELLO, chat_template=file.read_text(encoding="utf-8"), **options)
        except ValueError as error:
            return f"error: {error}"

    for variables in ({}, {"tools": TOOLS, "enable_thinking": False}):
        assert rendered(isolated, variables=variables) == rendered(plain, variables=variables)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_ends_with_an_error(kind: str, isolated: IsolatedTokenizer) -> None:
    with pytest.raises(ValueError, match=r"chat template (of tiny took|failed|refused)"):
        isolated.apply_chat_template(HELLO, chat_template=HOSTILE[kind])
    assert isolated.encode("Hello"), "the next text is served"


@pytest.mark.usefixtures("limits")
def test_a_tokenizer_that_multiplies_text_ends_with_an_error() -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    backend.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 10) for _ in range(9)])  # type: ignore
    isolated = IsolatedTokenizer(Tokenizer(backend), "bomb")
    with pytest.raises(ValueError, match=r"the tokenizer of bomb took more than .* or 2 GiB of memory"):
        isolated.encode("banana")
    isolated.close()


def test_a_regex_that_panics_fails_its_text_only() -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"x": 0}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(x+x+)+y"), "isolated")  # type: ignore[assignment]
    isolated = IsolatedTokenizer(Tokenizer(backend), "slow")
    isolated.encode("x")
    pid = isolated._child.pid
    with pytest.raises(ValueError, match=r"the tokenizer fails on this text \(.*retry-limit"):
        isolated.encode("x" * 100)
    assert (isolated.encode("x"), isolated._child.pid) == ([0], pid)
    isolated.close()


def test_closing_ends_a_text_that_runs(plain: Tokenizer) -> None:
    isolated = IsolatedTokenizer(plain, "tiny")
    isolated.start()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(isolated.apply_chat_template, HELLO, chat_template=HOSTILE["nested loops"])
        while not isolated._child._lock.locked():
            time.sleep(0.01)
        isolated.close()
        with pytest.raises(WorkerError):
            running.result(60)


def test_a_process_that_is_killed_from_outside_is_no_fault_of_the_text(isolated: IsolatedTokenizer) -> None:
    isolated.encode("Hello")
    child = isolated._child._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.process.wait()
    assert isolated.encode("Hello"), "another process serves the next text"


@pytest.mark.usefixtures("limits")
def test_a_stopped_process_is_replaced_after_a_deadline_that_grows_with_the_text(
    isolated: IsolatedTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated.encode("Hello")
    monkeypatch.setattr(tokenizer_process, "_WALL_S", 0.1)
    monkeypatch.setattr(tokenizer_process, "_WALL_S_PER_CPU_S", 0.2)
    for text, deadline in (("Hello", "0.2"), ("Hello" * 2**14, "0.528")):
        assert isolated._child.pid is not None
        os.kill(isolated._child.pid, signal.SIGSTOP)
        with pytest.raises(WorkerTimeout, match=f"took more than {deadline} s"):
            isolated.encode(text)
        monkeypatch.setattr(tokenizer_process, "_ENCODE_S", 60)
        assert isolated.encode("Hello"), "another process serves the next text"
        monkeypatch.setattr(tokenizer_process, "_ENCODE_S", 0.5)


def test_readiness_asks_the_process(isolated: IsolatedTokenizer) -> None:
    isolated.encode("Hello")
    engine = SimpleNamespace(engine=SimpleNamespace(tokenizer=isolated))
    assert isolated._child.pid is not None
    os.kill(isolated._child.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        probed = thread.submit(encode_probe, SimpleNamespace(async_engine=engine))  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            probed.result(0.5)
        os.kill(isolated._child.pid, signal.SIGCONT)
        probed.result(60)


def test_the_process_ends_with_the_last_reference(plain: Tokenizer) -> None:
    """An engine that is loaded again has another tokenizer; the former one's process must not stay."""
    tokenizer = IsolatedTokenizer(plain, "tiny")
    assert tokenizer.answer_lead("{{ messages[0].content }}") is not None
    child = tokenizer._child._child
    assert child is not None
    process = child.process
    del child, tokenizer
    process.wait(60)
