"""What recovery is measured by: the options of `quire bench recovery`, `quire simulate` and `quire calibrate`.

Imports nothing but how settings are defined, as `bench/settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.bench.settings import parse_goodput, refuse_repeats, runs
from quire.settings import Settings, check_unit, integers, names, numbers, parse_size, setting, share_range

_POLICIES = "recompute,swap,threshold:1024,cost"
_POLICIES_HELP = "Of recompute, swap, threshold:N, threshold:N:swap-above and cost."


def _policies() -> Any:
    return setting(_POLICIES, _POLICIES_HELP, read=names, metavar="POLICY[,POLICY...]")


@dataclass(frozen=True)
class CalibrateSettings(Settings):
    """`quire calibrate`."""

    lengths: tuple[int, ...] | None = setting(
        None, "Tokens; by default 64, 96, 128, 192 and so on to max_model_len.", read=integers
    )
    repeats: int = setting(3, "Of every measurement, in turns.", at_least=1)


def _alternation(text: str) -> tuple[float, ...]:
    given = numbers(text)
    if len(given) != 2:
        raise ValueError(f"{text!r}: expected a factor and seconds, such as 10,5")
    return given


def _slow_phase(text: str) -> tuple[int, ...]:
    given = integers(text)
    if len(given) > 2 or list(given) != sorted(set(given)):
        raise ValueError(f"{text!r}: expected one number of preemptions, or two that grow, such as 100,200")
    return given


@dataclass(frozen=True)
class RecoverySettings(Settings):
    """`quire bench recovery`."""

    policies: tuple[str, ...] = _policies()
    mix: str = setting(
        "mixed", "Lengths; of shared, half of the requests begin with one prefix.", metavar="short|long|mixed|shared"
    )
    num_requests: int = setting(200, "All at once.", at_least=1)
    crossing_at: int | None = setting(
        None, "Find the --swap-bandwidth by which the modes cross there.", metavar="TOKENS", at_least=1
    )
    alternate_link: tuple[float, float] | None = setting(
        None,
        "Slow the link down by FACTOR, and speed it up again, every SECONDS.",
        read=_alternation,
        metavar="FACTOR,SECONDS",
        above=0,
    )
    slow_link_at: tuple[int, ...] | None = setting(
        None,
        "From this preemption on the link is ten times slower; until that one.",
        read=_slow_phase,
        metavar="N[,N]",
        at_least=0,
    )
    profile: Path | None = setting(None, "Costs that quire calibrate wrote; by default measured first.")
    forecast: bool = setting(False, "Simulate the same requests from the measured costs, and compare.", is_flag=True)
    record: Path | None = setting(
        None,
        "Write the first run of cost (without it, of the first policy) for quire simulate --recording. "
        "Prompts and answers are in it.",
    )
    repeats: int = setting(3, "Of measuring the costs.", at_least=1)
    seed: int = setting(0, "Of lengths and prompts.", name="load_seed")
    runs: int = runs()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_repeats(self, "policies")
        if self.forecast and (self.alternate_link or self.slow_link_at):
            raise ValueError(
                "--forecast simulates a link that stays as it is; leave out --alternate-link and --slow-link-at"
            )


@dataclass(frozen=True)
class SimulateSettings(Settings):
    """`quire simulate`."""

    profile: str = setting(
        "cps-paper", "A published machine, or a file that quire calibrate wrote.", metavar="cps-paper|FILE"
    )
    recording: Path | None = setting(
        None,
        "Play a run again that quire bench recovery --record wrote, and see that its schedule comes out; with "
        "--profile also simulate its requests, and compare.",
    )
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's form).")
    lengths: str | None = setting(
        None, "Draw the CPS paper's mix, all at once (the default without --trace).", metavar="short-long"
    )
    policies: tuple[str, ...] = _policies()
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
    replicas: tuple[int, ...] | None = setting(
        None,
        "Fleets of so many replicas behind the router of quire serve --ray, compared by routing policy, instead of "
        "recovery policies on one engine.",
        read=integers,
        at_least=1,
        metavar="N[,N...]",
    )
    routing: tuple[str, ...] = setting(
        "round-robin,least-loaded,prefix,slo",
        "With --replicas: of round-robin, least-loaded, prefix and slo.",
        read=names,
        metavar="POLICY[,POLICY...]",
    )
    slo: Mapping[str, float] = setting(
        "ttft:1000,tpot:50", "With --replicas: what requests are to keep, in ms.", read=parse_goodput, metavar="LIMITS"
    )
    conversations: float | None = setting(
        None,
        "With --replicas, instead of --trace: conversations of several turns, of which so many begin in a second.",
        above=0,
    )
    cold_start: tuple[float, ...] | None = setting(
        None,
        "With --replicas: their number follows the load from --min-replicas on; one serves after FIRST seconds, and "
        "all of its model is there after WHOLE.",
        read=numbers,
        at_least=0,
        metavar="FIRST[,WHOLE]",
    )
    first_stage_share: float = setting(
        0.75, "Of the whole model's steps, that the first stage's take.", above=0, at_most=1
    )
    min_replicas: int = setting(0, "With --cold-start: replicas that always stay.", at_least=0)
    target_requests: float = setting(16.0, "With --cold-start: requests that each replica is to have at once.", above=0)
    idle: float = setting(30.0, "With --cold-start: seconds after which a replica too many is given up.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unit(swap_space=self.swap_space, kv_dir_bandwidth=self.kv_dir_bandwidth)
        self._check_replicas()
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

    def _check_replicas(self) -> None:
        refuse_repeats(self, "routing")
        of_fleets = self.changed("routing", "slo", "conversations", "cold_start")
        of_scaling = self.changed("first_stage_share", "min_replicas", "target_requests", "idle")
        if self.replicas is None:
            if of_fleets or of_scaling:
                raise ValueError(f"--{(of_fleets + of_scaling)[0].replace('_', '-')} is for fleets; give --replicas N")
            return
        if self.cold_start is None and of_scaling:
            raise ValueError(
                f"--{of_scaling[0].replace('_', '-')} is for replicas that come and go; give --cold-start FIRST"
            )
        if self.cold_start is not None and len(self.cold_start) > 2:
            raise ValueError(f"--cold-start is FIRST or FIRST,WHOLE in seconds, got {len(self.cold_start)} numbers")
        if "e2el" in self.slo:
            raise ValueError("an SLO for routing is of ttft and tpot; nobody knows how long an answer will be")
        if self.changed("lengths", "documents", "decode_scale", "recording"):
            (other, *_) = self.changed("lengths", "documents", "decode_scale", "recording")
            raise ValueError(f"--{other.replace('_', '-')} is for one engine, and not beside --replicas")
        if self.trace is not None and self.conversations is not None:
            raise ValueError("--trace and --conversations both say what is asked; give one of them")
