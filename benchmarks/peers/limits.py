"""Limits of the machine in this run: memory reads, and matrix products inside the caches.

Run with `python -m`; reads {"threads", "rows", "shape": [k, n], "int8"} from stdin and prints one JSON object:
`read_bytes_s`, and by rows `bf16` and `int8` operations per second, each the best of several runs.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

_READ_BYTES = 2**29
_LEAST_S = 0.15  #: that a product is repeated for
_LEAST_TIMES = 5


def main() -> None:
    import torch

    asked = json.load(sys.stdin)
    torch.set_num_threads(asked["threads"])
    piece = torch.ones(_READ_BYTES // 4)
    found: dict[str, Any] = {"read_bytes_s": _READ_BYTES / _best_s(piece.sum)}
    del piece
    k, n = asked["shape"]
    with torch.inference_mode():
        found["bf16"] = {rows: 2 * rows * k * n / _bf16_s(rows, k, n) for rows in asked["rows"]}
        found["int8"] = {rows: 2 * rows * k * n / _int8_s(rows, k, n) for rows in asked["rows"] if asked["int8"]}
    print(json.dumps(found))


def _best_s(call: Callable[[], Any]) -> float:
    call()
    best, total, times = float("inf"), 0.0, 0
    while total < _LEAST_S or times < _LEAST_TIMES:
        started = time.perf_counter()
        call()
        seconds = time.perf_counter() - started
        best, total, times = min(best, seconds), total + seconds, times + 1
    return best


def _bf16_s(rows: int, k: int, n: int) -> float:
    import torch
    import torch.nn.functional as F

    x, weight = torch.randn(rows, k), torch.randn(n, k)
    float32_s = _best_s(lambda: F.linear(x, weight))  # the faster way without bfloat16 arithmetic
    x, weight = x.bfloat16(), weight.bfloat16()
    return min(float32_s, _best_s(lambda: F.linear(x, weight)))


def _int8_s(rows: int, k: int, n: int) -> float:
    import torch

    x = torch.randint(-127, 128, (rows, k), dtype=torch.int8)
    weight = torch.randint(-127, 128, (n, k), dtype=torch.int8).t()
    best = float("inf")
    with contextlib.suppress(AttributeError, RuntimeError):
        best = _best_s(lambda: torch._int_mm(x, weight))
    with contextlib.suppress(AttributeError, RuntimeError, ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = torch.nn.Sequential(torch.nn.Linear(k, n, bias=False))
        layer = torch.ao.quantization.quantize_dynamic(plain, {torch.nn.Linear}, dtype=torch.qint8)
        values = x.float()
        best = min(best, _best_s(lambda: layer(values)))
    return best


if __name__ == "__main__":
    main()
