"""The command line. It imports other packages inside functions only, so that `--help` is fast."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

_WITHOUT_ENGINE = ("-h", "--help", "--no-engine-process", "--ray")  # `quire serve` with these starts no engine process


def main() -> None:
    """Run `quire`. Ctrl-C exits with status 130 and no traceback, also during imports and interpreter shutdown."""
    is_ignored = signal.getsignal(signal.SIGINT) is not signal.default_int_handler  # in a background job
    if not is_ignored:
        signal.signal(signal.SIGINT, _end_at_once)
    engine = _begin_to_serve() if sys.argv[1:2] == ["serve"] else None
    from quire.cli.main import main as run

    try:
        if not is_ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run(engine)
    except KeyboardInterrupt:  # outside the commands
        os._exit(128 + signal.SIGINT)
    finally:
        if not is_ignored:
            signal.signal(signal.SIGINT, _end_at_once)


def _begin_to_serve() -> Any:
    """Start importing what the first engine needs, before the command line is parsed."""
    gc.disable()  # until the server listens: imports leave no garbage
    if any(argument.startswith(_WITHOUT_ENGINE) for argument in sys.argv):
        return None
    from quire.async_engine.spawn import engine_child

    return engine_child()


def _end_at_once(number: int, frame: Any) -> None:
    os._exit(128 + number)
