"""What the README shows works: its commands and its Python, on the smallest model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quire.cli.main import app

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = dict.fromkeys(("console", "python"), "")
for language, text in re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL):
    BLOCKS[language] = BLOCKS.get(language, "") + text
COMMANDS = [line.removeprefix("$ quire ") for line in BLOCKS["console"].splitlines() if line.startswith("$ quire ")]
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,396,109\n"


@pytest.mark.parametrize("command", [c.split("#")[0].strip() for c in COMMANDS if not c.startswith("serve")])
def test_a_command_of_the_readme_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUIRE_NUM_KV_BLOCKS", "512")
    (tmp_path / "trace.csv").write_text(TRACE)
    result = CliRunner().invoke(app, shlex.split(command, comments=True))
    assert result.exit_code == 0, result.output


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS["python"].replace("path/to/checkpoint", "random:tiny"), {})
    assert capsys.readouterr().out.strip()


def test_the_readme_names_every_architecture() -> None:
    from quire.models.registry import ARCHITECTURES

    for name in ARCHITECTURES:
        assert f"`{name}`" in README
