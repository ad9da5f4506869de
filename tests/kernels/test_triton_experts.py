"""Grouped products of experts in Triton against float64: on a GPU, or on a CPU by Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from encoded_rows import random_rows
from parameters import quick
from quire.models.linear.triton_encodings import compact_weight, open_blocks, round_weight
from quire.ops import grouped_experts
from quire.ops.encoded_weight import EncodedWeight, plain_weight
from quire.ops.grouped_experts import GroupedExperts

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Relative to the largest value: roundings of the inner features and the output (the interpreter cuts bfloat16 off).
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-6}


@dataclass(frozen=True)
class Case:
    num_rows: int = 5
    hidden: int = 48
    inner: int = 40
    count: int = 6
    chosen: int = 3
    activation: str = "silu"
    dtype: torch.dtype = torch.float32
    has_biases: bool = False
    shared: str = ""  #: plain or gated
    only: tuple[int, ...] = ()  #: experts that are chosen; by default all
    forms: tuple[str, str, str] | None = None  #: of gate, up and down: bits, or types of blocks; by default plain


CASES = {
    "plain": Case(),
    "one row": Case(num_rows=1),
    "no row": Case(num_rows=0),
    "one expert": Case(count=1, chosen=1),
    "large tiles": Case(num_rows=70, count=3, chosen=2, hidden=33, inner=70),
    "experts without rows": Case(num_rows=40, only=(1, 4)),
    "one expert of all rows": Case(num_rows=200, count=5, chosen=1, only=(3,)),
    "wide": Case(hidden=300, inner=130, count=130, chosen=8),
    "gelu": Case(activation="gelu_tanh", shared="plain"),
    "clamped with biases": Case(activation="clamped_swiglu", has_biases=True),
    "gated shared expert": Case(shared="gated"),
    "bfloat16": Case(dtype=torch.bfloat16, has_biases=True, shared="gated"),
    "bfloat16, large tiles": Case(num_rows=90, count=3, dtype=torch.bfloat16),
    "8 bits": Case(hidden=200, inner=72, forms=("8",) * 3),
    "4 bits": Case(hidden=200, inner=72, forms=("4",) * 3, has_biases=True, activation="clamped_swiglu"),
    "12 bits": Case(hidden=200, inner=72, forms=("12",) * 3, dtype=torch.bfloat16),
    "12 bits, large tiles": Case(
        num_rows=60, count=2, chosen=2, hidden=130, inner=70, forms=("12",) * 3, dtype=torch.bfloat16
    ),
    "blocks": Case(hidden=256, inner=256, count=3, forms=("Q4_K", "Q4_0", "Q6_K"), activation="gelu_tanh"),
    "MXFP4": Case(hidden=96, inner=64, forms=("MXFP4",) * 3, only=(5, 2)),
}

SLOW = ("wide", "8 bits", "4 bits", "12 bits, large tiles")


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def make(case: Case) -> tuple[GroupedExperts, list[Any], tuple[Any, ...]]:
    """Return the experts, their weights and biases, and arguments."""
    shapes = [(case.inner, case.hidden)] * 2 + [(case.hidden, case.inner)]
    layers: list[Any] = [
        [
            (
                draw(*shape, seed=100 * number + at, dtype=case.dtype),
                draw(shape[0], seed=100 * number + at + 50, dtype=case.dtype) if case.has_biases else None,
            )
            for number in range(case.count)
        ]
        for at, shape in enumerate(shapes)
    ]
    scores = draw(case.num_rows, case.count, seed=1)
    if case.only:
        scores[:, [each for each in range(case.count) if each not in case.only]] = -torch.inf
    chosen = min(case.chosen, len(case.only) or case.count)
    experts = scores.topk(chosen, -1).indices.sort(-1).values
    x = draw(case.num_rows, case.hidden, seed=2, dtype=case.dtype)
    shared = draw(case.num_rows, case.hidden, seed=3, dtype=case.dtype) if case.shared else None
    gate = draw(case.num_rows, 1, seed=4, dtype=case.dtype) if case.shared == "gated" else None
    factors = draw(case.num_rows, chosen, seed=5)
    if case.forms is not None:
        encoded = [
            [encode(form, weight) for weight, _ in layer] for form, layer in zip(case.forms, layers, strict=True)
        ]
        biases = [[bias for _, bias in layer] for layer in layers]
        layers = [
            [(each.decode(), bias) for each, bias in zip(*pair, strict=True)]
            for pair in zip(encoded, biases, strict=True)
        ]
        given = [[*zip(*pair, strict=True)] for pair in zip(encoded, biases, strict=True)]
    else:
        given = [[(plain_weight(weight), bias) for weight, bias in layer] for layer in layers]
    return GroupedExperts(*given, case.activation, 2.0, 1.7), layers, (x, experts, factors, shared, gate)


def encode(form: str, weight: torch.Tensor) -> EncodedWeight:
    if form == "12":
        weight[2, 3], weight[5, 4] = 1e-30, 100
        compact = compact_weight(weight)
        assert compact is not None
        return compact
    if form.isdecimal():
        return round_weight(weight, int(form))
    rows = random_rows(form, *weight.shape, seed=int(1000 * weight[0, 0].abs()))
    return open_blocks(form, torch.from_numpy(rows).to(DEVICE), weight.shape[1], 0)


def expect(case: Case, layers: list[Any], arguments: tuple[Any, ...]) -> torch.Tensor:
    x, experts, factors, shared, gate = (
        each.double() if each is not None and each.is_floating_point() else each for each in arguments
    )
    out = torch.zeros_like(x) if shared is None else shared
    out = (out if gate is None else out * gate.sigmoid()).clone()
    for row, place in torch.cartesian_prod(torch.arange(len(x)), torch.arange(experts.shape[1])).tolist():
        number = int(experts[row, place])

        def product(values: torch.Tensor, at: int, number: int = number) -> torch.Tensor:
            weight, bias = layers[at][number]
            return F.linear(values, weight.double(), None if bias is None else bias.double())

        left, right = product(x[row], 0), product(x[row], 1)
        if case.activation == "silu":
            inner = F.silu(left) * right
        elif case.activation == "gelu_tanh":
            inner = F.gelu(left, approximate="tanh") * right
        else:
            left = left.clamp(max=2.0)
            inner = left * (1.7 * left).sigmoid() * (right.clamp(-2.0, 2.0) + 1)
        out[row] += factors[row, place] * product(inner, 2)
    return out


@pytest.mark.parametrize("name", quick([each for each in CASES if each not in SLOW], CASES))
def test_outputs_of_experts(name: str) -> None:
    case = CASES[name]
    grouped, layers, arguments = make(case)
    found, expected = grouped(*arguments), expect(case, layers, arguments)
    assert found.shape == expected.shape
    assert found.dtype == case.dtype
    if len(found):
        assert (found.double() - expected).abs().max() <= TOLERANCE[case.dtype] * expected.abs().max()


def test_launches_do_not_depend_on_the_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many tiles as any routing needs, one expert may have all rows, or all experts some."""
    launches: list[tuple[Any, ...]] = []
    for name in ("gate_up", "down"):
        kernel = getattr(grouped_experts.kernels, name)

        class Recorder:
            def __init__(self, kernel: Any) -> None:
                self.kernel = kernel

            def __getitem__(self, grid: tuple[int, int]) -> Any:
                launches.append(grid)
                return self.kernel[grid]

        monkeypatch.setattr(grouped_experts.kernels, name, Recorder(kernel))
    case = Case(num_rows=33, hidden=100, chosen=1, count=4)
    for only in ((), (0,), (3,)):
        grouped, layers, arguments = make(replace(case, only=only))
        expected = expect(case, layers, arguments)
        assert (grouped(*arguments).double() - expected).abs().max() <= 2e-6 * expected.abs().max()
    assert len(set(launches)) == 2
