"""Factories that engine processes import by name, without torch where possible."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.engine.engine import Engine


def usual() -> Engine:
    from async_engine.harness import make

    return _warm(make(num_kv_blocks=400))


def _warm(engine: Engine) -> Engine:
    """Finish the imports of a first step, which on a busy machine would count as a hang."""
    engine.add_request([1])
    while engine.has_unfinished():
        engine.step()
    return engine


def ends_while_it_loads(log: str) -> Engine:
    with Path(log).open("a") as file:
        file.write("loading\n")
    os._exit(3)


def is_killed_while_it_loads() -> Engine:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it goes on")


def refuses() -> Engine:
    raise ValueError("no such model")


def loads_for(seconds: float, *, reports: bool) -> Engine:
    """Load for a long time, with or without progress."""
    from quire.loading.progress import load_listener
    from quire.outputs import LoadProgress

    listener = load_listener.get()
    assert listener is not None
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if reports:
            listener(LoadProgress(stage=0, num_stages=1, bytes_loaded=1, bytes_total=2))
        time.sleep(0.05)
    return usual()


def treacherous() -> Engine:
    """Make an engine whose behaviour depends on a prompt's first token: 66 raises, 67 hangs, 68 exits, 69 is slow."""
    from async_engine.harness import make

    engine = _warm(make(max_num_seqs=2, num_kv_blocks=400))
    execute, schedule = engine.runner.execute, engine.scheduler.schedule

    def is_there(token: int) -> bool:
        return any(request.prompt_token_ids[0] == token for request in engine.scheduler.queue.running)

    def betray(out: Any) -> Any:
        if is_there(67):
            time.sleep(1000)
        if is_there(68):
            os._exit(9)
        if is_there(69):
            time.sleep(0.03)
        return execute(out)

    def schedule_badly() -> Any:
        if is_there(66):
            raise RuntimeError("on purpose")
        return schedule()

    engine.runner.execute = betray  # type: ignore[method-assign]
    engine.scheduler.schedule = schedule_badly  # type: ignore[method-assign]
    return engine


def poisoned() -> Engine:
    """Make an engine that ends at the sixth token of each request whose prompt begins with 67 (hangs) or 68 (exits)."""
    from async_engine.harness import make

    engine = _warm(make(max_num_seqs=8, num_kv_blocks=400))
    execute = engine.runner.execute

    def betray(out: Any) -> Any:
        for request in engine.scheduler.queue.running:
            if any(sequence.num_output_tokens >= 5 for sequence in request.sequences):
                if request.prompt_token_ids[0] == 67:
                    time.sleep(1000)
                if request.prompt_token_ids[0] == 68:
                    os._exit(9)
        return execute(out)

    engine.runner.execute = betray  # type: ignore[method-assign]
    return engine
