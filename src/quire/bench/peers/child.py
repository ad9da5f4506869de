"""Runs one engine's process to its end, whatever it does: it may crash, hang, or leave processes of its own behind."""

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
from typing import IO

_GRACE_S = 5.0  #: from SIGTERM to SIGKILL


@dataclass(frozen=True)
class Outcome:
    """What came of a process."""

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
    """Run a command in a session of its own; nothing of it is left afterwards, also where this process is told to end.

    What it printed before it failed is returned with the error. Its output goes through files: a process that it
    leaves behind may hold a pipe open for ever.

    Args:
        environment: added to this process's.
    """
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile() as said:
        given.write(stdin)
        given.seek(0)
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
        problem = None
        try:
            with _sigterm_raises():
                process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            problem = f"not done after {timeout_s:g} s"
        finally:
            _end_session(process)
        if problem is None and process.returncode:
            problem = f"{_describe(process.returncode)}: {_last_line(said) or _last_line(out) or 'it said nothing'}"
        return Outcome(_text(out), problem)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """By default it would end this process at once, and leave the other one behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End all that is left of a process's session."""
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
