"""Run an engine in a child process. Imports little, so that the engine loads beside its parent's other imports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from quire.system.child_process import ChildProcess

if TYPE_CHECKING:
    from quire.engine.engine import Engine


def engine_child() -> ChildProcess:
    """Start a process that imports what every engine needs, and waits for `run_engine`."""
    return ChildProcess("engine", imports="quire.assembly")


def run_engine(
    child: ChildProcess, name: str, make_engine: Callable[[], Engine], *, hang_timeout_s: float
) -> ChildProcess:
    """Make and run an engine in a process, and return the process: a `ProcessHost` reads its reports."""
    with suppress(OSError):  # it has ended, which the host will see
        child.run(_serve, name, make_engine, hang_timeout_s, logging.getLogger("quire").getEffectiveLevel())
    return child


def _serve(*arguments: Any) -> None:
    from quire.async_engine.engine_process import serve

    serve(*arguments)
