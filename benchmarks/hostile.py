"""Effect of each attack of one API key on the server's event loop, on another key's requests, and on memory.

    python -m benchmarks.hostile [--attack NAME]... [--source DIR] [--seconds 10] [--json FILE]

Every attack meets a fresh server. A ticker in the server's event loop reports late ticks: `pause` is the longest delay,
`processor` the loop thread's own processor time in its worst tick, which other processes on the machine do not
lengthen. The other key sends two-token completions one after the other. `--source` names another checkout, whose
server is measured with the same attacks. An attack that does not end in time is cut off.

A flood is also compared with an equal honest load: as many sequences with as many tokens, sent by four honest keys
without priorities and the like, and with cheap grammars. The last column is the ratio of the other key's p99.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import httpx

from benchmarks import ROOT

MODEL = "quire-mini"
ATTACKER, OTHER = "attacker", "other"
HONEST = ("honest-1", "honest-2", "honest-3", "honest-4")  #: API keys of the load that an attack is compared with
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PATIENCE_S = 60.0
_TICK_S = 0.005
_LATE_S = 0.002  # shorter delays are not reported
_RECORD = struct.Struct("<dd")
_SETTLE_S = 1.0
_TICKER_VARIABLE = "HOSTILE_TICKER"
_COLUMNS = (
    *("attack", "pause, ms", "processor, ms", "other's p50, ms", "other's p99, ms", "server, MiB", "rest, MiB"),
    *("p99 under honest load, ms", "ratio"),
)


# -- the attacked server -----------------------------------------------------------------------------------------------


def serve_with_ticker() -> None:
    """Run `quire` with the process's arguments, and report late ticks of its event loop."""
    import uvloop

    pipe, make_loop = int(os.environ[_TICKER_VARIABLE]), uvloop.new_event_loop

    def new_event_loop() -> uvloop.Loop:
        loop = make_loop()
        last = [0.0, 0.0]

        def tick() -> None:
            now, used = time.perf_counter(), time.thread_time()
            late_s = now - last[0] - _TICK_S
            if last[0] and late_s > _LATE_S:
                os.write(pipe, _RECORD.pack(late_s, used - last[1]))
            last[:] = now, used
            loop.call_later(_TICK_S, tick)

        loop.call_soon(tick)
        return loop

    uvloop.new_event_loop = new_event_loop
    from quire.cli import main

    main()


class HostedServer:
    """A `quire serve` with API keys and a ticker in its event loop."""

    def __init__(self, source: Path, log: IO[str], *options: str) -> None:
        reports, ticker = os.pipe()
        keys = [option for key in (ATTACKER, OTHER, *HONEST) for option in ("--api-key", key)]
        serve = ["serve", "--model", MODEL, "--port", "0", "--device", "cpu", "--no-keep-kv", *keys, *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        environment |= {_TICKER_VARIABLE: str(ticker), "PYTHONPATH": f"{source / 'src'}:{ROOT}"}
        start = "from benchmarks.hostile import serve_with_ticker; serve_with_ticker()"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", start, *serve],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            pass_fds=[ticker],
        )
        os.close(ticker)
        assert self.process.stdout is not None
        if (found := re.search(r"http://\S+", self.process.stdout.readline())) is None:
            log.seek(0)
            raise RuntimeError(f"the server did not start: {log.read()[-3000:]}")
        self.url = found[0]
        self.pauses: list[tuple[float, float]] = []  #: delays of late ticks and processor time, in seconds
        self.peak = {"server": 0, "rest": 0}  #: largest resident MiB of the server, and of its children together
        for work in (lambda: self._read(reports), self._watch_memory):
            threading.Thread(target=work, daemon=True).start()

    def _read(self, reports: int) -> None:
        while record := os.read(reports, _RECORD.size):  # smaller than a pipe's atomic size
            self.pauses.append(_RECORD.unpack(record))

    def _watch_memory(self) -> None:
        while self.process.poll() is None:
            rest = sum(map(_resident_mib, _children(self.process.pid)))
            for name, now in (("server", _resident_mib(self.process.pid)), ("rest", rest)):
                self.peak[name] = max(self.peak[name], now)
            time.sleep(0.05)

    def end(self) -> None:
        for pid in _children(self.process.pid):
            with suppress(OSError):
                os.kill(pid, 9)
        self.process.kill()
        self.process.wait()


