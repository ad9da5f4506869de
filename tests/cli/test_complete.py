"""`quire complete` prints only the text on standard output, from a server or locally, on a terminal or in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from fake_openai import fake_openai

pytestmark = pytest.mark.timeout(300)  # starting processes is slow on a busy machine
SOURCE = Path(__file__).parents[2] / "src"
SMALL = ["--model", "random:tiny", "--num-kv-blocks", "32", "--no-use-tqdm"]


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["complete", *arguments], **options)


def test_the_text_alone_is_on_standard_output() -> None:
    with fake_openai() as fake:
        result = run("Once upon", "--url", fake.url, "--max-tokens", "5", "--temperature", "0", "--stop", "x")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello!\n", "")
    [asked] = fake.requests
    assert (asked["prompt"], asked["model"], asked["stream"]) == ("Once upon", "first", True)
    assert (asked["max_tokens"], asked["temperature"], asked["stop"]) == (5, 0, ["x"])
    assert "top_p" not in asked
    assert "ignore_eos" not in asked


def test_fields_go_to_the_server_under_their_names() -> None:
    options = ["--top-p", "0.5", "--top-k", "3", "--min-p", "0.1", "--repetition-penalty", "1.5", "--seed", "7"]
    with fake_openai() as fake:
        assert run("Hi", "--url", fake.url, "--model", "second", "--ignore-eos", *options).exit_code == 0
    [asked] = fake.requests
    expected = {"top_p": 0.5, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.5, "seed": 7, "ignore_eos": True}
    assert {name: asked[name] for name in expected} == expected
    assert asked["model"] == "second"


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_a_prompt_is_read_from_a_pipe_without_its_last_line_break(arguments: list[str]) -> None:
    with fake_openai() as fake:
        assert run(*arguments, "--url", fake.url, input="two\nlines\n").stdout == "Hello!\n"
    assert fake.requests[0]["prompt"] == "two\nlines"


def test_the_answer_may_be_asked_for_whole() -> None:
    with fake_openai() as fake:
        assert run("Hi", "--url", fake.url, "--no-stream").stdout == "Hello!\n"
    assert fake.requests[0]["stream"] is False


def test_a_text_that_ends_in_a_line_break_gets_no_second_one() -> None:
    with fake_openai(said=["a", "b\n"]) as fake:
        assert run("Hi", "--url", fake.url).stdout == "ab\n"


def test_a_pipe_gets_what_the_model_said_and_nothing_is_left_out() -> None:
    with fake_openai(said=["\x1b[31mred", "\r\n"]) as fake:
        assert run("Hi", "--url", fake.url).stdout_bytes == b"\x1b[31mred\r\n"


def test_a_model_in_process_gives_the_offline_api_s_text() -> None:
    from quire import LLM, SamplingParams

    llm = LLM("random:tiny", num_kv_blocks=32, use_tqdm=False)
    expected = llm.generate("Hello", SamplingParams(max_tokens=12, temperature=0), use_tqdm=False)[0].outputs[0].text
    arguments = [*SMALL, "--max-tokens", "12", "--temperature", "0"]
    assert run(*arguments, "Hello").stdout == expected + "\n"
    assert run(*arguments, "--no-stream", input="Hello\n").stdout == expected + "\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "nowhere"], "is not a URL"),
        (["--url", "http://127.0.0.1:9", "--block-size", "8"], "--block-size applies to a model in this process"),
        (["--model", "random:nothing"], "no preset"),
        ([*SMALL, "--temperature", "-1"], "temperature=-1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    result = run("Hello", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    [line] = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert words in line


def test_a_prompt_that_is_not_text_is_a_mistake() -> None:
    with fake_openai() as fake:
        result = run("--url", fake.url, input=b"\xff\xfe")
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


@pytest.mark.parametrize(
    ("script", "text", "words"),
    [
        ({"status": 429}, "", "HTTP 429: no, not like this"),
        ({"said": ["Hel", "lo", RuntimeError("the step failed")]}, "Hello\n", "the step failed"),
        ({"said": ["Hel", None]}, "Hel\n", "the stream ended before the answer did"),
    ],
)
def test_a_server_that_fails_is_one_line_and_exit_code_1(script: dict[str, Any], text: str, words: str) -> None:
    with fake_openai(**script) as fake:
        result = run("Hello", "--url", fake.url)
    assert (result.exit_code, result.stdout) == (1, text)
    [line] = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert words in line


def test_a_server_that_is_not_there_is_one_line_and_exit_code_1() -> None:
    with fake_openai() as fake:
        pass
    result = run("Hello", "--url", fake.url)
    assert result.exit_code == 1
    assert "cannot connect" in result.stderr


def test_a_reader_that_leaves_ends_it_without_a_traceback() -> None:
    with fake_openai(said=["x" * 100] * 2000) as fake:
        process = subprocess.Popen(
            [sys.executable, "-m", "quire", "complete", "Hi", "--url", fake.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        assert process.wait(100) != 0
    assert b"Traceback" not in errors


def test_help_has_an_example() -> None:
    assert "Example: quire complete" in run("--help").output
