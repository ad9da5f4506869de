"""How far loading has come, who is told of it, and the progress bar: on stderr, so that stdout stays the program's."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from quire.outputs import LoadProgress

#: Whoever makes an engine may set this meanwhile, to be told of its model's loading, from any thread, then and later.
load_listener: ContextVar[Callable[[LoadProgress], None] | None] = ContextVar("load_listener", default=None)

_TELL_S = 0.1  # between two tellings of bytes
_RATE_WINDOW_S = 10.0  # over which the bandwidth is measured


class LoadStatus:
    """How far the loading of one model has come; the listener there is now is told. For any thread.

    Args:
        num_stages: of the model.
        last_stage: that is loaded.
        bytes_total: that will arrive.
    """

    def __init__(self, num_stages: int, last_stage: int, bytes_total: int) -> None:
        self.stage_ready = 0  #: the last stage that can be served
        self._num_stages, self._last_stage = num_stages, last_stage
        self._bytes_total = bytes_total
        self._served_stage = 0
        self._bytes_loaded = self._bytes_of_group = 0
        self._error: str | None = None
        self._is_stuck = False  # nothing comes until something has changed
        self._began = 0.0  # when reading did, by time.monotonic
        self._arrivals: deque[tuple[float, int]] = deque()  # when, and how many bytes there were
        self._changed = threading.Lock()
        self._told_at = -math.inf
        self._telling = threading.RLock()  # so that who listens hears the last state last
        self._listener = load_listener.get()

    def begin(self, seconds_ago: float) -> None:
        """Reading began then."""
        self._began = time.monotonic() - seconds_ago
        self.tell()

    def begin_group(self) -> None:
        """What comes from now on may have to be taken back."""
        self._bytes_of_group = 0

    def take_back_group(self) -> None:
        """What has come of the group will come again."""
        with self._changed:
            self._bytes_loaded -= self._bytes_of_group
            self._bytes_of_group = 0
            self._arrivals.clear()

    def add_bytes(self, num_bytes: int) -> None:
        """So many have arrived."""
        now = time.monotonic()
        with self._changed:
            self._bytes_loaded += num_bytes
            self._bytes_of_group += num_bytes
            self._arrivals.append((now, self._bytes_loaded))
            while len(self._arrivals) > 2 and self._arrivals[0][0] < now - _RATE_WINDOW_S:
                self._arrivals.popleft()
        if now - self._told_at > _TELL_S:
            self.tell()

    def set_ready(self, number: int) -> None:
        """A stage can be served, and whatever was wrong is over. Nobody is told before `tell`."""
        self.stage_ready = number
        self._error, self._is_stuck = None, False

    def set_served(self, number: int) -> None:
        """The engine serves a stage."""
        self._served_stage = number
        self.tell()

    def set_error(self, error: str, *, is_stuck: bool) -> None:
        """Something is wrong; stuck is what does not go on by itself. Nobody is told before `tell`."""
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
        )

    def tell(self) -> None:
        """Tell the listener. Its call may take long; another thread's waits for it."""
        self._told_at = time.monotonic()
        with self._telling:
            if self._listener is not None:
                self._listener(self.progress())

    def close(self) -> None:
        """Nobody is told any more."""
        with self._telling:
            self._listener = None

    def _seconds_left(self) -> float | None:
        """By the bandwidth of all so far, or of late, where that was less: what was read before anybody could take it
        arrives at once. None where it is not known."""
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
def bytes_progress(description: str, total: int, enabled: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar: yields `advance(num_bytes)`, which any thread may call."""
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
        yield lambda num_bytes: progress.advance(task, num_bytes)
