"""OPT-13B (or LLaMA-13B, of the same shape) on an A100 with 40 GB: step costs by arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from quire.core.decisions.costs import StepShape
from quire.simulate.hardware import HardwareProfile

NUM_SLOTS = 15_700  #: tokens of KV beside the weights (the paper's table 1)
BYTES_PER_TOKEN = 2 * 40 * 5120 * 2
_WEIGHT_BYTES, _WEIGHTS = 26e9, 13e9
_BANDWIDTH, _FLOPS = 1.555e12, 312e12
_LINEAR_SHARE, _ATTENTION_SHARE, _LINK = 0.55, 0.6, 25e9  #: of the limits, by kind of kernel; PCIe 4.0 x16
SEQUENCE_S = 3.5e-4


@dataclass(frozen=True)
class RooflineCosts:
    """Linear layers at the limit of memory or arithmetic, attention beside them, and a fixed cost per sequence."""

    sequence_s: float = SEQUENCE_S  #: sampling and Python
    is_link_usable = True

    def step(self, shape: StepShape) -> float:
        if not shape.num_tokens:
            return 0.0
        linear = max(_WEIGHT_BYTES / _BANDWIDTH, shape.num_tokens * 2 * _WEIGHTS / (_FLOPS * _LINEAR_SHARE))
        reads = shape.context_decode * BYTES_PER_TOKEN / (_BANDWIDTH * _ATTENTION_SHARE)
        pairs = shape.attended * 4 * 40 * 5120 / (_FLOPS * _LINEAR_SHARE)
        return linear + reads + pairs + shape.num_seqs * self.sequence_s

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        beside = beside or StepShape(0, 0)
        return self.step(beside.plus_chunk(start, num_tokens)) - self.step(beside)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return num_bytes / _LINK

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return num_bytes / _LINK


def a100(sequence_s: float = SEQUENCE_S) -> HardwareProfile:
    """The machine of the paper's OPT-13B runs. `sequence_s`: seconds a step takes per sequence besides the kernels."""
    return HardwareProfile(
        name="a100-opt-13b",
        hardware="NVIDIA A100 (40 GB)",
        model="OPT-13B, float16",
        costs=RooflineCosts(sequence_s),
        bytes_per_token=BYTES_PER_TOKEN,
        published=f"{NUM_SLOTS:,} slots of KV (table 1), 800 KiB a token, 1,555 GB/s, 312 TFLOP/s",
        assumed=f"steps: the larger of reading 26 GB and computing at {_LINEAR_SHARE:.0%} of the peak, KV read at "
        f"{_ATTENTION_SHARE:.0%} of the bandwidth, and {1e3 * sequence_s:g} ms a sequence, which gives the paged runs "
        "about as many batched requests as Figure 13",
    )
