"""Metric families with a label for the model, in seconds and tokens, and the bounds of their buckets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

MODEL_LABEL = "model_name"
M = TypeVar("M", Gauge, Counter, Histogram)
# In seconds, from a small model on one GPU to a large one on a busy CPU.
TOKEN_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10,
)  # fmt: skip
PHASE_BUCKETS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320, 640,
)  # fmt: skip
REQUEST_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960, 1920)
SIZE_BUCKETS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000,
)  # fmt: skip
STEP_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
FEW_BUCKETS = (1, 2, 5, 10, 20)
ERROR_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10)


class Families:
    """Makes families in some registries. Each has the model as its first label; keyword arguments name further labels
    and their values."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        self._registries = registries
        self._made: list[tuple[Gauge | Counter | Histogram, tuple[str, ...]]] = []  #: family, values of further labels

    def gauge(self, name: str, text: str, **labels: tuple[str, ...]) -> Gauge:
        return self._add(Gauge(f"quire_{name}", text, [MODEL_LABEL, *labels], registry=None), labels)

    def counter(self, name: str, text: str, **labels: tuple[str, ...]) -> Counter:
        return self._add(Counter(f"quire_{name}", text, [MODEL_LABEL, *labels], registry=None), labels)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], **labels: tuple[str, ...]) -> Histogram:
        family = Histogram(f"quire_{name}", text, [MODEL_LABEL, *labels], registry=None, buckets=buckets)
        return self._add(family, labels)

    def show(self, model: str) -> None:
        """Show a model's series at zero: a rate over a series that appears with its first event misses that event."""
        for family, values in self._made:
            family.labels(model, *values)

    def _add(self, family: M, labels: dict[str, tuple[str, ...]]) -> M:
        for registry in self._registries:
            registry.register(family)
        self._made += [(family, values) for values in product(*labels.values())]
        return family


def collect(registry: CollectorRegistry) -> Iterator[Metric]:
    """Yield the families, without creation times, which would double the number of series."""
    for metric in registry.collect():
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric
