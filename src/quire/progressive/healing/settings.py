"""What the training of an adapter may be asked: the options of `quire stages heal`.

Imports nothing but how settings are defined, since the command line reads this file before it answers `--help`.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.settings import Settings, names, setting


@dataclass(frozen=True)
class HealSettings(Settings):
    """How an adapter is trained. All of it but `num_threads` decides what comes out."""

    rank: int = setting(16, "Rank of the adapter.", at_least=1)
    alpha: int = setting(32, "What the adapter adds is multiplied by alpha / rank.", at_least=1)
    targets: tuple[str, ...] | None = setting(
        None, "Linear layers that get an adapter, such as q_proj,v_proj; by default all.", read=names, metavar="NAMES"
    )
    steps: int = setting(400, "Steps of the optimizer.", at_least=1)
    batch_size: int = setting(8, "Rows a step: texts, or passages with up to eight questions each.", at_least=1)
    learning_rate: float = setting(3e-4, "The highest; it rises over the first steps and falls as a cosine.", above=0)
    max_length: int = setting(512, "Tokens of a piece of text; passages with questions are not cut.", at_least=2)
    seed: int = setting(0, "Of the adapter's beginning, of the order of the data, and of text to generate.")
    num_threads: int | None = setting(None, "CPU threads; by default one a core.", at_least=1)
