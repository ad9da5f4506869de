"""The namespaces, servers and a Ray cluster in them, and requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks.failover import read
from benchmarks.soak.requests import MODEL
from quire.cluster.run import node_environment

HOSTS = f"quire-a-{os.getpid()}", f"quire-b-{os.getpid()}"
ADDRESSES = "10.77.0.1", "10.77.0.2"
URL, RAY = f"http://{ADDRESSES[0]}:8000", f"{ADDRESSES[0]}:6379"
RATES = ("1gbit", "200mbit", "20mbit")
NUM_STREAMS = 8
PATIENCE_S = 240
SMALL = ["--max-model-len", "2048", "--num-kv-blocks", "512", "--num-threads", "1", "--dtype", "float32"]
TWO_REPLICAS = ["--min-replicas", "2", "--max-replicas", "2", "--replica-cpus", "1", *SMALL, MODEL]
_TOKENS = "quire_generation_tokens_total"
_CLONE_NEWNET = 0x40000000


Rows = list[tuple[str, ...]]
Answers = list[tuple[str, float, int]]  # texts, longest silences, numbers of errors


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _enter(namespace: int) -> None:
    """Move this thread, and threads that it starts later, into a network namespace."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    """Both namespaces and their link. This thread is in the first one until `remove`."""

    def __init__(self, rate: str) -> None:
        self._mark = uuid.uuid4().hex
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            self._make(rate)
        except BaseException:
            self.remove()
            raise

    def _make(self, rate: str) -> None:
        for name in HOSTS:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", "quire0", "netns", HOSTS[0], "type", "veth", "peer", "quire1", "netns", HOSTS[1])
        for number, (name, address) in enumerate(zip(HOSTS, ADDRESSES, strict=True)):
            device = f"quire{number}"
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        self.limit(rate)
        with open(f"/run/netns/{HOSTS[0]}") as namespace:
            _enter(namespace.fileno())

    def limit(self, rate: str) -> None:
        """Set the bandwidth in both directions."""
        for number, name in enumerate(HOSTS):
            limit = ["rate", rate, "burst", "256kb", "latency", "100ms"]
            run("tc", "-n", name, "qdisc", "replace", "dev", f"quire{number}", "root", "tbf", *limit)

    def start(
        self, host: int, command: list[str], log: Path, *, first: str = "", **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a command in a mount namespace of its own; the second host has its own /tmp and /dev/shm. `first` is
        shell text that ends with && or is empty."""
        marked = {**os.environ, **environment, "QUIRE_HOST": f"{self._mark}-{host}"}
        own = "mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && " if host else ""
        with log.open("ab") as file:
            inside = ["ip", "netns", "exec", HOSTS[host], "sh", "-c", f'{own}{first}exec "$@"', "sh", *command]
            return subprocess.Popen(inside, stdout=file, stderr=file, env=marked, start_new_session=True)

    def kill(self, host: int | None = None) -> None:
        """Kill the processes of a host, or of both, and wait for their end."""
        mark = f"QUIRE_HOST={self._mark}-{'' if host is None else host}".encode()
        for _ in range(100):
            left = 0
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if mark in (folder / "environ").read_bytes():
                        os.kill(int(folder.name), signal.SIGKILL)
                        left += 1
            if not left:
                return
            time.sleep(0.1)

    def cut(self) -> None:
        """The second host vanishes: no packet passes, and none is refused."""
        run("ip", "-n", HOSTS[1], "link", "set", "quire1", "down")

    def restore(self) -> None:
        run("ip", "-n", HOSTS[1], "link", "set", "quire1", "up")

    def remove(self) -> None:
        self.kill()
        _enter(self._home)
        os.close(self._home)
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def wait_for(condition: Callable[[], Any], what: str, log: Path) -> float:
    """Wait, and return the seconds."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
            if condition():
                return time.monotonic() - began
        if time.monotonic() > began + PATIENCE_S:
            raise RuntimeError(f"{what} never happened:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


class RayHosts:
    """A Ray cluster over both hosts, and `quire serve` on it. The second host joins with `join`."""

    def __init__(self, network: Network, folder: Path, arguments: list[str], *, joined: bool = False) -> None:
        self.network, self.log = network, folder / f"ray-{time.time_ns()}.log"
        self._temporary = tempfile.mkdtemp(prefix="qr", dir="/tmp")
        authentication = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex * 2}
        self._environment = {**node_environment(8 * 2**20), **authentication, "OMP_NUM_THREADS": "1"}
        head = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={self._temporary}"]
        self._num_nodes = 0
        self._ray(0, head)
        if joined:
            self.join()
        serve = ["-m", "quire", "serve", "--ray", "--ray-address", RAY, "--host", "0.0.0.0", "--port", "8000"]
        network.start(0, [sys.executable, *serve, *arguments], self.log, **self._environment)

    def _ray(self, host: int, arguments: list[str], **environment: str) -> None:
        ray = str(Path(sys.executable).with_name("ray"))
        common = [f"--node-ip-address={ADDRESSES[host]}", "--num-cpus=1", "--object-store-memory=100000000"]
        command = [ray, "start", "--block", *common, *arguments]
        self.network.start(host, command, self.log, **{**self._environment, **environment})
        self._num_nodes += 1
        wait_for(
            lambda: self.log.read_text(errors="replace").count("Ray runtime started") == self._num_nodes,
            f"Ray on host {host}",
            self.log,
        )

    def join(self, **environment: str) -> None:
        self._ray(1, [f"--address={RAY}"], **environment)

    def wait_ready(self) -> float:
        return wait_for(lambda: httpx.get(f"{URL}/health").status_code == 200, "the first replica", self.log)

    def tokens(self) -> dict[str, float]:
        """Generated tokens by replica."""
        found: dict[str, float] = {}
        for line in httpx.get(f"{URL}/metrics", timeout=PATIENCE_S).text.splitlines():
            if line.startswith(f"{_TOKENS}{{") and 'replica="' in line:
                found[line.split('replica="')[1].split('"')[0]] = float(line.split()[-1])
        return found

    def join_and_answer(self) -> float:
        """Return the seconds until the second host's replica answers."""
        began = time.monotonic()
        self.join()
        self.wait_second()
        return time.monotonic() - began

    def wait_second(self) -> None:
        """Wait until both replicas answer: of two requests at a time the router sends each one request."""

        def both_answer() -> bool:
            asyncio.run(ask(URL, count=2, tokens=8))
            return sum(tokens > 0 for tokens in self.tokens().values()) == 2

        wait_for(both_answer, "the second replica", self.log)

    def stop(self) -> None:
        self.network.kill()
        shutil.rmtree(self._temporary, ignore_errors=True)


