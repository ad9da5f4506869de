"""One server for all read-only tests.

QUIRE_TEST_URL names a server elsewhere, such as on Ray, with `quire serve --model random:tiny --num-kv-blocks 64 --max-
model-len 256`; tests that inspect the process, or need other settings, are then skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from serving import RunningServer, make_model, running


class Elsewhere:
    """Stands for objects of another process."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip("it looks into the server's process")


@pytest.fixture(scope="package")
def server() -> Iterator[RunningServer]:
    if (url := os.environ.get("QUIRE_TEST_URL")) is not None:
        yield RunningServer(url, Elsewhere())  # type: ignore[arg-type]
        return
    with running(make_model()) as server:
        yield server
