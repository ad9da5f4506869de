"""A real server: uvicorn in a thread and a real engine over the smallest model, reached over a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import uvicorn
import uvicorn.server

from engines import thread_engine
from quire.assembly import start_engine
from quire.async_engine.messages import ModelState
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.server.app import make_app
from quire.server.http.protocol import HttpProtocol
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

MODEL = "random:tiny"
MAX_MODEL_LEN = 256
PATIENCE_S = 100  # timeout of operations that take no time on an idle machine
SMALL = EngineConfig(model=MODEL, num_kv_blocks=64, max_model_len=MAX_MODEL_LEN, use_tqdm=False)

# A client for each request takes longer than the request.
_CLIENT = httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
# uvicorn polls ten times a second for its end and that of its connections; tests stop hundreds of servers.
uvicorn.server.asyncio = SimpleNamespace(  # type: ignore[attr-defined]
    **{**vars(asyncio), "sleep": lambda delay: asyncio.sleep(min(delay, 0.01))}
)


@dataclass
class RunningServer:
    url: str
    registry: ModelRegistry

    @property
    def engine(self) -> Engine:
        return self.registry.get(None).async_engine.engine

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return _CLIENT.request(method, self.url + path, timeout=PATIENCE_S, **options)

    def get(self, path: str) -> httpx.Response:
        return self.send("GET", path)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.send("POST", path, json=body)

    def complete(self, **body: Any) -> httpx.Response:
        return self.post("/v1/completions", **{"model": MODEL, "prompt": "Hello", "max_tokens": 8, **body})

    def chat(self, **body: Any) -> httpx.Response:
        messages = [{"role": "user", "content": "Hello"}]
        return self.post("/v1/chat/completions", **{"model": MODEL, "messages": messages, "max_tokens": 8, **body})

    def client(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S, **options)

    def async_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)

    def wait_for_state(self, name: str, state: str) -> None:
        wait_until(lambda: self.registry.get(name).async_engine.state == state)

    def wait_until_idle(self) -> None:
        """Wait until nothing runs and every block is free or cached."""
        wait_until(lambda: not self.engine.has_unfinished() and not self.engine.scheduler.kv.pool.num_used)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def make_model(
    config: EngineConfig = SMALL,
    *,
    name: str = MODEL,
    chat_template: str | None = None,
    start: Callable[[EngineConfig], Engine] = start_engine,
    **options: Any,
) -> ServedModel:
    """Make a model that is not started; `options` are those of `AsyncEngine`."""
    engine = thread_engine(name, partial(start, config), **options)
    return ServedModel(name, engine, 1_700_000_000, chat_template, config.model)


@contextmanager
def running(
    *models: ServedModel,
    settings: ServerSettings | None = None,
    is_ready: bool = True,
    send_buffer: int | None = None,
    port: int = 0,
    **rooms: Any,
) -> Iterator[RunningServer]:
    """Run a server; `send_buffer` limits the socket's buffer for slow readers, `port` 0 is any, `rooms` are options of
    `make_app`."""
    registry = ModelRegistry(models)
    app = make_app(registry, settings or ServerSettings(), **rooms)
    listener = socket.create_server(("127.0.0.1", port))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    config = uvicorn.Config(app, http=HttpProtocol, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    engines = [model.async_engine for model in models]
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        for engine in engines if is_ready else ():
            engine.start(server.servers[0].get_loop())
        while is_ready and any(engine.state is ModelState.LOADING for engine in engines):
            time.sleep(0.01)
        yield RunningServer(f"http://127.0.0.1:{listener.getsockname()[1]}", registry)
    finally:
        server.should_exit = True
        thread.join()
        for engine in engines:
            engine.shutdown()
        listener.close()
