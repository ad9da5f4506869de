"""Asyncio engines in a thread or a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.host import ThreadHost
from quire.async_engine.process import ProcessHost

_HOST_OPTIONS = ("device", "hang_timeout_s", "load_silence_s", "exit_on_hang", "child")


def thread_engine(name: str, make_engine: Callable[[], Any], **options: Any) -> AsyncEngine:
    """Make an engine in a thread. Options are those of `ThreadHost` and `AsyncEngine`."""
    for_host, others = _split(options)
    return AsyncEngine(ThreadHost(name, make_engine, **for_host), **others)


def process_engine(name: str, make_engine: Callable[[], Any], **options: Any) -> AsyncEngine:
    """Make an engine in a process. Options are those of `ProcessHost` and `AsyncEngine`."""
    for_host, others = _split(options)
    return AsyncEngine(ProcessHost(name, make_engine, **for_host), **others)


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    for_host = {name: options.pop(name) for name in _HOST_OPTIONS if name in options}
    return for_host, options
