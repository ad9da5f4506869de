"""Machines for the simulator: costs of steps and transfers, published or measured, and their sources."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs
from quire.simulate.disk_costs import CODED_SHARES, LATENCY_S, WithDisk
from quire.simulate.table_costs import DecodeCosts, TableCosts

PAPER = "cps-paper"
#: Table 2 of the paper: tokens; swap out, swap preparation, swap in and recompute in milliseconds.
_PAPERS_ROWS = (
    (512, 3.236, 0.034, 3.366, 8.30),
    (1024, 6.257, 0.050, 6.379, 12.30),
    (2048, 17.795, 0.084, 18.411, 22.73),
    (4096, 34.632, 0.151, 36.658, 42.90),
    (8192, 68.939, 0.281, 72.574, 97.60),
)
_PAPERS_BYTES_PER_TOKEN = 12_288
# A step without prefill: the recompute latency extrapolated to no tokens from the first two rows. A context token:
# 12 KiB read at 768 GB/s. A sequence: sampling and launches, a guess.
_ASSUMED_DECODE = DecodeCosts(step=4.3e-3, sequence=2e-5, context_token=1.6e-8)


@dataclass(frozen=True)
class EngineLimits:
    """Default limits of a profile, from the engine it was measured on."""

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    enable_prefix_caching: bool = True


@dataclass(frozen=True)
class HardwareProfile:
    """One machine and model."""

    name: str
    hardware: str
    model: str
    costs: Costs
    bytes_per_token: int  #: KV size
    kv_dtype: str = ""  #: empty if not known
    state_bytes: int = 0  #: recurrent state of a sequence, beside its KV
    swap_is_synchronous: bool = False  #: copies stop the engine instead of running beside it
    has_disk: bool = False  #: includes costs of a disk tier
    limits: EngineLimits = EngineLimits()
    published: str = ""  #: description of the published figures
    measured: str = ""  #: description of the measured figures
    assumed: str = ""  #: description of the other figures

    def sources(self) -> list[str]:
        """Sentences about the sources of all figures."""
        how = "stops the engine" if self.swap_is_synchronous else "goes on beside the steps"
        parts = (("Published", self.published), ("Measured", self.measured), ("Assumed", self.assumed))
        return [
            f"{self.name}: {self.model} on {self.hardware}.",
            *(f"{heading}: {text}." for heading, text in parts if text),
            f"Swapping {how}.",
        ]


def with_disk(profile: HardwareProfile, bytes_per_s: float, latency_s: float = LATENCY_S) -> HardwareProfile:
    """Replace the disk of a profile by one of a given speed. Raises ValueError as `WithDisk`."""
    costs = WithDisk(profile.costs, bytes_per_s, latency_s, profile.kv_dtype)
    return replace(profile, costs=costs, has_disk=True)


def cps_paper(decode_scale: float = 1.0) -> HardwareProfile:
    """The CPS paper's machine, by its table 2. `decode_scale` scales decode steps, which the paper does not give."""
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
        kv_dtype="bfloat16",
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
    """Read a profile written by `quire calibrate`. ValueError if the file or a field is missing or wrong."""
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
    state_bytes = data.get("state_bytes", 0)
    if not isinstance(state_bytes, int) or state_bytes < 0:
        raise ValueError(f"{path}: state_bytes is {state_bytes!r}, expected the bytes of a sequence's recurrent state")
    try:
        model = CostModel.from_dict(data["cost_model"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        limits = EngineLimits(**(data.get("limits") or {}))
    except TypeError:
        known = ", ".join(field.name for field in fields(EngineLimits))
        raise ValueError(f"{path}: limits is {data['limits']!r}, expected an object with {known}") from None
    kv_dtype, machine, longest = str(data.get("kv_dtype", "")), data.get("machine"), data.get("max_tokens")
    if model.pays_to_code:
        model.stored_share = CODED_SHARES.get(kv_dtype, 1.0)
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
        hardware=str(machine or "an unnamed machine"),
        model=str(data.get("model") or "an unnamed model"),
        costs=model,
        bytes_per_token=bytes_per_token,
        kv_dtype=kv_dtype,
        state_bytes=state_bytes,
        has_disk=model.links["disk"].is_calibrated,
        limits=limits,
        measured=", and ".join(
            ["steps, saves and loads"] * model.is_calibrated + ["the disk"] * model.links["disk"].is_calibrated
        ),
        assumed=assumed,
    )


def find_profile(name: str, *, decode_scale: float = 1.0, swap_is_synchronous: bool | None = None) -> HardwareProfile:
    """Find `cps-paper` or a profile's file. `swap_is_synchronous` replaces the profile's own value. Raises ValueError
    if there is no such profile, or its decode costs are measured and cannot be scaled."""
    if name == PAPER:
        found = cps_paper(decode_scale)
    elif decode_scale != 1:
        raise ValueError(
            f"decode_scale={decode_scale:g}: the decode steps of {name} are measured; scale those of {PAPER}"
        )
    else:
        found = read_profile(name)
    return found if swap_is_synchronous is None else replace(found, swap_is_synchronous=swap_is_synchronous)
