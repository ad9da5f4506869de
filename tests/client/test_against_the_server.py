"""The clients against our server, over real sockets and with a real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import app
from quire.client.conversation import Conversation
from quire.client.errors import RemoteError
from quire.client.local_model import LocalModel
from quire.client.remote_model import RemoteModel
from quire.client.server_address import ServerAddress
from serving import MODEL, SMALL, RunningServer, make_model, running

HELLO = [{"role": "user", "content": "Hello"}]
GREEDY = {"temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(make_model()) as server:
        yield server


@pytest.fixture(scope="module")
def remote(server: RunningServer) -> Iterator[RemoteModel]:
    with RemoteModel(ServerAddress.of(server.url)) as model:
        yield model


def test_a_model_answers_the_same_behind_a_url_and_in_process(remote: RemoteModel) -> None:
    local = LocalModel(SMALL)
    for stream in (True, False):
        for ask in ("chat", "complete"):
            prompt = HELLO if ask == "chat" else "Hello"
            far = list(getattr(remote, ask)(prompt, stream=stream, **GREEDY))
            near = list(getattr(local, ask)(prompt, stream=stream, **GREEDY))
            assert "".join(chunk.text for chunk in far) == "".join(chunk.text for chunk in near)
            usages = [next(chunk.usage for chunk in chunks if chunk.usage is not None) for chunks in (far, near)]
            # (Cached tokens depend on earlier requests.)
            assert [(u.prompt_tokens, u.completion_tokens) for u in usages[:1]] == [
                (u.prompt_tokens, u.completion_tokens) for u in usages[1:]
            ]


def test_a_conversation_finds_its_own_beginning_in_the_cache(remote: RemoteModel) -> None:
    conversation = Conversation(remote, temperature=0, max_tokens=8)
    list(conversation.say("Say something about caches, please"))
    list(conversation.say("And more"))
    usage = conversation.costs[1].usage
    assert usage is not None
    assert usage.cached_tokens is not None
    assert usage.cached_tokens >= 32


def test_an_answer_that_is_stopped_frees_its_blocks(server: RunningServer, remote: RemoteModel) -> None:
    conversation = Conversation(remote, ignore_eos=True, max_tokens=200)
    with closing(conversation.say("Hello")) as chunks:
        next(chunk for chunk in chunks if chunk.text)
    server.wait_until_idle()
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"]


def test_the_server_s_refusal_is_said_in_its_words(remote: RemoteModel) -> None:
    with pytest.raises(RemoteError, match="temperature") as caught:
        list(remote.complete("Hello", temperature=-1))
    assert caught.value.kind == "http_400"


@pytest.mark.parametrize("form", [["--vocab-size", "512"], ["--text"], ["--chat"]], ids=lambda form: form[0])
def test_a_load_is_measured(server: RunningServer, form: list[str], tmp_path: Path) -> None:
    figures = tmp_path / "f.json"
    load = ["--num-requests", "6", "--input-len", "40-60", "--output-len", "4-8", "--sweep", "10,inf"]
    arguments = ["bench", "serve", "--url", server.url, *form, *load, "--goodput", "ttft:60000", "--json", str(figures)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for figure in json.loads(figures.read_text())["figures"]:
        assert (figure["model"], figure["completed"], figure["errors"]) == (MODEL, 6, {})
        assert figure["out_got"] == figure["out"]
        assert figure["token_counts"] == "usage"
        assert 6 * 25 <= figure["in"] <= 6 * 80  # words differ from their average length
        assert figure["goodput"]["share"] == 1.0
