"""The state of loading, its listener, and a progress bar on stderr."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from quire.outputs import LoadProgress

#: Set while an engine is made, it receives the progress of that engine's model, from any thread, for good.
load_listener: ContextVar[Callable[[LoadProgress], None] | None] = ContextVar("load_listener", default=None)

_NOTIFY_S = 0.1  # least time between two reports of bytes
_RATE_WINDOW_S = 10.0  # over which the bandwidth is measured


class LoadStatus:
    """The state of loading one model, reported to the current `load_listener`. Thread-safe."""

    def __init__(self, num_stages: int, last_stage: int, stage_bytes: Sequence[int]) -> None:
        self.stage_ready = 0  #: the highest stage that can be served
        self._num_stages, self._last_stage = num_stages, last_stage
        self._stage_bytes, self._bytes_total = stage_bytes, stage_bytes[-1]
        self._served_stage = 0
        self._bytes_loaded = self._bytes_of_group = 0
        self._error: str | None = None
        self._is_stuck = False  # loading waits for a change from outside
        self._began = 0.0  # start of reading, by time.monotonic
        self._arrivals: deque[tuple[float, int]] = deque()  # (time, bytes loaded by then)
        self._changed = threading.Lock()
        self._notified_at = -math.inf
        self._notifying = threading.RLock()  # the last call of the listener has the latest state
        self._listener = load_listener.get()

    def begin(self, seconds_ago: float) -> None:
        self._began = time.monotonic() - seconds_ago
        self.notify()

    def begin_group(self) -> None:
        """Start counting the bytes of another group."""
        self._bytes_of_group = 0

    def discard_group(self) -> None:
        """Subtract the bytes of the current group, which will be read again."""
        with self._changed:
            self._bytes_loaded -= self._bytes_of_group
            self._bytes_of_group = 0
            self._arrivals.clear()

    def add_bytes(self, num_bytes: int) -> None:
        """Count bytes in place."""
        now = time.monotonic()
        with self._changed:
            self._bytes_loaded += num_bytes
            self._bytes_of_group += num_bytes
            self._arrivals.append((now, self._bytes_loaded))
            while len(self._arrivals) > 2 and self._arrivals[0][0] < now - _RATE_WINDOW_S:
                self._arrivals.popleft()
        if now - self._notified_at > _NOTIFY_S:
            self.notify()

    def set_ready(self, number: int) -> None:
        """Record a ready stage and clear the error. Call `notify` afterwards."""
        self.stage_ready = number
        self._error, self._is_stuck = None, False

    def set_served(self, number: int) -> None:
        self._served_stage = number
        self.notify()

    def set_error(self, error: str, *, is_stuck: bool) -> None:
        """Record an error, and whether loading is stuck until something changes. Call `notify` afterwards."""
        self._error, self._is_stuck = error, is_stuck

    def progress(self) -> LoadProgress:
        return LoadProgress(
            stage=min(self._served_stage, self.stage_ready),
            num_stages=self._num_stages,
            bytes_loaded=self._bytes_loaded,
            bytes_total=self._bytes_total,
            seconds_left=self._seconds_left(),
            error=self._error,
            last_stage=self._last_stage,
            stage_bytes=self._stage_bytes,
        )

    def notify(self) -> None:
        """Call the listener, one thread at a time."""
        self._notified_at = time.monotonic()
        with self._notifying:
            if self._listener is not None:
                self._listener(self.progress())

    def close(self) -> None:
        with self._notifying:
            self._listener = None

    def _seconds_left(self) -> float | None:
        """Estimate by the lower of total and recent bandwidth, since read-ahead bytes arrive at once."""
        with self._changed:
            left = self._bytes_total - self._bytes_loaded
            if not left:
                return 0.0
            if len(self._arrivals) < 2 or self._is_stuck:
                return None
            (since, before), (now, loaded) = self._arrivals[0], self._arrivals[-1]
        seconds = [(now - since) / max(1, loaded - before), (now - self._began) / loaded]
        return left * max(seconds)


@contextmanager
def bytes_progress(description: str, total: int, enabled: bool) -> Iterator[Callable[..., None]]:
    """Show a progress bar. Yields `advance(num_bytes)`, callable from any thread."""
    if not enabled:
        yield lambda num_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total)
        yield lambda num_bytes: progress.update(task, advance=num_bytes)
