"""`quire chat`: several turns, commands, and Ctrl-C that stops the answer but not the chat."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from fake_openai import fake_openai
from quire.cli.chat.commands import HINTS

pytestmark = pytest.mark.timeout(300)  # starting processes is slow on a busy machine
SOURCE = Path(__file__).parents[2] / "src"
SMALL = ["--model", "random:tiny", "--num-kv-blocks", "64", "--no-use-tqdm", "--max-tokens", "8"]


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["chat", *arguments], **options)


def answer_by_turn(body: dict[str, Any]) -> list[str]:
    """Repeat the last message, with the number of messages."""
    return [f"{len(body['messages'])}: ", body["messages"][-1]["content"]]


# -- through pipes ---------------------------------------------------------------------------------------------------


def test_each_line_of_a_pipe_is_a_message_of_one_conversation() -> None:
    with fake_openai(said=answer_by_turn) as fake:
        result = run("--url", fake.url, "--temperature", "0", input="Hello\n\n how are you \n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1: Hello\n3: how are you\n", "")
    assert fake.paths == ["/v1/chat/completions"] * 2
    said = [(message["role"], message["content"]) for message in fake.requests[1]["messages"]]
    assert said == [("user", "Hello"), ("assistant", "1: Hello"), ("user", "how are you")]
    assert fake.requests[0]["temperature"] == 0


def test_a_last_line_without_a_line_break_is_a_message_too() -> None:
    with fake_openai() as fake:
        assert run("--url", fake.url, input="Hello").stdout == "Hello!\n"


def test_reset_begins_anew_and_keeps_the_system_message() -> None:
    with fake_openai(said=answer_by_turn) as fake:
        result = run("--url", fake.url, "--system", "be kind", input="a\n/reset\nb\n")
    assert result.stdout == "2: a\n2: b\n"
    assert fake.requests[1]["messages"][0] == {"role": "system", "content": "be kind"}


def test_help_answers_and_exit_leaves() -> None:
    with fake_openai() as fake:
        result = run("--url", fake.url, input="Hello\n/help\n/exit\nnot said\n")
    assert result.exit_code == 0
    for command in ("/reset", "/help", "/exit"):
        assert command in result.stdout
    assert len(fake.requests) == 1


def test_an_unknown_command_is_not_sent_to_the_model() -> None:
    with fake_openai() as fake:
        result = run("--url", fake.url, input="/rest now\n")
    assert "There is no command /rest" in result.stderr
    assert fake.requests == []


def test_a_failed_turn_is_reported_and_the_next_one_continues() -> None:
    def fail_once(body: dict[str, Any]) -> list[Any]:
        return ["Hel", RuntimeError("the step failed") if len(fake.requests) == 1 else "lo"]

    with fake_openai(said=fail_once) as fake:
        result = run("--url", fake.url, input="a\nb\n")
    assert result.exit_code == 1  # the reader of a pipe must be able to tell
    assert result.stdout == "Hel\nHello\n"
    assert result.stderr == "Error: the step failed\n"


def test_an_empty_answer_is_reported() -> None:
    with fake_openai(said=[]) as fake:
        result = run("--url", fake.url, input="Hello\n")
    assert (result.stdout, result.stderr) == ("", "The answer is empty.\n")


def test_a_model_in_process_chats_as_the_offline_api_does() -> None:
    from quire import LLM, SamplingParams

    llm = LLM("random:tiny", num_kv_blocks=64, use_tqdm=False)
    params = SamplingParams(max_tokens=8, temperature=0)
    messages, expected = [], ""
    for text in ("Hello", "And you?"):
        messages.append({"role": "user", "content": text})
        said = llm.chat(messages, params, use_tqdm=False)[0].outputs[0].text
        messages.append({"role": "assistant", "content": said})
        expected += said + "\n"
    result = run(*SMALL, "--temperature", "0", input="Hello\nAnd you?\n")
    assert result.exit_code == 0, result.output
    assert result.stdout == expected


def test_a_conversation_that_grew_too_long_can_be_reset() -> None:
    options = [*SMALL, "--max-model-len", "256", "--temperature", "0"]
    result = run(*options, input=f"Hello\n{'word ' * 300}\n/reset\nHi\n")
    assert "max_model_len" in result.stderr
    fresh, before = (run(*options, input=text).stdout for text in ("Hi\n", "Hello\n"))
    assert result.stdout == before + fresh


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--url", "nowhere"], 2, "is not a URL"),
        (["--url", "http://127.0.0.1:9"], 1, "cannot connect"),
        (
            ["--url", "http://127.0.0.1:9", "--chat-template", "x"],
            2,
            "--chat-template applies to a model in this process",
        ),
        ([*SMALL, "--chat-template", "/no/such/file"], 2, "chat_template='/no/such/file' cannot be read"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], code: int, words: str) -> None:
    result = run(*arguments, input="Hello\n")
    assert result.exit_code == code, result.output
    [line] = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert words in line


def test_a_broken_template_is_reported_before_the_first_turn(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("{% if %}")
    result = run(*SMALL, "--chat-template", str(tmp_path / "broken"), input="Hello\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is broken" in result.stderr


def test_help_has_an_example() -> None:
    assert "Example: quire chat" in run("--help").output


# -- on a terminal ---------------------------------------------------------------------------------------------------


class Terminal:
    """A user who types and reads the screen."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, what: str | Callable[[], bool]) -> str:
        """Read until a text appears; return everything up to its end, without escapes."""
        deadline = time.monotonic() + 100
        while not (what in self.seen if isinstance(what, str) else what()):
            assert time.monotonic() < deadline, f"{what!r} is not in {self.seen!r}"
            self._read(0.05)
        end = self.seen.index(what) + len(what) if isinstance(what, str) else 0
        shown, self.seen = self.seen[:end], self.seen[end:]
        return shown

    def interrupt(self) -> None:
        """Press Ctrl-C once the process sleeps, since a line editor misses it just before it waits."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        deadline = time.monotonic() + 100
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, "it does not wait for anything"
            time.sleep(0.01)
        self.type("\x03")

    def end(self) -> int:
        """Read the remaining output and return the exit code."""
        deadline = time.monotonic() + 100
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end: {self.seen!r}"
            self._read(0.05)
        self._read(0)
        return self.process.returncode

    def _read(self, timeout: float) -> None:
        if select.select([self._master], [], [], timeout)[0]:
            try:
                raw = os.read(self._master, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                time.sleep(timeout)
                return
            self.seen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen + raw).replace("\r", "")


@contextmanager
def terminal(*arguments: str, state: Path | None = None) -> Iterator[Terminal]:
    """Start a chat on a terminal that answers no queries, with a directory for its history."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "quire", "chat", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # it becomes the controlling terminal
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "TERM": "xterm",
            "COLUMNS": "80",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "XDG_STATE_HOME": str(state or os.devnull),
        },
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_a_chat_on_a_terminal_shows_the_answer_and_what_it_cost() -> None:
    with fake_openai(said=["\x1b[2JHel", "lo!"]) as fake, terminal("--url", fake.url) as screen:
        assert "first is listening" in screen.wait_for("> ")
        screen.type("Hi\n")
        shown = screen.wait_for("\n> ")
        assert "[2JHello!" in shown
        assert "7 tokens in" in shown
        assert "2 out (stop)" in shown
        screen.type("\x04")
        assert screen.end() == 0


