"""How much of a transfer is moved before its next report: one rule for the real link and for the simulator's."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
from typing import TypeVar

_T = TypeVar("_T")

PIECE_S = 20e-3  #: seconds: a slow link shows within a few steps, and a fast one is not held up by reports


class PieceSize:
    """The pieces of one transfer: a block, then twice as many blocks each time, but no more than move in `PIECE_S` at
    the speed of the last piece.

    Beginning a piece may take longer than `PIECE_S`, where a disk seeks or a thread waits for Python's lock. That rule
    alone would then never leave single blocks. So the k-th piece has k / 4 blocks at least, and n blocks need no more
    than some 3 sqrt(n) pieces.
    """

    def __init__(self) -> None:
        self._num_pieces = 0
        self._num_blocks = 1

    @property
    def num_blocks(self) -> int:
        """To move next: at least one."""
        return self._num_blocks

    def note(self, num_blocks: int, seconds: float) -> None:
        """A piece of at least one block took so long."""
        self._num_pieces += 1
        fitting = num_blocks * PIECE_S / seconds if seconds > 0.0 else math.inf
        self._num_blocks = max(1 + self._num_pieces // 4, int(min(fitting, 2 * num_blocks)))


def take_piece(rest: deque[_T], is_cancelled: Callable[[_T], bool], size: PieceSize) -> tuple[list[_T], bool]:
    """Take the next piece from the transfers that have not begun: a run of cancelled ones, or a piece of others.

    Returns:
        The transfers, at least one, and whether they were cancelled.
    """
    are_cancelled = is_cancelled(rest[0])
    reach = islice(rest, None if are_cancelled else size.num_blocks)
    taken = list(takewhile(lambda each: is_cancelled(each) == are_cancelled, reach))
    for _ in taken:
        rest.popleft()
    return taken, are_cancelled
