"""The machines that are simulated: what their steps and transfers cost, and where each figure comes from.

A profile is published, as the CPS paper's table, or was measured by `quire calibrate`. All other figures are assumed,
and every profile names them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs, StepShape
from quire.simulate.disk_costs import LATENCY_S, WithDisk
from quire.simulate.table_costs import DecodeCosts, TableCosts

PAPER = "cps-paper"
#: Of the paper's table 2: tokens; swap out, swap preparation, swap in and recompute in milliseconds.
_PAPERS_ROWS = (
    (512, 3.236, 0.034, 3.366, 8.30),
    (1024, 6.257, 0.050, 6.379, 12.30),
    (2048, 17.795, 0.084, 18.411, 22.73),
    (4096, 34.632, 0.151, 36.658, 42.90),
    (8192, 68.939, 0.281, 72.574, 97.60),
)
_PAPERS_BYTES_PER_TOKEN = 12_288
# A step without prefill: the published recompute latency, its first two rows continued to no tokens. A context token:
# its 12 KiB read at the card's 768 GB/s. A sequence: sampling and its share of the launches, a round guess.
_ASSUMED_DECODE = DecodeCosts(step=4.3e-3, sequence=2e-5, context_token=1.6e-8)


@dataclass(frozen=True)
class EngineLimits:
    """The limits of the engine that a profile was taken from, where a run asks for no others."""

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    enable_prefix_caching: bool = True


@dataclass(frozen=True)
class HardwareProfile:
    """One machine and model."""

    name: str  #: as it was asked for
    hardware: str  #: in words
    model: str  #: in words
    costs: Costs
    bytes_per_token: int  #: of KV
    swap_is_synchronous: bool = False  #: the engine stands still while blocks are copied; else the link works beside it
    has_disk: bool = False  #: the costs know those of a disk tier
    limits: EngineLimits = EngineLimits()  #: of the engine behind it
    published: str = ""  #: the published figures, in words; "" where there are none
    measured: str = ""  #: the measured ones
    assumed: str = ""  #: the others

    def sources(self) -> list[str]:
        """Sentences that say what each figure rests on."""
        how = "stops the engine" if self.swap_is_synchronous else "goes on beside the steps"
        parts = (("Published", self.published), ("Measured", self.measured), ("Assumed", self.assumed))
        return [
            f"{self.name}: {self.model} on {self.hardware}.",
            *(f"{heading}: {text}." for heading, text in parts if text),
            f"Swapping {how}.",
        ]


class SlowedCosts:
    """Another machine's costs, of which every step takes `factor` times as long; links are as they were."""

    def __init__(self, costs: Costs, factor: float) -> None:
        self._costs = costs
        self.factor = factor  #: may be changed at any time

    @property
    def is_link_usable(self) -> bool:
        return self._costs.is_link_usable

    def step(self, shape: StepShape) -> float:
        return self.factor * self._costs.step(shape)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return self.factor * self._costs.recompute(num_tokens, start=start, chunk=chunk, beside=beside)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return self._costs.save(num_bytes, tier)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return self._costs.load(num_bytes, tier)


def slowed(profile: HardwareProfile, factor: float) -> HardwareProfile:
    """The same machine with a model whose steps take `factor` times as long (assumed)."""
    return replace(profile, name=f"{profile.name} × {factor:g}", costs=SlowedCosts(profile.costs, factor))


def with_disk(profile: HardwareProfile, bytes_per_s: float, latency_s: float = LATENCY_S) -> HardwareProfile:
    """The same machine with a disk of this speed, whatever it had (`WithDisk`).

    Raises:
        ValueError: as there.
    """
    return replace(profile, costs=WithDisk(profile.costs, bytes_per_s, latency_s), has_disk=True)


