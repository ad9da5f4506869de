"""`quire bench serve` against servers over real sockets: requests, output and files."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from fake_openai import FakeServer, fake_openai
from quire.bench.workload import Workload, WorkloadRequest, write_workload

TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.0,100,8
2023-11-16 18:15:46.1,40,4
2023-11-16 18:15:46.4,400,2
"""
SIZED = [{"id": "m", "vocab_size": 512, "max_model_len": 1024}]


def as_asked(body: dict[str, Any]) -> list[str]:
    return ["a"] * body["max_tokens"]


def bench(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["bench", "serve", *arguments], **options)


def asked(fake: FakeServer, num_probes: int) -> list[dict[str, Any]]:
    """The load's requests."""
    return fake.requests[num_probes:]


def test_a_load_of_drawn_lengths_is_sent_measured_and_written(tmp_path: Path) -> None:
    lengths = ["--input-len", "5-9", "--output-len", "2-4", "--num-requests", "12", "--request-rate", "100"]
    files = {name: tmp_path / name for name in ("figures.json", "plot.png")}
    options = ["--json", str(files["figures.json"])]
    with fake_openai(said=as_asked, models=SIZED, delay_s=0.002) as fake:
        result = bench(
            "--url", fake.url, *lengths, *options, "--plot", str(files["plot.png"]), "--goodput", "e2el:60000"
        )
    assert result.exit_code == 0, result.output
    for text in ("TTFT", "TPOT", "ITL", "E2EL", "normalised", "p99", "12 of 12 requests", "100% of all requests"):
        assert text in result.output
    assert "token counts are the server's usage; prompts are token ids" in result.output
    load = asked(fake, num_probes=1)
    assert len(load) == 12
    for body in load:
        assert 5 <= len(body["prompt"]) <= 9
        assert all(300 <= token < 512 for token in body["prompt"])
        assert (body["temperature"], body["ignore_eos"], body["stream"]) == (0.0, True, True)
        assert body["stream_options"] == {"include_usage": True}

    data = json.loads(files["figures.json"].read_text())
    assert (data["schema"], data["benchmark"], data["settings"]["num_requests"]) == (1, "serve", 12)
    [figure] = data["figures"]
    assert (figure["model"], figure["request_rate"], figure["requests"], figure["completed"]) == ("m", 100, 12, 12)
    assert figure["in"] == sum(len(body["prompt"]) for body in load)
    assert figure["out"] == figure["out_got"] == sum(body["max_tokens"] for body in load)
    for name in ("ttft_s", "tpot_s", "itl_s", "e2el_s", "normalised_latency_s"):
        assert {"mean", "p50", "p90", "p99"} <= set(figure[name])
    # The server's delay before each token is a lower bound.
    assert figure["ttft_s"]["min"] >= 0.002
    assert figure["normalised_latency_s"]["min"] >= 0.002
    assert figure["e2el_s"]["min"] >= 0.002 * min(body["max_tokens"] for body in load)
    assert figure["goodput"]["share"] == 1.0
    assert files["plot.png"].stat().st_size > 1_000


def test_a_sweep_compares_servers_at_the_same_arrivals_and_draws_the_papers_picture(tmp_path: Path) -> None:
    figures, plot = tmp_path / "f.json", tmp_path / "p.svg"
    lengths = ["--input-len", "6", "--output-len", "3", "--num-requests", "5", "--goodput", "ttft:60000"]
    with fake_openai(said=as_asked, models=SIZED) as one, fake_openai(said=as_asked, models=SIZED) as two:
        urls = ["--url", f"one={one.url}", "--url", f"two={two.url}/v1"]
        result = bench(*urls, *lengths, "--sweep", "50,200", "--json", str(figures), "--plot", str(plot))
    assert result.exit_code == 0, result.output
    found = json.loads(figures.read_text())["figures"]
    assert [(f["label"], f["request_rate"]) for f in found] == [("one", 50), ("two", 50), ("one", 200), ("two", 200)]
    assert found[0]["offered_rate"] == found[1]["offered_rate"]
    assert "one: 90% of the requests are within ttft 60000 ms up to 200 requests/s." in result.output
    text = plot.read_text()
    assert "<svg" in text
    # Loads do not share cached prefixes.
    prompts = [tuple(body["prompt"]) for body in asked(one, num_probes=1)]
    assert len(set(prompts)) == 10


def test_goodput_breaks_at_the_first_rate_where_too_few_are_within_the_limits() -> None:
    fast = ["--input-len", "6", "--output-len", "3", "--num-requests", "3"]
    with fake_openai(said=as_asked, models=SIZED, delay_s=0.02) as fake:
        result = bench("--url", f"x={fake.url}", *fast, "--sweep", "50,100", "--goodput", "ttft:0.001")
    assert "x: 90% of the requests are within ttft 0.001 ms at no rate." in result.output


