"""Options of `quire simulate`. The command line reads this file before it answers `--help`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.bench.bench_settings import refuse_repeats
from quire.settings import Settings, check_unit, names, numbers, parse_size, setting, share_range

ENGINES = ("quire", "vllm-0.2.4")
SHORT_LONG, CHAT = "short-long", "chat"


def policies_setting() -> Any:
    """The setting of the recovery policies to compare."""
    help_text = "Recovery policies: recompute, swap, threshold:N, threshold:N:swap-above, cost."
    return setting("recompute,swap,threshold:1024,cost", help_text, read=names, metavar="POLICY[,POLICY...]")


@dataclass(frozen=True)
class SimulateSettings(Settings):
    """`quire simulate`."""

    profile: str = setting(
        "cps-paper", "A published machine, or a file that quire calibrate wrote.", metavar="cps-paper|FILE"
    )
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's format).")
    lengths: str | None = setting(
        None,
        "Draw the CPS paper's mix: lengths even (the default without --trace), or as in ShareGPT.",
        metavar="short-long|chat",
    )
    rate: float | None = setting(
        None, "Drawn requests per second (Poisson); by default all come at once.", above=0, below=math.inf
    )
    engine: str = setting("quire", "Scheduling discipline.", choices=ENGINES, metavar="|".join(ENGINES))
    policies: tuple[str, ...] = policies_setting()
    num_blocks: int = setting(512, "KV blocks of the pool.", at_least=1)
    block_size: int = setting(16, "Tokens a KV block holds.", at_least=1)
    swap_space: int = setting("4GiB", "Size of the swap tier; 0 disables it.", read=parse_size)
    max_num_seqs: int | None = setting(None, "Most running sequences; by default the profile's.", at_least=1)
    max_num_batched_tokens: int | None = setting(
        None, "Token budget of one step; by default the profile's.", at_least=1
    )
    max_model_len: int | None = setting(None, "Longest sequence; by default what the pool holds.", at_least=1)
    enable_prefix_caching: bool | None = setting(
        None, "Reuse cached blocks of preempted requests; by default the profile's."
    )
    watermark: float = setting(0.0, "Share of the pool that admission leaves free.", at_least=0, below=1)
    num_requests: int | None = setting(None, "Requests to draw (default: 200), or to take from a trace.", at_least=1)
    speed_up: float = setting(1.0, "Factor for the tempo of a trace.")
    seeds: int | None = setting(None, "Loads to draw (default: 20).", at_least=1)
    decode_scale: tuple[float, ...] = setting(
        "1", "Factors for the assumed decode steps, which the paper does not give.", read=numbers
    )
    prompt_share: tuple[float, float] = setting(
        "0.1-0.9", "Range of the prompt's share of a drawn request's tokens.", read=share_range
    )
    swap_is_synchronous: bool | None = setting(
        None, "Whether copying blocks stops the engine; by default the profile's."
    )
    enable_lookahead: bool = setting(True, "Load documents of waiting requests ahead.")
    documents: int | None = setting(
        None, "Number of documents; each request has one, drawn by Zipf's law (default: none).", at_least=1
    )
    document_tokens: int = setting(1024, "Tokens of each document, before a request's own prompt.", at_least=1)
    kv_dir_bandwidth: int | None = setting(
        None,
        "Compare with document KV on a disk of this bandwidth; by default on the profile's disk, if it was measured.",
        read=parse_size,
        at_least=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unit(swap_space=self.swap_space, kv_dir_bandwidth=self.kv_dir_bandwidth)
        refuse_repeats(self, "policies")
        refuse_repeats(self, "decode_scale")
        document_only = self.changed("document_tokens", "kv_dir_bandwidth")
        if self.documents is None and document_only:
            raise ValueError(f"--{document_only[0].replace('_', '-')} is for documents; give --documents N")
        if self.documents is not None and self.document_tokens < self.block_size:
            raise ValueError(
                f"document_tokens={self.document_tokens} is less than a block of {self.block_size}, and only whole "
                "blocks are shared; make documents longer or --block-size smaller"
            )
        if self.kv_dir_bandwidth is not None and self.enable_prefix_caching is False:
            raise ValueError("blocks on disk are found by prefix caching; leave out --no-enable-prefix-caching")
