"""Transfer costs of a hypothetical disk with a given bandwidth."""

from __future__ import annotations

import math

from quire.core.decisions.costs import Costs, StepShape

LATENCY_S = 1e-4  #: a guess for a solid-state disk
#: Coded KV by its plain size, measured; KV of other dtypes stays plain.
CODED_SHARES = {"bfloat16": 0.67, "float32": 0.83}
DECODE_S = 1e-9  #: to code or decode a byte that coding saves, measured


class WithDisk:
    """Other costs with a disk: a latency per transfer, and its bytes over a bandwidth. KV of `kv_dtype` is coded, as
    engines do, where that takes less time than the bytes that it saves. ValueError out of range."""

    def __init__(self, costs: Costs, bytes_per_s: float, latency_s: float = LATENCY_S, kv_dtype: str = "") -> None:
        if not 0 < bytes_per_s < math.inf or not 0 <= latency_s < math.inf:
            raise ValueError(
                f"a disk of {bytes_per_s:g} bytes a second and {latency_s:g} s; expected a bandwidth above 0 and a "
                "latency of at least 0"
            )
        self.costs = costs
        self.bytes_per_s = bytes_per_s
        self.latency_s = latency_s
        coded = CODED_SHARES.get(kv_dtype, 1.0)
        self.stored_share = coded if bytes_per_s * DECODE_S < 1 else 1.0  #: of blocks by their plain size

    @property
    def is_link_usable(self) -> bool:
        return self.costs.is_link_usable

    def step(self, shape: StepShape) -> float:
        return self.costs.step(shape)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return self.costs.recompute(num_tokens, start=start, chunk=chunk, beside=beside)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return self._move(num_bytes) if tier == "disk" else self.costs.save(num_bytes, tier)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return self._move(num_bytes) if tier == "disk" else self.costs.load(num_bytes, tier)

    def _move(self, num_bytes: int) -> float:
        if num_bytes <= 0:
            return 0.0
        stored = num_bytes * self.stored_share
        return self.latency_s + stored / self.bytes_per_s + (num_bytes - stored) * DECODE_S
