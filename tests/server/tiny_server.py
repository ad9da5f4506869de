"""A complete server process over the smallest model, for tests that send it signals.

Options: `settings` of the server, `step_s` and `load_s` (extra seconds of each step and of loading), `model`, and
`log_format`. Servers are forked from a process with finished imports (`process_pool.py`), which saves seconds.
"""

from __future__ import annotations

import re
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx

from engines import thread_engine
from process_pool import ProcessPool, wait_for_fork

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


@cache
def process_pool() -> ProcessPool:
    return ProcessPool(Path(__file__))


class TinyServer:
    """The server's process. Threads read its output, so it never blocks on a full pipe."""

    def __init__(self, **options: Any) -> None:
        options["settings"] = {"port": 0, **options.get("settings", {})}
        self.process = process_pool().fork(options)
        self.said: list[str] = []
        self.log: list[str] = []
        self.readers = [
            threading.Thread(target=_read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.said), (self.process.stderr, self.log))
        ]
        for reader in self.readers:
            reader.start()
        self.url = ""
        self.verify: ssl.SSLContext | bool = True
        self.headers: dict[str, str] = {}

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what} never happened; the log:\n{''.join(self.log)}"
            time.sleep(0.01)
        return found

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        found: re.Match[str] = self.wait_for(lambda: re.search(pattern, "".join(self.log)), pattern)
        return found

    def wait_until_ready(self) -> None:
        self.url = self.wait_for(lambda: self.process.poll() is not None or self.said, "the banner") and (
            self.said[0].split()[-1] if self.said else ""
        )
        assert self.url, "".join(self.log)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=TIMEOUT_S, verify=self.verify, headers=self.headers)

    def get(self, path: str) -> httpx.Response:
        with self.client() as client:
            return client.get(path)

    def complete(self, **body: Any) -> httpx.Response:
        with self.client() as client:
            return client.post("/v1/completions", json=completion(**body))

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def wait_for_end(self) -> int:
        status = self.process.wait(TIMEOUT_S)
        for reader in self.readers:
            reader.join()
        return status


def completion(**body: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "Hello", "max_tokens": 4, "ignore_eos": True, **body}


@contextmanager
def tiny_server(*, is_ready: bool = True, **options: Any) -> Iterator[TinyServer]:
    server = TinyServer(**options)
    try:
        if is_ready:
            server.wait_until_ready()
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def _read(stream: Any, lines: list[str]) -> None:
    lines.extend(iter(stream.readline, ""))


def _main(
    settings: dict[str, Any],
    step_s: float = 0,
    load_s: float = 0,
    model: str = "random:tiny",
    log_format: str = "text",
) -> int:
    from quire.assembly import start_engine
    from quire.config import EngineConfig
    from quire.engine.engine import Engine
    from quire.server.app import make_app
    from quire.server.lifecycle import serve
    from quire.server.log_format import configure_logging
    from quire.server.metrics import Metrics
    from quire.server.registry import ModelRegistry, ServedModel
    from quire.server.settings import ServerSettings

    def make() -> Engine:
        time.sleep(load_s)
        engine = start_engine(EngineConfig(model, num_kv_blocks=128, use_tqdm=False, device="cpu"))
        execute = engine.runner.execute

        def execute_slowly(*args: Any) -> Any:
            time.sleep(step_s)
            return execute(*args)

        engine.runner.execute = execute_slowly  # type: ignore[method-assign]
        return engine

    configure_logging(log_format)
    chosen = ServerSettings(**{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()})
    metrics = Metrics(["tiny"])
    engine = thread_engine(
        "tiny",
        make,
        on_stats=partial(metrics.observe_stats, "tiny"),
        on_finished=partial(metrics.observe_finished, "tiny"),
    )
    registry = ModelRegistry([ServedModel("tiny", engine, 0)])
    app = make_app(registry, chosen, metrics)
    try:
        return serve(app, registry, chosen, metrics=metrics, banner=lambda url: f"ready at {url}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    import quire.assembly
    import quire.async_engine.async_engine
    import quire.server.app
    import quire.server.lifecycle  # noqa: F401

    sys.exit(_main(**wait_for_fork()))
