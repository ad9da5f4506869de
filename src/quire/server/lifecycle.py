"""A server process from its first line to its exit status: listens, loads, serves, drains.

The first SIGTERM (or Ctrl-C, which is in more of a hurry) drains: /health says so and new requests get 503 while the
running ones finish. A second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import errno
import faulthandler
import logging
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import uvicorn
import uvloop
from starlette.types import ASGIApp

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import ModelState
from quire.server.http.protocol import HttpProtocol
from quire.server.load_log import LoadLog
from quire.server.metrics import Metrics
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings
from quire.server.systemd import keep_alive, notify
from quire.system.malloc import share_one_heap

logger = logging.getLogger("quire.server")

EXIT_FAILED = 1  #: no model can be served any more
EXIT_NOT_LOADED = 2  #: no model could be loaded: what was asked for cannot be served
EXIT_INTERRUPTED = 128 + signal.SIGINT

_INTERRUPT_TIMEOUT_S = 3.0  # whoever pressed Ctrl-C is watching: for running requests, and again for the step under way
_LAST_BYTES_TIMEOUT_S = 5  # after the drain, for answers that are still on their way to slow readers
_STOP_TIMEOUT_S = 20.0  # for the step under way: of a large model on a busy machine it takes many seconds
_HEAD_TIMEOUT_S = 20.0
_KEEP_ALIVE_S = 75  # longer than the 60 s of usual proxies: they must be the ones to hang up
_MAX_FILES = 65536
_STDERR = 2
# A busy Python thread must not hold the engine's small steps up for the usual 5 ms at a time.
_SWITCH_INTERVAL_S = 0.0005


def serve(
    app: ASGIApp,
    registry: ModelRegistry,
    settings: ServerSettings,
    *,
    metrics: Metrics | None = None,
    banner: Callable[[str], str] | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> int:
    """Serve until told to stop. Call it in the main thread.

    Args:
        app: the HTTP interface of `registry`.
        registry: its engines are started here, and shut down.
        settings: where to listen, and for how long to drain.
        metrics: source of the load lines; None writes none.
        banner: makes the text that is printed once a model is ready, from the server's URL.
        on_stop: ends what goes on beside the engines, once they are drained.

    Returns:
        The exit status: 0 after SIGTERM, 130 after Ctrl-C, 2 where no model could be loaded, 1 where the last was lost.

    Raises:
        ValueError: the address cannot be listened on, or the TLS files cannot be used.
    """
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
    listener = _listen(settings.host, settings.port) if settings.uds is None else _listen_at(settings.uds)
    url = _url(settings, listener)
    if not settings.api_keys and settings.uds is None and not _is_loopback(settings.host):
        logger.warning("everyone who can reach %s may use this server; --api-key lets in only who has a key", url)
    _allow_many_files()
    share_one_heap()
    faulthandler.enable(_STDERR)  # a crash of native code says where, on its way out
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        process = _Process(
            _Server(config),
            listener,
            [model.async_engine for model in registry],
            settings,
            url,
            LoadLog(metrics) if metrics is not None else None,
            banner,
            on_stop,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(process.run())
    finally:
        sys.setswitchinterval(before)
        listener.close()


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()  # signals are ours


@dataclass(frozen=True)
class _Process:
    """One run of `serve`."""

    server: _Server
    listener: socket.socket
    engines: list[AsyncEngine]
    settings: ServerSettings
    url: str
    load_log: LoadLog | None
    banner: Callable[[str], str] | None
    on_stop: Callable[[], None]

    async def run(self) -> int:
        told_to_stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with _signals_to(told_to_stop):
            serving = asyncio.create_task(self.server.serve(sockets=[self.listener]))
            for engine in self.engines:
                engine.start(asyncio.get_running_loop())
            announcing = asyncio.create_task(self._announce())
            others = (_hang_up_on_dawdlers(self.server), keep_alive())
            beside: list[asyncio.Task[Any]] = [announcing, *map(asyncio.create_task, others)]
            if self.settings.idle_unload_s is not None:
                beside.append(asyncio.create_task(unload_idle(self.engines, self.settings.idle_unload_s)))
            if self.load_log is not None:
                beside.append(asyncio.create_task(self.load_log.run(self.settings.log_interval_s)))
            lost = asyncio.create_task(self._wait_until_all_failed())
            ends: list[asyncio.Future[Any]] = [told_to_stop, lost, serving]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            was_ready = not lost.done() or await announcing
            is_loading = any(engine.state is ModelState.LOADING for engine in self.engines)
            notify("STOPPING=1")
            if told_to_stop.done():
                await self._drain(told_to_stop.result())
            await asyncio.to_thread(self.on_stop)
            self.server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            if self.settings.uds is not None:
                Path(self.settings.uds).unlink(missing_ok=True)
            for task in (*beside, lost):
                task.cancel()
            if serving.exception() is not None:
                logger.error("the HTTP server ended", exc_info=serving.exception())
            is_interrupted = told_to_stop.done() and told_to_stop.result() == signal.SIGINT
            if told_to_stop.done():
                status = EXIT_INTERRUPTED if is_interrupted else 0
            else:
                status = EXIT_FAILED if was_ready else EXIT_NOT_LOADED
            has_stopped = await self._shut_down_engines(_INTERRUPT_TIMEOUT_S if is_interrupted else _STOP_TIMEOUT_S)
            if is_loading or not has_stopped:  # a thread in native code must neither keep us from ending nor crash us
                _end_at_once(status)
        return status

    async def _announce(self) -> bool:
        """Say when the models are ready. False where none came to be."""
        names = ", ".join(engine.name for engine in self.engines)
        logger.info("listening on %s while loading %s", self.url, names)
        failures = await asyncio.gather(*(engine.wait_ready() for engine in self.engines), return_exceptions=True)
        if all(failures):
            return False
        if self.banner is not None:
            print(self.banner(self.url), flush=True)
        logger.info("serving at %s", self.url)
        notify("READY=1", f"STATUS=serving at {self.url}")
        return True

    async def _wait_until_all_failed(self) -> None:
        """A process without a model is of no use to anyone; its supervisor can do better."""
        while not all(engine.state is ModelState.FAILED for engine in self.engines):
            await asyncio.sleep(0.2)

    async def _drain(self, signum: int) -> None:
        timeout_s = self.settings.shutdown_timeout_s
        if signum == signal.SIGINT:
            timeout_s = min(timeout_s, _INTERRUPT_TIMEOUT_S)
        logger.info("stopping: running requests have %g s to finish; a second signal ends them now", timeout_s)
        cut_off = sum(await asyncio.gather(*(engine.drain(timeout_s) for engine in self.engines)))
        if cut_off:
            logger.warning("%d requests did not finish within %g s and were cut off", cut_off, timeout_s)

    async def _shut_down_engines(self, timeout_s: float) -> bool:
        """Let the engines' threads end. False where one is stuck."""
        threads = [threading.Thread(target=engine.shutdown, daemon=True) for engine in self.engines]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + timeout_s
        while any(thread.is_alive() for thread in threads):
            if time.monotonic() > deadline:
                logger.error("the step under way has not ended within %g s; the process ends without it", timeout_s)
                return False
            await asyncio.sleep(0.02)
        logger.info("stopped")
        return True


