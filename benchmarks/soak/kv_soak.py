"""KV soak: two engines on one KV directory, killed and restarted at random, while clients ask about documents.

    python -m benchmarks.soak.kv_soak [--seconds 120] [--json FILE]

Every answer must equal that of an engine without a KV directory, only requests of killed processes may fail (they are
repeated), each document may be computed once and once more per killed process that computed it, and every record must
be intact.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

from benchmarks import ROOT
from benchmarks.soak.kv_engine import BLOCK_SIZE, add, make
from checkpoints import make_checkpoint
from quire.outputs import CompletionOutput
from quire.tiers.store.offline import verify

NUM_AT_ONCE = 6  # requests of one process
NUM_QUESTIONS = 3  # of a document
SHARE_NEW, SHARE_RECENT = 0.12, 0.6  # of requests: about a new document, and about one of the last few
LIVES_S = (0.5, 6.0)  # of a process, once it is ready
CLOSE = 1e-4  # log-probabilities: nearer than this, rounding may decide
PATIENCE_S = 120.0
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}


@dataclass
class Report:
    """Results of a soak."""

    seconds: float = 0
    num_requests: int = 0  #: that were answered
    num_starts: int = 0
    num_kills: int = 0
    num_lost: int = 0  #: requests that a killed process took with it; they were sent again
    num_documents: int = 0
    num_document_blocks: int = 0  #: of all documents
    num_computed: int = 0  #: requests that computed some of their document
    num_computed_blocks: int = 0  #: of documents, by requests that were answered
    most_computed: int = 0  #: times, of one document
    cached_blocks: dict[str, int] = field(default_factory=dict)  #: of documents, by tier
    num_ties: int = 0  #: answers that differ where two tokens are equally likely
    num_found_again: int = 0  #: documents, of all, that lay on disk at the end
    verified: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass
class Document:
    token_ids: list[int]
    num_computed: int = 0
    num_excuses: int = 0  #: killed processes that may have computed some of it

    @property
    def num_blocks(self) -> int:
        return len(self.token_ids) // BLOCK_SIZE


class EngineProcess:
    """One life of an engine."""

    def __init__(self, model: Path, kv_dir: Path, log: IO[str], heard: SimpleQueue[tuple[EngineProcess, str]]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.soak.kv_engine", str(model), str(kv_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**_ENVIRONMENT, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        )
        self.dies_at: float | None = None  #: known once it is ready
        self.waiting: dict[str, dict[str, Any]] = {}  #: requests, by id
        self.computed: set[int] = set()  #: documents
        self._heard = heard
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._heard.put((self, line))

    def send(self, asked: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.waiting[asked["id"]] = asked
        with contextlib.suppress(OSError):  # it has ended, which is noticed soon
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Soak:
    """Drives two engines and their clients."""

    def __init__(self, seconds: float, seed: int, folder: Path, log: IO[str]) -> None:
        self.report = Report(seconds)
        self.chance = random.Random(seed)
        self.model = make_checkpoint("llama", folder / "model")
        self.kv_dir = folder / "kv"
        self.log = log
        self.documents: list[Document] = []
        self.answers: dict[tuple[int, int], set[tuple[int, ...]]] = {}  #: by document and question
        self.heard: SimpleQueue[tuple[EngineProcess, str]] = SimpleQueue()
        self.to_repeat: list[dict[str, Any]] = []
        self.engines: list[EngineProcess] = []
        self.num_asked = 0

    def run(self) -> Report:
        ends_at = time.monotonic() + self.report.seconds
        self.engines = [self.start(), self.start()]
        try:
            while (now := time.monotonic()) < ends_at:
                for at, engine in enumerate(self.engines):
                    if engine.dies_at is not None and now >= engine.dies_at:
                        self.engines[at] = self.replace(engine)
                    elif engine.dies_at is not None:
                        while len(engine.waiting) < NUM_AT_ONCE:
                            engine.send(self.to_repeat.pop() if self.to_repeat else self.next_request())
                self.listen()
            self.finish()
        finally:
            for engine in self.engines:
                engine.kill()
        self.judge()
        return self.report

    def start(self) -> EngineProcess:
        self.report.num_starts += 1
        return EngineProcess(self.model, self.kv_dir, self.log, self.heard)

    def replace(self, engine: EngineProcess) -> EngineProcess:
        engine.kill()
        self.report.num_kills += 1
        self.report.num_lost += len(engine.waiting)
        self.to_repeat += engine.waiting.values()
        engine.computed |= {asked["number"] for asked in engine.waiting.values()}
        engine.waiting = {}
        for number in engine.computed:
            self.documents[number].num_excuses += 1
        return self.start()

    def listen(self, timeout_s: float = 0.02) -> None:
        """Handle the engines' output, and wait for it briefly."""
        try:
            while True:
                engine, line = self.heard.get(timeout=timeout_s)
                timeout_s = 0.0
                if engine in self.engines and line.endswith("\n"):
                    self.take(engine, json.loads(line))
        except Empty:
            pass
        for at, engine in enumerate(self.engines):
            if engine.process.poll() is not None and self.heard.empty():
                self.report.problems.append(f"a process ended with status {engine.process.returncode}")
                self.engines[at] = self.replace(engine)

    def take(self, engine: EngineProcess, told: dict[str, Any]) -> None:
        if told.get("is_ready"):
            engine.dies_at = time.monotonic() + self.chance.uniform(*LIVES_S)
            return
        asked, report = engine.waiting.pop(told["id"]), self.report
        for name in ("error", "failed_checks", "write_errors", "num_preemptions"):
            if told[name]:
                report.problems.append(f"{name}: {told[name]} <- {told['id']}")
        report.num_requests += 1
        document = self.documents[asked["number"]]
        found = {tier: num_tokens // BLOCK_SIZE for tier, num_tokens in (told["cached"] or {}).items()}
        missing = max(0, document.num_blocks - sum(found.values()))  # of a question, too, blocks may be found
        report.cached_blocks = dict(Counter(report.cached_blocks) + Counter(found))
        report.num_computed_blocks += missing
        if missing:
            document.num_computed += 1
            engine.computed.add(asked["number"])
        self.answers.setdefault((asked["number"], asked["which"]), set()).add(tuple(told["tokens"]))

    def finish(self) -> None:
        """Stop killing, and wait until all requests are answered."""
        until = time.monotonic() + PATIENCE_S
        while any(engine.waiting for engine in self.engines) or self.to_repeat:
            ready = [engine for engine in self.engines if engine.dies_at is not None]
            while self.to_repeat and ready:
                self.chance.choice(ready).send(self.to_repeat.pop())
            self.listen()
            if time.monotonic() > until:
                self.report.problems.append(f"{sum(len(e.waiting) for e in self.engines)} requests were not answered")
                return

    def next_request(self) -> dict[str, Any]:
        chance, documents = self.chance, self.documents
        if not documents or chance.random() < SHARE_NEW:
            documents.append(Document([chance.randrange(256) for _ in range(chance.randrange(120, 480))]))
        first = max(0, len(documents) - 3) if chance.random() < SHARE_RECENT else 0
        number = chance.randrange(first, len(documents))
        return self.request(number, chance.randrange(NUM_QUESTIONS))

    def request(self, number: int, which: int) -> dict[str, Any]:
        self.num_asked += 1
        document = self.documents[number].token_ids
        question = [random.Random(f"{number}/{which}/{i}").randrange(256) for i in range(3 + 4 * which)]
        return {
            "id": f"request {self.num_asked}", "document": document, "question": question, "max_tokens": 6,
            "number": number, "which": which,
        }  # fmt: skip

    def judge(self) -> None:
        report = self.report
        report.num_documents = len(self.documents)
        report.num_document_blocks = sum(document.num_blocks for document in self.documents)
        report.num_computed = sum(document.num_computed for document in self.documents)
        report.most_computed = max((document.num_computed for document in self.documents), default=0)
        for number, document in enumerate(self.documents):
            if document.num_computed > 1 + document.num_excuses:
                report.problems.append(
                    f"document {number} was computed {document.num_computed} times, and {document.num_excuses} who "
                    "may have computed it were killed"
                )
        found = verify(self.kv_dir)
        report.verified = {"blocks": found.num_blocks, "damaged": len(found.damaged), "torn": len(found.torn)}
        report.problems += [f"damaged: {each}" for each in found.damaged]
        self._compare_answers()
        self._count_found()

    def _compare_answers(self) -> None:
        engine = make(str(self.model), None, num_blocks=4000, budget=512)
        for (number, which), answers in sorted(self.answers.items()):
            state = add(engine, self.request(number, which), logprobs=2)
            while engine.has_unfinished():
                engine.step()
            completion = state.to_output().outputs[0]
            for tokens in answers - {tuple(completion.token_ids)}:
                if _is_tie(tokens, completion):
                    self.report.num_ties += 1
                else:
                    self.report.problems.append(
                        f"document {number}, question {which}: {tokens} is not {completion.token_ids}"
                    )

    def _count_found(self) -> None:
        engine = make(str(self.model), str(self.kv_dir))
        for number, document in enumerate(self.documents):
            state = add(engine, self.request(number, 0) | {"max_tokens": 1})
            while engine.has_unfinished():
                engine.step()
            self.report.num_found_again += state.request.num_cached_tokens == document.num_blocks * BLOCK_SIZE


def _is_tie(tokens: Sequence[int], expected: CompletionOutput) -> bool:
    pairs = zip(tokens, expected.token_ids, expected.logprobs or (), strict=True)
    token, _, best = next(pair for pair in pairs if pair[0] != pair[1])
    return token in best and max(each.logprob for each in best.values()) - best[token].logprob < CLOSE


def soak(seconds: float, seed: int = 20) -> Report:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        report = Soak(seconds, seed, Path(folder), log).run()
        log.seek(0)
        text = log.read()
        if "Traceback" in text:
            report.problems.append("a log has a traceback: " + text[text.index("Traceback") :][:3000])
    return report


def _show(report: Report) -> str:
    rows = [
        ("seconds", f"{report.seconds:.0f}"),
        ("requests answered", f"{report.num_requests}"),
        ("processes started, killed", f"{report.num_starts}, {report.num_kills}"),
        ("requests lost with them, sent again", f"{report.num_lost}"),
        ("documents", f"{report.num_documents} of {report.num_document_blocks} blocks together"),
        ("requests that computed some of a document", f"{report.num_computed}"),
        ("blocks of documents computed for them", f"{report.num_computed_blocks}"),
        ("most often computed", f"{report.most_computed} times"),
        ("blocks of documents found", ", ".join(f"{n} {tier}" for tier, n in sorted(report.cached_blocks.items()))),
        ("answers that hang on rounding", f"{report.num_ties}"),
        ("documents on disk at the end", f"{report.num_found_again}"),
        ("records", ", ".join(f"{n} {name}" for name, n in report.verified.items())),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += [f"PROBLEM: {each}" for each in report.problems[:20]]
    lines.append(f"{len(report.problems)} problems" if report.problems else "all is well")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    report = soak(options.seconds, options.seed)
    print(_show(report))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
