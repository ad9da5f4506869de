"""The options of `quire stages heal`. The command line imports this file for `--help`, so it imports little."""

from __future__ import annotations

from dataclasses import dataclass

from quire.settings import Settings, names, setting


@dataclass(frozen=True)
class HealSettings(Settings):
    """Training options. All but `num_threads` determine the result."""

    rank: int = setting(16, "Rank of the adapter.", at_least=1)
    alpha: int = setting(32, "The adapter's output is scaled by alpha / rank.", at_least=1)
    targets: tuple[str, ...] | None = setting(
        None, "Linear layers that get an adapter, such as q_proj,v_proj; by default all.", read=names, metavar="NAMES"
    )
    steps: int = setting(400, "Optimizer steps.", at_least=1)
    batch_size: int = setting(8, "Rows per step: texts, or passages with up to eight questions each.", at_least=1)
    learning_rate: float = setting(3e-4, "Peak of a schedule with linear warm-up and cosine decay.", above=0)
    max_length: int = setting(512, "Tokens per piece of text; passages with questions are not cut.", at_least=2)
    seed: int = setting(0, "Seed of the adapter's initialization, the order of the data, and generated texts.")
    num_threads: int | None = setting(None, "CPU threads; by default one per core.", at_least=1)
