"""Run third-party programs against our server, unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 500


def run_program(path: Path, url: str, *, python: str = sys.executable) -> str:
    """Return a program's output. It finds the server by the official clients' environment variables."""
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
    }
    ended = subprocess.run([python, str(path)], capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert ended.returncode == 0, f"{path.name}: {ended.stdout[-2000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout
