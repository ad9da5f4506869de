"""Trouble beside the soak's requests: busy processes, floods of /tokenize, colliding template variables, and an engine
process that is frozen.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks.soak.agents import CHAT
from benchmarks.soak.requests import MODEL

NUM_NEIGHBOURS = 2
NUM_FLOODS = 4
HANG_TIMEOUT_S = 5.0
#: Parts of what those requests are told that the frozen engine had, and those that came while it was loaded again.
EXCUSES = ("has not answered", "being loaded", "is loading", "engine failed")
_PATIENCE_S = 120
_NAMES = "self", "template", "messages", "special_tokens", "variables", "chat", "add_generation_prompt", "kwargs", "x y"
_TEXTS = "word " * 20_000, "word " * 1_500_000, "word " * 50, "\u00e4" * 100_000


class Trouble:
    """Trouble inside a context; `problems` are wrong answers.

    Args:
        url: the server's URL.
        pid: the server's process.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.problems: list[str] = []
        self.num_asked = 0
        self._url = url
        self._pid = pid
        self._is_over = threading.Event()
        busy = [sys.executable, "-c", "while True: pass"]
        self._neighbours = [subprocess.Popen(busy) for _ in range(NUM_NEIGHBOURS)]
        asks = enumerate([self._flood] * NUM_FLOODS + [self._vary_templates])
        self._threads = [threading.Thread(target=self._ask_on, args=(ask, seed), daemon=True) for seed, ask in asks]

    def __enter__(self) -> Trouble:
        for thread in self._threads:
            thread.start()
        return self

    def freeze(self) -> None:
        """Stop the engine's process: the child of the server with the most memory."""
        pids = [int(child) for task in Path(f"/proc/{self._pid}/task").iterdir() for child in children(task)]
        os.kill(max(pids, key=_resident_pages), signal.SIGSTOP)

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        for process in self._neighbours:
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def _ask_on(self, ask: Callable[[random.Random], tuple[str, dict[str, Any]]], seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=self._url, timeout=_PATIENCE_S) as client:
            while not self._is_over.wait(0.2):
                path, body = ask(rng)
                try:
                    answer = client.post(path, json=body)
                except httpx.HTTPError as error:
                    self.problems.append(f"{path} was not answered: {error!r}")
                    continue
                self.num_asked += 1
                if answer.status_code >= 500 and not any(excuse in answer.text for excuse in EXCUSES):
                    self.problems.append(f"{path} got {answer.status_code}: {answer.text[:300]} <- {str(body)[:200]}")

    @staticmethod
    def _flood(rng: random.Random) -> tuple[str, dict[str, Any]]:
        return "/tokenize", {"model": MODEL, "prompt": rng.choice(_TEXTS), "return_token_strs": rng.random() < 0.3}

    @staticmethod
    def _vary_templates(rng: random.Random) -> tuple[str, dict[str, Any]]:
        values: Any = rng.choice([1, None, "x", [], {}, [{"role": "user"}]])
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        return CHAT, body | {"chat_template_kwargs": {rng.choice(_NAMES): values}}


def children(task: Path) -> list[str]:
    """Child processes of a thread (a folder of /proc)."""
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []


def _resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
