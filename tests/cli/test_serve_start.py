"""What `quire serve` imports, in which order, and the memory that its server then has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from quire.kernels.loaded import load_kernels

TIMEOUT_S = 100
#: Records what happens until the server is imported; child processes are not real.
RECORDING = """
import os, sys
import quire.system.child_process as module

events = []

class Child:
    def __init__(self, name, **options):
        events.append(f"spawn {name}")

    def run(self, function, name, *others):
        events.append(f"run {name}")

    def close(self):
        events.append("close")

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("typer", "quire.server.app"):
            events.append(f"import {name}")
        if name == "quire.server.app":
            end(0)

def end(status):
    print(events, flush=True)
    os._exit(status)

module.ChildProcess = Child
sys.meta_path.insert(0, Watch())
from quire.cli import main
try:
    main()
finally:
    end(1)
"""
#: Runs a server, and tells its memory and modules when a line comes.
ASKING = """
import json, sys, threading
from pathlib import Path

def tell():
    sys.stdin.readline()
    memory = Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]
    print(json.dumps([int(memory) / 1024, sorted(sys.modules)]), flush=True)

threading.Thread(target=tell, daemon=True).start()
from quire.cli import main
main()
"""
#: Packages that only some servers or requests need.
LATE = {
    "faiss", "fastapi", "huggingface_hub", "httpx", "jinja2", "llguidance", "numpy", "obstore", "opentelemetry", "ray",
    "rich", "torch", "transformers", "yaml",
}  # fmt: skip
MAX_MODULES = 700  #: of Python, of packages and of ours
MAX_MIB, MAX_ENGINE_MIB = 80, 120


def events_of(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", RECORDING, "serve", *arguments, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    found: list[str] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    return found


def test_engines_load_while_the_command_line_is_parsed_and_the_server_is_imported() -> None:
    assert events_of("one=random:tiny", "two=random:tiny") == [
        "spawn engine",
        "import typer",
        "run one",
        "spawn engine",
        "run two",
        "import quire.server.app",
    ]


@pytest.mark.parametrize("option", ["--no-engine-process", "--help"])
def test_no_process_starts_for_a_server_without_any(option: str) -> None:
    assert not [event for event in events_of("random:tiny", option) if event.startswith(("spawn", "run"))]


def memory_of_engine(server: int) -> tuple[float, str]:
    """Return the resident MiB of a server's engine, and all files that it maps."""
    children = Path(f"/proc/{server}/task").glob("*/children")
    (engine,) = (
        process
        for each in children
        for pid in each.read_text().split()
        if (process := Path(f"/proc/{pid}")) and (process / "cmdline").read_text().endswith("engine\0")
    )
    memory = (engine / "status").read_text().partition("VmRSS:")[2].split()[0]
    return int(memory) / 1024, (engine / "maps").read_text()


def test_an_idle_server_has_imported_little_and_takes_little_memory() -> None:
    command = [sys.executable, "-c", ASKING, "serve", "quire-mini", "--num-kv-blocks", "64", "--port", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found
            body = {"model": "quire-mini", "prompt": "Hello", "max_tokens": 2}
            assert httpx.post(f"{found[0]}/v1/completions", json=body, timeout=TIMEOUT_S).status_code == 200
            print(file=server.stdin, flush=True)
            lines = iter(server.stdout.readline, "")
            memory_mib, modules = json.loads(next(line for line in lines if line.startswith("[")))
            engine_mib, libraries = memory_of_engine(server.pid)
        finally:
            server.terminate()
    assert sorted(LATE.intersection(modules)) == []
    assert len(modules) < MAX_MODULES
    assert memory_mib < MAX_MIB
    if load_kernels().functions is not None:
        assert engine_mib < MAX_ENGINE_MIB
        assert "torch" not in libraries
