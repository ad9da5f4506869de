"""The life of a server process: listen, load, serve, drain, exit.

The first SIGTERM or SIGINT drains: /health says so, new requests get 503, and running ones finish; SIGINT waits for
less long. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import uvicorn
import uvloop
from starlette.types import ASGIApp

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import ModelState
from quire.server.http.middleware import CheckHost
from quire.server.http.protocol import HttpProtocol
from quire.server.listener import is_local, listen, url_of
from quire.server.metrics import Metrics
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings
from quire.system.child_process import running_children
from quire.system.interrupts import stop_signals
from quire.system.machine import allow_many_files
from quire.system.malloc import share_one_heap
from quire.system.threads import SWITCH_INTERVAL_S

logger = logging.getLogger("quire.server")
load_logger = logging.getLogger("quire.load")

EXIT_FAILED = 1  #: the last model was lost
EXIT_NOT_LOADED = 2  #: no model could be loaded
EXIT_INTERRUPTED = 128 + signal.SIGINT

_INTERRUPT_TIMEOUT_S = 3.0  # after Ctrl-C: for running requests, and again for the running step
_LAST_BYTES_TIMEOUT_S = 5  # after the drain, for answers on their way to slow readers
_LAST_BYTES_SHARE, _MIN_LAST_BYTES_TIMEOUT_S = 0.05, 0.5  # its share of the drain's time if requests take all of it
_STOP_TIMEOUT_S = 20.0  # for the running step: of a large model on a busy machine it takes many seconds
_KEEP_ALIVE_S = 75  # longer than the usual 60 s of proxies, which should close idle connections themselves
_STDERR = 2


def serve(
    app: ASGIApp,
    registry: ModelRegistry,
    settings: ServerSettings,
    *,
    metrics: Metrics | None = None,
    banner: Callable[[str], str] | None = None,
    on_drain: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
    on_hangup: Callable[[], None] | None = None,
    listener: socket.socket | None = None,
) -> int:
    """Serve until a signal stops the process. Call it in the main thread.

    Args:
        registry: models whose engines are started and shut down here.
        metrics: source of the load lines; None writes none.
        banner: makes the text to print once a model is ready, from the server's URL.
        on_drain, on_stop: stop background requests in the event loop before the drain, and other work after it.
        on_hangup: called in the event loop at each SIGHUP; None leaves the signal alone.
        listener: the open socket (`listen`); None opens one.

    Returns:
        The exit status: 0 after SIGTERM, 130 after SIGINT, 2 if no model could be loaded, 1 if the last one was lost.

    Raises:
        ValueError: the address or the TLS files cannot be used.
    """
    if not settings.api_keys and settings.uds is None and is_local(settings):
        app = CheckHost(app, settings)
    config = _uvicorn_config(app, settings)
    listener = listener or listen(settings)
    url = url_of(settings, listener)
    if not settings.api_keys and not is_local(settings):
        logger.warning("every client that can reach %s may use this server; --api-key restricts it to key holders", url)
    allow_many_files()
    share_one_heap()
    faulthandler.enable(_STDERR)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        process = _Process(
            _Server(config),
            listener,
            registry,
            settings,
            url,
            LoadLog(metrics) if metrics is not None else None,
            banner,
            on_stop,
            on_hangup,
            on_drain,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(process.run())
    finally:
        sys.setswitchinterval(before)
        listener.close()


def _uvicorn_config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_BYTES_TIMEOUT_S,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        ssl_keyfile_password=settings.ssl_keyfile_password,
        ssl_ca_certs=settings.ssl_ca_certs,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.ssl_ca_certs else ssl.CERT_NONE,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"the TLS files cannot be used: {error}; check --ssl-certfile and --ssl-keyfile") from None
    return config


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()  # `stop_signals` handles them


@dataclass(frozen=True)
class _Process:
    """One run of `serve`."""

    server: _Server
    listener: socket.socket
    registry: ModelRegistry
    settings: ServerSettings
    url: str
    load_log: LoadLog | None
    banner: Callable[[str], str] | None
    on_stop: Callable[[], None]
    on_hangup: Callable[[], None] | None = None
    on_drain: Callable[[], None] = lambda: None

    @property
    def engines(self) -> list[AsyncEngine]:
        return self.registry.engines

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        stop_signal: asyncio.Future[int] = loop.create_future()
        with stop_signals(lambda number: loop.call_soon_threadsafe(stop_signal.set_result, number), _end_at_once):
            serving = asyncio.create_task(self.server.serve(sockets=[self.listener]))
            for engine in self.engines:
                engine.start(loop)
            if self.on_hangup is not None:
                loop.add_signal_handler(signal.SIGHUP, self.on_hangup)
            announcing = asyncio.create_task(self._announce())
            background = [announcing, *self._background_tasks()]
            lost = asyncio.create_task(self._wait_until_all_failed())
            ends: list[asyncio.Future[Any]] = [stop_signal, lost, serving]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            was_ready = not lost.done() or await announcing
            is_loading = any(engine.state is ModelState.LOADING for engine in self.engines)
            notify("STOPPING=1")
            if stop_signal.done():
                await self._drain(stop_signal.result())
            await asyncio.to_thread(self.on_stop)
            self.server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            if self.settings.uds is not None:
                Path(self.settings.uds).unlink(missing_ok=True)
            for task in (*background, lost):
                task.cancel()
            if serving.exception() is not None:
                logger.error("the HTTP server ended", exc_info=serving.exception())
            is_interrupted = stop_signal.done() and stop_signal.result() == signal.SIGINT
            if stop_signal.done():
                status = EXIT_INTERRUPTED if is_interrupted else 0
            else:
                status = EXIT_FAILED if was_ready else EXIT_NOT_LOADED
            has_stopped = await self._shut_down_engines(_INTERRUPT_TIMEOUT_S if is_interrupted else _STOP_TIMEOUT_S)
            if is_loading or not has_stopped:  # a thread in native code could block the exit, or crash it
                _end_at_once(status)
        return status

    def _background_tasks(self) -> Iterator[asyncio.Task[Any]]:
        yield asyncio.create_task(keep_alive())
        if self.settings.idle_unload_s is not None:
            yield asyncio.create_task(unload_idle(self.registry, self.settings.idle_unload_s))
        if self.load_log is not None:
            yield asyncio.create_task(self.load_log.run(self.settings.log_interval_s))

    async def _announce(self) -> bool:
        """Announce the server once its models are ready. Returns False if all failed."""
        names = ", ".join(engine.name for engine in self.engines)
        logger.info("listening on %s while loading %s", self.url, names)
        gc.collect()  # the command line's remains; what stays is not looked through again
        gc.freeze()
        gc.enable()
        failures = await asyncio.gather(*(engine.wait_ready() for engine in self.engines), return_exceptions=True)
        if all(failures):
            return False
        if self.banner is not None:
            print(self.banner(self.url), flush=True)
        logger.info("serving at %s", self.url)
        notify("READY=1", f"STATUS=serving at {self.url}")
        return True

    async def _wait_until_all_failed(self) -> None:
        """Wait until no model can be served. A model that has served before is loaded again, and again."""
        while not all(
            engine.is_given_up or (engine.state is ModelState.FAILED and not engine.has_served)
            for engine in self.engines
        ):
            await asyncio.sleep(0.2)

    async def _drain(self, signum: int) -> None:
        self.on_drain()
        timeout_s = self.settings.shutdown_timeout_s
        if signum == signal.SIGINT:
            timeout_s = min(timeout_s, _INTERRUPT_TIMEOUT_S)
        logger.info("stopping: running requests have %g s to finish; a second signal ends them now", timeout_s)
        deadline = time.monotonic() + timeout_s
        drain_s = timeout_s * (1 - _LAST_BYTES_SHARE)
        cut_off = sum(await asyncio.gather(*(engine.drain(drain_s) for engine in self.engines)))
        left_s = max(deadline - time.monotonic(), _MIN_LAST_BYTES_TIMEOUT_S)
        self.server.config.timeout_graceful_shutdown = min(_LAST_BYTES_TIMEOUT_S, left_s)  # type: ignore[assignment]
        if cut_off:
            logger.warning("%d requests did not finish within %g s and were cut off", cut_off, timeout_s)

    async def _shut_down_engines(self, timeout_s: float) -> bool:
        """End the engines' threads. Returns False if one is stuck."""
        threads = [threading.Thread(target=engine.shutdown, daemon=True) for engine in self.engines]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + timeout_s
        while any(thread.is_alive() for thread in threads):
            if time.monotonic() > deadline:
                logger.error("the running step has not ended within %g s; the process ends without it", timeout_s)
                return False
            await asyncio.sleep(0.02)
        logger.info("stopped")
        return True


