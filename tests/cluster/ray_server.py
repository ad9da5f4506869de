"""`quire serve --ray` as a process with its own cluster."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

HAS_RAY = importlib.util.find_spec("ray") is not None
WITHOUT_RAY = "Ray is not installed; pip install 'quire-llm[ray]'"
TIMEOUT_S = 100
_MARK = "QUIRE_TEST_CLUSTER"  #: in the environment of every process of the cluster


class RayServer:
    """A server process; `url` is the application's."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._mark = environment.setdefault(_MARK, uuid.uuid4().hex)
        self._log = Path(tempfile.mkstemp(suffix=".log")[1])
        command = [sys.executable, "-m", "quire", "serve", "--ray", "--port", str(port), *arguments]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what} never happened; the log:\n{self.log}"
            time.sleep(0.05)
        return found

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: self.process.poll() is not None or "Quire serves" in self.log, "the banner")
        assert self.process.poll() is None, self.log

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=TIMEOUT_S)

    def complete(self, **body: Any) -> dict[str, Any]:
        with self.client() as client:
            answer = client.post("/v1/completions", json=completion(**body))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def processes(self, title: str = "") -> list[int]:
        """List this cluster's processes by the start of their command line."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{_MARK}={self._mark}".encode() in (folder / "environ").read_bytes() and (
                    folder / "cmdline"
                ).read_bytes().startswith(title.encode()):
                    found.append(int(folder.name))
        return found

    def replicas(self) -> list[int]:
        return [pid for pid in self.processes("ray::ServeReplica:quire") if "ingress" not in _title(pid)]

    def stop(self) -> int:
        """Drain the server and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        for pid in {self.process.pid, *self.processes()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._log.unlink()


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")


def completion(**body: Any) -> dict[str, Any]:
    return {"prompt": "Hello", "max_tokens": 4, "ignore_eos": True, "temperature": 0, **body}


@contextmanager
def ray_server(*arguments: str, is_ready: bool = True, **environment: str) -> Iterator[RayServer]:
    server = RayServer(*arguments, **environment)
    try:
        if is_ready:
            server.wait_until_ready()
        yield server
    finally:
        server.kill()


@contextmanager
def two_machines(num_cpus: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Simulate two machines in one cluster; yield its address and a server's environment."""
    from ray.cluster_utils import Cluster

    os.environ[_MARK] = uuid.uuid4().hex
    options = {"num_cpus": num_cpus, "object_store_memory": 100 * 2**20}
    try:
        cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
        try:
            cluster.add_node(**options)
            yield cluster.address, {_MARK: os.environ[_MARK]}
        finally:
            cluster.shutdown()
    finally:
        del os.environ[_MARK]
