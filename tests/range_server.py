"""A file server with ranges and ETags over a directory, and injected faults. It serves S3's GET and HEAD too."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Fault:
    """What happens to a GET: `cut` ends the body after half of it, `stall` sends half and then nothing for `seconds`,
    `flip` changes one byte, and a number is the status of an empty answer."""

    kind: str | int
    times: int = 10**9  #: how many GETs it befalls
    seconds: float = 60.0
    after: int = 0  #: first byte of the ranges it befalls


@dataclass
class RangeServer:
    directory: Path
    url: str = ""
    faults: dict[str, Fault] = field(default_factory=dict)  #: by file name
    asked: list[tuple[str, str, str]] = field(default_factory=list)  #: method, path, range
    has_etags: bool = True
    has_ranges: bool = True
    denied: set[str] = field(default_factory=set)  #: file names
    denies_missing: bool = False  #: 403 in place of 404
    on_get: Callable[[str, int], None] = lambda name, start: None  #: before each answer
    bytes_sent: int = 0

    def fault_of(self, name: str, start: int) -> Fault | None:
        fault = self.faults.get(name)
        if fault is None or not fault.times or start < fault.after:
            return None
        fault.times -= 1
        return fault


@contextmanager
def serve_directory(directory: Path, host: str = "127.0.0.1") -> Iterator[RangeServer]:
    """Serve a directory at `url`, until the block ends."""
    served = RangeServer(directory)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

        def do_HEAD(self) -> None:
            self._answer(is_head=True)

        def do_GET(self) -> None:
            self._answer(is_head=False)

        def _answer(self, *, is_head: bool) -> None:
            path = self.path.split("?")[0].lstrip("/")
            wanted = self.headers.get("Range", "")
            served.asked.append((self.command, path, wanted))
            file = served.directory / path
            if file.name in served.denied:
                return self._empty(403)
            if not file.is_file():
                return self._empty(403 if served.denies_missing else 404)
            wanted = wanted if served.has_ranges else ""
            data = file.read_bytes()
            start, end = 0, len(data)
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, end = int(first), min(len(data), int(last) + 1 if last else len(data))
            if not is_head:
                served.on_get(file.name, start)
                data = file.read_bytes()
            etag = f'"{hashlib.md5(data).hexdigest()}"'
            if served.has_etags and self.headers.get("If-Match", etag) != etag:
                return self._empty(412)
            fault = None if is_head else served.fault_of(file.name, start)
            if fault is not None and isinstance(fault.kind, int):
                return self._empty(fault.kind)
            body = bytearray(data[start:end])
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", self.date_time_string(int(file.stat().st_mtime)))
            if served.has_etags:
                self.send_header("ETag", etag)
            self.end_headers()
            if is_head:
                return None
            if fault is not None and fault.kind == "flip":
                body[len(body) // 2] ^= 1
            if fault is not None and fault.kind in ("cut", "stall"):
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                if fault.kind == "stall":
                    closing.wait(fault.seconds)
                self.close_connection = True
                return None
            self.wfile.write(body)
            served.bytes_sent += len(body)
            return None

        def _empty(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # the client hung up
                super().handle()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    closing = threading.Event()
    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    served.url = f"http://{host}:{server.server_port}"
    try:
        yield served
    finally:
        closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
