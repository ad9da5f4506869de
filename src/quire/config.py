"""What an operator may choose about an engine, as frozen dataclasses.

Knows names, defaults and ranges; knows nothing about torch, files or models.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from typing import Any

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "cuda")
LOAD_FORMATS = ("auto", "safetensors", "random")
SIZES = ("kv_cache_memory", "swap_space", "swap_bandwidth")  #: fields of `EngineConfig` that may be text such as 4GiB
_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter] = _UNITS[_letter + "ib"] = 1024**_power
    _UNITS[_letter + "b"] = 1000**_power


def parse_size(text: str | int) -> int:
    """Bytes from a number or text such as ``4GiB``, ``500MB`` or ``2g`` (binary unless it ends in B without an i).

    Raises:
        ValueError: the text is not a size.
    """
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is not a size; write bytes or a unit, such as 4GiB or 512MiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def format_size(num_bytes: float) -> str:
    """A size for people, in binary units: ``988.1 MiB``."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def _option(*default_and_help: Any) -> Any:
    """A field with the sentence that the command line's help shows; without a default it must be given."""
    *default, text = default_and_help
    metadata = {"help": text}
    return field(default=default[0], metadata=metadata) if default else field(metadata=metadata)


@dataclass(frozen=True)
class EngineConfig:
    """One engine: a model, its KV pool and its limits.

    Every field is an option of the same name on the command line, and QUIRE_<NAME> in the environment.
    """

    model: str = _option("A directory, a hub id, an embedded name or a preset such as random:qwen2.5-0.5b.")
    dtype: str = _option("auto", "Weights and arithmetic: auto (the checkpoint's), float32, bfloat16, float16.")
    device: str = _option("auto", "auto (cuda if there is one), cpu or cuda.")
    load_format: str = _option(
        "auto", "auto or safetensors (read the files), random (seeded weights of the same shapes)."
    )
    block_size: int = _option(16, "Tokens a KV block holds.")
    num_kv_blocks: int | None = _option(None, "Exactly this many KV blocks (for experiments with preemption).")
    kv_cache_memory: int | None = _option(
        None, "Memory for the KV pool, such as 4GiB; by default a share of what is free."
    )
    max_num_seqs: int = _option(64, "At most so many sequences run at once.")
    max_num_batched_tokens: int = _option(512, "Token budget of one step.")
    max_model_len: int | None = _option(
        None, "Longest sequence, prompt and output; by default the model's own, capped to the pool."
    )
    enable_prefix_caching: bool = _option(True, "Find blocks that earlier requests computed.")
    seed: int = _option(0, "Seed of requests that bring none, and of random weights.")
    skip_tokenizer_init: bool = _option(False, "Token ids in, token ids out; no tokenizer is read.")
    watermark: float = _option(0.01, "Share of the pool that admission leaves free for running requests to grow.")
    pin_prefix: str | None = _option(None, "File whose text is computed at start and whose blocks are kept.")
    num_threads: int | None = _option(None, "CPU threads for tensor work; by default one a core.")
    use_tqdm: bool = _option(True, "Show a progress bar while loading.")
    recovery_policy: str = _option(
        "cost", "How a preempted request comes back: recompute, swap, threshold:N, threshold:N:swap-above or cost."
    )
    swap_space: int | None = _option(
        None,
        "Most that swapped blocks take, such as 4GiB; 0 is no swap tier. By default 4GiB with swap_dir or on cuda.",
    )
    swap_dir: str | None = _option(None, "Swap to a file of this process in this directory, and not to host memory.")
    swap_bandwidth: int | None = _option(None, "Swap at most so many bytes a second, such as 200MB.")

    def __post_init__(self) -> None:
        for name in SIZES:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, parse_size(value))
        if not self.model:
            raise ValueError(
                "model is empty; name a directory, a hub id, an embedded model (quire-mini) or a preset "
                "(random:qwen2.5-0.5b)"
            )
        for name, allowed in (("dtype", DTYPES), ("device", DEVICES), ("load_format", LOAD_FORMATS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {', '.join(allowed)}")
        for name in ("block_size", "num_kv_blocks", "kv_cache_memory", "max_num_seqs", "max_num_batched_tokens",
                     "max_model_len", "num_threads", "swap_bandwidth"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark={self.watermark} must be a share of the pool, 0 <= watermark < 1")
        if self.num_kv_blocks is not None and self.kv_cache_memory is not None:
            raise ValueError("num_kv_blocks and kv_cache_memory both size the pool; give one of them")
        if self.swap_space is not None and self.swap_space < 0:
            raise ValueError(f"swap_space={self.swap_space} must be at least 0, which is no swap tier")
        if self.swap_dir == "":
            raise ValueError("swap_dir is empty; name a directory, or leave it out")
        if self.swap_dir is not None and self.swap_space == 0:
            raise ValueError("swap_dir is a place for a swap tier, and swap_space=0 wants none; leave one of them out")
        self.has_swap_tier(self.device)

    def has_swap_tier(self, device: str) -> bool:
        """Whether there is a place for swapped blocks: wherever one is asked for, and by default in a GPU's host. On a
        CPU that memory is better in the pool.

        Args:
            device: cpu or cuda; auto may be either.

        Raises:
            ValueError: there is none, and another option is about it.
        """
        if self.swap_space is not None:
            has_one = self.swap_space > 0
        else:
            has_one = self.swap_dir is not None or device != "cpu"
        if self.swap_bandwidth and not has_one:
            raise ValueError("swap_bandwidth is about a swap tier, and there is none; give swap_dir or swap_space")
        return has_one

    @classmethod
    def from_env(cls, **given: Any) -> EngineConfig:
        """The config with ``QUIRE_<NAME>`` from the environment, under what is given explicitly (None is not given)."""
        values: dict[str, Any] = {}
        for f in fields(cls):
            raw = os.environ.get(f"QUIRE_{f.name.upper()}")
            if raw is not None:
                values[f.name] = _from_text(f.name, str(f.type), raw)
        values.update({name: value for name, value in given.items() if value is not None})
        return cls(**values)


def _from_text(name: str, type_name: str, raw: str) -> Any:
    if name in SIZES:
        return parse_size(raw)
    if type_name.startswith("bool"):
        if raw.lower() not in ("0", "1", "true", "false", "yes", "no"):
            raise ValueError(f"QUIRE_{name.upper()}={raw!r} is not a yes or no; write 1 or 0")
        return raw.lower() in ("1", "true", "yes")
    if type_name.startswith(("int", "float")):
        try:
            return int(raw) if type_name.startswith("int") else float(raw)
        except ValueError:
            raise ValueError(f"QUIRE_{name.upper()}={raw!r} is not a number") from None
    return raw


@dataclass(frozen=True)
class SchedulerConfig:
    """The numbers that scheduling needs, once the model and the pool are known."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_model_len: int = 2048
    enable_prefix_caching: bool = True
    watermark_blocks: int = 0
    num_swap_slots: int = 0  #: blocks that the swap tier holds; 0 is no tier
    block_bytes: int = 0  #: of one block, for predicting what moving it costs

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.max_model_len > self.num_blocks * self.block_size:
            raise ValueError(
                f"max_model_len={self.max_model_len} does not fit in {self.num_blocks} blocks of {self.block_size} "
                f"tokens; lower max_model_len to {self.num_blocks * self.block_size} or enlarge the pool"
            )
