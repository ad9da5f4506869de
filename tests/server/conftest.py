"""One server for all tests that only ask.

QUIRE_TEST_URL names one that runs elsewhere, such as on Ray, with `quire serve --model random:tiny --num-kv-blocks 64
--max-model-len 256`; tests that look into the server's process, or need one with other settings, then skip.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from serving import RunningServer, make_model, running


class Elsewhere:
    """Stands for what is in another process."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip("it looks into the server's process")


@pytest.fixture(scope="package")
def server() -> Iterator[RunningServer]:
    if (url := os.environ.get("QUIRE_TEST_URL")) is not None:
        yield RunningServer(url, Elsewhere())  # type: ignore[arg-type]
        return
    with running(make_model()) as server:
        yield server
