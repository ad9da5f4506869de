"""Start an engine: reading begins before the engine's modules are imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.config import EngineConfig

if TYPE_CHECKING:
    from quire.engine.engine import Engine


def start_engine(config: EngineConfig, *, memory_share: float) -> Engine:
    """As `assembly.start_engine`, but reading the checkpoint begins before the imports. The engine takes `memory_share`
    of the device's free memory."""
    if config.tensor_parallel_size > 1:
        return _start_on_ranks(config, memory_share)
    from quire.loading.reading.checkpoint_reading import begin_reading

    reading = begin_reading(
        config.model, load_format=config.load_format, bandwidth=config.storage_bandwidth, last_stage=config.last_stage
    )
    from quire.assembly import start_engine

    return start_engine(config, memory_share=memory_share, reading=reading, is_progressive=True)


def _start_on_ranks(config: EngineConfig, memory_share: float) -> Engine:
    """Start the other ranks' processes first, so that they import in parallel."""
    from quire.runner.ranks.process import start_rank_processes

    processes = start_rank_processes(config.tensor_parallel_size)
    from quire.assembly import start_engine

    return start_engine(config, memory_share=memory_share, is_progressive=True, processes=processes)
