"""Stacks of this process's threads, for reports of hangs."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
#: Beginning of a path in the package -> phase of a step.
_PHASES = {
    "runner/sampler": "sampling",
    "runner/drawing": "sampling",
    "runner/row_state": "sampling",
    "runner/token_mask": "sampling",
    "structured": "sampling",
    "tiers": "transfers of KV",
    "loading": "loading weights",
    "models": "the model",
    "attention": "the model",
    "core": "scheduling",
    "runner": "the runner",
}


def all_stacks() -> str:
    """Return the stacks of all threads."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def place_of(thread_id: int) -> str:
    """Describe the phase and the innermost place of our code in a thread, such as `sampling (runner/sampler.py:9)`."""
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            inside = path.relative_to(_PACKAGE).as_posix()
            phase = next((phase for start, phase in _PHASES.items() if inside.startswith(start)), "a step")
            return f"{phase} ({inside}:{frame.f_lineno})"
        frame = frame.f_back
    return "an unknown place"
