"""One simulated run of the CPS paper's mix, as a task for `benchmarks.parallel_runs`."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.parallel_runs import Note
from quire.config import SchedulerConfig
from quire.simulate.hardware import HardwareProfile
from quire.simulate.loads import arrive, draw_chat, draw_short_long
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulate_settings import CHAT, SHORT_LONG
from quire.simulate.simulation import SimulationFigures, simulate

BLOCK_SIZE = 16
LONGEST = 2048  #: tokens of a request in the mix
VLLM = "vllm-0.2.4"
_DRAW = {SHORT_LONG: draw_short_long, CHAT: draw_chat}


@dataclass(frozen=True)
class Run:
    """One load on one machine under one policy."""

    machine: HardwareProfile
    engine: str
    policy: str
    num_blocks: int
    rate: float | None  #: requests per second; None: all at once
    seed: int
    lengths: str = CHAT
    num_requests: int = 200


def play(run: Run, note: Note) -> SimulationFigures:
    load = _DRAW[run.lengths](run.num_requests, run.seed)
    if run.rate is not None:
        load = arrive(load, run.rate, run.seed)
    limits = run.machine.limits
    config = SchedulerConfig(
        num_blocks=run.num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=LONGEST,
        enable_prefix_caching=limits.enable_prefix_caching,
        num_swap_slots=2**30 // (run.machine.bytes_per_token * BLOCK_SIZE) * 4,
        block_bytes=run.machine.bytes_per_token * BLOCK_SIZE,
    )
    found = simulate(load, run.machine, config, make_compared_policy(run.policy), engine=run.engine)
    note(1)
    return found
