"""A `quire serve` process, observed from its start: when it answers, which stages serve, its first token."""

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
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from quire.config import EngineConfig
from quire.system.memory import process_age

SERVE = (sys.executable, "-m", "quire", "serve")
MODEL = "measured"  #: the model's name on the server
POLL_S = 0.05  #: between two requests for the loading state
_TIMEOUT_S = 900.0  #: for a cold start
_STOP_TIMEOUT_S = 30.0
_LOG_TIMEOUT_S = 2.0  #: other processes may hold the log of an ended server open
#: The engine's log line with its phases: `cold start: imports 1.2 s, config 0.1 s, ...`.
_PHASES_LINE = re.compile(r"cold start: (.*)")
_PHASE = re.compile(r"([a-z][a-z ]*?) (\d+(?:\.\d+)?) s\b")


def server_environment(config: EngineConfig) -> dict[str, str]:
    """Return this environment with the config's options in place of its own: a server is measured with its defaults,
    whatever else this environment sets."""
    given = {f"QUIRE_{field.name.upper()}": getattr(config, field.name) for field in fields(config)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    return environment | {name: str(value) for name, value in given.items() if value not in (None, ())}


class ColdServer:
    """A server process, to be closed. All times are seconds since its start."""

    def __init__(self, config: EngineConfig, options: Sequence[str]) -> None:
        environment = server_environment(config)
        environment["QUIRE_USE_TQDM"] = environment["QUIRE_KEEP_KV"] = "0"  # KV of an earlier start would be found
        self.port = _free_port()
        self.listening_s: float | None = None  #: until it answers, be it with 503
        self.stages: dict[int, float] = {}  #: when each stage was first seen serving
        self.phases: dict[str, float] = {}  #: duration of each, as the engine logs it
        self.num_stages: int | None = None  #: None until a stage serves
        self.max_model_len: int | None = None  #: None until a stage serves
        self._log: list[str] = []
        self._changed = threading.Condition()
        self._is_closing = False
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [*SERVE, *address, *options, "--model", f"{MODEL}={config.model}"],
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
    def is_complete(self) -> bool:
        """Whether the last stage serves."""
        return self.num_stages is not None and self.num_stages in self.stages

    def wait_stage(self, number: int | None = None) -> float:
        """Wait until a stage, by default the last one, serves; return the time. RuntimeError if the process ended."""
        self._wait(lambda: max(self.stages, default=0) >= (number or self.num_stages or 1))
        wanted = number or self.num_stages
        assert wanted is not None
        return min(seconds for stage, seconds in self.stages.items() if stage >= wanted)

    def first_token(self, prompt: Sequence[int]) -> float:
        """Request until a token comes; return its time. RuntimeError if the process ended, or refused the request."""
        self._wait(lambda: self.listening_s is not None)
        while (ttft_s := self._request_token(prompt)) is None:
            self.wait_stage(1)
        return ttft_s

    def wait_phases(self, timeout_s: float) -> dict[str, float]:
        """Wait for the engine's log line with its phases; spawn, the first, ends with the start of the engine's
        process. Empty after a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self.phases, timeout_s)
        engine = _engine_of(self._process.pid)
        if self.phases and engine is not None:
            return {"spawn": process_age(self._process.pid) - process_age(engine), **self.phases}
        return self.phases

    def close(self) -> None:
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

    def _request_token(self, prompt: Sequence[int]) -> float | None:
        """The time of the first token; None if the server is loading."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)) as connection:
            connection.request("POST", "/v1/completions", completion(prompt, 1), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status == 503:
                return None
            while response.status == 200 and (line := response.readline()):
                data = line.removeprefix(b"data: ")
                if data[:1] == b"{" and json.loads(data)["choices"][0]["token_ids"]:
                    return time.monotonic() - self.started
            raise RuntimeError(f"the server sent no token: {response.status} {response.read()[:500]!r}")

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: until() or self._process.poll() is not None, _TIMEOUT_S)
            if until():
                return
        has_ended = self._process.poll() is not None
        self._log_reader.join(_LOG_TIMEOUT_S if has_ended else 0)
        how = "ended" if has_ended else f"was not ready after {_TIMEOUT_S:.0f} s"
        raise RuntimeError(f"the server {how}; the end of its log: {''.join(self._log)[-1000:]}")

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                if " INFO request " not in line:
                    self._log.append(line)
                if found := _PHASES_LINE.search(line):
                    self.phases = {name: float(seconds) for name, seconds in _PHASE.findall(found[1])}
                self._changed.notify_all()
        self._process.wait()
        with self._changed:
            self._changed.notify_all()

    def _poll(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        while not self._is_closing and self._process.poll() is None and not self.is_complete:
            try:
                connection.request("GET", "/v1/models")
                body = connection.getresponse().read()
                now = time.monotonic() - self.started
                card = json.loads(body)["data"][0]
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                connection.close()  # not listening yet, or no longer
            else:
                with self._changed:
                    self._record(card, now)
                    self._changed.notify_all()
            time.sleep(POLL_S)
        connection.close()
        with self._changed:  # the process may have ended while other processes hold its log open
            self._changed.notify_all()

    def _record(self, card: dict[str, Any], now: float) -> None:
        """Record the model's entry in `/v1/models`."""
        if self.listening_s is None:
            self.listening_s = now
        if card["state"] != "ready":
            return
        self.num_stages = card.get("num_stages") or 1
        self.max_model_len = card["max_model_len"]
        stage = 1 if card.get("stage") is None else card["stage"]
        # With overlap, a model without stages computes before all of it is loaded.
        is_partial = self.num_stages == 1 and (card.get("bytes_loaded") or 0) < (card.get("bytes_total") or 0)
        if stage > 0 and not is_partial:
            self.stages.setdefault(stage, now)


def completion(prompt: Sequence[int], max_tokens: int) -> bytes:
    """Body of a streamed, greedy completion request."""
    fixed = {"temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}
    return json.dumps({"model": MODEL, "prompt": list(prompt), "max_tokens": max_tokens, **fixed}).encode()


def make_prompt(length: int, number: int = 0) -> list[int]:
    """Token ids inside every vocabulary; prompts of different numbers share no prefix."""
    return [20 + (7 * position + 31 * number) % 200 for position in range(length)]


def _engine_of(server: int) -> str | None:
    """Find the server's child process that runs its engine."""
    with suppress(OSError):  # a process or thread ends meanwhile
        for listed in Path(f"/proc/{server}/task").glob("*/children"):
            for pid in listed.read_text().split():
                if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\0engine\0"):
                    return pid
    return None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