@contextmanager
def _signals_to(told_to_stop: asyncio.Future[int]) -> Iterator[None]:
    """The first SIGTERM or SIGINT sets the future to its number; the second ends the process.

    The handlers run between two instructions of the main thread, so that the second is heard even while the loop is
    held by something.
    """
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    def hear(signum: int, frame: FrameType | None) -> None:
        heard.append(signum)
        if len(heard) > 1:
            _end_at_once(128 + signum)
        loop.call_soon_threadsafe(told_to_stop.set_result, signum)

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_at_once(status: int) -> NoReturn:
    for child in multiprocessing.active_children():  # they would outlive us
        child.kill()
    os._exit(status)


async def unload_idle(engines: Sequence[AsyncEngine], idle_s: float) -> None:
    """Give the memory of engines back that have had no request for so long, until cancelled."""
    while True:
        await asyncio.sleep(min(1.0, idle_s / 4))
        for engine in engines:
            if engine.idle_s >= idle_s:
                engine.unload()


async def _hang_up_on_dawdlers(server: uvicorn.Server, timeout_s: float = _HEAD_TIMEOUT_S) -> None:
    """Close connections whose request makes no progress, or that still send a body that was refused long ago.

    uvicorn times neither. A connection that is idle between two requests is uvicorn's own to close.
    """
    seen: dict[Any, Any] = {}
    while True:
        await asyncio.sleep(timeout_s / 2)
        connections: set[Any] = server.server_state.connections
        dawdling = {
            connection: connection.cycle
            for connection in connections
            if (connection.cycle is None or connection.cycle.response_complete)
            and connection.timeout_keep_alive_task is None
        }
        for connection, cycle in dawdling.items():
            if seen.get(connection, connection) is cycle:  # nothing new since we looked last
                connection.transport.close()
        seen = dawdling


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=socket.SOMAXCONN
        )
    except OSError as error:
        named = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
        raise ValueError(f"cannot listen on {host}:{port}: {named}; choose another --host or --port") from None
    # Connections inherit it. asyncio would set it itself, but not on sockets of this making; without it a stream's
    # small writes wait for the client's delayed acknowledgements, tens of milliseconds each.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _listen_at(path: str) -> socket.socket:
    """A Unix socket. One that a server left behind is replaced; one that is listened on, or no socket, is not."""
    place = Path(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if place.is_socket() and _is_left_behind(path):
            place.unlink()
        listener.bind(path)
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen at {path}: {error.strerror or error}; choose another --uds") from None
    return listener


def _is_left_behind(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(path) == errno.ECONNREFUSED


def _url(settings: ServerSettings, listener: socket.socket) -> str:
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host = settings.host
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    scheme = "https" if settings.ssl_certfile is not None else "http"
    return f"{scheme}://{reachable}:{listener.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _allow_many_files() -> None:
    """Thousands of clients may wait at once, and each is a file; the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
