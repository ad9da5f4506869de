"""Encodings of weights in GGUF files and in quantized safetensors."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