def _end_at_once(status: int) -> NoReturn:
    for child in running_children():  # they may outlive us for a while
        child.kill()
    os._exit(status)


async def unload_idle(registry: ModelRegistry, idle_s: float) -> None:
    """Unload models without a request for `idle_s` seconds, until cancelled."""
    while True:
        await asyncio.sleep(min(1.0, idle_s / 4))
        for engine in registry.engines:
            if engine.idle_s >= idle_s:
                engine.unload()


def notify(*states: str) -> None:
    """Send states such as READY=1. A failure is logged only."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # an abstract socket's name begins with a zero byte
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(address)
            channel.sendall("\n".join(states).encode())
    except OSError as error:
        logger.warning("systemd cannot be notified of %s: %s", " ".join(states), error)


async def keep_alive() -> None:
    """Notify the watchdog twice per WatchdogSec while the event loop runs; once the loop hangs, systemd ends the
    process. Returns at once without a watchdog."""
    try:
        period_s = int(os.environ["WATCHDOG_USEC"]) / 2e6
    except (KeyError, ValueError):
        return
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(period_s)


class LoadLog:
    """Makes each line from the changes of the metrics since the last one."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._time = clock()
        self._values = metrics.values()

    async def run(self, interval_s: float) -> None:
        """Write lines until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            for fields in self.take():
                load_logger.info("load", extra={"fields": fields})

    def take(self) -> list[dict[str, object]]:
        """Return the fields of a line for each model with work now or since the last call."""
        before, last = self._values, self._time
        self._values, self._time = self._metrics.values(), self._clock()
        seconds = max(self._time - last, 1e-9)
        lines = []
        for model, now in self._values.items():
            was = before.get(model, {})
            gained = {name: max(0, value - was.get(name, 0)) for name, value in now.items() if name.endswith("_total")}
            prompt, generated = gained["quire_prompt_tokens_total"], gained["quire_generation_tokens_total"]
            running, waiting = now["quire_num_requests_running"], now["quire_num_requests_waiting"]
            if not (prompt or generated or running or waiting):
                continue
            line: dict[str, object] = {
                "model": model,
                "running": int(running),
                "waiting": int(waiting),
                "prompt_tok_s": round(prompt / seconds, 1),
                "generation_tok_s": round(generated / seconds, 1),
                "kv_usage": f"{now['quire_kv_cache_usage_perc']:.1%}",
            }
            if queries := gained["quire_prefix_cache_queries_total"]:
                line["prefix_hit_rate"] = f"{gained['quire_prefix_cache_hits_total'] / queries:.1%}"
            if preemptions := gained["quire_num_preemptions_total"]:
                line["preemptions"] = int(preemptions)
            lines.append(line)
        return lines
