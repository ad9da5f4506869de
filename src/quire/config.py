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


@dataclass(frozen=True)
class EngineConfig:
    """One engine: a model, its KV pool and its limits. Every field is an option of the same name on the command line."""

    model: str = field(metadata={"help": "A directory, a hub id, an embedded name or a preset such as random:qwen2.5-0.5b."})
    dtype: str = field(default="auto", metadata={"help": "Weights and arithmetic: auto (the checkpoint's), float32, bfloat16, float16."})
    device: str = field(default="auto", metadata={"help": "auto (cuda if there is one), cpu or cuda."})
    load_format: str = field(default="auto", metadata={"help": "auto or safetensors (read the files), random (seeded weights of the same shapes)."})
    block_size: int = field(default=16, metadata={"help": "Tokens a KV block holds."})
    num_kv_blocks: int | None = field(default=None, metadata={"help": "Exactly this many KV blocks (for experiments with preemption)."})
    kv_cache_memory: int | None = field(default=None, metadata={"help": "Memory for the KV pool, such as 4GiB; by default a share of what is free."})
    max_num_seqs: int = field(default=64, metadata={"help": "At most so many sequences run at once."})
    max_num_batched_tokens: int = field(default=512, metadata={"help": "Token budget of one step."})
    max_model_len: int | None = field(default=None, metadata={"help": "Longest sequence, prompt and output; by default the model's own, capped to the pool."})
    enable_prefix_caching: bool = field(default=True, metadata={"help": "Find blocks that earlier requests computed."})
    seed: int = field(default=0, metadata={"help": "Seed of requests that bring none, and of random weights."})
    skip_tokenizer_init: bool = field(default=False, metadata={"help": "Token ids in, token ids out; no tokenizer is read."})
    watermark: float = field(default=0.01, metadata={"help": "Share of the pool that admission leaves free for running requests to grow."})
    pin_prefix: str | None = field(default=None, metadata={"help": "File whose text is computed at start and whose blocks are kept."})
    num_threads: int | None = field(default=None, metadata={"help": "CPU threads for tensor work; by default one a core."})
    use_tqdm: bool = field(default=True, metadata={"help": "Show a progress bar while loading."})

    def __post_init__(self) -> None:
        if isinstance(self.kv_cache_memory, str):
            object.__setattr__(self, "kv_cache_memory", parse_size(self.kv_cache_memory))
        if not self.model:
            raise ValueError("model is empty; name a directory, a hub id or a preset such as random:qwen2.5-0.5b")
        for name, allowed in (("dtype", DTYPES), ("device", DEVICES), ("load_format", LOAD_FORMATS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {', '.join(allowed)}")
        for name in ("block_size", "num_kv_blocks", "kv_cache_memory", "max_num_seqs", "max_num_batched_tokens",
                     "max_model_len", "num_threads"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark={self.watermark} must be a share of the pool, 0 <= watermark < 1")
        if self.num_kv_blocks is not None and self.kv_cache_memory is not None:
            raise ValueError("num_kv_blocks and kv_cache_memory both size the pool; give one of them")

    @classmethod
    def from_env(cls, **given: Any) -> EngineConfig:
        """The config with ``QUIRE_<NAME>`` from the environment under what is given explicitly (None counts as not given)."""
        values: dict[str, Any] = {}
        for f in fields(cls):
            raw = os.environ.get(f"QUIRE_{f.name.upper()}")
            if raw is not None:
                values[f.name] = _from_text(f.name, str(f.type), raw)
        values.update({name: value for name, value in given.items() if value is not None})
        return cls(**values)


def _from_text(name: str, type_name: str, raw: str) -> Any:
    if name == "kv_cache_memory":
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

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.max_model_len > self.num_blocks * self.block_size:
            raise ValueError(
                f"max_model_len={self.max_model_len} does not fit in {self.num_blocks} blocks of {self.block_size} tokens; "
                f"lower max_model_len to {self.num_blocks * self.block_size} or enlarge the pool"
            )
