"""Settings with which each coding agent uses a server: environment variables and arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

_MAX_OUTPUT = 32_000  # tokens of one answer; agents reserve them in the context


@dataclass(frozen=True)
class Endpoint:
    base_url: str  #: including /v1
    api_key: str
    model: str
    max_model_len: int | None = None

    @property
    def max_output(self) -> int:
        return min(_MAX_OUTPUT, (self.max_model_len or 4 * _MAX_OUTPUT) // 4)


@dataclass(frozen=True)
class Invocation:
    """Environment variables, and arguments before the user's."""

    env: dict[str, str]
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Client:
    install: str  #: command that installs it
    invoke: Callable[[Endpoint], Invocation]


def _claude(server: Endpoint) -> Invocation:
    env = {
        "ANTHROPIC_BASE_URL": server.base_url.removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": server.api_key,
        "ANTHROPIC_API_KEY": "",  # a key would take precedence over the token
        **dict.fromkeys(("ANTHROPIC_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"), server.model),
        **{f"ANTHROPIC_DEFAULT_{each}_MODEL": server.model for each in ("OPUS", "SONNET", "HAIKU")},
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(server.max_output),
    }
    if server.max_model_len is not None:
        env["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(server.max_model_len)
    return Invocation(env)


def _codex(server: Endpoint) -> Invocation:
    settings = {
        "model": server.model,
        "model_provider": "quire",
        "model_providers.quire.name": "Quire",
        "model_providers.quire.base_url": server.base_url,
        "model_providers.quire.env_key": "QUIRE_CLIENT_KEY",
        "model_providers.quire.wire_api": "responses",
        "model_context_window": server.max_model_len,
    }
    given = [f"{name}={json.dumps(value)}" for name, value in settings.items() if value is not None]
    return Invocation({"QUIRE_CLIENT_KEY": server.api_key}, tuple(each for pair in given for each in ("-c", pair)))


def _opencode(server: Endpoint) -> Invocation:
    limit = {"context": server.max_model_len, "output": server.max_output}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Quire",
        "options": {"baseURL": server.base_url, "apiKey": server.api_key},
        "models": {server.model: {"name": server.model, **({"limit": limit} if server.max_model_len else {})}},
    }
    name = f"quire/{server.model}"
    config = {"provider": {"quire": provider}, "model": name, "small_model": name}
    return Invocation({"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _aider(server: Endpoint) -> Invocation:
    return Invocation(
        {
            "OPENAI_API_BASE": server.base_url,
            "OPENAI_API_KEY": server.api_key,
            **dict.fromkeys(("AIDER_MODEL", "AIDER_WEAK_MODEL"), f"openai/{server.model}"),
            "AIDER_SHOW_MODEL_WARNINGS": "false",
        }
    )


CLIENTS = {
    "claude": Client("npm install -g @anthropic-ai/claude-code", _claude),
    "codex": Client("npm install -g @openai/codex", _codex),
    "opencode": Client("npm install -g opencode-ai", _opencode),
    "aider": Client("python -m pip install aider-install && aider-install", _aider),
}
