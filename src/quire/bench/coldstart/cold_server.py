"""A server process that starts cold, watched from its first moment: when it answers, what has arrived, its first token.

All that is read of a server's words about its loading is read here.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from quire.bench.serving.stream_client import Stream, StreamClient
from quire.config import EngineConfig

SERVE = (sys.executable, "-m", "quire", "serve")
MODEL = "measured"  #: the name that the server gives its model
POLL_S = 0.05  #: between two looks at how far loading is
_TIMEOUT_S = 900.0  #: for a cold start
_STOP_TIMEOUT_S = 30.0
_LAST_WORDS_S = 2.0  #: others may hold the log of a process open that has ended
#: The line in which an engine says where its start went: `cold start: imports 1.2 s, config 0.1 s, ...`.
_PHASES_LINE = re.compile(r"cold start: (.*)")
_PHASE = re.compile(r"([a-z][a-z ]*?) (\d+(?:\.\d+)?) s\b")


class ColdServer:
    """`quire serve` in a process of its own. All times are seconds since that was started."""

    def __init__(self, config: EngineConfig, options: Sequence[str]) -> None:
        given = {f"QUIRE_{field.name.upper()}": getattr(config, field.name) for field in fields(config)}
        # Other settings of this environment would be the server's too, and it is measured with its defaults.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        environment |= {name: str(value) for name, value in given.items() if value is not None}
        environment["QUIRE_USE_TQDM"] = "0"
        self.port = _free_port()
        self.listening_s: float | None = None  #: it answers, be it with 503
        self.stages: dict[int, float] = {}  #: when each stage was first seen serving
        self.phases: dict[str, float] = {}  #: seconds by name, as the engine says
        self.num_stages: int | None = None  #: None while nobody has said
        self.max_model_len: int | None = None  #: once a stage serves
        self._log: list[str] = []
        self._changed = threading.Condition()
        self._is_closing = False
        place = ["--host", "127.0.0.1", "--port", str(self.port)]
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [*SERVE, *place, *options, "--model", f"{MODEL}={config.model}"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._log_reader = threading.Thread(target=self._read_log, daemon=True)
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._log_reader.start()
        self._poller.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/completions"

    @property
    def is_whole(self) -> bool:
        """The last stage serves."""
        return self.num_stages is not None and self.num_stages in self.stages

    def seconds(self) -> float:
        """Since the process was started."""
        return time.monotonic() - self.started

    def wait_listening(self) -> None:
        """Until the port answers.

        Raises:
            RuntimeError: the process has ended; its last words.
        """
        self._wait(lambda: self.listening_s is not None)

    def wait_stage(self, number: int | None = None) -> float:
        """Until a stage serves, by default the last, which is the whole model. Returns when that was first seen.

        Raises:
            RuntimeError: the process has ended; its last words.
        """
        self._wait(lambda: max(self.stages, default=0) >= (number or self.num_stages or 1))
        wanted = number or self.num_stages
        assert wanted is not None
        return min(seconds for stage, seconds in self.stages.items() if stage >= wanted)

    def first_token(self, prompt: Sequence[int]) -> float:
        """Ask as soon as the port answers, and again where the server would rather be asked later. Returns when the
        first token came."""
        self.wait_listening()
        client = StreamClient(self.url, _TIMEOUT_S)
        try:
            while True:
                stream = client.open(completion(prompt, 1))
                client.read(lambda stream=stream: stream.is_ended or _is_put_off(stream))  # type: ignore[misc]
                if not _is_put_off(stream):
                    return stream.token_s()[0] - self.started
                self.wait_stage(1)
        finally:
            client.close()

    def wait_phases(self, timeout_s: float) -> dict[str, float]:
        """Where the start went, as the engine's log line says it once it has come."""
        with self._changed:
            self._changed.wait_for(lambda: self.phases, timeout_s)
        return self.phases

    def close(self) -> None:
        """End the process."""
        self._is_closing = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._poller.join(_STOP_TIMEOUT_S)
        self._log_reader.join(_STOP_TIMEOUT_S)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: until() or self._process.poll() is not None, _TIMEOUT_S)
            if until():
                return
        has_ended = self._process.poll() is not None
        self._log_reader.join(_LAST_WORDS_S if has_ended else 0)
        how = "ended" if has_ended else f"was not there after {_TIMEOUT_S:.0f} s"
        raise RuntimeError(f"the server {how}; its last words: {''.join(self._log)[-1000:]}")

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self._log.append(line)
                if found := _PHASES_LINE.search(line):
                    self.phases = {name: float(seconds) for name, seconds in _PHASE.findall(found[1])}
                self._changed.notify_all()
        self._process.wait()
        with self._changed:
            self._changed.notify_all()

    def _poll(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        while not self._is_closing and self._process.poll() is None:
            try:
                connection.request("GET", "/v1/models")
                body = connection.getresponse().read()
                now = self.seconds()
                cards = json.loads(body)["data"]
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                connection.close()  # it does not listen yet, or not any more
            else:
                with self._changed:
                    self._note(cards[0], now)
                    self._changed.notify_all()
                if self.is_whole:
                    break
            time.sleep(POLL_S)
        connection.close()
        with self._changed:  # the process may have ended, while others hold its log open
            self._changed.notify_all()

    def _note(self, card: dict[str, Any], now: float) -> None:
        """Take in what `/v1/models` says of the model."""
        if self.listening_s is None:
            self.listening_s = now
        if card["state"] != "ready":  # what is loaded does not serve yet
            return
        self.num_stages = card.get("num_stages") or 1  # a model without stages may not say that it has one
        self.max_model_len = card["max_model_len"]
        stage = 1 if card.get("stage") is None else card["stage"]
        # A model without stages is not whole while it computes beside loading.
        is_partial = self.num_stages == 1 and (card.get("bytes_loaded") or 0) < (card.get("bytes_total") or 0)
        if stage > 0 and not is_partial:
            self.stages.setdefault(stage, now)


@contextmanager
def cold_server(config: EngineConfig, options: Sequence[str]) -> Iterator[ColdServer]:
    """A server that ends with the block."""
    server = ColdServer(config, options)
    try:
        yield server
    finally:
        server.close()


def _is_put_off(stream: Stream) -> bool:
    """The server is loading, and would rather be asked later."""
    return b" 503 " in b"".join(stream.pieces[:1])[:16]


def completion(prompt: Sequence[int], max_tokens: int) -> bytes:
    """The body of a streamed, greedy request that brings so many tokens."""
    fixed = {"temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}
    return json.dumps({"model": MODEL, "prompt": list(prompt), "max_tokens": max_tokens, **fixed}).encode()


def make_prompt(length: int, number: int = 0) -> list[int]:
    """Token ids that every model has, and that no other number's prompt begins with."""
    return [20 + (7 * place + 31 * number) % 200 for place in range(length)]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
