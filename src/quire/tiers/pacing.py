"""Pace of transfers on the real link and in the simulator: piece sizes and bandwidth limits."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
from typing import TypeVar

_T = TypeVar("_T")

PIECE_S = 20e-3  #: long enough for a fast link, and short enough to notice a slow one within some steps
_SLICE_S = 0.05  # a changed bandwidth is noticed after this time


class PieceSize:
    """Piece size of one transfer: one block, then twice as many each time, up to `PIECE_S` at the last piece's speed.

    A disk seek may take longer than `PIECE_S`. So the k-th piece has at least k / 4 blocks, and n blocks need about
    3 sqrt(n) pieces at most.
    """

    def __init__(self) -> None:
        self._num_pieces = 0
        self._num_blocks = 1

    @property
    def num_blocks(self) -> int:
        """Blocks of the next piece, at least one."""
        return self._num_blocks

    def observe(self, num_blocks: int, seconds: float) -> None:
        """Record a piece of at least one block."""
        self._num_pieces += 1
        fitting = num_blocks * PIECE_S / seconds if seconds > 0.0 else math.inf
        self._num_blocks = max(1 + self._num_pieces // 4, int(min(fitting, 2 * num_blocks)))


def pop_piece(rest: deque[_T], is_cancelled: Callable[[_T], bool], size: PieceSize) -> tuple[list[_T], bool]:
    """Remove the next piece, of at least one transfer, from a queue. Returns it, and whether it is cancelled."""
    are_cancelled = is_cancelled(rest[0])
    reach = islice(rest, None if are_cancelled else size.num_blocks)
    taken = list(takewhile(lambda each: is_cancelled(each) == are_cancelled, reach))
    for _ in taken:
        rest.popleft()
    return taken, are_cancelled


class RateLimiter:
    """Simulates a device that moves `bandwidth` bytes per second (None: no limit), one transfer after the other. The
    free time is computed, so a late wake-up shortens the next transfer. `wait` sleeps and returns true to stop."""

    def __init__(
        self,
        bandwidth: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool | None] = time.sleep,
    ) -> None:
        self.bandwidth = bandwidth
        self._clock = clock
        self._wait = wait
        self._free_at = -math.inf

    def hold(self, num_bytes: int, asked_at: float, took_s: float) -> float:
        """Wait until the device would have moved the bytes, at least `took_s` after `asked_at`. Returns its busy
        seconds."""
        began_at = due = max(asked_at, self._free_at)
        self._free_at = due + took_s
        while num_bytes > 0 and (bandwidth := self.bandwidth) is not None:
            piece = min(num_bytes, max(1, int(bandwidth * _SLICE_S)))
            num_bytes -= piece
            due += piece / bandwidth
            while (ahead_s := due - self._clock()) > 0:
                if self._wait(ahead_s):
                    return self._free_at - began_at
        self._free_at = max(self._free_at, due)
        return self._free_at - began_at
