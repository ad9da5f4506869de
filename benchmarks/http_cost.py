"""Cost of HTTP and streaming over the offline engine.

The same requests run in the offline engine and as concurrent streams of a real server, then with many queued streams
behind them, and beside large bodies. All cases take turns; each is compared with the plain streams of its own turn.
Times are taken where the client reads, and include the client's processor time.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import httpx

from benchmarks.script import start
from benchmarks.stream_client import Stream, StreamClient, connect_to
from quire.bench.bench_settings import runs
from quire.bench.coldstart.cold_server import server_environment
from quire.bench.report import Column, Report, summarise
from quire.bench.serving.load_target import Target, find_target
from quire.bench.workload import Workload, WorkloadRequest, fixed_lengths, make_workload, token_range
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.settings import Settings, parse_size, setting
from quire.system.child_process import signals_blocked

#: By figure, what it may be at most: a step's time over the offline engine; with the others queued; and of the 99th
#: percentiles, while a body is sent.
TARGETS = {
    "added_s": (0.0004, "at most 0.4 ms a step"),
    "tpot_ratio": (1.01, "at most 1.01 of TPOT"),
    "itl_p99_ratio": (2.0, "at most 2 times p99"),
}

_DEFAULT_LIMIT = 8 * 1024**2  #: the server's own, of a body
_PAUSE_S = 0.05  # between two bodies
_BODIES = {"text": "a prompt of text", "token ids": "a prompt of token ids"}


@dataclass(frozen=True)
class HttpSettings(Settings):
    """Options of the HTTP benchmark."""

    streams: int = setting(8, "Concurrent streams.", at_least=1)
    input_len: int = setting(32, "Tokens of each prompt.", at_least=1)
    output_len: int = setting(1024, "Tokens of each answer.", at_least=8)
    queued: int = setting(200, "Queued streams behind them.", at_least=1)
    body_size: int = setting("50MB", "Size of the bodies sent beside them.", read=parse_size)
    engine_process: bool = setting(False, "Measure servers whose engine has a process of its own.", is_flag=True)
    runs: int = runs(5)
    settle_s: float = 1.5  #: from when all are queued; streams that wait get their heads within it


@dataclass(frozen=True)
class Played:
    """One run of the streams; `token_s` are the token times of one stream."""

    token_s: list[float]
    gaps: list[tuple[float, float]]  #: of all streams, from when all of them ran
    first: int  #: the first of `token_s` from when all was as it should be

    @property
    def step_s(self) -> float:
        return _step_s(self.token_s, self.first)

    def itl_s(self, spans: Sequence[tuple[float, float]] | None = None) -> list[float]:
        """Gaps between chunks; with spans, only gaps that overlap with one of them."""
        gaps = self.gaps
        if spans is not None:
            gaps = [gap for gap in gaps if any(gap[0] < end and begin < gap[1] for begin, end in spans)]
        return sorted(end - begin for begin, end in gaps)


def run(config: EngineConfig, settings: HttpSettings, json: Path | None) -> None:
    load = os.getloadavg()[0]
    report = Report(
        "http",
        f"{settings.streams} streams of {config.model}, {settings.input_len} tokens in and {settings.output_len} out",
        (
            Column("case", "case"),
            Column("step_s", "ms a step", scale=1e3, digits=3),
            Column("added_s", "added, ms", scale=1e3, digits=3),
            Column("tpot_ratio", "TPOT ratio", digits=3),
            Column("itl_p99_s", "p99 ITL, ms", scale=1e3, digits=2),
            Column("itl_p99_ratio", "p99 ratio", digits=2),
            Column("itl_max_s", "longest, ms", scale=1e3, digits=1),
            Column("target", "target"),
        ),
        figures=measure_http_cost(config, settings),
        notes=[
            "Times are taken where the client reads, from when all streams ran; medians over the repetitions, ratios "
            "and differences within each. Steps are counted by the tokens of one stream.",
            f"Streams over HTTP: a server process, default settings, --max-num-seqs {settings.streams}"
            f"{'' if settings.engine_process else ', --no-engine-process'}; its client's "
            "processor time on the same machine is part of what is seen. Offline: LLM.generate in a process of its "
            "own, detokenizing too.",
            f"Load average of the machine when it began: {load:.1f}. Whatever else runs falls on the server first.",
            f"Bodies: {settings.body_size / 1e6:g} MB, one after another by another process; of these cases only waits "
            "count in which one was sent or answered. Accepted bodies are parsed, and then refused as too long.",
        ],
        settings={**asdict(config), **settings.as_json(), "load_average": load},
    )
    report.publish(json)


def measure_http_cost(config: EngineConfig, settings: HttpSettings) -> list[dict[str, Any]]:
    """Measure every case. Ratios and differences are taken within a repetition.

    Raises:
        RuntimeError: a server failed.
    """
    config = _with_room(config, settings)
    lengths = fixed_lengths(settings.streams, settings.input_len, settings.output_len)
    workload = make_workload("streams", lengths, seed=5)
    results: dict[str, list[dict[str, float]]] = {}
    with ExitStack() as stack:
        options = ["--engine-process" if settings.engine_process else "--no-engine-process"]
        refusing = stack.enter_context(serve(config, min(_DEFAULT_LIMIT, settings.body_size // 2), options))
        accepting = stack.enter_context(serve(config, settings.body_size + 1024**2, options))
        spawn = multiprocessing.get_context("spawn")
        offline = stack.enter_context(ProcessPoolExecutor(1, spawn, initializer=_load_offline, initargs=(config,)))
        stop = spawn.Event()
        sender = stack.enter_context(ProcessPoolExecutor(1, spawn, initializer=_prepare_sending, initargs=(stop,)))
        ids = token_range(refusing.vocab_size)
        warm_up = make_workload("warm-up", lengths, seed=4).shifted(0, ids)
        resource_tracker.ensure_running()  # the first process would start it, which unblocks signals
        with signals_blocked():
            warming_up = offline.submit(_play_offline, warm_up)
            sender.submit(_body, "text", settings.body_size)
        warming_up.result()
        for target in (refusing, accepting):
            play_streams(target, warm_up)
        for repetition in range(settings.runs):
            played = workload.shifted(repetition, ids)
            for case, values in _one_repetition(settings, played, refusing, accepting, offline, sender, stop).items():
                results.setdefault(case, []).append(values)
    return [_figure(case, repetitions) for case, repetitions in results.items()]


def _one_repetition(
    settings: HttpSettings,
    workload: Workload,
    refusing: Target,
    accepting: Target,
    offline: ProcessPoolExecutor,
    sender: ProcessPoolExecutor,
    stop: Any,
) -> dict[str, dict[str, float]]:
    step_s = offline.submit(_play_offline, workload).result()
    alone = play_streams(refusing, workload)
    queued = play_streams(refusing, workload, settings.queued, settings.settle_s)
    own = _step_s(step_s, max(0, alone.first - 1))  # the first token of all was the prompts' step
    found = {
        "offline engine": {"step_s": own},
        "streams over HTTP": {
            "step_s": alone.step_s,
            "added_s": alone.step_s - own,
            **_itl(alone.itl_s()),
        },
        f"{settings.queued} more queued": {
            "step_s": queued.step_s,
            "tpot_ratio": queued.step_s / _step_s(alone.token_s, queued.first),
            **_itl(queued.itl_s()),
        },
    }
    cases = [("text", refusing, "refused")] + [(kind, accepting, "accepted") for kind in _BODIES]
    for kind, target, verb in cases:
        sender.submit(_body, kind, settings.body_size).result()  # made before the time runs
        stop.clear()
        sending = sender.submit(_send_bodies, target.url, kind, settings.body_size)
        beside = play_streams(target, workload)
        stop.set()
        spans = sending.result()
        itl = _itl(beside.itl_s(spans))
        itl["itl_p99_ratio"] = itl["itl_p99_s"] / _itl(alone.itl_s())["itl_p99_s"]
        itl["num_bodies"] = len(spans)
        found[f"bodies {verb}, {kind}"] = {"step_s": beside.step_s, **itl}
    return found


def _figure(case: str, repetitions: list[dict[str, float]]) -> dict[str, Any]:
    figure: dict[str, Any] = {"case": case}
    figure |= {name: summarise(values[name] for values in repetitions) for name in repetitions[0]}
    for name, (limit, text) in TARGETS.items():
        if name in figure:
            figure["is_met"] = bool(figure[name]["median"] <= limit)
            figure["target"] = f"{text}: {'met' if figure['is_met'] else 'missed'}"
    return figure


def _itl(waits: list[float]) -> dict[str, float]:
    if not waits:
        raise RuntimeError("the streams ended before there was anything to measure; give a longer --output-len")
    return {"itl_p99_s": waits[min(len(waits) - 1, int(0.99 * len(waits)))], "itl_max_s": waits[-1]}


_llm: Any = None


def _end_without_a_word() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _load_offline(config: EngineConfig) -> None:
    global _llm
    _end_without_a_word()
    from quire import LLM

    _llm = LLM(**asdict(config))


def _play_offline(workload: Workload) -> list[float]:
    from quire.sampling_params import SamplingParams

    ended_s: list[float] = []
    count = len(workload.requests)

    def note(stats: Any) -> None:
        if stats.num_scheduled_tokens == stats.num_sampled_tokens == count:
            ended_s.append(stats.time)

    params = [
        SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=True) for request in workload.requests
    ]
    _llm.engine.on_stats.append(note)
    try:
        _llm.generate([{"prompt_token_ids": r.prompt_token_ids} for r in workload.requests], params, use_tqdm=False)
    finally:
        _llm.engine.on_stats.remove(note)
    return ended_s


def _step_s(ended_s: list[float], first: int) -> float:
    return (ended_s[-1] - ended_s[first]) / (len(ended_s) - 1 - first)


def _with_room(config: EngineConfig, settings: HttpSettings) -> EngineConfig:
    config = replace(config, max_num_seqs=settings.streams, use_tqdm=False)
    if config.num_kv_blocks is None and config.kv_cache_memory is None:
        blocks = (settings.streams + 1) * (-(-(settings.input_len + settings.output_len) // config.block_size) + 1)
        config = replace(config, num_kv_blocks=int(blocks * 1.1) + 1)
    return config


@contextmanager
def serve(config: EngineConfig, max_body_bytes: int, options: Sequence[str]) -> Iterator[Target]:
    """Run a server of the model, which clients call "measured"."""
    command = [
        sys.executable,
        "-m",
        "quire",
        "serve",
        "--port",
        "0",
        "--no-keep-kv",
        "--max-body-bytes",
        str(max_body_bytes),
        *options,
    ]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "--model", f"measured={config.model}"],
            env=server_environment(config), stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"at (http://\S+)$", line):
                    break
            else:
                log.seek(0)
                raise RuntimeError(f"the server did not start; its last words: {log.read()[-1000:]}")
            target = find_target(found[1], None, None, is_chat=False, extra={})
            yield replace(target, includes_usage=False)
        finally:
            process.terminate()
            process.communicate()


def play_streams(target: Target, workload: Workload, num_queued: int = 0, settle_s: float = 0.0) -> Played:
    """Send all requests of a workload at once, and `num_queued` small ones behind them.

    Raises:
        RuntimeError: an answer failed, or was too short to measure.
    """
    counting = replace(target, extra={"return_token_ids": True})
    client = StreamClient(target.url)
    try:
        streams = [
            client.open((counting if i == 0 else target).write(request, workload).body)
            for i, request in enumerate(workload.requests)
        ]
        client.read(lambda: all(stream.is_begun for stream in streams))
        small = WorkloadRequest(workload.requests[0].prompt_token_ids, 1)
        queued = [client.open(target.write(small, workload).body) for _ in range(num_queued)]
        if queued:
            _wait_for_queue(target, num_queued)
            settled_s = time.monotonic() + settle_s
            client.read(lambda: time.monotonic() >= settled_s)
        since_s = time.monotonic()
        client.read(lambda: all(stream.is_ended for stream in client.streams))
    finally:
        client.close()
    return _played(streams, queued, since_s)


def _wait_for_queue(target: Target, length: int) -> None:
    """Until the server shows the requests as waiting: the cost of their arrival must not be measured."""
    waiting = re.compile(r"^quire_num_requests_waiting\{.*\} (\S+)$", re.MULTILINE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        shown = httpx.get(f"{target.endpoint.base_url.removesuffix('/v1')}/metrics", trust_env=False).text
        if (found := waiting.search(shown)) is not None and float(found[1]) >= length:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{length} requests were sent, and the server does not show them as waiting")


def _played(streams: list[Stream], queued: list[Stream], since_s: float) -> Played:
    token_s = streams[0].token_s()
    until_s = token_s[-1]
    if any(stream.is_begun and stream.events()[0][0] < until_s for stream in queued):
        raise RuntimeError("a queued stream began before the others had ended; give a longer --output-len")
    first = sum(came_s <= since_s for came_s in token_s)
    if first >= len(token_s) - 1:
        raise RuntimeError("the streams ended before the others were queued; give a longer --output-len")
    gaps = [gap for stream in streams for gap in stream.gaps(since_s, until_s)]
    return Played(token_s, gaps, first)


_stop: Any = None


def _prepare_sending(stop: Any) -> None:
    global _stop
    _end_without_a_word()
    _stop = stop


@lru_cache
def _body(kind: str, num_bytes: int) -> bytes:
    begin, end = b'{"model": "measured", "prompt": ', b"}"
    room = num_bytes - len(begin) - len(end)
    if kind == "text":
        return begin + b'"' + b"word " * ((room - 2) // 5) + b'"' + end
    return begin + b"[" + b"123," * ((room - 2) // 4 - 1) + b"123]" + end


def _send_bodies(url: str, kind: str, num_bytes: int) -> list[tuple[float, float]]:
    address, head = connect_to(url)
    body = _body(kind, num_bytes)
    spans = []
    while not _stop.is_set():
        began = time.monotonic()
        with socket.create_connection(address, timeout=600) as connection:
            try:
                connection.sendall(head % len(body))
                connection.sendall(body)
                connection.recv(1 << 16)
            except ConnectionError:
                pass  # refused, and hung up on
        spans.append((began, time.monotonic()))
        _stop.wait(_PAUSE_S)
    return spans


@options(default_model="quire-mini")
def main(engine: EngineConfig, settings: HttpSettings, json: Json = None) -> None:
    """Cost of HTTP and streaming over the offline engine, also with a long queue and beside large bodies."""
    run(engine, settings, json)


if __name__ == "__main__":
    start(main)
