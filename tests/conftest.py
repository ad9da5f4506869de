"""What all tests share."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """A shell starts background jobs with Ctrl-C ignored, which the programs under test would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A process under test that compiles all of Quire anew takes half a second longer: the first one leaves it to all.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
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
    """One more than there are cores: some test always waits for a process to come or go."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_finish() -> None:
    """Collecting garbage looks at each object that there is. Half a million are there to stay, since torch,
    transformers and the tests themselves are imported by now; looking at them takes 0.3 s wherever an engine ends."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measured costs are kept in the user's cache; those of tests are of no use to anyone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every new HTTP client reads the world's certificates, which takes longer than the request that a test sends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        yield


@pytest.fixture(autouse=True)
def _log_handlers_of_its_own() -> Iterator[None]:
    """A command that configures logging leaves a handler behind, to a stream that its test then closes."""
    root, handlers = logging.getLogger(), logging.getLogger().handlers[:]
    yield
    root.handlers[:] = handlers
