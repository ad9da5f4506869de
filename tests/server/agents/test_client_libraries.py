"""Agents of client libraries: two turns with tools each, unchanged, on a scripted model.

    make test-clients

makes an environment for each library, since their requirements exclude each other. Without it, a library that is
installed beside the tests is used, and others are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from family_templates import QWEN
from quire.loading.presets import presets
from scripted import Script
from server.agents.programs import run_program
from serving import RunningServer, make_model, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
#: Program -> the packages that it imports, the first one names the version.
LIBRARIES = {
    "openai_agents": ("openai-agents", "agents"),
    "instructor": ("instructor", "instructor"),
    "agno": ("agno", "agno"),
    "langchain_openai": ("langchain-openai", "langchain_openai"),
    "llama_index": ("llama-index-llms-openai-like", "llama_index"),
    "pydantic_ai": ("pydantic-ai-slim", "pydantic_ai"),
    "crewai": ("crewai", "crewai"),
    "litellm": ("litellm", "litellm"),
    "anthropic_sdk": ("anthropic", "anthropic"),
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


class Guide(Script):
    """Looks the weather up, repeats a result in its own words, and writes JSON on request."""

    def _words_for(self, info: Any, tokenizer: Any) -> str:
        prompt: str = tokenizer.decode(info.token_ids[: info.num_prompt_tokens], skip_special_tokens=False)
        last = prompt.rpartition("<|im_start|>user")[2]
        if "<tool_response>" in last:
            return "It is sunny."
        return (
            '```json\n{"sky": "clear"}\n```'
            if "JSON" in last and "```" in prompt
            else ('{"sky": "clear"}' if "JSON" in last else CALL)
        )


@pytest.fixture(scope="module")
def guide() -> Iterator[RunningServer]:
    script = Guide("", texts=[CALL, "It is sunny."], max_model_len=16384)
    with pytest.MonkeyPatch.context() as patch:  # a byte is a token, and the prompts of libraries are long
        patch.setitem(presets(), "tiny", {**presets()["tiny"], "max_position_embeddings": 16384})
        server = running(replace(make_model(start=script, chat_template=QWEN), aliases=("scripted",)))
        with server as running_server:
            yield running_server


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_s_agent_has_two_turns_with_tools(
    guide: RunningServer, library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    package, module = LIBRARIES[library]
    environments = os.environ.get("QUIRE_TEST_CLIENTS")
    python = str(Path(environments) / library / "bin" / "python") if environments else sys.executable
    if not Path(python).exists() or (environments is None and find_spec(module) is None):
        pytest.skip(f"{package} is not installed; make test-clients installs it")
    run_program(Path(__file__).parent / "clients" / f"{library}_program.py", guide.url, python=python)
    find = f"from importlib.metadata import version; print(version({package!r}))"
    found = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    with capsys.disabled():
        print(f"\n| {package} | {found} | passed |", end="")
