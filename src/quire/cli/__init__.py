"""The command line. It imports other packages inside functions only, so that `--help` is fast."""

from __future__ import annotations

import os
import signal
from typing import Any


def main() -> None:
    """Run `quire`. Ctrl-C exits with status 130 and no traceback, also during imports and interpreter shutdown."""
    is_ignored = signal.getsignal(signal.SIGINT) is not signal.default_int_handler  # in a background job
    if not is_ignored:
        signal.signal(signal.SIGINT, _end_at_once)
    from quire.cli.main import main as run

    try:
        if not is_ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # outside the commands
        os._exit(128 + signal.SIGINT)
    finally:
        if not is_ignored:
            signal.signal(signal.SIGINT, _end_at_once)


def _end_at_once(number: int, frame: Any) -> None:
    os._exit(128 + number)
