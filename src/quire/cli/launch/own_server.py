"""A `quire serve` process that lives as long as its client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import IO

_STOP_TIMEOUT_S = 10.0
_NUM_LINES = 20  # of the log, shown if the server ends early


@contextmanager
def own_server(model: str, api_key: str | None) -> Iterator[str]:
    """Serve a model on a free port, and stop the server at the end. Yields its URL once the model is loaded; until
    then the log is shown. Raises RuntimeError if the server ends early."""
    env = {name: value for name, value in os.environ.items() if name != "QUIRE_UDS"}
    env.setdefault("QUIRE_IGNORE_UNKNOWN_FIELDS", "1")  # new versions of agents send new fields
    env |= {"QUIRE_API_KEY": api_key} if api_key else {}
    # A session of its own: Ctrl-C is for the client.
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "quire", "serve", model, "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=env,
    )
    assert server.stdout is not None
    assert server.stderr is not None
    is_loaded, lines = Event(), deque[str](maxlen=_NUM_LINES)
    log = Thread(target=_relay, args=(server.stderr, is_loaded, lines), daemon=True)
    log.start()
    try:
        found = re.search(r"https?://\S+", server.stdout.readline())
        if found is None:
            raise RuntimeError(f"quire serve {model} ended with status {server.wait()}")
        is_loaded.set()
        yield found[0]
        if (status := server.poll()) is not None:
            log.join()
            raise RuntimeError(f"the server ended with status {status}: {''.join(lines)}")
    finally:
        server.terminate()
        try:
            server.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _relay(log: IO[str], is_loaded: Event, lines: deque[str]) -> None:
    for line in log:
        lines.append(line)
        if not is_loaded.is_set():
            sys.stderr.write(line)
