"""`quire launch` gives coding agents their settings, and ends with them. The agents are scripts on PATH."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from command_line import app
from quire.cli.launch.clients import CLIENTS
from serving import MAX_MODEL_LEN, MODEL, RunningServer, make_model, running

pytestmark = pytest.mark.timeout(300)  # starting processes is slow on a busy machine
SOURCE = Path(__file__).parents[2] / "src"
#: Prints its arguments and environment, and with the argument "wait" waits for a signal.
AGENT = f"""#!{sys.executable}
import json, os, signal, sys
print(json.dumps([sys.argv[1:], dict(os.environ)]), flush=True)
if "wait" in sys.argv:
    signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
    print("ready", flush=True)
    while True:
        signal.pause()
sys.exit(3)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(make_model()) as found:
        yield found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name in CLIENTS:
        (tmp_path / name).write_text(AGENT)
        (tmp_path / name).chmod(0o755)
    others = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    return {**others, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE)}


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "quire", "launch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_an_agent_gets_the_server_s_address_key_and_model(
    server: RunningServer, environment: dict[str, str], client: str
) -> None:
    process = start(environment, client, "--url", server.url, "--api-key", "secret", "--", "--say", "hi")
    out, said = process.communicate(timeout=100)
    assert process.returncode == 3, said
    arguments, found = json.loads(out)
    assert arguments[-2:] == ["--say", "hi"]
    v1, size = f"{server.url}/v1", str(MAX_MODEL_LEN)
    match client:
        case "claude":
            assert (found["ANTHROPIC_BASE_URL"], found["ANTHROPIC_AUTH_TOKEN"]) == (server.url, "secret")
            models = [value for name, value in found.items() if re.match(r"(ANTHROPIC|CLAUDE)_.*MODEL$", name)]
            assert models == [MODEL] * 5
            assert found["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == size
        case "codex":
            assert 'model_providers.quire.base_url="' + v1 + '"' in arguments
            assert {f'model="{MODEL}"', 'model_provider="quire"', f"model_context_window={size}"} < {*arguments}
            assert found["QUIRE_CLIENT_KEY"] == "secret"
        case "opencode":
            config = json.loads(found["OPENCODE_CONFIG_CONTENT"])
            assert config["model"] == config["small_model"] == f"quire/{MODEL}"
            provider = config["provider"]["quire"]
            assert provider["options"] == {"baseURL": v1, "apiKey": "secret"}
            assert provider["models"][MODEL]["limit"]["context"] == MAX_MODEL_LEN
        case "aider":
            assert (found["OPENAI_API_BASE"], found["OPENAI_API_KEY"]) == (v1, "secret")
            assert found["AIDER_MODEL"] == found["AIDER_WEAK_MODEL"] == f"openai/{MODEL}"


def test_a_server_of_its_own_outlives_ctrl_c_and_ends_with_the_agent(environment: dict[str, str]) -> None:
    small = {"QUIRE_NUM_KV_BLOCKS": "64", "QUIRE_DEVICE": "cpu"}
    process = start({**environment, **small}, "claude", "--model", MODEL, "--", "wait")
    assert process.stdout is not None
    try:
        _, found = json.loads(process.stdout.readline())
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.stdout.readline() == "interrupted\n"
        body = {"model": found["ANTHROPIC_MODEL"], "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        url = f"{found['ANTHROPIC_BASE_URL']}/v1/messages"
        assert httpx.post(url, json=body, timeout=100).json()["usage"]["output_tokens"] == 2
    finally:
        process.terminate()
        _, said = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGTERM, said
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_mistake_is_one_line(server: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["launch", *arguments])
        assert result.exit_code == 2
        assert result.output.count("\n") == 1
        return result.output

    monkeypatch.setenv("PATH", str(tmp_path))
    assert "to serve the model Qwen/Qwen3-8B: quire serve Qwen/Qwen3-8B" in said("Qwen/Qwen3-8B")
    assert "claude is not installed; install it with: npm install" in said("claude")
    (tmp_path / "codex").write_text(AGENT)
    (tmp_path / "codex").chmod(0o755)
    assert f"has no model other; it serves {MODEL}" in said("codex", "--url", server.url, "--model", "other")
    monkeypatch.setattr("quire.cli.launch.commands.DEFAULT_URL", "http://127.0.0.1:9")
    assert "name a model to serve (--model MODEL)" in said("codex")
