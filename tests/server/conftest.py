"""One server for all tests that only ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving import RunningServer, make_model, running


@pytest.fixture(scope="package")
def server() -> Iterator[RunningServer]:
    with running(make_model()) as server:
        yield server