async def ask(
    url: str, on_begun: Callable[[], None] = lambda: None, count: int = NUM_STREAMS, tokens: int = 300
) -> Answers:
    """Read streams; call `on_begun` once each has begun. Returns texts, longest silences and numbers of errors."""
    begun = asyncio.Semaphore(0)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        streams = [asyncio.create_task(read(client, number, begun, tokens)) for number in range(count)]
        for _ in streams:
            await begun.acquire()
        on_begun()
        return await asyncio.gather(*streams)


class Server:
    """`quire serve` on one host, with this number of ranks. `first` is shell text before it."""

    def __init__(
        self, network: Network, host: int, folder: Path, arguments: list[str], ranks: str = "1", first: str = ""
    ) -> None:
        self.url = f"http://{ADDRESSES[host]}:8100"
        log = folder / f"server-{time.time_ns()}.log"
        command = ["-m", "quire", "serve", "--host", "0.0.0.0", "--port", "8100", "--tensor-parallel-size", ranks]
        network.start(host, [sys.executable, *command, *arguments], log, first=first, OMP_NUM_THREADS="1")
        wait_for(lambda: httpx.get(f"{self.url}/health").status_code == 200, "the server", log)


def complete(url: str, **body: Any) -> tuple[float, dict[str, Any]]:
    began = time.monotonic()
    body = {"model": MODEL, "temperature": 0, "ignore_eos": True, **body}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S)
    answer.raise_for_status()
    return time.monotonic() - began, answer.json()


def prompt_of(number: int, length: int) -> list[int]:
    return [100 + (number * 7919 + at * 31) % 900 for at in range(length)]


def compare(before: Answers, after: Answers) -> str:
    same = sum(ours[0] == theirs[0] for ours, theirs in zip(after, before, strict=True))
    errors = sum(each[2] for each in after)
    silence, usual = (max(each[1] for each in answers) for answers in (after, before))
    found = f"{same} of {NUM_STREAMS} with equal tokens, {errors} errors"
    return f"{found}; longest silence {silence:.1f} s (undisturbed {usual:.2f} s)"
