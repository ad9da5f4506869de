"""Where the time of a step goes on a CPU."""

from __future__ import annotations

from benchmarks.profile.profile import ProfileSettings, run
from benchmarks.script import start
from quire.cli.options import Json, options
from quire.config import EngineConfig


@options(without=("device", "max_num_seqs", "max_model_len", "num_kv_blocks", "kv_cache_memory"))
def main(engine: EngineConfig, settings: ProfileSettings, json: Json = None) -> None:
    """Time of a step on a CPU, part by part, each against the machine's limit."""
    run(engine, settings, json)


if __name__ == "__main__":
    start(main)
