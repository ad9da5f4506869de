"""Request lengths of the PagedAttention paper's data sets, as log-normal presets with the paper's means."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from quire.bench.workload import Lengths

MAX_MODEL_LEN = 2048  #: of OPT and LLaMA
_LONGEST_PROMPT = MAX_MODEL_LEN // 2


@dataclass(frozen=True)
class Preset:
    """Mean tokens of prompts and outputs, each with the spread of its logarithm; and a shared prefix."""

    prompt: float
    prompt_spread: float
    output: float
    output_spread: float
    prefix: int = 0  #: tokens before each prompt, the same for all requests
    source: str = ""


#: The paper gives means and histograms (Figure 11). Spreads are assumed. With 0.86, requests of ShareGPT fill the slots
#: of OPT-13B (15.7K) when 30 of them run, as in Figure 13.
PRESETS = {
    "sharegpt": Preset(161, 1.1, 338, 0.86, source="means: Figure 11; spreads: assumed"),
    "alpaca": Preset(19.3, 0.45, 58.5, 0.95, source="means: Figure 11; spreads: assumed"),
    "chatbot": Preset(1024, 0.0, 338, 0.7, source="histories: section 6.5; mean output: as ShareGPT; spread: assumed"),
    "wmt-1-shot": Preset(40, 0.5, 40, 0.5, prefix=80, source="prefix: section 6.4; sentences: assumed"),
    "wmt-5-shot": Preset(40, 0.5, 40, 0.5, prefix=341, source="prefix: section 6.4; sentences: assumed"),
}


def find_preset(name: str) -> Preset:
    """A preset by name. Raises ValueError if there is none."""
    if name not in PRESETS:
        raise ValueError(f"lengths={name!r} is not known; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def draw_lengths(name: str, count: int, seed: int = 0) -> Lengths:
    """Draw requests that fit into `MAX_MODEL_LEN`, with the prefix in their prompts, and arrivals of one request a
    second (Poisson). Raises ValueError as `find_preset`."""
    preset, rng = find_preset(name), random.Random(f"{name}, {seed}")
    prompts, outputs, arrivals, now = [], [], [], 0.0
    for _ in range(count):
        prompt = preset.prefix + min(_draw(rng, preset.prompt, preset.prompt_spread), _LONGEST_PROMPT)
        prompts.append(prompt)
        outputs.append(min(_draw(rng, preset.output, preset.output_spread), MAX_MODEL_LEN - prompt))
        arrivals.append(now)
        now += rng.expovariate(1.0)
    return Lengths(prompts, outputs, arrivals)


def _draw(rng: random.Random, mean: float, spread: float) -> int:
    return max(1, round(rng.lognormvariate(math.log(mean) - spread**2 / 2, spread)))