def test_a_line_that_ends_in_a_backslash_goes_on() -> None:
    with fake_openai() as fake, terminal("--url", fake.url) as screen:
        screen.wait_for("> ")
        screen.type("one\\\n")
        screen.wait_for("\n.")
        screen.type("two\n")
        screen.wait_for("Hello!")
        assert fake.requests[0]["messages"][0]["content"] == "one\ntwo"


def test_ctrl_c_stops_the_answer_and_not_the_chat() -> None:
    with fake_openai(hangs_after=2) as fake, terminal("--url", fake.url) as screen:
        screen.wait_for("> ")
        screen.type("Hi\n")
        screen.wait_for("Hello")
        screen.interrupt()
        screen.wait_for("Stopped")
        screen.wait_for(lambda: fake.num_gone == 1)
        fake.script.hangs_after = None
        screen.type("again\n")
        screen.wait_for("Hello!")
        said = [message["content"] for message in fake.requests[1]["messages"]]
        assert said == ["Hi", "Hello", "again"]
        screen.type("/exit\n")
        assert screen.end() == 0


def test_a_second_ctrl_c_leaves() -> None:
    with fake_openai(hangs_after=0) as fake, terminal("--url", fake.url) as screen:
        screen.wait_for("> ")
        screen.type("Hi\n")
        screen.wait_for(lambda: len(fake.requests) == 1)
        screen.interrupt()
        screen.wait_for("Stopped. Ctrl-C again leaves.\n> ")
        screen.interrupt()
        assert screen.end() == 0


