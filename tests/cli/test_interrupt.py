"""Ctrl-C ends a command and its children in any phase with status 130 and without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quire.kernels.loaded import load_kernels

pytestmark = pytest.mark.timeout(300)  # starting processes is slow on a busy machine
SOURCE = Path(__file__).parents[2] / "src"
SMALL = ["--model", "random:tiny", "--num-kv-blocks", "64", "--no-use-tqdm"]
# Python ends by the signal after a KeyboardInterrupt in code compiled at run time; shells report 130.
INTERRUPTED = (130, -signal.SIGINT)


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell may ignore it
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def interrupt(process: subprocess.Popen[str]) -> str:
    """Interrupt the whole process group as a terminal does, and return the later stderr."""
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert process.returncode in INTERRUPTED
    return said


INTERRUPTS_ITSELF = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Importing:
    def find_spec(self, name, *rest):
        if name == PHASE:
            interrupt()

sys.meta_path.insert(0, Importing())
atexit.register(interrupt) if PHASE == "the end" else None
from quire.cli import main
sys.argv[1:] = ["--version"]
main()
"""


@pytest.mark.parametrize("phase", ["quire.cli.main", "typer", "the end"])
def test_ctrl_c_while_modules_are_imported_or_let_go_is_silent(phase: str) -> None:
    process = start("-c", INTERRUPTS_ITSELF.replace("PHASE", repr(phase)))
    _, said = process.communicate(timeout=100)
    assert (process.returncode, said) == (130, "")


def test_a_shell_s_background_job_goes_on_after_ctrl_c() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTS_ITSELF
    process = start("-c", code.replace("PHASE", repr("typer")))
    out, said = process.communicate(timeout=100)
    assert (process.returncode, said) == (0, "")
    assert out.startswith("quire ")


def test_ctrl_c_while_a_model_loads_is_silent() -> None:
    process = start("-m", "quire", "generate", *SMALL, "Hello")
    maps = Path(f"/proc/{process.pid}/maps")
    library = "/torch/lib/" if load_kernels().functions is None else "/kernels/lib/"
    while process.poll() is None and library not in maps.read_text():
        time.sleep(0.01)
    assert interrupt(process) == ""


def test_ctrl_c_while_the_engine_s_process_loads_shows_no_traceback_of_it() -> None:
    process = start("-m", "quire", "serve", *SMALL[:4], "--port", "0")
    assert process.stderr is not None
    while "while loading" not in process.stderr.readline():
        pass
    tasks = Path(f"/proc/{process.pid}/task")
    while not any((task / "children").read_text() for task in tasks.iterdir()):
        time.sleep(0.01)
    time.sleep(0.2)  # the child has its handler and imports torch
    assert "Traceback" not in interrupt(process)
