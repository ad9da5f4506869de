"""Merge the transfer reports of all ranks, each of which moves its slices of the blocks."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from quire.outputs import TransferReport


@dataclass(slots=True)
class _OtherRanks:
    """Reports of one transfer by the ranks but the first."""

    num_ranks: int = 0
    has_failed: bool = False
    is_cancelled: bool = False
    seconds: dict[int, float] = field(default_factory=dict)  #: share of its piece's time, by rank


class MergedTransfers:
    """A transfer ends once all ranks have reported it, in the same order by tier; it failed or was cancelled if any
    rank says so. Pieces are those of the first rank, with the time of the slowest."""

    def __init__(self, num_ranks: int) -> None:
        self._num_others = num_ranks - 1
        self._ended: defaultdict[int, _OtherRanks] = defaultdict(_OtherRanks)  #: by op_id
        self._pieces: defaultdict[str, deque[TransferReport]] = defaultdict(deque)  #: first rank's pending ones
        self._has_gap: set[tuple[str, str]] = set()  #: (tier, kind) whose last piece is incomplete

    @property
    def num_outstanding(self) -> int:
        """Transfers that the first rank has reported and another rank has not."""
        return sum(len(piece.op_ids) for pieces in self._pieces.values() for piece in pieces)

    def merge(self, reports: Sequence[Sequence[TransferReport]]) -> list[TransferReport]:
        """Add the reports since the last call, one list per rank. Returns the transfers that have ended on all."""
        for rank, of_rank in enumerate(reports[1:], start=1):
            for report in of_rank:
                self._record(rank, report)
        for report in reports[0]:
            self._pieces[report.tier].append(report)
        merged: list[TransferReport] = []
        for pieces in self._pieces.values():
            while pieces and all(self._is_over(op_id) for op_id in pieces[0].op_ids):
                merged += self._merge_piece(pieces.popleft())
        return merged

    def _record(self, rank: int, report: TransferReport) -> None:
        failed = set(report.failed)
        for op_id in report.op_ids:
            ended = self._ended[op_id]
            ended.num_ranks += 1
            ended.has_failed |= op_id in failed
            ended.is_cancelled |= report.is_cancelled
            ended.seconds[rank] = report.copy_s / len(report.op_ids)

    def _is_over(self, op_id: int) -> bool:
        return op_id in self._ended and self._ended[op_id].num_ranks == self._num_others

    def _merge_piece(self, piece: TransferReport) -> list[TransferReport]:
        others = {op_id: self._ended.pop(op_id) for op_id in piece.op_ids}
        cancelled = [op_id for op_id in piece.op_ids if piece.is_cancelled or others[op_id].is_cancelled]
        gone = set(cancelled)
        moved = [op_id for op_id in piece.op_ids if op_id not in gone]
        link = piece.tier, piece.kind
        merged = []
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
            merged.append(whole)
        if cancelled:
            merged.append(replace(piece, op_ids=cancelled, num_bytes=0, copy_s=0.0, failed=[], is_cancelled=True))
        if cancelled or (moved and merged[0].failed):
            self._has_gap.add(link)
        else:
            self._has_gap.discard(link)
        return merged
