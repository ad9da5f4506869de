"""A server process as `make serve` starts it, with the models shipped with Quire."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import PATIENCE_S

SOURCES = str(Path(__file__).parents[3] / "src")


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The server's address; it accepts any model name."""
    command = [sys.executable, "-m", "quire", "serve", "--port", "0", "--device", "cpu", "--accept-any-model-name"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**environment, "PYTHONPATH": SOURCES}) as it:
        try:
            assert it.stdout is not None
            found = re.search(r"http://\S+", it.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            it.terminate()
            it.wait(PATIENCE_S)
