"""The command line. Imports the rest of the house inside functions only, so that `--help` answers at once."""

from __future__ import annotations

import os
import signal
from typing import Any


def main() -> None:
    """`quire`. Ctrl-C ends it with status 130 and without a traceback, also while modules are imported and while the
    interpreter shuts down, where nothing could catch a KeyboardInterrupt."""
    is_ignored = signal.getsignal(signal.SIGINT) is not signal.default_int_handler  # by a shell, in the background
    if not is_ignored:
        signal.signal(signal.SIGINT, _end_at_once)
    from quire.cli.main import main as run

    try:
        if not is_ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # outside of all commands
        os._exit(128 + signal.SIGINT)
    finally:
        if not is_ignored:
            signal.signal(signal.SIGINT, _end_at_once)


def _end_at_once(number: int, frame: Any) -> None:
    os._exit(128 + number)
