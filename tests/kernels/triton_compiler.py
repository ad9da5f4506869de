"""Compile the Triton kernels for GPUs, without one: `triton_compiler.py ARCHITECTURE CASE ...`, or `list` the cases.

The interpreter takes programs that the compiler rejects. Each launch that a case makes is recorded with its arguments,
compiled to machine code, and printed as JSON: registers, spilled bytes and shared memory.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention
from quire.attention.triton_attention import TritonAttention
from quire.attention.triton_states import TritonStates
from quire.kernels.triton import attention, elementwise, experts, linear, sampling, states
from quire.loading.presets import preset_config
from quire.models.linear.triton_encodings import BLOCK_FORMS, FORMS
from quire.models.linear.triton_weight import TritonWeight
from quire.models.parallel import ALONE, ModelSplit
from quire.models.registry import read_model_config
from quire.models.states.config import ConvConfig, DeltaConfig, MambaConfig, StateConfig
from quire.models.states.gated_delta import GatedDeltaNet
from quire.models.states.mamba import Mamba2
from quire.models.states.short_conv import ShortConv
from quire.ops import on_triton
from quire.ops.encoded_weight import EncodedWeight, Form, plain_weight
from quire.ops.grouped_experts import GroupedExperts
from quire.outputs import NewSequence
from quire.runner.row_state import RowState
from quire.runner.triton_drawing import draw_rows
from quire.sampling_params import SamplingParams

QWEN3_NEXT = DeltaConfig(16, 32, 128, 128, is_interleaved=True)
GRANITE4 = MambaConfig(1, 128, 128, 64, has_conv_bias=True)
Launch = tuple[Any, dict[str, Any]]  #: a kernel and its arguments


@contextmanager
def recorded(module: ModuleType) -> Iterator[list[Launch]]:
    """Record the launches of a module's kernels instead of running them."""
    launches: list[Launch] = []
    kernels = {name: each for name, each in vars(module).items() if isinstance(each, triton.JITFunction)}

    class Recorder:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: object) -> Callable[..., None]:
            def launch(*args: Any, **more: Any) -> None:
                launches.append((self.kernel, dict(zip(self.kernel.arg_names, args, strict=False)) | more))

            return launch

    for name, kernel in kernels.items():
        setattr(module, name, Recorder(kernel))
    try:
        yield launches
    finally:
        for name, kernel in kernels.items():
            setattr(module, name, kernel)


class Card:
    """A GPU that kernels are compiled for, in place of Triton's driver."""

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_launch(launch: Launch) -> dict[str, Any]:
    """Compile as a launch with these arguments does."""
    kernel, given = launch
    compiled = kernel.warmup(**given, grid=(1,))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", done.stdout)[0]
    sizes = {"registers": int(registers), "spilled": int(stack), "shared": compiled.metadata.shared}
    found = {"has_products": "mma" in compiled.asm["ptx"], "loads_16_bytes": "ld.global.v4" in compiled.asm["ptx"]}
    return {"kernel": kernel.__name__, "rows": given.get("ROWS"), **found, **sizes}


def attend(dtype: torch.dtype, layer: LayerAttention, has_sinks: bool = False) -> list[Launch]:
    """A prompt, and a decode of two parts."""
    layout = KVLayout([layer], 16)
    backend = TritonAttention(torch.empty(layout.shape(32), dtype=dtype), layout)
    tables = np.arange(32, dtype=np.int32).reshape(1, 32).repeat(2, 0)
    backend.plan(AttentionBatch(np.array([0, 1, 21]), np.array([300, 20]), tables, np.arange(21)))
    q, k, v = (
        torch.empty((21, heads, dim), dtype=dtype)
        for heads, dim in (
            (layer.num_heads, layer.head_dim), (layer.num_kv_heads, layer.head_dim),
            (layer.num_kv_heads, layer.value_dim),
        )
    )  # fmt: skip
    sinks = torch.empty(layer.num_heads, dtype=dtype) if has_sinks else None
    with recorded(attention) as launches:
        backend.attend(0, q, k, None if layer.has_latent else v, sinks)
    assert [kernel.__name__ for kernel, _ in launches] == ["store_kv", "attend", "attend", "join_parts"]
    return launches


