"""Elementwise kernels and torch's operations, in turns, by dtype and number of elements: this thread's CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.script import start
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.settings import Settings, integers, setting

if TYPE_CHECKING:
    from torch import Tensor

_ROW = 4096  # elements of a row that is normed


@dataclass(frozen=True)
class Case:
    """One operation: ours, torch's, and the bytes that it reads and writes."""

    operation: str
    dtype: str
    ours: Callable[[], Any]
    torchs: Callable[[], Any]
    num_bytes: int


@dataclass(frozen=True)
class ElementwiseSettings(Settings):
    """Options of the elementwise benchmark."""

    sizes: tuple[int, ...] = setting("4096,65536,2097152", "Elements, at least one row.", read=integers, at_least=_ROW)
    runs: int = setting(50, "Turns.", at_least=1)


def _random(size: int, dtype: str) -> Tensor:
    import torch

    return torch.randn(size).to(getattr(torch, dtype))


def _maps(size: int) -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    from quire.kernels.elementwise import elementwise
    from quire.kernels.loaded import DTYPES

    for dtype in DTYPES:
        if (kernels := elementwise(dtype)) is None:
            raise ValueError("there are no kernels here: quire kernels build")
        x, y, weight, bias = (_random(size, dtype) for _ in range(4))
        out = torch.empty_like(x)
        pairs: dict[str, Callable[..., Tensor]] = {"add": torch.add, "multiply": torch.mul}
        for name, function in pairs.items():
            ours = partial(kernels.run, name, x.data_ptr(), y.data_ptr(), out.data_ptr(), size, 1)
            yield Case(name, dtype, ours, partial(function, x, y, out=out), 3 * x.nbytes)
        activations: dict[str, Callable[[Tensor], Tensor]] = {
            "silu": F.silu, "relu": F.relu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")
        }  # fmt: skip
        for name, activation in activations.items():
            ours = partial(kernels.run, name, x.data_ptr(), None, out.data_ptr(), size, 1)
            yield Case(name, dtype, ours, partial(activation, x), 2 * x.nbytes)
        rows = x.view(-1, _ROW)
        addresses = (x.data_ptr(), weight.data_ptr(), bias.data_ptr(), out.data_ptr())
        ours = partial(kernels.run, "layer_norm", None, *addresses, *rows.shape, 1e-5, 1)
        torchs = partial(F.layer_norm, rows, (_ROW,), weight[:_ROW], bias[:_ROW], 1e-5)
        yield Case("layer_norm", dtype, ours, torchs, 2 * x.nbytes)


def _conversions(size: int) -> Iterator[Case]:
    import torch

    from quire.kernels.conversion import DTYPES, conversions

    kernels = conversions()
    assert kernels is not None
    for dtype in DTYPES:
        x = _random(size, dtype)
        for to in DTYPES[:-1]:
            if to != dtype:
                out = torch.empty(size, dtype=getattr(torch, to))
                ours = partial(kernels.convert, x.data_ptr(), dtype, out.data_ptr(), to, size, 1)
                yield Case(f"to {to}", dtype, ours, partial(out.copy_, x), x.nbytes + out.nbytes)
        is_finite = partial(kernels.is_finite, x.data_ptr(), dtype, size, 1)
        yield Case("is_finite", dtype, is_finite, partial(_is_finite, x), x.nbytes)


def _is_finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def _figure(case: Case, size: int, runs: int) -> dict[str, Any]:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs + 2):  # the first turns warm up
        for function, taken in zip((case.ours, case.torchs), times, strict=True):
            started = time.thread_time()
            function()
            taken.append(time.thread_time() - started)
    ours, torchs = (taken[2:] for taken in times)
    figure = {
        "operation": case.operation,
        "dtype": case.dtype,
        "elements": size,
        "gbytes": case.num_bytes / min(ours) / 1e9,
    }
    ratios = [theirs / own for own, theirs in zip(ours, torchs, strict=True)]
    return {**figure, "cpu_s": summarise(ours), "torch_s": summarise(torchs), "ratio": summarise(ratios)}


def measure(settings: ElementwiseSettings) -> list[dict[str, Any]]:
    """One figure per operation, dtype and size."""
    import torch

    torch.set_num_threads(1)
    sizes = [size // _ROW * _ROW for size in settings.sizes]
    return [
        _figure(case, size, settings.runs) for size in sizes for cases in (_maps, _conversions) for case in cases(size)
    ]


@options()
def main(settings: ElementwiseSettings, json: Json = None) -> None:
    """Elementwise kernels against torch's operations on one thread."""
    columns = (
        Column("operation", "operation"),
        Column("dtype", "dtype"),
        Column("elements", "elements", digits=0),
        Column("cpu_s", "µs", scale=1e6, digits=1),
        Column("torch_s", "torch µs", scale=1e6, digits=1),
        Column("ratio", "torch / ours", digits=2),
        Column("gbytes", "GB/s", digits=0),
    )
    report = Report("elementwise", "Elementwise operations on one thread", columns)
    report.settings = settings.as_json()
    report.figures = measure(settings)
    report.notes.append("Bandwidths are those of the fastest turn.")
    report.publish(json)


if __name__ == "__main__":
    start(main)