def cps_paper(decode_scale: float = 1.0) -> HardwareProfile:
    """The machine of the CPS paper, by its table 2. Its vLLM 0.2.4 stands still while blocks are copied.

    Args:
        decode_scale: what to multiply the costs of decode steps by, which the paper does not give.

    Raises:
        ValueError: the scale is not above 0.
    """
    if not 0 < decode_scale < float("inf"):
        raise ValueError(f"decode_scale={decode_scale:g}; expected a number above 0")
    scaled = "" if decode_scale == 1 else f"; decode steps times {decode_scale:g}"
    return HardwareProfile(
        name=PAPER,
        hardware="NVIDIA RTX A6000 (48 GB), PCIe 4.0 x16, Intel Core i5-10210U; vLLM 0.2.4, CUDA 12.1",
        model="Qwen2.5-0.5B",
        costs=TableCosts(
            # Preparing a swap is part of saving.
            swap_out=[(tokens, (out_ms + prep_ms) / 1e3) for tokens, out_ms, prep_ms, _, _ in _PAPERS_ROWS],
            swap_in=[(tokens, in_ms / 1e3) for tokens, _, _, in_ms, _ in _PAPERS_ROWS],
            recompute=[(tokens, recompute_ms / 1e3) for tokens, *_, recompute_ms in _PAPERS_ROWS],
            bytes_per_token=_PAPERS_BYTES_PER_TOKEN,
            decode=_ASSUMED_DECODE.scaled(decode_scale),
        ),
        bytes_per_token=_PAPERS_BYTES_PER_TOKEN,
        swap_is_synchronous=True,
        # vLLM 0.2.4: 256 sequences, prompts whole (as many tokens as the pool of 512 blocks has), no prefix caching.
        limits=EngineLimits(max_num_seqs=256, max_num_batched_tokens=8192, enable_prefix_caching=False),
        published=(
            "swap out, swap preparation, swap in and recompute at 512 to 8,192 tokens; straight lines between (Kong, "
            "Jang, Kim, Kim: CPS: Cross-Point Scheduling for Dynamic KV Cache Recovery in LLM Serving, table 2)"
        ),
        assumed=(
            "decode steps: 4.3 ms a step (recompute continued to no tokens), 0.02 ms a sequence, 16 ns a token of "
            "context (12 KiB at 768 GB/s); KV of 12 KiB a token (24 layers, 2 heads of 64, 16 bits); outside the table "
            f"its first and last lines{scaled}; what several prompts in one step cost (as one prompt of their tokens); "
            "the limits of the engine, which are those that vLLM 0.2.4 has by default"
        ),
    )


def read_profile(path: str | Path) -> HardwareProfile:
    """A profile that `quire calibrate` wrote: a cost model, the KV bytes of a token, and the machine's description.

    Raises:
        ValueError: the file cannot be read, or something in it is missing or wrong.
    """
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"cannot read the profile {path}: {reason}") from None
    except ValueError as error:
        raise ValueError(f"the profile {path} is not JSON: {error}") from None
    if not isinstance(data, dict) or "cost_model" not in data:
        raise ValueError(f"{path} is no profile: expected a JSON object with cost_model, as quire calibrate writes it")
    bytes_per_token = data.get("bytes_per_token")
    if not isinstance(bytes_per_token, int) or isinstance(bytes_per_token, bool) or bytes_per_token < 1:
        raise ValueError(f"{path}: bytes_per_token is {bytes_per_token!r}, expected the KV bytes of a token")
    try:
        model = CostModel.from_dict(data["cost_model"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        limits = EngineLimits(**(data.get("limits") or {}))
    except TypeError:
        known = ", ".join(field.name for field in fields(EngineLimits))
        raise ValueError(f"{path}: limits is {data['limits']!r}, expected an object with {known}") from None
    machine, longest = data.get("machine"), data.get("max_tokens")
    if isinstance(machine, dict):
        machine = machine.get("gpu") or machine.get("cpu")
    if not model.is_calibrated:
        assumed = "much: the profile rests on too few steps or transfers to be called measured"
    else:
        assumed = (
            f"what requests of more than {longest:,} tokens cost (extrapolated)" if isinstance(longest, int) else ""
        )
    return HardwareProfile(
        name=str(path),
        hardware=str(machine or "a machine that the file does not name"),
        model=str(data.get("model") or "a model that the file does not name"),
        costs=model,
        bytes_per_token=bytes_per_token,
        has_disk=model.links["disk"].is_calibrated,
        limits=limits,
        measured=_describe_measured(model),
        assumed=assumed,
    )


def _describe_measured(model: CostModel) -> str:
    parts = ["steps, saves and loads"] * model.is_calibrated + ["the disk"] * model.links["disk"].is_calibrated
    return ", and ".join(parts)


def find_profile(name: str, *, decode_scale: float = 1.0, swap_is_synchronous: bool | None = None) -> HardwareProfile:
    """By name, or from a file.

    Args:
        decode_scale: see `cps_paper`.
        swap_is_synchronous: another engine's way than the profile's own.

    Raises:
        ValueError: there is none, or it has no assumed decode costs to scale.
    """
    if name == PAPER:
        found = cps_paper(decode_scale)
    elif decode_scale != 1:
        raise ValueError(
            f"decode_scale={decode_scale:g}: the decode steps of {name} are measured; scale those of {PAPER}"
        )
    else:
        found = read_profile(name)
    return found if swap_is_synchronous is None else replace(found, swap_is_synchronous=swap_is_synchronous)
