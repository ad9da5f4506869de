"""`make` shows what pip does on one line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "tools" / "pip_install.py"
PIP = """import sys, time
print("Collecting torch==2.11.0 (from quire)", flush=True); time.sleep(1.5)
print("a warning", file=sys.stderr); sys.exit("--fail" in sys.argv)
"""


@pytest.fixture
def with_pip(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(PIP)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_a_terminal_shows_the_current_package_and_the_seconds(with_pip: dict[str, str]) -> None:
    reader, terminal = pty.openpty()
    run = subprocess.run([sys.executable, PROGRAM, "."], env=with_pip, stdout=terminal, stderr=subprocess.PIPE)
    os.close(terminal)
    shown = os.read(reader, 10000).decode()
    os.close(reader)
    assert run.returncode == 0
    assert "s  collecting torch==2.11.0 (from quire)" in shown
    assert shown.endswith("\x1b[2K")
    assert run.stderr == b"a warning\n"


def test_the_exit_status_is_that_of_pip_and_a_file_stays_quiet(with_pip: dict[str, str]) -> None:
    run = subprocess.run([sys.executable, PROGRAM, "--fail"], env=with_pip, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == "a warning\n"
