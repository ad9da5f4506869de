"""First stages by layers and mantissa bits left out, and those that are best for their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from quire.loading.stage_manifest import WHOLE_BITS, missing_kv
from quire.models.base import CausalLM
from quire.models.linear.layer import WeightLayer
from quire.models.model_config import ModelConfig
from quire.models.stages import PassLayer
from quire.progressive.angular_distance import AngularDistances
from quire.progressive.plans import ModelBytes
from quire.progressive.precision import share_of_bytes, truncated

SHARES_OUT = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2)  #: of the layers

State = tuple[tuple[int, int] | None, int]  #: the block [start, end) left out, and mantissa bits


@dataclass(frozen=True)
class FirstStage:
    """A stage, its bytes by estimate, and its quality: the smaller the loss, the better."""

    block_out: tuple[int, int] | None
    mantissa_bits: int | None  #: of coded planes; None: plain files
    num_bytes: int
    loss: float

    @property
    def kind(self) -> str:
        """The axes that it uses."""
        if self.block_out is None:
            return "mantissa bits"
        return "layers" if self.mantissa_bits is None else "both"


def states_of(distances: AngularDistances, config: ModelConfig, has_planes: bool) -> list[State]:
    """Return the states to measure: the whole model and the best blocks of some sizes, each with 0 to 7 bits."""
    num_layers = config.num_layers
    sizes = sorted({max(1, round(share * num_layers)) for share in SHARES_OUT})
    blocks = [(best.start, best.end) for best in map(distances.best, sizes)]
    fitting = [block for block in blocks if missing_kv([_others(num_layers, block)], config) is None]
    bits = range(WHOLE_BITS + 1) if has_planes else (WHOLE_BITS,)
    return [(block, each) for block in (None, *fitting) for each in bits]


def _others(num_layers: int, block: tuple[int, int]) -> list[int]:
    return [layer for layer in range(num_layers) if not block[0] <= layer < block[1]]


@contextmanager
def reduced(model: CausalLM, state: State) -> Iterator[Sequence[Any]]:
    """Truncate the model's weights, and give its layers, with stand-ins for absent ones."""
    block, bits = state
    start, end = block or (0, 0)
    with truncated([module for module in model.modules() if isinstance(module, WeightLayer)], bits):
        yield [PassLayer() if start <= index < end else layer for index, layer in enumerate(model.layers)]


def first_stages(
    model: CausalLM,
    states: Sequence[State],
    sizes: ModelBytes,
    dtype: str,
    loss: Callable[[Sequence[Any]], float],
    advance: Callable[[int], None] = lambda num_states: None,
) -> list[FirstStage]:
    """Measure the `loss` of each state, given its layers. Whole mantissas come in plain files, too."""
    found = []
    has_planes = any(bits < WHOLE_BITS for _, bits in states)
    for block, bits in states:
        with reduced(model, (block, bits)) as layers:
            value = loss(layers)
        num_bytes = sizes.without(*(block or (0, 0)))
        if has_planes:
            found.append(FirstStage(block, bits, int(share_of_bytes(dtype, bits) * num_bytes), value))
        if bits == WHOLE_BITS and block is not None:
            found.append(FirstStage(block, None, num_bytes, value))
        advance(1)
    return found


def frontier(stages: Sequence[FirstStage]) -> list[FirstStage]:
    """Return the stages that no other one beats in bytes and loss, smallest first."""
    best: list[FirstStage] = []
    for stage in sorted(stages, key=lambda stage: (stage.num_bytes, stage.loss)):
        if not best or stage.loss < best[-1].loss:
            best.append(stage)
    return best
