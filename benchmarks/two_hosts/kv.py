"""A KV directory that the second host mounts by sshfs."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import socketserver
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.two_hosts.hosts import (
    ADDRESSES,
    HOSTS,
    PATIENCE_S,
    RATES,
    SMALL,
    Network,
    Rows,
    Server,
    complete,
    prompt_of,
    run,
)

KV_MODEL = "random:opt-125m"
_FILES = 2222
_MOUNT = "/tmp/kv"
_SSHFS = f"directport={_FILES},cache=no,reconnect"


def kv(network: Network, folder: Path) -> Rows:
    """A server on each host, and one KV directory on the first, which the second mounts."""
    rows: Rows = []
    directory = folder / "kv"
    directory.mkdir()
    options = ["--kv-dir-keep-prompts", *SMALL, KV_MODEL]
    quick = "sysctl -qw net.ipv4.tcp_retries2=3"  # a lost file server becomes an error after 3 s
    mount = f"{quick} && mkdir {_MOUNT} && sshfs -o {_SSHFS} {ADDRESSES[0]}:{directory} {_MOUNT} && "
    with sftp_server():
        for turn, rate in enumerate(RATES):
            network.limit(rate)
            first = Server(network, 0, folder, ["--kv-dir", str(directory), *options]).url
            second = Server(network, 1, folder, ["--kv-dir", _MOUNT, *options], first=mount).url
            rows.append(
                (f"1,024 tokens computed on one host, asked on the other, {rate}", carry(first, second, 10 * turn))
            )
            network.kill()
        network.limit(RATES[0])
        small = ["--kv-dir-size", "300MB", *options]
        first = Server(network, 0, folder, ["--kv-dir", str(directory), *small]).url
        second = Server(network, 1, folder, ["--kv-dir", _MOUNT, *small], first=mount).url
        rows.append(("both hosts at once, 450 MB of KV in a directory of 300 MB", both((first, second))))
        rows += hang(network)
        network.kill()
        verified = subprocess.run([sys.executable, "-m", "quire", "kv", "verify", "--kv-dir", str(directory)])
        rows.append(("`quire kv verify` afterwards", f"status {verified.returncode}"))
    return rows


def carry(first: str, second: str, first_number: int) -> str:
    """Ask about documents on the first host, then on the second."""
    found = []
    for number in range(first_number, first_number + 6):
        body = {"model": KV_MODEL, "prompt": prompt_of(number, 1024), "max_tokens": 8}
        here, ours = complete(first, **body)
        time.sleep(3)  # blocks are written after the answer
        there, theirs = complete(second, **body)
        cached = theirs["usage"]["prompt_tokens_details"]["cached_tokens"]
        found.append((here, there, cached, ours["choices"][0]["text"] == theirs["choices"][0]["text"]))
    computed, asked, cached, same = zip(*found[1:], strict=True)
    tokens = f"{statistics.median(cached):.0f} tokens from the directory, {sum(same)} of {len(same)} texts equal"
    return f"{statistics.median(asked):.2f} s (computed on the first: {statistics.median(computed):.2f} s), {tokens}"


def both(urls: tuple[str, str]) -> str:
    """Ask about the same documents on both hosts at once, while both evict."""
    prompts = [prompt_of(100 + number, 1024) for number in range(6)]

    def ask_all(host: int) -> list[str]:
        order = [(turn * 5 + host * 3 + at) % len(prompts) for turn in range(2) for at in range(len(prompts))]
        texts = [(at, complete(urls[host], model=KV_MODEL, prompt=prompts[at], max_tokens=8)[1]) for at in order]
        return [f"{at}: {answer['choices'][0]['text']}" for at, answer in texts]

    with concurrent.futures.ThreadPoolExecutor() as threads:
        ours, theirs = threads.map(ask_all, (0, 1))
    same = len(set(ours) | set(theirs)) == len(prompts)
    return f"{len(ours) + len(theirs)} answers, {'the same' if same else 'different'} texts for each document"


def hang(network: Network) -> Rows:
    """Cut the link under the second host's mounted directory, and ask that host."""

    def ask_there(number: int) -> float:
        body = {"model": KV_MODEL, "prompt": prompt_of(number, 1024), "max_tokens": 8}
        post = ["curl", "-s", "-m", str(PATIENCE_S), "-H", "Content-Type: application/json", "-d", json.dumps(body)]
        began = time.monotonic()
        answer = run("ip", "netns", "exec", HOSTS[1], *post, "http://127.0.0.1:8100/v1/completions")
        assert json.loads(answer)["choices"], answer
        return time.monotonic() - began

    usual = ask_there(200)
    network.cut()
    try:
        times = [ask_there(number) for number in (201, 202, 100)]
    finally:
        network.restore()
    time.sleep(5)
    later = ask_there(203)
    found = ", ".join(f"{seconds:.1f}" for seconds in times)
    return [
        (
            "link cut under the directory: answers of the second host",
            f"{found} s (before {usual:.1f}, after {later:.1f})",
        )
    ]


@contextlib.contextmanager
def sftp_server() -> Iterator[None]:
    """OpenSSH's file server on the first host, for `sshfs -o directport`: the link is private."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            descriptor = self.request.fileno()
            subprocess.run(["/usr/lib/openssh/sftp-server"], stdin=descriptor, stdout=descriptor)

    class Files(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Files((ADDRESSES[0], _FILES), Handler) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        yield
        files.shutdown()
