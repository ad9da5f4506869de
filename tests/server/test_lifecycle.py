"""A server process from its first line to its exit status, with real signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn

from engines import thread_engine
from quire.server.lifecycle import _Process, serve
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings
from server.asgi import tell_state
from server.tiny_server import ROOT, TinyServer, completion, tiny_server

TERM_AT_ONCE, INT_AT_ONCE = 128 + signal.SIGTERM, 128 + signal.SIGINT


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    with tiny_server(log_format="json", settings={"log_interval_s": 0.1, "max_body_bytes": 100_000}) as server:
        yield server


class Stream:
    """A streamed completion, read in another thread."""

    def __init__(self, server: TinyServer, threads: ThreadPoolExecutor, **body: Any) -> None:
        self.has_begun = threading.Event()
        self.result = threads.submit(self._read, server, body)
        assert self.has_begun.wait(60)

    def _read(self, server: TinyServer, body: dict[str, Any]) -> list[str]:
        lines = []
        with server.client() as client:
            request = client.stream("POST", "/v1/completions", json=completion(stream=True, **body))
            with request as answer:
                assert answer.status_code == 200
                for line in answer.iter_lines():
                    if line:
                        lines.append(line)
                        self.has_begun.set()
        return lines


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


# -- signals -----------------------------------------------------------------------------------------------------------


def test_sigterm_lets_running_requests_finish_while_health_and_new_ones_get_503(threads: ThreadPoolExecutor) -> None:
    with tiny_server(step_s=0.05) as server:
        assert server.get("/health").json() == {"status": "ok"}
        stream = Stream(server, threads, max_tokens=40)
        whole = threads.submit(server.complete, max_tokens=40)
        server.wait_for(lambda: 'num_requests_running{model_name="tiny"} 2' in server.get("/metrics").text, "load")
        server.send(signal.SIGTERM)
        server.wait_for_log("stopping: running requests have 30 s")
        draining = server.wait_for(lambda: (h := server.get("/health")).status_code == 503 and h, "draining")
        assert draining.json() == {"status": "draining"}
        refused = server.complete()
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "server_error"
        assert server.get("/v1/models").json()["data"][0]["state"] == "draining"
        lines = stream.result.result()
        assert lines[-1] == "data: [DONE]"
        assert '"length"' in lines[-2]
        assert whole.result().json()["usage"]["completion_tokens"] == 40
        assert server.wait_for_end() == 0
        assert "cut off" not in "".join(server.log)
        assert "Traceback" not in "".join(server.log)


def test_what_does_not_finish_in_time_is_cut_off_and_told(threads: ThreadPoolExecutor) -> None:
    with tiny_server(step_s=0.05, settings={"shutdown_timeout_s": 0.3}) as server:
        stream = Stream(server, threads, max_tokens=1000)
        whole = threads.submit(server.complete, max_tokens=1000)
        server.wait_for(lambda: 'num_requests_running{model_name="tiny"} 2' in server.get("/metrics").text, "load")
        server.send(signal.SIGTERM)
        assert server.wait_for_end() == 0
        assert any('"error"' in line for line in stream.result.result())
        assert whole.result().status_code == 503
        assert "2 requests did not finish within 0.3 s and were cut off" in "".join(server.log)


@pytest.mark.parametrize(("drain_s", "last_bytes_s"), [(0, 0.5), (0.01, 5)], ids=["takes all", "is short"])
def test_clients_that_do_not_read_share_the_time_to_shut_down(drain_s: float, last_bytes_s: float) -> None:
    timeout_s = 60.0 if drain_s else 0.2
    given = []

    async def drain(limit_s: float) -> int:
        given.append(limit_s)
        await asyncio.sleep(drain_s or limit_s)
        return 0

    server = SimpleNamespace(config=uvicorn.Config(tell_state))
    settings = ServerSettings(shutdown_timeout_s=timeout_s)
    registry = SimpleNamespace(engines=[SimpleNamespace(drain=drain)])
    process = _Process(server, None, registry, settings, "", None, None, lambda: None)  # type: ignore[arg-type]
    asyncio.run(process._drain(signal.SIGTERM))
    assert given == [timeout_s * 0.95]
    assert server.config.timeout_graceful_shutdown == last_bytes_s


def test_background_work_ends_with_the_server_and_says_so() -> None:
    body = {"input": "Hello", "background": True, "stream": True, "max_output_tokens": 1000}
    with tiny_server(step_s=0.05, settings={"shutdown_timeout_s": 0.3}) as server, server.client() as client:
        with client.stream("POST", "/v1/responses", json=body) as answer:
            lines = answer.iter_lines()
            assert "event: response.in_progress" in lines
            server.send(signal.SIGTERM)
            rest = list(lines)
        assert [line for line in rest if line.startswith("event:")][-1] == "event: response.failed"
        failed = json.loads([line for line in rest if line.startswith("data:")][-1].removeprefix("data: "))["response"]
        assert failed["status"] == "failed"
        assert "shut down" in failed["error"]["message"]


@pytest.mark.slow
def test_a_step_that_takes_its_time_is_waited_for(threads: ThreadPoolExecutor) -> None:
    with tiny_server(step_s=8, settings={"shutdown_timeout_s": 0.1}) as server:
        asked = threads.submit(server.complete, max_tokens=1000)
        server.wait_for(lambda: 'num_requests_running{model_name="tiny"} 1' in server.get("/metrics").text, "load")
        server.send(signal.SIGTERM)
        assert server.wait_for_end() == 0
        assert asked.result().status_code == 503
        assert "the step under way has not ended" not in "".join(server.log)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(first: signal.Signals, threads: ThreadPoolExecutor) -> None:
    with tiny_server(step_s=0.1) as server:
        stream = Stream(server, threads, max_tokens=2000)
        server.send(first)
        server.wait_for_log("stopping")
        server.send(signal.SIGTERM)
        assert server.wait_for_end() == TERM_AT_ONCE
        assert stream.result.exception() is not None


def test_who_ends_at_once_leaves_no_child_behind() -> None:
    code = (
        "from quire.server.lifecycle import _end_at_once\n"
        "from quire.system.child_process import ChildProcess\n"
        "child = ChildProcess('waiting')\n"
        "print(child.pid, flush=True); _end_at_once(7)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env, timeout=60)
    assert done.returncode == 7
    child = Path("/proc", done.stdout.strip(), "stat")
    deadline = time.monotonic() + 30
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the child goes on"
        time.sleep(0.01)


def test_ctrl_c_is_in_more_of_a_hurry(threads: ThreadPoolExecutor) -> None:
    with tiny_server() as server:
        server.send(signal.SIGINT)
        assert server.wait_for_end() == INT_AT_ONCE
        server.wait_for_log("running requests have 3 s to finish")
        assert "Traceback" not in "".join(server.log)


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, INT_AT_ONCE)])
def test_a_signal_while_a_model_loads_ends_the_process_too(signum: signal.Signals, status: int) -> None:
    with tiny_server(is_ready=False, load_s=600) as server:
        server.url = server.wait_for_log(r"listening on (\S+)")[1]
        assert server.get("/health").json()["status"] == "loading"
        server.send(signum)
        assert server.wait_for_end() == status
        assert not server.said, "the banner is for a server that can answer"


# -- where it listens --------------------------------------------------------------------------------------------------


def test_an_address_in_use_is_an_error_that_says_what_to_choose() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use; choose"):
            serve(tell_state, registry_of_nothing(), ServerSettings(port=port))


def test_a_unix_socket_is_listened_on_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "quire.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(path))
    assert path.is_socket()
    with tiny_server(settings={"uds": str(path)}) as server:
        assert server.url == f"unix:{path}"
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
            assert client.post("/v1/completions", json=completion(), timeout=60).status_code == 200
            lines = client.post("/v1/completions", json=completion(stream=True), timeout=60).text
            assert lines.endswith("data: [DONE]\n\n")
        with pytest.raises(ValueError, match="Address already in use; choose another --uds"):
            serve(tell_state, registry_of_nothing(), ServerSettings(uds=str(path)))
        server.send(signal.SIGTERM)
        assert server.wait_for_end() == 0
        assert not path.exists()
        assert "client that can reach" not in "".join(server.log)


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("data")
    for path, reason in ((file, "Address already in use"), (tmp_path / "no" / "folder", "No such file")):
        with pytest.raises(ValueError, match=f"cannot listen at {path}: {reason}"):
            serve(tell_state, registry_of_nothing(), ServerSettings(uds=str(path)))
    assert file.read_text() == "data"


def test_tls_files_that_cannot_be_used_are_an_error_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    for name in ("cert.pem", "missing.pem"):
        settings = ServerSettings(port=0, ssl_certfile=str(tmp_path / name))
        with pytest.raises(ValueError, match="the TLS files cannot be used"):
            serve(tell_state, registry_of_nothing(), settings)


def registry_of_nothing() -> ModelRegistry:
    return ModelRegistry([ServedModel("m", thread_engine("m", lambda: pytest.fail("was started")), 0)])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_is_passed_through(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate), "-days", "2"]
    subprocess.run([*command, *files, *subject], check=True, capture_output=True)
    settings = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
    with tiny_server(settings=settings) as server:
        assert server.url.startswith("https://127.0.0.1:")
        server.verify = ssl.create_default_context(cafile=str(certificate))
        assert server.complete().status_code == 200


def test_a_server_that_is_open_to_everyone_says_so() -> None:
    with tiny_server(settings={"host": "0.0.0.0"}) as server:
        server.wait_for_log("client that can reach http://127.0.0.1:[0-9]+ may use this server; --api-key")


def test_a_model_that_cannot_be_loaded_ends_the_process_with_an_error() -> None:
    with tiny_server(is_ready=False, model="random:nothing-of-the-kind") as server:
        assert server.wait_for_end() == 2
        assert "".join(server.log).count("nothing-of-the-kind") == 1
        assert not server.said


# -- while it serves ---------------------------------------------------------------------------------------------------


def log_entries(server: TinyServer, message: str) -> list[dict[str, Any]]:
    return [entry for entry in map(json.loads, server.log) if entry["message"] == message]


def test_a_request_is_in_the_access_log_in_the_metrics_and_in_the_load_lines(server: TinyServer) -> None:
    with server.client() as client:
        body = completion(prompt="something private", max_tokens=5)
        answer = client.post("/v1/completions", json=body, headers={"X-Request-Id": "from-outside"})
    assert answer.headers["X-Request-Id"] == "from-outside"
    (line,) = server.wait_for(
        lambda: [e for e in log_entries(server, "request") if e["request_id"] == "from-outside"], "its line"
    )
    assert (line["status"], line["model"], line["completion_tokens"]) == (200, "tiny", 5)
    assert line["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
    text = server.get("/metrics").text
    assert float(re.search(r'quire_request_success_total{finished_reason="length".*} (\S+)', text)[1]) >= 1  # type: ignore[index]
    assert float(re.search(r"quire_inter_token_latency_seconds_count{.*} (\S+)", text)[1]) >= 4  # type: ignore[index]
    load = server.wait_for(lambda: log_entries(server, "load"), "a line of load")[0]
    assert load["model"] == "tiny"
    assert {"running", "waiting", "prompt_tok_s", "generation_tok_s", "kv_usage"} <= load.keys()
    assert "private" not in "".join(server.log)


def test_a_client_that_leaves_is_gone_from_the_gauges() -> None:
    with tiny_server(step_s=0.05) as server, server.client() as client:
        with client.stream("POST", "/v1/completions", json=completion(stream=True, max_tokens=500)) as answer:
            next(answer.iter_lines())
        server.wait_for(
            lambda: 'finished_reason="abort",model_name="tiny"} 1.0' in server.get("/metrics").text, "abort"
        )
        text = server.get("/metrics").text
        assert 'quire_num_requests_running{model_name="tiny"} 0.0' in text
        assert 'quire_kv_cache_usage_perc{model_name="tiny"} 0.0' in text


def test_a_body_of_50_mb_is_refused_and_others_do_not_notice(server: TinyServer, threads: ThreadPoolExecutor) -> None:
    with server.client() as client:
        large = threads.submit(client.post, "/v1/completions", content=b"x" * 50_000_000)
        assert server.complete().status_code == 200
        assert large.result().status_code == 413
        chunks = (b"x" * 100_000 for _ in range(500))
        assert client.post("/v1/completions", content=chunks).status_code == 413
        assert client.post("/v1/completions", json=completion()).status_code == 200, "on the same connection"


def test_a_flood_of_headers_is_refused_and_others_do_not_notice(server: TinyServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as flood:
        answer = b""
        with contextlib.suppress(OSError):  # it disconnects
            flood.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            for number in range(100_000):
                flood.sendall(b"X-Flood-%d: %s\r\n" % (number, b"x" * 100))
        with contextlib.suppress(OSError):
            answer = flood.recv(1000)
    assert not answer or answer.startswith(b"HTTP/1.1 431")
    assert server.complete().status_code == 200


def test_no_page_of_another_origin_may_ask_by_default(server: TinyServer) -> None:
    with server.client() as client:
        asked = client.options(
            "/v1/completions", headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        )
    assert "access-control-allow-origin" not in asked.headers
    with tiny_server(settings={"cors_origins": ["https://a.example"], "api_keys": ["k"]}) as other, other.client() as c:
        for origin, is_allowed in (("https://a.example", True), ("https://b.example", False)):
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            asked = c.options("/v1/completions", headers=headers)
            assert ("access-control-allow-origin" in asked.headers) == is_allowed
        assert c.get("/health").status_code == 200
        assert c.get("/v1/models").status_code == c.get("/metrics").status_code == 401


def test_serving_sets_the_interpreter_up_and_back(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ValueError, match="TLS"):
        serve(tell_state, registry_of_nothing(), ServerSettings(port=0, ssl_certfile=str(tmp_path / "missing")))
    assert sys.getswitchinterval() == before


def test_a_page_of_another_name_cannot_reach_a_local_server_without_keys() -> None:
    foreign = {"Host": "rebound.example"}
    with tiny_server() as server, server.client() as client:
        assert client.get("/v1/models", headers=foreign).status_code == 403
        assert client.get("/v1/models").status_code == 200
    with tiny_server(settings={"api_keys": ["k"]}) as server, server.client() as client:
        answer = client.get("/v1/models", headers={**foreign, "Authorization": "Bearer k"})
        assert answer.status_code == 200
