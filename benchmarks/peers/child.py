"""Run one engine's process to its end, even if it crashes, hangs or leaves processes behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from quire.system.child_process import GROUP_SIGNALS

_GRACE_S = 5.0  #: from SIGTERM to SIGKILL


@dataclass(frozen=True)
class Outcome:
    """Output and error of a process."""

    stdout: str
    error: str | None = None  #: in one line, why it did not end well


def run_child(
    command: Sequence[str],
    *,
    directory: Path | None = None,
    timeout_s: float,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a command in its own session, and end the whole session afterwards, also on a signal.

    Output goes through files, since a process left behind may hold a pipe open. Output before a failure is returned
    with the error.

    Args:
        environment: variables added to this process's.
    """
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile() as said:
        given.write(stdin)
        given.seek(0)
        problem = None
        with _SignalsPutOff() as signals:
            try:
                process = subprocess.Popen(
                    command,
                    cwd=directory,
                    stdin=given,
                    stdout=out,
                    stderr=said,
                    start_new_session=True,
                    env={**os.environ, **(environment or {})},
                )
            except OSError as error:
                return Outcome("", f"{command[0]} cannot be started: {error.strerror}")
            try:
                with signals.let_through():
                    process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                problem = f"not done after {timeout_s:g} s"
            finally:
                _end_session(process)
        if problem is None and process.returncode:
            problem = f"{_describe(process.returncode)}: {_last_line(said) or _last_line(out) or 'it said nothing'}"
        return Outcome(_text(out), problem)


class _SignalsPutOff:
    """Delay SIGINT and SIGTERM until `let_through` or the end, so a starting process is not left behind."""

    def __init__(self) -> None:
        self._came: list[int] = []
        self._raises = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in GROUP_SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None:
            self._raise_what_came()

    @contextmanager
    def let_through(self) -> Iterator[None]:
        self._raises = True
        try:
            self._raise_what_came()
            yield
        finally:
            self._raises = False

    def _take(self, number: int, frame: object) -> None:
        self._came.append(number)
        if self._raises:
            self._raise_what_came()

    def _raise_what_came(self) -> None:
        if self._came:
            number = self._came.pop()
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            sys.exit(128 + number)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _describe(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"status {code}"


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _last_line(file: IO[bytes]) -> str:
    lines = [line.strip() for line in _text(file).splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
