"""One report of transfers out of those of all ranks, each of which moves its slice of every block."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from quire.outputs import TransferReport


@dataclass(slots=True)
class _Ended:
    """A transfer, as the ranks but the first have reported it so far."""

    num_ranks: int = 0
    has_failed: bool = False
    is_cancelled: bool = False
    seconds: dict[int, float] = field(default_factory=dict)  #: by rank: its share of a piece's


class JointTransfers:
    """Joins reports. A transfer has ended once all ranks have reported it: failed if it failed on any, cancelled if it
    was cancelled on any. Pieces are those of the first rank, and take as long as the slowest rank's.

    Every rank reports the transfers of one tier in the same order, so a piece that waits holds up none that could go.
    """

    def __init__(self, num_ranks: int) -> None:
        self._num_others = num_ranks - 1
        self._ended: defaultdict[int, _Ended] = defaultdict(_Ended)  #: by op_id
        self._pieces: defaultdict[str, deque[TransferReport]] = defaultdict(deque)  #: of the first rank, by tier
        self._has_gap: set[tuple[str, str]] = set()  #: tier and kind, where the last piece did not arrive whole

    @property
    def num_outstanding(self) -> int:
        """Transfers that the first rank has reported, and others not."""
        return sum(len(piece.op_ids) for pieces in self._pieces.values() for piece in pieces)

    def join(self, reports: Sequence[Sequence[TransferReport]]) -> list[TransferReport]:
        """Take in what each rank has reported since the last call, rank by rank. Returns what has ended on all."""
        for rank, of_rank in enumerate(reports[1:], start=1):
            for report in of_rank:
                self._note(rank, report)
        for report in reports[0]:
            self._pieces[report.tier].append(report)
        joint: list[TransferReport] = []
        for pieces in self._pieces.values():
            while pieces and all(self._is_over(op_id) for op_id in pieces[0].op_ids):
                joint += self._join_piece(pieces.popleft())
        return joint

    def _note(self, rank: int, report: TransferReport) -> None:
        failed = set(report.failed)
        for op_id in report.op_ids:
            ended = self._ended[op_id]
            ended.num_ranks += 1
            ended.has_failed |= op_id in failed
            ended.is_cancelled |= report.is_cancelled
            ended.seconds[rank] = report.copy_s / len(report.op_ids)

    def _is_over(self, op_id: int) -> bool:
        return op_id in self._ended and self._ended[op_id].num_ranks == self._num_others

    def _join_piece(self, piece: TransferReport) -> list[TransferReport]:
        others = {op_id: self._ended.pop(op_id) for op_id in piece.op_ids}
        cancelled = [op_id for op_id in piece.op_ids if piece.is_cancelled or others[op_id].is_cancelled]
        gone = set(cancelled)
        moved = [op_id for op_id in piece.op_ids if op_id not in gone]
        link = piece.tier, piece.kind
        joint = []
        if moved:
            failed = set(piece.failed)
            share = len(moved) / len(piece.op_ids)
            seconds: defaultdict[int, float] = defaultdict(float)
            for op_id in moved:
                for rank, spent in others[op_id].seconds.items():
                    seconds[rank] += spent
            whole = replace(
                piece,
                op_ids=moved,
                num_bytes=round(piece.num_bytes * share),
                copy_s=max(piece.copy_s * share, *seconds.values()),
                failed=[op_id for op_id in moved if op_id in failed or others[op_id].has_failed],
                continues=piece.continues and link not in self._has_gap,
            )
            joint.append(whole)
        if cancelled:
            joint.append(replace(piece, op_ids=cancelled, num_bytes=0, copy_s=0.0, failed=[], is_cancelled=True))
        if cancelled or (moved and joint[0].failed):
            self._has_gap.add(link)
        else:
            self._has_gap.discard(link)
        return joint
