"""The state of each request.

    waiting   by (priority, arrival), preempted requests among them
    blocked   on a document, a grammar or a stage of the model (`BlockedReason`)
    running   by (priority, arrival)

Every request is in exactly one of the three. The scheduler decides who moves, and when.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from quire.core.request import BlockedReason, Request, RequestStatus, Sequence

_ORDER: Callable[[Request], tuple[int, int]] = lambda request: request.order  # noqa: E731


class RequestQueue:
    """The requests of one scheduler, and their sequences.

    Attributes:
        requests: all unfinished requests, by id.
        num_preempted: requests in `waiting` that have run before.
        num_waiting_tokens: known tokens of the requests in `waiting`.
        num_running_seqs: seats in use; a running request takes its whole width.
    """

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.blocked: dict[str, Request] = {}
        self.running: list[Request] = []
        self.sequences: dict[int, Sequence] = {}
        self.num_preempted = 0
        self.num_waiting_tokens = 0
        self.num_running_seqs = 0
        self._next_seq_id = 0

    def new_sequence(self, request: Request, index: int, token_ids: list[int]) -> Sequence:
        seq = Sequence(self._next_seq_id, index, request, token_ids)
        self._next_seq_id += 1
        self.sequences[seq.seq_id] = seq
        return seq

    def remove_sequence(self, seq: Sequence) -> None:
        """Remove a beam that does not go on."""
        del self.sequences[seq.seq_id]

    def add(self, request: Request, blocked_on: BlockedReason | None) -> None:
        self.requests[request.request_id] = request
        if blocked_on is None:
            self._enter_waiting(request)
        else:
            self._enter_blocked(request, blocked_on)

    def wait(self, request: Request) -> None:
        """Move a request to `waiting`: after a preemption, or when the reason to block it is gone."""
        self._leave(request)
        self._enter_waiting(request)

    def block(self, request: Request, reason: BlockedReason) -> None:
        self._leave(request)
        self._enter_blocked(request, reason)

    def run(self, request: Request) -> None:
        self._leave(request)
        request.status = RequestStatus.RUNNING
        self.num_running_seqs += request.width
        insort(self.running, request, key=_ORDER)

    def remove(self, request: Request, status: RequestStatus) -> None:
        self._leave(request)
        request.status = status
        for seq in request.sequences:
            self.sequences.pop(seq.seq_id, None)
        del self.requests[request.request_id]

    def _enter_waiting(self, request: Request) -> None:
        has_run = request.num_preemptions > 0 or request.num_promotions > 0
        request.status = RequestStatus.PREEMPTED if has_run else RequestStatus.WAITING
        self.num_preempted += has_run
        request.num_queued_tokens = sum(len(seq.token_ids) for seq in request.unfinished)
        self.num_waiting_tokens += request.num_queued_tokens
        insort(self.waiting, request, key=_ORDER)

    def _enter_blocked(self, request: Request, reason: BlockedReason) -> None:
        request.status, request.blocked_on = RequestStatus.BLOCKED, reason
        self.blocked[request.request_id] = request

    def _leave(self, request: Request) -> None:
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
            self.num_running_seqs -= request.width
        elif request.status is RequestStatus.BLOCKED:
            del self.blocked[request.request_id]
            request.blocked_on = None
        else:
            self.num_preempted -= request.status is RequestStatus.PREEMPTED
            self.num_waiting_tokens -= request.num_queued_tokens
            if self.waiting[0] is request:
                del self.waiting[0]
            else:
                self.waiting.remove(request)

    def check_integrity(self) -> None:
        for queue in (self.running, self.waiting):
            orders = [request.order for request in queue]
            assert orders == sorted(orders)
        for request in self.requests.values():
            indices = [seq.index for seq in request.unfinished]
            assert indices == sorted(set(indices)), "siblings are out of order"
        assert len(self.running) + len(self.waiting) + len(self.blocked) == len(self.requests)
        assert all(request.status is RequestStatus.RUNNING for request in self.running)
        for request in self.requests.values():
            assert (request.status is RequestStatus.BLOCKED) == (request.blocked_on is not None)
            assert (request.request_id in self.blocked) == (request.blocked_on is not None)
        assert self.num_waiting_tokens == sum(request.num_queued_tokens for request in self.waiting)
        assert self.num_preempted == sum(request.status is RequestStatus.PREEMPTED for request in self.waiting)
        idle = [*self.waiting, *self.blocked.values()]
        assert all(not seq.block_table for request in idle for seq in request.unfinished)
        assert self.num_running_seqs == sum(request.width for request in self.running)
        assert set(self.sequences) >= {seq.seq_id for request in self.requests.values() for seq in request.unfinished}
        if not self.requests:
            assert not self.sequences, "sequences outlive their requests"