def test_a_trace_is_replayed_with_its_lengths_scaled_and_capped(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    scaling = ["--length-scale", "0.5", "--max-input-len", "60", "--time-scale", "0.1"]
    figures = tmp_path / "f.json"
    with fake_openai(said=as_asked, models=SIZED) as fake:
        result = bench("--url", fake.url, "--trace", str(trace), *scaling, "--json", str(figures))
    assert result.exit_code == 0, result.output
    assert [(len(body["prompt"]), body["max_tokens"]) for body in asked(fake, 1)] == [(50, 4), (20, 2), (60, 1)]
    [figure] = json.loads(figures.read_text())["figures"]
    assert figure["request_rate"] is None
    assert figure["offered_rate"] == pytest.approx(3 / 0.04)


def test_a_trace_goes_at_any_rate_and_for_a_while(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    with fake_openai(said=as_asked, models=SIZED) as fake:
        result = bench("--url", fake.url, "--trace", str(trace), "--request-rate", "50", "--duration", "0.04")
    assert result.exit_code == 0, result.output
    # Of the three, 50/s * 0.04 s are played.
    assert [len(body["prompt"]) for body in asked(fake, 1)] == [100, 40]


def test_a_workload_file_is_sent_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    requests = [WorkloadRequest([300, 301, 302], 2, 0.01), WorkloadRequest([310], 3)]
    write_workload(Workload("W", requests, greedy=False, ignore_eos=False), path)
    with fake_openai(said=as_asked) as fake:
        result = bench("--url", fake.url, "--workload", str(path), "--extra-body", '{"top_k": 5}')
    assert result.exit_code == 0, result.output
    load = asked(fake, num_probes=1)
    assert [body["prompt"] for body in load] == [[310], [300, 301, 302]]
    assert {(body["temperature"], body["top_k"], "ignore_eos" in body) for body in load} == {(1.0, 5, False)}


def test_a_server_that_does_not_say_its_vocabulary_gets_words_of_the_length_it_counts(tmp_path: Path) -> None:
    figures = tmp_path / "f.json"
    with fake_openai(said=as_asked) as fake:  # the server counts two tokens per word
        lengths = ["--input-len", "100", "--output-len", "2", "--num-requests", "3", "--request-rate", "inf"]
        result = bench("--url", fake.url, *lengths, "--json", str(figures))
    assert result.exit_code == 0, result.output
    assert "prompts are words of 2.00 tokens" in result.output
    assert [len(body["prompt"].split()) for body in asked(fake, num_probes=2)] == [50, 50, 50]
    [figure] = json.loads(figures.read_text())["figures"]
    assert (figure["in"], figure["request_rate"]) == (300, "inf")


def test_the_chat_endpoint_is_asked_with_messages() -> None:
    with fake_openai(said=as_asked, models=SIZED) as fake:
        lengths = ["--input-len", "65", "--output-len", "3", "--num-requests", "2", "--request-rate", "50"]
        result = bench("--url", fake.url, "--chat", *lengths)
    assert result.exit_code == 0, result.output
    assert set(fake.paths) == {"/v1/chat/completions"}
    [message] = asked(fake, num_probes=2)[0]["messages"]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 30  # (65 - 5 for the frame) / 2


def test_a_server_without_usage_has_its_chunks_counted_and_it_is_said() -> None:
    with fake_openai(said=as_asked, with_usage=False, knows_stream_options=False) as fake:
        lengths = ["--input-len", "10", "--output-len", "4", "--num-requests", "2", "--request-rate", "50"]
        result = bench("--url", fake.url, "--vocab-size", "1000", *lengths)
    assert result.exit_code == 0, result.output
    assert "gives no usage, so each chunk counts as one token" in result.output
    assert "stream_options" not in asked(fake, num_probes=2)[0]


def test_errors_are_never_silent() -> None:
    def break_some(body: dict[str, Any]) -> list[Any]:
        return ["a", None] if len(fake.requests) > 1 and len(fake.requests) % 2 else as_asked(body)

    lengths = ["--input-len", "10", "--output-len", "4", "--num-requests", "6", "--request-rate", "20"]
    with fake_openai(said=break_some, models=SIZED) as fake:
        result = bench("--url", fake.url, *lengths)
    assert result.exit_code == 0, result.output
    assert "3 of 6 requests failed: truncated. The first: " in result.output
    assert "latencies are those of the 3 requests that were answered" in result.output


def test_a_load_of_which_nothing_was_answered_is_exit_code_1() -> None:
    def fail_later(body: dict[str, Any]) -> list[str]:
        fake.script.status = 503
        return as_asked(body)

    lengths = ["--input-len", "10", "--output-len", "4", "--num-requests", "3", "--request-rate", "20"]
    with fake_openai(said=fail_later, models=SIZED) as fake:
        result = bench("--url", fake.url, *lengths)
    assert result.exit_code == 1
    assert "3 of 3 requests failed: http_503. The first: " in result.output
    assert "no, not like this" in result.output


ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'
    b'data: {"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)


def read_request(connection: socket.socket) -> None:
    """Read a whole request, since closing with unread data would reset the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    while length and len(body) < int(length[1]):
        body += connection.recv(1 << 16)


@contextmanager
def dying_server(after: int) -> Iterator[str]:
    """A server that gives some answers, breaks off within one, and exits."""
    models = json.dumps({"data": SIZED}).encode()
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(models)

    def run() -> None:
        with listener:
            for number in range(after + 2):  # the client lists the models first
                connection, _ = listener.accept()
                with connection:
                    read_request(connection)
                    answer = ANSWER if number else head + models
                    connection.sendall(answer if number <= after else b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")

    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield url
    thread.join(100)


def test_a_server_that_dies_is_told_and_what_was_measured_before_is_kept(tmp_path: Path) -> None:
    figures, plot = tmp_path / "f.json", tmp_path / "p.svg"
    lengths = ["--input-len", "5", "--output-len", "2", "--num-requests", "4", "--goodput", "ttft:60000"]
    with dying_server(after=7) as url:
        sweep = ["--sweep", "20,20,50,100", "--json", str(figures), "--plot", str(plot)]
        result = bench("--url", url, *lengths, *sweep)
    assert result.exit_code == 1
    assert "has the server ended?" in result.output
    assert "m refused all connections; later rates are left out." in result.output
    first, second, third = json.loads(figures.read_text())["figures"]
    assert (first["completed"], first["errors"]) == (4, {})
    assert second["completed"] == 2
    assert third["errors"] == {"connect": 4}
    assert "<svg" in plot.read_text()


def test_a_server_that_never_answers_is_given_up_after_the_timeout() -> None:
    with fake_openai(models=SIZED, hangs_after=0) as fake:
        result = bench("--url", fake.url, *RATE, "--timeout", "0.3")
    assert result.exit_code == 2
    assert "no complete answer within 0.3 s" in result.stderr


def test_answers_that_end_early_are_told() -> None:
    with fake_openai(said=["only"], models=SIZED) as fake:
        lengths = ["--input-len", "10", "--output-len", "4", "--num-requests", "2", "--request-rate", "50"]
        result = bench("--url", fake.url, *lengths)
    assert "2 of 8 output tokens came; some answers ended early" in result.output


def test_a_key_is_sent_and_never_written(tmp_path: Path) -> None:
    figures = tmp_path / "f.json"
    lengths = ["--input-len", "10", "--output-len", "4", "--num-requests", "1", "--request-rate", "inf"]
    with fake_openai(said=as_asked, models=SIZED, api_key="secret") as fake:
        assert "a key is needed" in bench("--url", fake.url, *lengths).stderr
        result = bench("--url", fake.url, *lengths, "--json", str(figures), env={"QUIRE_API_KEY": "secret"})
    assert result.exit_code == 0, result.output
    assert "secret" not in figures.read_text() + result.output


RATE = ["--request-rate", "1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--request-rate or --sweep"),
        ([*RATE, "--sweep", "1,2"], "--sweep and --request-rate"),
        (["--sweep", "1,fast"], "sweep='1,fast'"),
        (["--sweep", "2,0"], "sweep=2.0,0.0 must be above 0"),
        ([*RATE, "--duration", "0"], "duration_s=0.0 must be above 0"),
        ([*RATE, "--burstiness", "0"], "burstiness=0.0 must be above 0"),
        ([*RATE, "--trace", "x", "--workload", "y"], "--trace and --workload"),
        ([*RATE, "--trace", "x", "--input-len", "5"], "--trace and --input-len"),
        ([*RATE, "--trace", "/no/such/trace"], "cannot read /no/such/trace"),
        ([*RATE, "--workload", "/no/such/file"], "cannot read /no/such/file"),
        ([*RATE, "--length-scale", "0.5"], "--length-scale is for a trace"),
        ([*RATE, "--input-len", "a-b"], "input_len='a-b'"),
        ([*RATE, "--goodput", "itl:5"], "expected limits in ms"),
        ([*RATE, "--extra-body", "[1]"], "not a JSON object"),
        ([*RATE, "--extra-body", "{"], "not JSON"),
        ([*RATE, "--input-len", "2000"], "takes 1,024"),
        ([*RATE, "--model", "other"], "has no model 'other'; it has m"),
        (["--url", "nowhere"], "is not a URL"),
        (["--url", "http://127.0.0.1:9"], "cannot connect"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_sent(arguments: list[str], words: str) -> None:
    with fake_openai(models=SIZED) as fake:
        result = bench(*([] if "--url" in arguments else ["--url", fake.url]), *arguments)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr
    assert fake.requests == []


def test_servers_must_be_told_apart() -> None:
    with fake_openai(models=SIZED) as fake:
        result = bench("--url", fake.url, "--url", fake.url, *RATE)
    assert "2 servers are called m; name them" in result.stderr


def test_a_server_that_refuses_such_requests_is_told_before_the_load() -> None:
    with fake_openai(models=SIZED, status=400) as fake:
        result = bench("--url", fake.url, *RATE)
    assert result.exit_code == 2
    assert "cannot measure m" in result.stderr
    assert "--vocab-size says how many the model has" in result.stderr
    assert len(fake.requests) == 1


def test_help_has_an_example() -> None:
    assert "Example: quire bench serve" in bench("--help").output
