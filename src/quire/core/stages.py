"""Assign requests to model stages during progressive loading.

KV is valid for one stage only: a new layer has none for earlier tokens, and all later layers' inputs change with it. So
a request in flight at a promotion either finishes on its stage (it is pinned) or is recomputed on the new one;
`LoadOrCompute.choose_pinned` decides. All sequences of a step share a stage; while two stages are alive, their steps
alternate. At most one older stage stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from quire.core.block_keys import adapter_root
from quire.core.request import Request, RequestAdapter


class Stages:
    """The stages in use, with requests by stage. `root` is the namespace key of the current stage's KV (None leaves
    requests theirs); `older` is the stage of the pinned requests."""

    def __init__(self) -> None:
        self.current = 1
        self.root: bytes | None = None
        self.older: int | None = None
        self._num_requests: Counter[int] = Counter()  #: by stage
        self._retired: list[int] = []
        self.last_served = 0

    def start(self, number: int, root: bytes) -> None:
        """Set the first stage, before any request."""
        assert not self._num_requests
        self.current, self.root = number, root

    def advance(self, number: int, root: bytes) -> None:
        """Make a later stage the current one. Requests stay on the older one until `leave`."""
        assert number > self.current, f"stage {number} does not come after stage {self.current}"
        assert self.older is None, "two older stages"
        before = self.current
        self.current, self.root = number, root
        if self._num_requests[before]:
            self.older = before
        else:
            self._retired.append(before)

    def assign(self, request: Request) -> None:
        request.stage = self.current
        if self.root is not None:
            request.root = self.root_of(request.adapter)
        self._num_requests[request.stage] += 1

    def root_of(self, adapter: RequestAdapter | None) -> bytes:
        """Return the namespace key of new KV with an adapter."""
        root = self.root or b""
        return root if adapter is None else adapter_root(root, adapter.digest)

    def leave(self, request: Request) -> None:
        """Release a request's stage: it has finished, or is about to be recomputed."""
        self._num_requests[request.stage] -= 1
        if request.stage == self.older and not self._num_requests[request.stage]:
            self._retired.append(self.older)
            self.older = None

    def pop_retired(self) -> list[int]:
        """Return the stages that no step names any more, once each."""
        retired, self._retired = self._retired, []
        return retired

    def serving_order(self) -> tuple[int, ...]:
        """Return the stages that the next step may compute. It takes the first one with work."""
        if self.older is None:
            return (self.current,)
        stages = (self.older, self.current)
        return stages[::-1] if self.last_served == self.older else stages

    def check_integrity(self, requests: Iterable[Request]) -> None:
        assert +self._num_requests == Counter(request.stage for request in requests)
        assert set(+self._num_requests) <= {self.current, self.older}
