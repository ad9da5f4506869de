"""Starts an engine in a process that has imported little yet. Importing this brings no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.config import EngineConfig

if TYPE_CHECKING:
    from quire.engine.engine import Engine


def start_engine(config: EngineConfig, *, memory_share: float) -> Engine:
    """As `build.start_engine`, which brings torch; before that is there, reading begins.

    Args:
        memory_share: of the device's free memory, that this engine may take.
    """
    if config.tensor_parallel_size > 1:
        return _start_on_ranks(config, memory_share)
    from quire.loading.reading.checkpoint_reading import begin_reading

    reading = begin_reading(
        config.model, load_format=config.load_format, bandwidth=config.storage_bandwidth, last_stage=config.last_stage
    )
    from quire.assembly import start_engine

    return start_engine(config, memory_share=memory_share, reading=reading, is_progressive=True)


def _start_on_ranks(config: EngineConfig, memory_share: float) -> Engine:
    """Likewise, where several processes hold the model: they import while this one does. What each of them reads is
    known when torch is there."""
    from quire.runner.ranks.process import start_rank_processes

    processes = start_rank_processes(config.tensor_parallel_size)
    from quire.assembly import start_engine

    return start_engine(config, memory_share=memory_share, is_progressive=True, processes=processes)
