"""The state of each request.

    waiting   by (priority, rank, arrival), preempted requests among them; tenants take turns (`heads`)
    blocked   on a document, a grammar or a stage of the model (`BlockedReason`)
    running   by (priority, arrival)

Every request is in exactly one of the three. The scheduler decides who moves, and when.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable

from quire.core.request import BlockedReason, Order, Request, RequestStatus, Sequence
from quire.core.scheduling.turns import Turns

_ORDER: Callable[[Request], Order] = lambda request: request.order  # noqa: E731


def _in_line(request: Request) -> tuple[int, int, int]:
    return request.order.priority, request.order.owner.rank, request.order.arrival


class RequestQueue:
    """The requests of one scheduler, and their sequences."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}  #: unfinished ones, by id
        self.waiting: list[Request] = []
        self.blocked: dict[str, Request] = {}
        self.running: list[Request] = []
        self.sequences: dict[int, Sequence] = {}
        self.num_preempted = 0  #: requests in `waiting` that have run before
        self.num_waiting_tokens = 0  #: known tokens of the requests in `waiting`
        self.num_running_seqs = 0  #: seats in use; a running request takes its whole width
        self.num_spare_seqs = 0  #: spare seats among them
        self.seats: Counter[str] = Counter()  #: seats in use, by tenant
        self.trials: list[Request] = []  #: requests of a step without memory, which run alone one after the other
        self.turns = Turns()
        self._lines: dict[str, list[Request]] = {}  #: `waiting` by tenant
        self._next_seq_id = 0

    def heads(self) -> list[Request]:
        """Return the first waiting request of each tenant that is not held back, the next one to be admitted first."""
        if (alone := self.alone) is not None:
            return [alone] if alone.status is not RequestStatus.RUNNING else []
        if len(self._lines) < 2:
            return [first for first in self.waiting[:1] if not self.holds_back(first)]
        served = self.turns.served
        firsts = [line[0] for line in self._lines.values() if not self.holds_back(line[0])]
        return sorted(firsts, key=lambda first: (first.order.priority, served[first.tenant], first.order.arrival))

    @property
    def alone(self) -> Request | None:
        """The request on trial, beside which no other runs."""
        return next((each for each in self.trials if each.status is not RequestStatus.BLOCKED), None)

    def holds_back(self, request: Request) -> bool:
        """Whether a request must wait for one on trial, or a background request for others, which come first in both
        lists."""
        if self.trials and (alone := self.alone) is not None:
            return request is not alone
        if not request.is_background:
            return False
        return not all(first.is_background for first in (*self.running[:1], *self.waiting[:1]))

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
        self.turns.enter(request.tenant)
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
        request.num_passed = 0
        self._count_seats(request, request.width)
        insort(self.running, request, key=_ORDER)

    def remove(self, request: Request, status: RequestStatus) -> None:
        self._leave(request)
        request.status = status
        for seq in request.sequences:
            self.sequences.pop(seq.seq_id, None)
        self.end_trials(request)
        del self.requests[request.request_id]
        self.turns.leave(request.tenant)

    def end_trials(self, *requests: Request) -> None:
        """Let others run beside requests that have got a token or have ended."""
        self.trials = [each for each in self.trials if each not in requests]

    def _enter_waiting(self, request: Request) -> None:
        has_run = request.num_preemptions > 0 or request.num_promotions > 0
        request.status = RequestStatus.PREEMPTED if has_run else RequestStatus.WAITING
        self.num_preempted += has_run
        request.num_queued_tokens = sum(len(seq.token_ids) for seq in request.unfinished)
        self.num_waiting_tokens += request.num_queued_tokens
        insort(self.waiting, request, key=_in_line)
        insort(self._lines.setdefault(request.tenant, []), request, key=_in_line)

    def _count_seats(self, request: Request, num_seats: int) -> None:
        self.num_running_seqs += num_seats
        self.num_spare_seqs += num_seats if request.is_spare else 0
        self.seats[request.tenant] += num_seats

    def _enter_blocked(self, request: Request, reason: BlockedReason) -> None:
        request.status, request.blocked_on = RequestStatus.BLOCKED, reason
        self.blocked[request.request_id] = request

    def _leave(self, request: Request) -> None:
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
            self._count_seats(request, -request.width)
        elif request.status is RequestStatus.BLOCKED:
            del self.blocked[request.request_id]
            request.blocked_on = None
        else:
            self.num_preempted -= request.status is RequestStatus.PREEMPTED
            self.num_waiting_tokens -= request.num_queued_tokens
            line = self._lines[request.tenant]
            for queue in (self.waiting, line):
                del queue[0 if queue[0] is request else queue.index(request)]
            if not line:
                del self._lines[request.tenant]

    def check_integrity(self) -> None:
        assert self.running == sorted(self.running, key=_ORDER)
        assert self.waiting == sorted(self.waiting, key=_in_line)
        tenants = {request.tenant for request in self.waiting}
        assert self._lines == {each: [r for r in self.waiting if r.tenant == each] for each in tenants}
        assert self.turns.num_open == Counter(request.tenant for request in self.requests.values())
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
        assert all(self.requests.get(each.request_id) is each for each in self.trials)
        idle = [*self.waiting, *self.blocked.values()]
        assert all(not seq.block_table for request in idle for seq in request.unfinished)
        assert self.num_running_seqs == sum(request.width for request in self.running) == self.seats.total()
        assert self.num_spare_seqs == sum(request.width for request in self.running if request.is_spare)
        assert set(self.sequences) >= {seq.seq_id for request in self.requests.values() for seq in request.unfinished}
        if not self.requests:
            assert not self.sequences, "sequences outlive their requests"