def compute(dtype: torch.dtype) -> list[Launch]:
    """Norms, gates and rotations."""
    x, qkv, angles = (torch.empty(shape, dtype=dtype) for shape in ((9, 4096), (9, 48, 128), (9, 1, 128)))
    weight = torch.empty(4096, dtype=dtype)
    heads = (32, 8, weight[:128], weight[:128], 1e-5, 0.0)
    with recorded(elementwise) as launches:
        on_triton.rms_norm(x, weight, 1e-5)
        on_triton.rms_norm(x, weight, 1e-5, 1.0, x)
        on_triton.gate(x)
        on_triton.rotate_heads(qkv, angles, angles, None, *heads, False)
        on_triton.rotate_heads(qkv, angles[..., :80], angles[..., :80], weight[:9], *heads, True)
        on_triton.rotate_heads(qkv, angles, angles, None, 32, 8, None, None, 0.0, 0.0, False)
        on_triton.rotate_heads(qkv, None, None, None, *heads, False)
    return launches


def encoded(form: str, width: int, depth: int, dtype: torch.dtype) -> EncodedWeight:
    """A weight of a form without values: plain, of 8, 4 or 12 bits, or of a type of blocks."""

    def empty(*shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    if form == "plain":
        return plain_weight(empty(width, depth, dtype=dtype))
    if form == "12":
        exceptions = empty(width + 1, dtype=torch.int32), empty(9, dtype=torch.int32), empty(9, dtype=torch.bfloat16)
        base = empty(width, dtype=torch.int16)
        return EncodedWeight(
            FORMS[12], width, depth, empty(width, depth // 2), base, None, empty(width, depth), *exceptions
        )
    own = FORMS[int(form)] if form in ("8", "4") else (BLOCK_FORMS | {"FP8": Form(8, 128, is_float=True)})[form]
    numbers = empty(width, depth * own.bits // 8)
    if not own.group:
        return EncodedWeight(own, width, depth, numbers, empty(width, dtype=torch.float32))
    shape = (depth // own.group, 2 if own.has_lows else 1, width)
    scales = empty(
        shape[0] // own.spread, *shape[1:], dtype=torch.bfloat16 if form in ("4", "MXFP4") else torch.float16
    )
    factors = empty(*shape) if own.spread > 1 else None
    return EncodedWeight(own, width, depth, numbers, scales, factors, empty(16) if form.startswith("IQ4") else None)


def multiply(dtype: torch.dtype, form: str, width: int = 4096) -> list[Launch]:
    """Decodes of one row and of several, and a prompt, at 4,096 inputs."""
    weight = TritonWeight(encoded(form, width, 4096, dtype), dtype)
    bias = torch.empty(width, dtype=dtype, device="meta")
    with recorded(linear) as launches:
        for num_rows in (1, 20, 200):
            x = torch.empty((num_rows, 4096), dtype=dtype, device="meta")
            weight.product(x, bias)
            if num_rows == 1:
                weight.gated_product(x, None, weight, None)
        if weight.encoded.form.group:
            weight.rows(torch.empty(3, dtype=torch.int64, device="meta"))
    return launches


def draw(dtype: torch.dtype, vocab_size: int) -> list[Launch]:
    """Tokens of a row without a mask, and of one with a mask."""
    state = RowState(NewSequence(0, 0, [1], 1, 0, [], SamplingParams(), seed=0))
    masks = {0: np.zeros(-(-vocab_size // 32), np.uint32)}
    with recorded(sampling) as launches:
        for each in ({}, masks):
            draw_rows(torch.empty((1, vocab_size), dtype=dtype), {0: state}, each)
    return launches


def multiply_experts(
    dtype: torch.dtype,
    num_rows: int,
    hidden: int,
    inner: int,
    count: int,
    chosen: int,
    activation: str = "silu",
    form: str = "plain",
) -> list[Launch]:
    """The products of a mixture's experts, with biases if their activation is clamped."""
    bias = None if activation != "clamped_swiglu" else torch.empty(max(hidden, inner), dtype=dtype)
    layers = [
        [(encoded(form, *shape, dtype), None if bias is None else bias[: shape[0]])] * count
        for shape in ((inner, hidden), (inner, hidden), (hidden, inner))
    ]
    grouped = GroupedExperts(*layers, activation, 7.0, 1.702)
    x, factors = torch.empty((num_rows, hidden), dtype=dtype), torch.empty((num_rows, chosen))
    with recorded(experts) as launches:
        grouped(x, torch.zeros((num_rows, chosen), dtype=torch.int64), factors, x, None if bias is None else x[:, :1])
    return launches


def update_states(dtype: torch.dtype, layer_class: Any, size: StateConfig, record: int) -> list[Launch]:
    """A layer's step, with records of so many floats."""
    config = replace(read_model_config(preset_config("random:tiny")), state=size)
    net = layer_class(config, ModelSplit(config, ALONE), 0, dtype=dtype, device="meta")
    memory, plan = (torch.empty((4, record), dtype=each, device="meta") for each in (torch.float32, torch.int32))
    constants = {"RECORD": record, "NUM_RECORDS": size.num_floats() // record + 1}
    held = TritonStates(memory, constants, 32 * record, plan, 12, [(0, 3)])
    inputs = [net.in_proj] if hasattr(net, "in_proj") else [net.in_proj_qkvz, net.in_proj_ba]
    with recorded(states) as launches, recorded(elementwise) as others:
        net._rule(held, *(torch.empty((9, each.weight.shape[0]), dtype=dtype, device="meta") for each in inputs), None)
    return launches + others


CASES: dict[str, Callable[[], list[Launch]]] = {
    "qwen2.5-0.5b": lambda: attend(torch.bfloat16, LayerAttention(14, 2, 64)),
    "llama-2-7b": lambda: attend(torch.float16, LayerAttention(32, 32, 128)),
    "llama-3-8b": lambda: attend(torch.bfloat16, LayerAttention(32, 8, 128)),
    "llama-3-8b float32": lambda: attend(torch.float32, LayerAttention(32, 8, 128)),
    "phi-3": lambda: attend(torch.bfloat16, LayerAttention(32, 32, 96, window=2047)),
    "stablelm": lambda: attend(torch.float16, LayerAttention(32, 32, 80)),
    "gemma-2-9b": lambda: attend(torch.bfloat16, LayerAttention(16, 8, 256, window=4096, softcap=50.0)),
    "gemma-2-9b float32": lambda: attend(torch.float32, LayerAttention(16, 8, 256, window=4096, softcap=50.0)),
    "gpt-oss": lambda: attend(torch.bfloat16, LayerAttention(64, 8, 64, window=128), has_sinks=True),
    "deepseek-v2 latent": lambda: attend(torch.bfloat16, LayerAttention(128, 1, 576, 512, has_latent=True)),
    "deepseek-v2": lambda: attend(torch.bfloat16, LayerAttention(128, 128, 192, 128)),
    "llama-3-8b int8": lambda: multiply(torch.bfloat16, "8"),
    "llama-3-8b int4": lambda: multiply(torch.bfloat16, "4"),
    "llama-3-8b int8 head": lambda: multiply(torch.bfloat16, "8", 128256),
    "llama-2-7b int8": lambda: multiply(torch.float16, "8"),
    "llama-2-7b int4": lambda: multiply(torch.float16, "4"),
    "llama-3-8b int8 float32": lambda: multiply(torch.float32, "8"),
    "llama-3-8b int4 float32": lambda: multiply(torch.float32, "4"),
    "llama-3-8b packed12": lambda: multiply(torch.bfloat16, "12"),
    **{f"llama-3-8b {form}": partial(multiply, torch.bfloat16, form) for form in (*BLOCK_FORMS, "FP8")},
    "llama-3-8b Q4_K float32": lambda: multiply(torch.float32, "Q4_K"),
    "qwen3-30b-a3b": lambda: multiply_experts(torch.bfloat16, 1, 2048, 768, 128, 8),
    "qwen3-30b-a3b prompt": lambda: multiply_experts(torch.bfloat16, 2048, 2048, 768, 128, 8),
    "gpt-oss-20b": lambda: multiply_experts(torch.bfloat16, 8, 2880, 2880, 32, 4, "clamped_swiglu"),
    "gpt-oss-20b prompt": lambda: multiply_experts(torch.bfloat16, 2048, 2880, 2880, 32, 4, "clamped_swiglu"),
    "gemma-4-moe float16": lambda: multiply_experts(torch.float16, 2048, 2816, 704, 128, 8, "gelu_tanh"),
    "qwen3-30b-a3b int4": lambda: multiply_experts(torch.bfloat16, 1, 2048, 768, 128, 8, form="4"),
    "qwen3-30b-a3b int4 prompt": lambda: multiply_experts(torch.bfloat16, 2048, 2048, 768, 128, 8, form="4"),
    "qwen3-30b-a3b packed12 prompt": lambda: multiply_experts(torch.bfloat16, 2048, 2048, 768, 128, 8, form="12"),
    "mixtral Q4_K": lambda: multiply_experts(torch.float16, 8, 4096, 14336, 8, 2, form="Q4_K"),
    "gpt-oss-20b MXFP4": lambda: multiply_experts(torch.bfloat16, 8, 2880, 2880, 32, 4, "clamped_swiglu", "MXFP4"),
    "gpt-oss-20b MXFP4 prompt": lambda: multiply_experts(
        torch.bfloat16, 2048, 2880, 2880, 32, 4, "clamped_swiglu", "MXFP4"
    ),
    "deepseek-v3 FP8": lambda: multiply_experts(torch.bfloat16, 1, 7168, 2048, 256, 8, form="FP8"),
    "mixtral float32": lambda: multiply_experts(torch.float32, 1, 4096, 14336, 8, 2),
    "mixtral float32 prompt": lambda: multiply_experts(torch.float32, 2048, 4096, 14336, 8, 2),
    "qwen3-next": lambda: update_states(torch.bfloat16, GatedDeltaNet, QWEN3_NEXT, 98304),
    "qwen3.5 float32": lambda: update_states(torch.float32, GatedDeltaNet, DeltaConfig(16, 16, 128, 128), 32768),
    "granite-4-h": lambda: update_states(torch.bfloat16, Mamba2, GRANITE4, 65536),
    "granite-4-h float16": lambda: update_states(torch.float16, Mamba2, GRANITE4, 65536 + 32),
    "lfm2": lambda: update_states(torch.bfloat16, ShortConv, ConvConfig(2048), 49152),
    "lfm2 float32": lambda: update_states(torch.float32, ShortConv, ConvConfig(1536, has_bias=True), 49152),
    "elementwise": lambda: compute(torch.bfloat16),
    "elementwise float16": lambda: compute(torch.float16),
    "elementwise float32": lambda: compute(torch.float32),
    "sampling": lambda: draw(torch.bfloat16, 151_936),
    "sampling float16": lambda: draw(torch.float16, 32_000),
    "sampling float32": lambda: draw(torch.float32, 262_144),
}


if __name__ == "__main__":
    architecture, *cases = sys.argv[1:]
    if architecture == "list":
        print("\n".join(CASES))
    else:
        driver.set_active(Card(int(architecture)))
    for case in cases:
        for launch in CASES[case]():
            print(json.dumps({"case": case} | compile_launch(launch)), flush=True)
