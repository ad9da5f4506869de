"""Soak: thousands of mixed requests from several processes against a real `quire serve` with a small block pool.

    python -m benchmarks.soak [--requests 2000] [--processes 4] [--trouble] [--documents] [--endpoints] [--operations]
        [--json FILE]

A tenth of the requests are an agent's, with schemas and tools. At the end, every request must be answered or refused,
without a 500, every block must be free or cached, and memory must not grow: the median of the last quarter may exceed
that of the third by 8 KiB per request of a quarter. With --trouble (trouble.py) the server shares its cores, is
flooded, and its engine freezes once; then memory may grow by a tenth over the second quarter. With --documents
(documents.py) a collection changes meanwhile, and the KV directory must stay intact. With --endpoints (endpoints.py)
the endpoints that do not generate are asked, too; with --operations (operations.py) adapters, models and a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from benchmarks import ROOT
from benchmarks.soak.documents import Documents
from benchmarks.soak.endpoints import Endpoints
from benchmarks.soak.operations import Operations, operator_options
from benchmarks.soak.requests import MODEL
from benchmarks.soak.trouble import EXCUSES, HANG_TIMEOUT_S, Trouble

NUM_KV_BLOCKS = 64  # of 16 tokens: a handful of requests, so that they give way to each other all the time
NUM_AT_ONCE = 8  # requests of one process
SEED = 20
LEAST_FOR_MEMORY = 1000  # requests; the first few hundred warm the server up
GROWTH_PER_REQUEST = 8 * 1024  # bytes
GROWTH_IN_TROUBLE = 0.1  # of the second quarter's
PATIENCE_S = 300
_MUST_BE_ZERO = "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}


@dataclass
class Report:
    """Results of a soak."""

    num_requests: int = 0
    num_processes: int = 0
    has_trouble: bool = False
    has_documents: bool = False
    has_endpoints: bool = False
    has_operations: bool = False
    seconds: float = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    documents: dict[str, int] = field(default_factory=dict)  #: what was done with them
    endpoints: dict[str, int] = field(default_factory=dict)  #: requests by path
    operations: dict[str, int] = field(default_factory=dict)
    latency_s: dict[str, float] = field(default_factory=dict)
    num_preemptions: int = 0
    prefix_hit_rate: float = 0
    memory_mib: dict[str, float] = field(default_factory=dict)  #: medians by quarter
    problems: list[str] = field(default_factory=list)


class Server:
    """A `quire serve` process whose log goes to a file."""

    def __init__(self, log: IO[str], *options: str) -> None:
        common = ["--port", "0", "--device", "cpu", "--no-keep-kv"]
        command = [sys.executable, "-m", "quire", "serve", *common, *options]
        environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        banner = self.process.stdout.readline()
        if (found := re.search(r"http://\S+", banner)) is None:
            log.seek(0)
            raise RuntimeError(f"the server did not start: {log.read()[-3000:]}")
        self.url = found[0]

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def metrics(self) -> dict[str, float]:
        text = httpx.get(f"{self.url}/metrics", timeout=PATIENCE_S).text
        found = re.findall(rf'^(\w+)\{{model_name="{MODEL}"\}} (\S+)$', text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def complete(self) -> httpx.Response:
        body = {"model": MODEL, "prompt": "Hello", "max_tokens": 2}
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=PATIENCE_S)


class Client:
    """A client process; its lines are collected as they arrive."""

    def __init__(self, url: str, seed: int, num_requests: int, is_patient: bool) -> None:
        options = {"url": url, "seed": seed, "num_requests": num_requests, "num_at_once": NUM_AT_ONCE}
        options["is_patient"] = is_patient
        self.num_requests = num_requests
        self.ended: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.soak.client", json.dumps(options)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.ended.append(json.loads(line))


def soak(
    num_requests: int,
    num_processes: int,
    *,
    has_trouble: bool = False,
    has_documents: bool = False,
    has_endpoints: bool = False,
    has_operations: bool = False,
) -> Report:
    report = Report(num_requests, num_processes, has_trouble, has_documents, has_endpoints, has_operations)
    options = ["--dtype", "float32", "--num-kv-blocks", str(NUM_KV_BLOCKS)]
    if not has_operations:
        options += ["--model", MODEL]
    if has_trouble:
        options += ["--hang-timeout", str(HANG_TIMEOUT_S)]
    with tempfile.TemporaryFile("w+") as log, tempfile.TemporaryDirectory() as directory:
        if has_documents:
            options += ["--embedder", "hashing", "--rag-dir", f"{directory}/rag", "--kv-dir", f"{directory}/kv"]
        if has_operations:
            options += operator_options(Path(directory))
        server = Server(log, *options)
        try:
            _load(server, report, Path(directory))
            _check_books(server, report)
            server.process.send_signal(signal.SIGTERM)
            if (status := server.process.wait(PATIENCE_S)) != 0:
                report.problems.append(f"the server ended with status {status}")
            if has_documents:
                _verify(f"{directory}/kv", report)
        except (httpx.HTTPError, OSError, subprocess.TimeoutExpired) as error:
            report.problems.append(f"the server: {error!r}")
        finally:
            server.process.kill()
            server.process.wait()
        log.seek(0)
        text = log.read()
        if "Traceback" in text:
            report.problems.append("the server's log has a traceback: " + text[text.index("Traceback") :][:3000])
    return report


def _load(server: Server, report: Report, directory: Path) -> None:
    began = time.monotonic()
    shares = [report.num_requests * (i + 1) // report.num_processes for i in range(report.num_processes)]
    counts = [end - start for start, end in zip([0, *shares], shares, strict=False)]
    clients = [Client(server.url, SEED + i, count, report.has_trouble) for i, count in enumerate(counts)]
    quarters: list[list[int]] = [[], [], [], []]
    with (
        Trouble(server.url, server.process.pid) if report.has_trouble else nullcontext() as trouble,
        Documents(server.url, SEED) if report.has_documents else nullcontext() as documents,
        Endpoints(server.url, SEED, has_embedder=report.has_documents)
        if report.has_endpoints
        else nullcontext() as endpoints,
        Operations(server.url, SEED, directory) if report.has_operations else nullcontext() as operations,
    ):
        while any(client.process.poll() is None for client in clients):
            quarter = min(3, sum(len(client.ended) for client in clients) * 4 // report.num_requests)
            if trouble is not None and quarter == 1 and not quarters[1]:
                trouble.freeze()
            quarters[quarter].append(server.memory())
            time.sleep(0.05)
    for client in clients:
        client.reader.join()
    report.seconds = time.monotonic() - began
    if trouble is not None:
        report.problems += trouble.problems
        report.outcomes["floods"] = trouble.num_asked
    if documents is not None:
        report.problems += documents.problems
        report.documents = dict(documents.counts)
    if endpoints is not None:
        report.problems += endpoints.problems
        report.endpoints = dict(endpoints.counts)
    if operations is not None:
        report.problems += operations.problems
        report.operations = dict(operations.counts)
    _count([ended for client in clients for ended in client.ended], report)
    _judge_memory(quarters, report)


def _count(ended: list[dict[str, Any]], report: Report) -> None:
    for each in ended:
        if report.has_trouble and any(excuse in each.get("problem", "") for excuse in EXCUSES):
            each["outcome"] = "frozen"
            del each["problem"]
    report.outcomes |= Counter(each["outcome"] for each in ended)
    report.outcomes |= {
        kind: sum(each[f"is_{kind}"] for each in ended) for kind in ("malformed", "streamed", "of_agent")
    }
    report.statuses = dict(Counter(str(each["status"]) for each in ended if "status" in each))
    report.problems += [f"{each['problem']} <- {each['asked']}" for each in ended if "problem" in each]
    if len(ended) != report.num_requests:
        report.problems.append(f"{report.num_requests - len(ended)} requests were never heard of again")
    seconds = sorted(each["seconds"] for each in ended if each.get("status") == 200)
    if seconds:
        report.latency_s = {"p50": seconds[len(seconds) // 2], "p99": seconds[len(seconds) * 99 // 100]}
    answers: dict[str, set[str]] = {}
    for each in ended:
        if "question" in each:
            answers.setdefault(each["question"], set()).add(each["text"])
    report.problems += [
        f"{question} has several greedy answers: {texts}" for question, texts in answers.items() if len(texts) > 1
    ]


def _judge_memory(quarters: list[list[int]], report: Report) -> None:
    medians = [statistics.median(quarter) if quarter else 0 for quarter in quarters]
    report.memory_mib = {f"quarter {i}": median / 2**20 for i, median in enumerate(medians, 1)}
    if report.has_trouble:
        report.memory_mib["largest"] = max(map(max, filter(None, quarters))) / 2**20
        before, allowed = medians[1], GROWTH_IN_TROUBLE * medians[1]
    else:
        before, allowed = medians[2], GROWTH_PER_REQUEST * report.num_requests / 4
    if report.num_requests >= LEAST_FOR_MEMORY and (grown := medians[3] - before) > allowed:
        report.problems.append(f"resident memory grew by {grown / 2**20:.1f} MiB, {allowed / 2**20:.1f} are allowed")


def _check_books(server: Server, report: Report) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        server.complete().raise_for_status()  # the figures are those of the last step, so there must be one
        found = server.metrics()
        books = {
            name: found[f"quire_{name}"]
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        }
        if not any(books.values()):
            break
        if time.monotonic() > deadline:
            report.problems.append(f"it leaks: {books}")
            return
        time.sleep(0.1)
    report.num_preemptions = int(found["quire_num_preemptions_total"])
    report.prefix_hit_rate = found["quire_prefix_cache_hits_total"] / found["quire_prefix_cache_queries_total"]
    if (status := httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code) != 200:
        report.problems.append(f"/health says {status}")


def _verify(kv_dir: str, report: Report) -> None:
    command = [sys.executable, "-m", "quire", "kv", "verify", "--kv-dir", kv_dir]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}
    )
    if ended.returncode:
        report.problems.append(f"quire kv verify: {ended.stdout[-1000:]} {ended.stderr[-1000:]}")


def _show(report: Report) -> str:
    counted = {"outcomes": report.outcomes, "statuses": report.statuses, "documents": report.documents}
    counted |= {"endpoints": report.endpoints, "operations": report.operations}
    lines = [f"{report.num_requests} requests from {report.num_processes} processes in {report.seconds:.0f} s"]
    lines += [
        f"{name}: " + ", ".join(f"{k} {v}" for k, v in sorted(each.items())) for name, each in counted.items() if each
    ]
    lines.append("latency of answers: " + ", ".join(f"{k} {v:.2f} s" for k, v in report.latency_s.items()))
    lines.append(f"preemptions: {report.num_preemptions}; prefix hits: {report.prefix_hit_rate:.0%}")
    judged = "" if report.num_requests >= LEAST_FOR_MEMORY else " (too few requests to judge)"
    lines.append("memory: " + ", ".join(f"{k} {v:.1f} MiB" for k, v in report.memory_mib.items()) + judged)
    lines += [f"PROBLEM: {each}" for each in report.problems[:20]]
    lines.append(f"{len(report.problems)} problems" if report.problems else "all is well")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--trouble", action="store_true", help="floods, busy neighbours and a frozen engine meanwhile")
    parser.add_argument("--documents", action="store_true", help="a collection changes and is asked about, too")
    parser.add_argument("--endpoints", action="store_true", help="the endpoints that do not generate are asked, too")
    parser.add_argument("--operations", action="store_true", help="adapters, models and a batch change meanwhile, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    report = soak(
        options.requests,
        options.processes,
        has_trouble=options.trouble,
        has_documents=options.documents,
        has_endpoints=options.endpoints,
        has_operations=options.operations,
    )
    print(_show(report))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