def test_ctrl_c_stops_a_model_in_process_too() -> None:
    options = ["--model", "random:tiny", "--num-kv-blocks", "256", "--no-use-tqdm", "--temperature", "0"]
    with terminal(*options) as screen:
        screen.wait_for("is listening")
        for _ in range(2):
            screen.wait_for("\n> ")
            screen.type("Hi\n")
            screen.wait_for("[")  # this model's tokens are numbers in brackets
            screen.type("\x03")
            screen.wait_for("Stopped. Ctrl-C again leaves.")
        screen.wait_for("\n> ")
        screen.type("/exit\n")
        assert screen.end() == 0


def test_ctrl_c_at_the_prompt_clears_the_line_and_leaves_when_it_comes_twice() -> None:
    with fake_openai() as fake, terminal("--url", fake.url) as screen:
        screen.wait_for("> ")
        screen.type("half a line")
        screen.wait_for("half a line")
        screen.interrupt()
        assert "leaves" not in screen.wait_for("\n> ")
        screen.type("Hi\n")
        screen.wait_for("Hello!")
        screen.wait_for("\n> ")
        screen.interrupt()
        screen.wait_for("Ctrl-C again leaves.\n> ")
        screen.type("Hi\n")
        screen.wait_for("Hello!")
        screen.wait_for("\n> ")
        screen.interrupt()
        screen.wait_for("Ctrl-C again leaves.\n> ")
        screen.interrupt()
        assert screen.end() == 0
        assert "Traceback" not in screen.seen
    assert [request["messages"][-1]["content"] for request in fake.requests] == ["Hi", "Hi"]


def test_pasted_lines_are_one_message() -> None:
    with fake_openai() as fake, terminal("--url", fake.url) as screen:
        screen.wait_for("> ")
        screen.type("\x1b[200~one\ntwo\x1b[201~")
        screen.wait_for("two")
        screen.type("\n")
        screen.wait_for("Hello!")
        assert [message["content"] for message in fake.requests[0]["messages"]] == ["one\ntwo"]


def test_the_history_outlives_a_chat_and_is_private(tmp_path: Path) -> None:
    with fake_openai() as fake:
        for typed in ("remember this\n", "\x1b[A\n"):  # the second chat presses the up arrow
            with terminal("--url", fake.url, state=tmp_path) as screen:
                screen.wait_for("> ")
                screen.type(typed)
                screen.wait_for("Hello!")
        assert [request["messages"][0]["content"] for request in fake.requests] == ["remember this"] * 2
    (file,) = (tmp_path / "quire").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_no_log_line_comes_between_a_question_and_its_answer() -> None:
    options = ["--model", "quire-chat", "--kv-cache-memory", "32MiB", "--no-use-tqdm"]
    with terminal(*options) as screen:
        screen.wait_for("\n> ")
        screen.type("Hello\n")
        assert "cold start" not in screen.wait_for("tokens in")


def test_help_shows_one_backslash() -> None:
    assert "\\ at the end" in " ".join(HINTS.values())
    with fake_openai() as fake, terminal("--url", fake.url) as screen:
        screen.wait_for("> ")
        screen.type("/help\n")
        assert "so does \\ at the end of a line" in screen.wait_for("Ctrl-R")


@pytest.mark.parametrize("variable", ["QUIRE_URL", "OPENAI_BASE_URL"])
def test_the_environment_may_name_the_server(variable: str) -> None:
    with fake_openai() as fake:
        assert run(input="Hello", env={variable: fake.url}).stdout == "Hello!\n"


def test_openais_key_is_sent_to_the_server_of_openais_variable_only() -> None:
    with fake_openai(api_key="secret") as fake:
        assert run(input="Hello", env={"OPENAI_BASE_URL": fake.url, "OPENAI_API_KEY": "secret"}).stdout == "Hello!\n"
        refused = run("--url", fake.url, input="Hello", env={"OPENAI_API_KEY": "secret"})
        assert (refused.exit_code, refused.stdout) == (1, "")


def test_run_asks_one_question_or_chats() -> None:
    with fake_openai(said=answer_by_turn) as fake:
        environment = {"QUIRE_URL": fake.url}
        asked = CliRunner().invoke(app, ["run", "first", "How are you?"], env=environment)
        assert (asked.exit_code, asked.stdout) == (0, "1: How are you?\n")
        assert CliRunner().invoke(app, ["run", "first"], input="a\nb\n", env=environment).stdout == "1: a\n3: b\n"


def test_run_loads_a_model_that_no_server_has() -> None:
    with fake_openai() as fake:
        result = CliRunner().invoke(app, ["run", "quire-chat", "Hello"], env={"QUIRE_URL": fake.url})
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("Hello there!")
        assert fake.requests == []
