"""KV soak over HTTP: two servers share collections and a KV directory, and are killed and restarted.

    python -m benchmarks.soak.server_soak [--seconds 120] [--json FILE]

Each question must have one greedy answer, only requests of killed servers may fail, each passage may be computed once
more per killed server, and every record in the KV directory must be intact.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from benchmarks.soak.requests import MODEL, PASSAGES
from benchmarks.soak.soak import Server
from quire.tiers.store.offline import verify

NUM_DOCUMENTS = 40
QUESTIONS = "Where does Ines Haddad work?", "What does Tom Haddad do?", "Who keeps the ferry?"
LIVES_S = (4.0, 12.0)  # of a server, once it answers
NUM_ASKERS = 2  # of a server
PATIENCE_S = 60


@dataclass
class Report:
    """Results of a soak."""

    seconds: float
    num_answers: int = 0
    num_kills: int = 0
    num_lost: int = 0  #: requests that a killed server had
    computed: Counter[int] = field(default_factory=Counter)  #: by document: answers that computed some of it
    cached_tokens: Counter[str] = field(default_factory=Counter)  #: by tier
    num_blocks: int = 0  #: on disk at the end
    problems: list[str] = field(default_factory=list)


class Soak:
    """Drives two servers and their clients, with all data in `folder`."""

    def __init__(self, seconds: float, folder: Path, log: IO[str], seed: int = 20) -> None:
        self.report = Report(seconds)
        self._options = ["--model", MODEL, "--dtype", "float32", "--embedder", "hashing", "--rag-dir", f"{folder}/rag"]
        self._options += ["--kv-dir", f"{folder}/kv"]
        self._kv_dir = folder / "kv"
        self._log = log
        self._rng = random.Random(seed)
        self._answers: dict[tuple[int, str], str] = {}
        self._lock = threading.Lock()
        self._ends_at = 0.0

    def run(self) -> Report:
        servers = [self._start(), self._start()]
        self._fill(servers[0])
        self._ends_at = time.monotonic() + self.report.seconds
        threads = [threading.Thread(target=self._lead, args=(server, number)) for number, server in enumerate(servers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = verify(self._kv_dir)
        self.report.num_blocks = found.num_blocks
        self.report.problems += [f"damaged: {each}" for each in found.damaged]
        for document, count in self.report.computed.items():
            if count > 1 + self.report.num_kills:
                self.report.problems.append(f"document {document} was computed {count} times")
        return self.report

    def _start(self) -> Server:
        return Server(self._log, *self._options)

    def _fill(self, server: Server) -> None:
        bodies: list[dict[str, Any]] = [{"name": "town"}]
        for number in range(NUM_DOCUMENTS):
            text = f"Ledger {number} of the town. " + " ".join(PASSAGES[(number + i) % 6] for i in range(2))
            document = {"name": f"ledger {number}", "text": text, "metadata": {"n": number}}
            bodies.append({"documents": [document]})
        for body in bodies:
            path = "/town/documents" if "documents" in body else ""
            answer = httpx.post(f"{server.url}/v1/collections{path}", json=body, timeout=PATIENCE_S)
            assert answer.json().get("added", 1) == 1, answer.text

    def _lead(self, server: Server, number: int) -> None:
        rng = random.Random(f"{self._rng.random()} {number}")
        while time.monotonic() < self._ends_at:
            dying = threading.Event()
            askers = [
                threading.Thread(target=self._ask, args=(server, random.Random(rng.random()), dying))
                for _ in range(NUM_ASKERS)
            ]
            for asker in askers:
                asker.start()
            left_s = self._ends_at - time.monotonic()
            life_s = rng.uniform(*LIVES_S)
            time.sleep(max(0.0, min(life_s, left_s)))
            is_last = life_s >= left_s
            dying.set()
            if not is_last:
                server.process.kill()
                self.report.num_kills += 1
            for asker in askers:
                asker.join()
            if is_last:
                break
            server.process.wait()
            server = self._start()
        server.process.kill()
        server.process.wait()

    def _ask(self, server: Server, rng: random.Random, dying: threading.Event) -> None:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
            while not dying.is_set():
                document, question = rng.randrange(NUM_DOCUMENTS), rng.choice(QUESTIONS)
                retrieval = {"collection": "town", "filter": {"n": document}}
                body = {"model": MODEL, "prompt": question, "temperature": 0, "max_tokens": 8, "retrieval": retrieval}
                try:
                    answer = client.post("/v1/completions", json=body)
                except httpx.HTTPError as error:
                    with self._lock:
                        self.report.num_lost += dying.is_set()
                        if not dying.is_set():
                            self.report.problems.append(f"lost: {error!r}")
                    continue
                self._take(document, question, answer)

    def _take(self, document: int, question: str, answer: httpx.Response) -> None:
        with self._lock:
            if answer.status_code != 200:
                self.report.problems.append(f"{answer.status_code}: {answer.text:.300}")
                return
            found: dict[str, Any] = answer.json()
            self.report.num_answers += 1
            details = found["usage"]["prompt_tokens_details"]
            cached = details.get("cached_tokens_by_tier") or {"device": details["cached_tokens"]}
            self.report.cached_tokens.update(cached)
            length = found["usage"]["prompt_tokens"] - 32  # about: what follows the passage is never kept
            self.report.computed[document] += sum(cached.values()) < length - 16
            text = found["choices"][0]["text"]
            if self._answers.setdefault((document, question), text) != text:
                self.report.problems.append(
                    f"{document}, {question}: {text!r} and {self._answers[document, question]!r}"
                )


def soak(seconds: float) -> Report:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        report = Soak(seconds, Path(folder), log).run()
        log.seek(0)
        text = log.read()
        if "Traceback" in text:
            report.problems.append("a log has a traceback: " + text[text.index("Traceback") :][:3000])
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    report = soak(options.seconds)
    computed = (
        f"{sum(report.computed.values())} computed some of a passage, of one {max(report.computed.values())} at most"
    )
    print(f"{report.num_answers} answers, {report.num_kills} servers killed, {report.num_lost} requests lost with them")
    print(f"{NUM_DOCUMENTS} documents; {computed}; tokens found: {dict(report.cached_tokens)}")
    print(f"{report.num_blocks} blocks on disk, all whole" if not report.problems else "\n".join(report.problems[:20]))
    print(f"{len(report.problems)} problems" if report.problems else "all is well")
    if options.json is not None:
        counted = {
            "computed": dict(report.computed),
            "cached_tokens": dict(report.cached_tokens),
        }  # asdict spoils counters
        options.json.write_text(json.dumps({**asdict(report), **counted}, indent=2) + "\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
