"""Encodings of weights in GGUF files and in quantized safetensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

#: Values and bytes per block. A row is a whole number of blocks.
BLOCKS = {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "IQ4_NL": (32, 18),
    "MXFP4": (32, 17), "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176),
    "Q6_K": (256, 210), "IQ4_XS": (256, 136),
}  # fmt: skip
MAX_EXPONENT = 250  #: of MXFP4's scales: larger ones overflow float32
HEAD_PARTS = ("k_b", "v_b")  #: of a latent projection's weight in GGUF files
FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
#: By ggml's numbers.
BY_NUMBER = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 30: "BF16", 39: "MXFP4",
}  # fmt: skip


class Tiles(NamedTuple):
    """Rows of value heads that are stored in another order: the first head of each key head, then all second ones."""

    first: int  #: rows before them
    num_keys: int
    groups: int  #: value heads of a key head
    size: int  #: of a head

    def of(self, ranges: Sequence[tuple[int, int]]) -> tuple[Tiles, tuple[tuple[int, int], ...]]:
        """Return those of a rank with these ranges, of which the last is of value heads, and its ranges in the file."""
        *before, last = ranges
        start, end = ((at - self.first) // self.groups // self.size for at in last)
        tiles = (self.first + group * self.num_keys * self.size for group in range(self.groups))
        found = (*before, *((tile + start * self.size, tile + end * self.size) for tile in tiles))
        return self._replace(first=sum(end - start for start, end in before), num_keys=end - start), found

    def order(self) -> np.ndarray:
        """Return the index in the file of each row."""
        import numpy as np  # reading begins before

        heads = np.arange(self.num_keys * self.groups * self.size).reshape(self.groups, self.num_keys, self.size)
        return np.concatenate((np.arange(self.first), self.first + heads.swapaxes(0, 1).ravel()))


@dataclass(frozen=True)
class QuantizedWeights:
    """The encoding of linear layers in quantized safetensors."""

    method: str  #: awq, gptq, gptq_v2, pack-quantized, int-quantized, fp8 or mxfp4
    bits: int
    block: tuple[int, ...] = (1, 0)  #: outputs and inputs per scale; 0: all
    has_zeros: bool = False  #: zero points; without them, integers are signed
    is_ordered: bool = False  #: a tensor gives the group of each input
    scale_name: str = "weight_scale"
    ignored: tuple[str, ...] = ()  #: layers in floats: names, parts of names, or "re:" and a pattern

    #: Shapes, groups that are in order, and scales of activations and KV, which are computed instead.
    superfluous = r".*\.(weight_shape|g_idx|[kv]_scale|(input|output|activation)_(scale|zero_point))"

    def ignores(self, layer: str) -> bool:
        """Return whether a layer is said to be in floats."""
        return any(
            re.match(each[3:], layer) if each.startswith("re:") else f".{each}." in f".{layer}."
            for each in self.ignored
        )
