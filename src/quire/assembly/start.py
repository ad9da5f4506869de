"""Start an engine from its config: load the model, on one rank or several, and make the engine over it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from quire.assembly.engine import make_engine
from quire.assembly.model import StartupTimer, load
from quire.assembly.rank import ModelRank, RankOptions, check_ranks
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.outputs import Stats
from quire.runner.ranks.group import FileRendezvous, Rendezvous
from quire.runner.ranks.interface import RankHandle, RankLost
from quire.runner.ranks.process import RankProcess, start_rank_processes

logger = logging.getLogger("quire")

_CAUSE_S = 1.0  # time for a lost rank to report its error


def start_engine(
    config: EngineConfig,
    *,
    memory_share: float = 1.0,
    reading: CheckpointReading | None = None,
    is_progressive: bool = False,
    processes: Sequence[RankProcess] = (),
) -> Engine:
    """Load the model and return an engine that is ready for requests.

    Unless the options set its size, the KV pool takes `memory_share` of the free memory. See `load` for `reading` and
    `is_progressive`; `processes` are other ranks that run already. Raises ValueError for an unsupported model, file or
    combination of options, and RuntimeError if a rank ended.
    """
    start = StartupTimer()
    start.end("imports")
    if config.tensor_parallel_size > 1:
        options = RankOptions(memory_share, config.tensor_parallel_size, is_progressive)
        return _start_on_processes(config, processes, options, reading, start)
    loaded = load(config, reading=reading, start=start, is_progressive=is_progressive)
    engine = make_engine(config, loaded, memory_share=memory_share)
    _log_start(engine, start)
    return engine


def _start_on_processes(
    config: EngineConfig,
    processes: Sequence[RankProcess],
    options: RankOptions,
    reading: CheckpointReading | None,
    start: StartupTimer,
) -> Engine:
    """Start an engine whose ranks are processes of this machine; this process is the first."""
    size = config.tensor_parallel_size
    try:
        check_ranks(config)
        processes = processes or start_rank_processes(size)
        directory = tempfile.TemporaryDirectory(prefix="quire-ranks-")  # accessible to this user only
        rendezvous = FileRendezvous(str(Path(directory.name) / "meeting"))
        for rank, process in enumerate(processes, start=1):
            process.build(partial(ModelRank, config, rank, size, rendezvous, options))
        engine = start_on_ranks(config, processes, rendezvous, options, reading=reading, start=start)
    except BaseException:
        for process in processes:
            process.end()
        raise
    if config.load_overlap or engine.promoter is not None:  # the loaders have yet to meet
        engine.on_close.append(directory.cleanup)
    else:
        directory.cleanup()
    return engine


def start_on_ranks(
    config: EngineConfig,
    others: Sequence[RankHandle],
    rendezvous: Rendezvous,
    options: RankOptions,
    *,
    reading: CheckpointReading | None = None,
    start: StartupTimer | None = None,
) -> Engine:
    """Start an engine over ranks on any machines that meet at `rendezvous`; raises as `start_engine`. The first rank is
    created here; each of the others builds a `ModelRank`."""
    size, start = 1 + len(others), start or StartupTimer()

    def check() -> None:
        for rank in others:
            if (why := rank.why_lost()) is not None:
                raise RankLost(why)

    try:
        first = ModelRank(config, 0, size, rendezvous, options, check=check, reading=reading, start=start)
        for rank in others:
            rank.wait_built(None)
        engine = make_engine(first.config, first.loaded, built=first.built, others=others)
    except Exception as error:
        raise _cause(error, others) from error
    _log_start(engine, start)
    return engine


def _cause(error: Exception, others: Sequence[RankHandle]) -> Exception:
    """Return the error of the rank that failed first; the first rank sees only that others ended."""
    if isinstance(error, ValueError):
        return error
    for number, rank in enumerate(others, start=1):
        try:
            rank.wait_built(_CAUSE_S)
        except (RankLost, TimeoutError):
            continue
        except Exception as reported:
            kind = ValueError if isinstance(reported, ValueError) else RuntimeError
            return kind(f"rank {number} of {1 + len(others)}: {reported}")
    return RuntimeError(str(error))


def _log_start(engine: Engine, start: StartupTimer) -> None:
    start.end("pool")

    def log(stats: Stats) -> None:
        if stats.num_scheduled_tokens and log in engine.on_stats:
            engine.on_stats.remove(log)
            start.add("first step", stats.schedule_s + stats.execute_s)
            logger.info("%s", start)

    engine.on_stats.append(log)
