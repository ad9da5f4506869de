"""`quire kv warm` stores the KV of files for servers, reports it, and does nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import quire.assembly.engine
from command_line import app
from documents import config_of, start
from quire.engine.document_warmer import DocumentWarmer, Warmed
from quire.prompt import Prompt
from serving import make_model, running

TEXT = "The fox ran over the hill, and nobody saw where it went. " * 2  # 114 tokens


@pytest.fixture(autouse=True)
def _no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quire.assembly.engine, "quick_profile", lambda engine, costs: None)


@pytest.fixture
def kv_dir(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    found = {}
    for name, text in {"fox": TEXT, "short": "Hello", "long": TEXT * 3, "end": "<|im_end|>" * 4}.items():
        path = tmp_path / f"{name}.txt"
        path.write_text(text)
        found[name] = str(path)
    return found


def warm(kv_dir: Path, *arguments: str) -> Result:
    engine = ["--model", "random:tiny", "--num-kv-blocks", "64", "--max-model-len", "256", "--device", "cpu"]
    return CliRunner().invoke(app, ["kv", "warm", *engine, "--no-use-tqdm", "--kv-dir", str(kv_dir), *arguments])


def test_files_are_computed_once_and_one_that_is_too_long_does_not_keep_the_others(
    kv_dir: Path, files: dict[str, str], tmp_path: Path
) -> None:
    figures = tmp_path / "figures.json"
    first = warm(kv_dir, files["long"], files["fox"], files["short"], "--json", str(figures))
    assert first.exit_code == 1, "one was refused"
    assert f"{files['long']}: 342 tokens exceed the 255 that max_model_len=256 allows" in first.stderr
    assert "split the file" in first.stderr
    lines = first.stdout.splitlines()
    assert lines[0].startswith(f"{files['fox']}: 114 tokens, 7 blocks kept (114 computed), ")
    assert lines[1].startswith(f"{files['short']}: 5 tokens, shorter than a block (16), so nothing is kept")
    long, fox, _ = json.loads(figures.read_text())["files"]
    assert "split the file" in long["error"]
    assert (fox["num_tokens"], fox["num_blocks"], fox["num_kept_blocks"], fox["num_kept_before"]) == (114, 7, 7, 0)
    again = warm(kv_dir, files["fox"])
    assert again.exit_code == 0
    assert "114 tokens, all 7 blocks are there" in again.stdout


def test_a_server_finds_what_its_prompts_begin_with(kv_dir: Path, files: dict[str, str]) -> None:
    """A plain prompt, a conversation, and a document behind a head."""
    assert warm(kv_dir, files["fox"], files["end"]).exit_code == 0
    assert warm(kv_dir, "--chat", "--head", "Read: ", files["fox"]).exit_code == 0
    config = config_of(kv_dir)
    with running(make_model(config, start=start)) as server:
        usage = server.complete(prompt=TEXT + "Who ran?").json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 112
        messages = [{"role": "user", "content": f"Read: {TEXT}Who ran?"}]
        usage = server.chat(messages=messages).json()["usage"]
        head = len("Read: ") + len("user\n") + 1
        assert usage["prompt_tokens_details"]["cached_tokens"] == (head + 114) // 16 * 16
        marks = server.complete(prompt="<|im_end|>" * 4 + "Who ran?").json()["usage"]
        assert marks["prompt_tokens_details"]["cached_tokens"] == 0, "marks of the model, and no text"


def test_ctrl_c_keeps_what_is_done(kv_dir: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    warm_one = DocumentWarmer.warm

    def interrupted(self: DocumentWarmer, prompt: Prompt) -> Warmed:
        if self._engine.scheduler.swap.on_disk:
            raise KeyboardInterrupt
        return warm_one(self, prompt)

    monkeypatch.setattr(DocumentWarmer, "warm", interrupted)
    result = warm(kv_dir, files["fox"], files["end"])
    assert result.exit_code == 130
    assert "the KV of 1 of 2 files is kept" in result.stderr
    monkeypatch.undo()
    assert len(start(config_of(kv_dir)).scheduler.swap.on_disk) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{fox}", "{bytes}"], "bytes.txt is not UTF-8 text"),
        (["{nothing}"], "nothing.txt cannot be read: No such file"),
        (["{empty}"], "empty.txt is empty"),
        (["{fox}", "--role", "system"], "add --chat"),
        (["{fox}", "--chat-template", "x"], "--chat-template applies to a conversation"),
        (["{fox}", "--chat", "--chat-template", "{nothing}"], "nothing.txt' cannot be read"),
        (["{fox}", "--skip-tokenizer-init"], "leave out --skip-tokenizer-init"),
    ],
)
def test_a_mistake_is_reported_before_the_model_is_loaded(
    kv_dir: Path, files: dict[str, str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "bytes.txt").write_bytes(b"\xff\x00")
    (tmp_path / "empty.txt").touch()
    names = {name: str(tmp_path / f"{name}.txt") for name in ("fox", "bytes", "nothing", "empty")}
    result = warm(kv_dir, *(argument.format(**names) for argument in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not kv_dir.exists()


def test_without_a_directory_there_is_nothing_to_keep(files: dict[str, str]) -> None:
    result = CliRunner().invoke(app, ["kv", "warm", "--model", "random:tiny", files["fox"]])
    assert result.exit_code == 2
    assert "--kv-dir" in result.stderr
