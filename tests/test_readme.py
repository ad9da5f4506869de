"""The README's commands, Python and requests work."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import app
from quire.loading.stage_manifest import read_stage_manifest
from quire.rag.embedder import HashingEmbedder
from quire.rag.embedder_process import EmbedderProcess

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS: dict[str, list[str]] = {}
for language, text in re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL):
    BLOCKS.setdefault(language, []).append(text)
COMMANDS = [
    line.removeprefix("$ quire ")
    for block in BLOCKS["console"]
    for line in block.splitlines()
    if line.startswith("$ quire ") and "rag ask" not in block and "stages pack" not in block  # covered by tests
]
URL = "http://127.0.0.1:8000"
SYSTEMS = {  # system in the README's first table -> its folder
    "paged engine": "core",
    "recovery": "core/decisions",
    "document KV": "tiers/store",
    "retrieval": "rag",
    "progressive loading": "progressive",
    "Ray": "cluster",
}


@pytest.mark.parametrize(("system", "folder"), SYSTEMS.items())
def test_the_status_of_a_system_is_what_the_code_shows(system: str, folder: str) -> None:
    (state,) = re.findall(rf"^\| {system}[^|]*\| ([^|]+) \| \[", README.partition("## Serve")[0], re.M)
    is_there = (ROOT / "src" / "quire" / folder).is_dir()
    assert state.startswith("**works**" if is_there else "planned")


def test_every_make_target_of_the_readme_is_in_the_makefile() -> None:
    named = set(re.findall(r"(?:^\$ (?:\w+=\S+ )?|`)make (\w+)", README, re.M))
    targets = set(re.findall(r"^(\w+):(?!=)", (ROOT / "Makefile").read_text(), re.M))
    assert {"serve", "test"} <= named <= targets


def test_every_file_that_the_readme_links_is_there() -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README)]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("serve")])
def test_a_command_of_the_readme_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handbook.txt").write_text("What everybody ought to know. " * 4)
    (tmp_path / "kv").mkdir(mode=0o700)
    monkeypatch.setenv("QUIRE_NUM_KV_BLOCKS", "512")
    result = CliRunner().invoke(app, shlex.split(command, comments=True), input="Hello there!\n")
    assert result.exit_code == 0, result.output


def test_the_answers_from_documents_are_those_that_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [block for block in BLOCKS["console"] if "rag ask" in block]
    shown = [line.removeprefix("$ quire ") for line in block.splitlines() if "pip install" not in line]
    commands = dict(zip(shown[::2], shown[1::2], strict=True))
    monkeypatch.setattr(EmbedderProcess, "facts", HashingEmbedder.facts)
    monkeypatch.setattr(EmbedderProcess, "embed", lambda self, texts: HashingEmbedder().embed(texts))
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("QUIRE_RAG_DIR", str(tmp_path))
    for command, answer in commands.items():
        words = shlex.split(command) + (["--embedder", "hashing"] if "ingest" in command else [])
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        assert answer in result.output.splitlines()
    assert "from disk" in result.output


def test_the_pack_that_the_readme_shows_is_made_and_has_the_share_of_its_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [block for block in BLOCKS["console"] if "stages pack" in block]
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        if "stages" in line and line.startswith("$"):
            result = CliRunner().invoke(app, shlex.split(line.removeprefix("$ quire ")))
            assert result.exit_code == 0, result.output
    manifest = read_stage_manifest(tmp_path / "mini-pack")
    assert f"{manifest.stage_bytes(1) / manifest.stage_bytes(2):.0%} stage 1 of 2 serves" in block


def test_the_readmes_python_that_needs_no_server_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block for block in BLOCKS["python"] if "LLM(" in block]
    exec(code, {})
    assert capsys.readouterr().out.split() == ["Paris"]


class _Served:
    """`quire serve` as a user starts it, on a free port."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "quire", "serve", "--port", "0", "--kv-cache-memory", "64MiB"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.banner = ""
        while not self.banner.rstrip().endswith("}'") and (line := self.process.stdout.readline()):
            self.banner += line
        self.url = re.search(r"http://\S+:\d+", self.banner)[0]

    def run(self, script: str) -> dict:
        """Run a shell command of the README on this port."""
        done = subprocess.run(["bash", "-c", script.replace(URL, self.url)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def served() -> Iterator[_Served]:
    server = _Served()
    yield server
    server.process.terminate()
    server.process.wait(timeout=30)


def test_the_server_says_what_the_readme_says_it_does(served: _Served) -> None:
    shown = BLOCKS["console"][0].split("$ make test")[0].removeprefix("$ make serve\n").strip()
    assert served.banner.replace(served.url, URL).strip() == shown


def test_the_command_that_the_server_prints_gets_the_right_answer(served: _Served) -> None:
    command = served.banner[served.banner.index("curl") :]
    answer = served.run(command)["choices"][0]["message"]["content"]
    assert f"The answer is `{answer}`" in README


@pytest.mark.parametrize("block", BLOCKS["bash"])
def test_a_request_of_the_readme_is_answered(served: _Served, block: str) -> None:
    answer = served.run(block)
    assert answer["choices"][0]["message"]["content"]


def test_the_readmes_openai_client_gets_the_answer_that_it_shows(
    served: _Served, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = [block for block in BLOCKS["python"] if "OpenAI(" in block]
    exec(code.replace(URL, served.url), {})
    assert capsys.readouterr().out.strip() == re.search(r"# (.+)$", code.strip())[1]


def test_every_benchmark_of_the_readme_is_a_module() -> None:
    named = set(re.findall(r"python -m benchmarks\.(\w+)", README))
    assert named
    for name in named:
        folder = ROOT / "benchmarks"
        assert (folder / f"{name}.py").exists() or (folder / name / "__main__.py").exists(), name