def _resident_mib(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return 0


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return []


# -- the two clients ---------------------------------------------------------------------------------------------------


@dataclass
class Attacker:
    """Tools of an attack. `is_over` is set when the attack must stop."""

    url: str
    is_over: threading.Event = field(default_factory=threading.Event)
    statuses: list[int] = field(default_factory=list)  #: of the answers so far
    _client: httpx.Client = field(
        default_factory=lambda: httpx.Client(
            verify=False, timeout=PATIENCE_S, limits=httpx.Limits(max_connections=None)
        )
    )  # one for all: a client of its own would take each request 50 ms of processor

    def post(self, path: str, body: Any, *, method: str = "POST", key: str = ATTACKER) -> httpx.Response | None:
        """Send one request. Returns None if it fails or takes longer than `PATIENCE_S`."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        with suppress(httpx.HTTPError):
            answer = self._client.request(method, self.url + path, content=content, headers=headers)
            self.statuses.append(answer.status_code)
            return answer
        return None

    def complete(self, key: str = ATTACKER, /, **body: Any) -> httpx.Response | None:
        return self.post(COMPLETIONS, {"model": MODEL, "prompt": "Hello", **body}, key=key)

    def repeat(self, work: Callable[[], object], num_clients: int = 1) -> None:
        """Call `work` from several threads until the attack is over."""

        def run() -> None:
            while not self.is_over.is_set():
                work()

        with ThreadPoolExecutor(num_clients) as clients:
            for each in [clients.submit(run) for _ in range(num_clients)]:
                each.result()

    @contextmanager
    def connections(self, number: int, sent: bytes) -> Iterator[list[socket.socket]]:
        """Open connections that send some bytes and never read."""
        address = urlsplit(self.url)
        opened = []
        try:
            for _ in range(number):
                connection = socket.create_connection((address.hostname, address.port), timeout=_SETTLE_S)
                with suppress(OSError):
                    connection.sendall(sent)
                opened.append(connection)
            yield opened
        finally:
            for connection in opened:
                connection.close()


def head(path: str, length: int) -> bytes:
    """The head of a POST of the attacker."""
    fields = f"Host: 127.0.0.1\r\nAuthorization: Bearer {ATTACKER}\r\nContent-Type: application/json\r\n"
    return f"POST {path} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n".encode()


def probe(url: str, is_over: Any, waits: Any) -> None:
    """Send the other key's requests until the attack is over; then report their seconds."""
    found: list[tuple[float, float]] = []  # end and duration
    body = {"model": MODEL, "prompt": "Hello", "max_tokens": 2, "ignore_eos": True}
    with httpx.Client(headers={"Authorization": f"Bearer {OTHER}"}, timeout=PATIENCE_S) as client:
        while not is_over.is_set():
            began = time.perf_counter()
            with suppress(httpx.HTTPError):
                client.post(url + COMPLETIONS, json=body)
            found.append((now := time.perf_counter(), now - began))
    waits.put(found)


# -- attacks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attack:
    """One way to disturb others.

    Attributes:
        run: the attack; it returns when it has done its worst, or when `Attacker.is_over` is set.
        honest: an equal load of honest keys, if there is one.
        prepare: unmeasured preparation, such as documents on the server.
        options: further options of the server.
    """

    name: str
    run: Callable[[Attacker], object]
    prepare: Callable[[Attacker], object] = lambda attacker: None
    options: Sequence[str] = ()
    honest: Callable[[Attacker], object] | None = None


def flood(name: str, num_clients: int, options: Sequence[str] = (), **body: Any) -> Attack:
    """Make an attack of clients that repeat a body. The honest load has one client per sequence, and a body without
    the fields that ordinary clients leave out; a grammar becomes a cheap one."""
    width = body.get("n", 1)
    plain: dict[str, Any] = {field: body[field] for field in ("prompt", "max_tokens", "ignore_eos") if field in body}
    if "structured_outputs" in body:
        plain["structured_outputs"] = {"regex": f"[a-z ]{{{body['max_tokens']}}}"}

    def run(attacker: Attacker) -> None:
        attacker.repeat(lambda: attacker.complete(**body), num_clients)

    def run_honest(attacker: Attacker) -> None:
        keys = cycle(HONEST)
        attacker.repeat(lambda: attacker.complete(next(keys), **plain), num_clients * width)

    return Attack(name, run, options=options, honest=run_honest)


def _wrong_body(num_keys: int) -> dict[str, Any]:
    """A body with two errors per key, and one more that makes the server look at all of them."""
    unknown = {f"{number:05}": 1 for number in range(num_keys)}
    return {"logit_bias": dict.fromkeys(unknown, ""), "stream_options": unknown, "truncation_side": "middle"}


def _wrong_metadata(attacker: Attacker) -> None:
    metadata: dict[str, Any] = {f"{number:x}": [] for number in range(25_000)}
    body = {"documents": [{"name": "a", "text": "b", "metadata": metadata}]}
    attacker.repeat(lambda: attacker.post("/v1/collections/c/documents", body))


def _nested_lists(attacker: Attacker) -> None:
    body = b'{"prompt": "a", "max_tokens": 1, "user": [' + b",".join([b"[]"] * 2_600_000) + b"]}"
    attacker.repeat(lambda: attacker.post(COMPLETIONS, body))


def _many_messages(attacker: Attacker) -> None:
    body = {"messages": [{"role": "user", "content": ""}] * 200_000, "max_tokens": 1}
    attacker.repeat(lambda: attacker.post(CHAT, body))


def _token_ids(attacker: Attacker) -> None:
    attacker.repeat(lambda: attacker.complete(prompt=[5] * 2_600_000))


def _long_text(attacker: Attacker) -> None:
    attacker.repeat(lambda: attacker.complete(prompt="word " * 1_500_000))


def _prompt_logprobs(number: int) -> Callable[[Attacker], None]:
    def run(attacker: Attacker) -> None:
        prompts = [[5 + index % 90 for index in range(1_900)] for _ in range(number)]
        attacker.complete(prompt=prompts, max_tokens=1, prompt_logprobs=100)

    return run


def _long_logprobs(attacker: Attacker) -> None:
    body = {"max_tokens": 1_900, "ignore_eos": True, "logprobs": 100}
    attacker.repeat(lambda: attacker.complete(**body), 4)


def _streamed_logprobs(attacker: Attacker) -> None:
    body = {"max_tokens": 1_900, "ignore_eos": True, "logprobs": 100, "stream": True}
    attacker.repeat(lambda: attacker.complete(**body), 8)


_SLOW_GRAMMAR = 'start: "' + "a" * 60 + '" s\ns: s s | s s s | /[a-z ]/\n'


def _never_read(attacker: Attacker) -> None:
    body = json.dumps({"model": MODEL, "prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True})
    padded = body.encode() + b" " * 7_900_000
    with attacker.connections(33, head(COMPLETIONS, len(padded)) + padded):
        attacker.is_over.wait()


def _never_send(attacker: Attacker) -> None:
    with attacker.connections(40, head(COMPLETIONS, 8_000_000) + b"[" * 7_900_000):
        attacker.is_over.wait()


def _collection(num_documents: int, metadata: dict[str, Any], text: str = "A ferry leaves.") -> Callable[..., None]:
    """Make a preparation that fills the collection `c`."""

    def prepare(attacker: Attacker) -> None:
        attacker.post("/v1/collections", {"name": "c", "chunk_tokens": 8, "overlap_tokens": 0})
        for start in range(0, num_documents, 400):
            documents = [
                {"name": f"n{number}", "text": text, "metadata": metadata}
                for number in range(start, min(start + 400, num_documents))
            ]
            for document in documents:
                document["text"] = f"{text} {document['name']}"
            answer = attacker.post("/v1/collections/c/documents", {"documents": documents})
            if answer is None or answer.is_error:
                raise RuntimeError(f"no documents: {answer and answer.text:.300}")

    return prepare


def _wide_filter(attacker: Attacker) -> None:
    where = {f"k{field}": [f"v{number}" for number in range(100)] for field in range(32)}
    attacker.repeat(lambda: attacker.post("/v1/collections/c/search", {"query": "ferry", "filter": where}), 4)


def _large_list(attacker: Attacker) -> None:
    attacker.repeat(lambda: attacker.post("/v1/collections/c/documents?limit=1000", b"", method="GET"))


def _tiny_chunks(attacker: Attacker) -> None:
    text = " ".join(f"w{number % 997}" for number in range(330_000))
    attacker.post("/v1/collections", {"name": "c", "chunk_tokens": 8, "overlap_tokens": 4})
    attacker.post("/v1/collections/c/documents", {"documents": [{"name": "long", "text": text}]})


def _titles(attacker: Attacker) -> None:
    attacker.post("/v1/collections", {"name": "c"})
    documents = [{"name": "h.md", "text": "# a" + " " * 100_000 + "b\n"}, {"name": "t.md", "text": "---\n" * 40_000}]
    attacker.post("/v1/collections/c/documents", {"documents": documents})


_RAG = ("--rag-dir", "{folder}", "--embedder", "hashing")
_SMALL_POOL = ("--num-kv-blocks", "512")
_BAD_WORDS = [[5 + at % 90, 5 + at // 90] for at in range(2_000)]
_LARGE_METADATA = {f"k{number}": "v" * 480 for number in range(32)}
ATTACKS = [
    Attack("nothing", lambda attacker: attacker.is_over.wait()),
    Attack("20,000 errors", lambda attacker: attacker.complete(**_wrong_body(10_000))),
    Attack("600,000 errors", lambda attacker: attacker.repeat(lambda: attacker.complete(**_wrong_body(300_000)))),
    Attack("100,000 errors of metadata", _wrong_metadata),
    Attack("2,600,000 empty lists", _nested_lists),
    Attack("200,000 messages", _many_messages),
    Attack("2,600,000 token ids", _token_ids),
    Attack("7.5 MB of text", _long_text),
    Attack("prompt_logprobs", _prompt_logprobs(1)),
    Attack("prompt_logprobs, 8 prompts", _prompt_logprobs(8)),
    Attack("prompt_logprobs, 32 prompts", _prompt_logprobs(32)),
    Attack("logprobs of long answers", _long_logprobs),
    Attack("logprobs of streams", _streamed_logprobs),
    flood("64 answers", 4, n=64, max_tokens=500, ignore_eos=True),
    flood("300 requests of first priority", 300, max_tokens=500, ignore_eos=True, priority=-(2**31)),
    flood("1,200 requests", 1_200, max_tokens=100, ignore_eos=True),
    flood("64 long prompts", 64, prompt=[5 + at % 90 for at in range(1_900)], max_tokens=2, ignore_eos=True),
    flood("long answers in a small pool", 4, _SMALL_POOL, n=64, max_tokens=1_900, ignore_eos=True),
    flood("32 ambiguous grammars", 32, max_tokens=300, structured_outputs={"grammar": _SLOW_GRAMMAR}),
    flood("32 lists of bad words", 32, max_tokens=300, ignore_eos=True, bad_words_token_ids=_BAD_WORDS),
    Attack("33 clients that never read", _never_read),
    Attack("40 clients that never send", _never_send),
    Attack("filter of 3,200 values", _wide_filter, _collection(1_000, _LARGE_METADATA), _RAG),
    Attack("list of 1,000 documents", _large_list, _collection(1_000, _LARGE_METADATA), _RAG),
    Attack("chunks of 8 tokens", _tiny_chunks, options=_RAG),
    Attack("titles", _titles, options=_RAG),
]


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """Figures of one attack: milliseconds and MiB; `statuses` counts the attacker's answers."""

    attack: str
    pause_ms: float
    processor_ms: float
    other_p50_ms: float
    other_p99_ms: float
    server_mib: int
    rest_mib: int
    seconds: float
    statuses: dict[int, int]
    honest_p99_ms: float | None = None  #: the other key's under an equal honest load


def measure(attack: Attack, source: Path, seconds: float, *, is_honest: bool = False) -> Figures:
    """Run an attack, or the honest load equal to it, against a fresh server for at least `seconds`, and at most
    `PATIENCE_S` longer."""
    folder = tempfile.mkdtemp()
    with tempfile.TemporaryFile("w+") as log:
        server = HostedServer(source, log, *(option.format(folder=folder) for option in attack.options))
        try:
            return _measure(attack, server, seconds, is_honest=is_honest)
        finally:
            server.end()
            shutil.rmtree(folder, ignore_errors=True)


def _measure(attack: Attack, server: HostedServer, seconds: float, *, is_honest: bool) -> Figures:
    attacker = Attacker(server.url)
    attack.prepare(attacker)
    attacker.complete(max_tokens=2)
    attacker.statuses.clear()
    context = multiprocessing.get_context("spawn")
    is_over, waits = context.Event(), context.Queue()
    other = context.Process(target=probe, args=(server.url, is_over, waits), daemon=True)
    other.start()
    time.sleep(_SETTLE_S)
    server.pauses.clear()
    server.peak.update(server=0, rest=0)
    began = time.perf_counter()
    run = attack.honest if is_honest and attack.honest is not None else attack.run
    attacking = threading.Thread(target=run, args=(attacker,), daemon=True)
    attacking.start()
    attacking.join(seconds)
    attacker.is_over.set()
    attacking.join(PATIENCE_S)
    took_s = time.perf_counter() - began
    is_over.set()
    found = sorted(waited for ended, waited in waits.get(timeout=2 * PATIENCE_S) if ended > began)
    if not found or not server.pauses:
        server.pauses.append((0.0, 0.0))
    return Figures(
        attack.name,
        max(late for late, _ in server.pauses) * 1e3,
        max(used for _, used in server.pauses) * 1e3,
        found[len(found) // 2] * 1e3,
        found[len(found) * 99 // 100] * 1e3,
        server.peak["server"],
        server.peak["rest"],
        took_s,
        {status: attacker.statuses.count(status) for status in sorted(set(attacker.statuses))},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", action="append", help="part of a name; repeat it for several (default: all)")
    parser.add_argument("--source", type=Path, default=ROOT, help="checkout whose server is attacked")
    parser.add_argument("--seconds", type=float, default=10, help="duration of an attack that repeats itself")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    chosen = [each for each in ATTACKS if not options.attack or any(part in each.name for part in options.attack)]
    print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}")
    figures = []
    for attack in chosen:
        found = measure(attack, options.source.resolve(), options.seconds)
        if attack.honest is not None:
            honest = measure(attack, options.source.resolve(), options.seconds, is_honest=True)
            found = replace(found, honest_p99_ms=honest.other_p99_ms)
        figures.append(asdict(found))
        numbers = [found.pause_ms, found.processor_ms, found.other_p50_ms, found.other_p99_ms]
        row = [found.attack, *(f"{number:,.0f}" for number in numbers), str(found.server_mib), str(found.rest_mib)]
        expected = found.honest_p99_ms
        row += ["", ""] if expected is None else [f"{expected:,.0f}", f"{found.other_p99_ms / expected:.2f}"]
        print(f"| {' | '.join(row)} |", flush=True)
        print(f"  {found.seconds:.1f} s, answers: {found.statuses}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
