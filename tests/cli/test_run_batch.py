"""`quire run-batch`: each line is answered once, however often it is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import PATIENCE_S, RunningServer, make_model, running


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(make_model()) as server:
        yield server


def write_requests(path: Path, count: int, **body: Any) -> list[str | None]:
    """Write requests, and one malformed line. Returns the ids of all answers."""
    ids = [f"line {number}" for number in range(count)]
    body = {"prompt": "Hello", "max_tokens": 4, **body}
    made = [{"custom_id": each, "url": "/v1/completions", "body": body} for each in ids]
    path.write_text("".join(json.dumps(each) + "\n" for each in made[: count // 2]))
    with path.open("a") as file:
        file.write("malformed\n" + "".join(json.dumps(each) + "\n" for each in made[count // 2 :]))
    return [None, *ids]


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "quire", "run-batch", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, error = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + error


def answered(path: Path) -> list[str | None]:
    return [json.loads(each)["custom_id"] for each in path.read_bytes().splitlines()]


def kill_and_go_on(folder: Path, ids: list[str | None], *options: str) -> None:
    """Interrupt the command, kill it twice, and let it end."""
    command = (folder / "in.jsonl", folder / "out.jsonl", *options)
    for number, how in enumerate((signal.SIGINT, signal.SIGKILL, signal.SIGKILL), 1):
        process, deadline = start(*command), time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if (folder / "out.jsonl").exists() and len((folder / "out.jsonl").read_bytes()) > number * 40 * len(ids):
                process.send_signal(how)
                break
            time.sleep(0.001)
        status, said = end(process)
        assert status == (130 if how is signal.SIGINT else -how), said
        assert ("the same command answers the others" in said) == (how is signal.SIGINT)
        left = (folder / "out.jsonl").read_bytes()
        (folder / "out.jsonl").write_bytes(left[: len(left) - 3 * (number - 1)])  # torn
    status, said = end(start(*command))
    assert status == 0, said
    assert f"{len(ids):,} lines are answered" in said
    found = answered(folder / "out.jsonl")
    assert len(found) == len(ids)
    assert set(found) == set(ids)


def test_each_line_is_answered_once_after_an_interrupt_and_two_kills(server: RunningServer, tmp_path: Path) -> None:
    ids = write_requests(tmp_path / "in.jsonl", 150)
    kill_and_go_on(tmp_path, ids, "--url", server.url)


@pytest.mark.slow
def test_a_thousand_lines_are_answered_once_by_a_model_in_the_killed_process(tmp_path: Path) -> None:
    ids = write_requests(tmp_path / "in.jsonl", 1000, max_tokens=16)
    kill_and_go_on(tmp_path, ids, "--model", "quire-mini")


def test_a_model_in_this_process_answers_a_file_in_the_spelling_of_vllm(tmp_path: Path) -> None:
    ids = write_requests(tmp_path / "in.jsonl", 4)
    names = ("-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl")
    status, said = end(start(*names, "--model", "random:tiny", "--num-kv-blocks", "64"))
    assert status == 0, said
    assert "5 lines are answered" in said
    assert "1 with an error" in said
    assert set(answered(tmp_path / "out.jsonl")) == set(ids)
    bodies = [json.loads(each)["response"] for each in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert {each["body"]["usage"]["completion_tokens"] for each in bodies if each is not None} == {4}


@pytest.mark.parametrize("what", ["repeated", "other answers", "missing", "no folder", "one name", "option"])
def test_mistakes_are_named_before_anything_is_asked(what: str, server: RunningServer, tmp_path: Path) -> None:
    source, target, options = tmp_path / "in.jsonl", tmp_path / "out.jsonl", ["--url", server.url]
    write_requests(source, 2)
    message = {
        "repeated": "line 4: an earlier line has the custom_id 'line 0'; give each line its own",
        "other answers": "1 answers to other requests",
        "missing": "cannot be read: No such file",
        "no folder": "cannot be written: No such file",
        "one name": "name two files: quire run-batch IN OUT",
        "option": "--block-size applies to a model in this process",
    }[what]
    if what == "repeated":
        source.write_bytes(source.read_bytes() + source.read_bytes().splitlines(keepends=True)[0])
    elif what == "other answers":
        response = {"status_code": 200, "body": {}}
        about = {"id": "batch_req_1", "custom_id": "another", "response": response, "error": None}
        target.write_text(json.dumps(about, separators=(",", ":")) + "\n")
    elif what == "missing":
        source.unlink()
    elif what == "no folder":
        target = tmp_path / "none" / "out.jsonl"
    elif what == "option":
        options += ["--block-size", "32"]
    before = target.read_bytes() if target.exists() else b""
    status, said = end(start(source, *([] if what == "one name" else [target]), *options))
    assert (status, message in " ".join(said.split())) == (2, True), said
    assert not target.exists() or target.read_bytes() == before


def test_a_key_that_the_server_refuses_ends_the_command(tmp_path: Path) -> None:
    from quire.server.settings import ServerSettings

    write_requests(tmp_path / "in.jsonl", 2)
    with running(make_model(), settings=ServerSettings(api_keys=("ann",), tenant_secret=b"s")) as server:
        status, said = end(start(tmp_path / "in.jsonl", tmp_path / "out.jsonl", "--url", server.url))
    assert (status, "HTTP 401" in said) == (1, True), said
