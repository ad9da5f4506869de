"""What recovery is measured by: the options of `quire bench recovery`, `quire simulate` and `quire calibrate`.

Imports nothing but how settings are defined, as `bench/settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.bench.bench_settings import refuse_repeats
from quire.settings import Settings, check_unit, names, numbers, parse_size, setting, share_range

_POLICIES = "recompute,swap,threshold:1024,cost"
_POLICIES_HELP = "Of recompute, swap, threshold:N, threshold:N:swap-above and cost."


def policies_setting() -> Any:
    """Setting: recovery policies to compare."""
    return setting(_POLICIES, _POLICIES_HELP, read=names, metavar="POLICY[,POLICY...]")


@dataclass(frozen=True)
class SimulateSettings(Settings):
    """`quire simulate`."""

    profile: str = setting(
        "cps-paper", "A published machine, or a file that quire calibrate wrote.", metavar="cps-paper|FILE"
    )
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's form).")
    lengths: str | None = setting(
        None, "Draw the CPS paper's mix, all at once (the default without --trace).", metavar="short-long"
    )
    policies: tuple[str, ...] = policies_setting()
    num_blocks: int = setting(512, "KV blocks of the pool.", at_least=1)
    block_size: int = setting(16, "Tokens a KV block holds.", at_least=1)
    swap_space: int = setting("4GiB", "Of the swap tier; 0 is none.", read=parse_size)
    max_num_seqs: int | None = setting(None, "Most sequences that run at once; by default the profile's.", at_least=1)
    max_num_batched_tokens: int | None = setting(
        None, "Token budget of one step; by default the profile's.", at_least=1
    )
    max_model_len: int | None = setting(None, "Longest sequence; by default what the pool holds.", at_least=1)
    enable_prefix_caching: bool | None = setting(
        None, "Find a preempted request's blocks again; by default the profile's."
    )
    watermark: float = setting(0.0, "Share of the pool that admission leaves free.", at_least=0, below=1)
    num_requests: int | None = setting(None, "Requests to draw (default: 200), or to take of a trace.", at_least=1)
    speed_up: float = setting(1.0, "A trace's requests come this many times as fast.")
    seeds: int | None = setting(None, "Loads to draw (default: 20).", at_least=1)
    decode_scale: tuple[float, ...] = setting(
        "1", "The paper gives no decode steps: multiply the assumed decode steps by this.", read=numbers
    )
    prompt_share: tuple[float, float] = setting(
        "0.1-0.9", "Of a drawn request's tokens, the prompt's; the rest is its answer.", read=share_range
    )
    swap_is_synchronous: bool | None = setting(
        None, "Whether the engine stands still while blocks are copied; by default the profile's."
    )
    enable_lookahead: bool = setting(True, "Load documents for requests that wait for their turn.")
    documents: int | None = setting(
        None, "Each request is about one of so many documents, drawn by Zipf's law; by default about none.", at_least=1
    )
    document_tokens: int = setting(1024, "Tokens of each document, before a request's own prompt.", at_least=1)
    kv_dir_bandwidth: int | None = setting(
        None,
        "Also keep documents' KV on a disk that moves so many bytes a second, and compare; by default on the profile's "
        "own disk, if one was measured.",
        read=parse_size,
        at_least=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unit(swap_space=self.swap_space, kv_dir_bandwidth=self.kv_dir_bandwidth)
        refuse_repeats(self, "policies")
        refuse_repeats(self, "decode_scale")
        of_documents = self.changed("document_tokens", "kv_dir_bandwidth")
        if self.documents is None and of_documents:
            raise ValueError(f"--{of_documents[0].replace('_', '-')} is for documents; give --documents N")
        if self.documents is not None and self.document_tokens < self.block_size:
            raise ValueError(
                f"document_tokens={self.document_tokens} is less than a block of {self.block_size}, and only whole "
                "blocks are shared; make documents longer or --block-size smaller"
            )
        if self.kv_dir_bandwidth is not None and self.enable_prefix_caching is False:
            raise ValueError("blocks on disk are found by prefix caching; leave out --no-enable-prefix-caching")
