"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from quire.devices import choose_device


def pytest_configure() -> None:
    """A shell starts background jobs with Ctrl-C ignored, which the programs under test would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Compiling all of Quire takes half a second: the first process under test caches it for the others.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if choose_device("auto") == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported
    if uptime_s := os.environ.get("QUIRE_TEST_UPTIME_S"):
        _restart_monotonic_clock(float(uptime_s))


def _restart_monotonic_clock(uptime_s: float) -> None:
    """Simulate a machine that booted `uptime_s` seconds ago. Processes that a test spawns keep the real clock."""
    monotonic, perf_counter = time.monotonic, time.perf_counter
    booted_at, counter_at = monotonic() - uptime_s, perf_counter() - uptime_s
    time.monotonic = lambda: monotonic() - booted_at
    time.perf_counter = lambda: perf_counter() - counter_at


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores, since some test always waits for a process."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests a quarter of an hour."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


def pytest_collection_finish() -> None:
    """Exclude the half million objects of torch, transformers and the tests from garbage collection.

    Each engine's end collects garbage, which would take 0.3 s longer.
    """
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_measure_collection)


_began_at = 0.0  #: a collection
_is_slow = False  #: since so many objects were added


def _measure_collection(phase: str, info: dict[str, int]) -> None:
    global _began_at, _is_slow
    if phase == "start":
        _began_at = time.thread_time()
    elif time.thread_time() - _began_at > 0.1:
        _is_slow = True


def pytest_runtest_logfinish() -> None:
    """Exclude what stays from further collections, such as modules that were imported late, between two tests."""
    global _is_slow
    if _is_slow:
        gc.collect()
        gc.freeze()
        _is_slow = False


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep measured costs and KV of tests out of the user's cache, and KV from other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIRE_KEEP_KV", "0")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spare HTTP clients from loading root certificates, which takes longer than a test's request."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        yield


@pytest.fixture(autouse=True)
def _log_handlers_of_its_own() -> Iterator[None]:
    """Remove handlers that commands under test add, since their streams are closed after the test."""
    root, handlers = logging.getLogger(), logging.getLogger().handlers[:]
    yield
    root.handlers[:] = handlers
