"""The step metrics of all replicas' engines, one series per replica, in the application's metrics. Replicas send their
values without names twice a second, in the same order on both sides. Knows no Ray."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from prometheus_client import Metric
from prometheus_client.samples import Sample

from quire.server.metrics import MODEL_LABEL, Metrics, collect

_LABEL = "replica"
_SHARE = "quire_kv_cache_usage_perc"  #: the only metric that is averaged, not summed


def metric_values(metrics: Metrics) -> list[float]:
    return [sample.value for metric in collect(metrics.steps) for sample in metric.samples]


class ClusterMetrics(Metrics):
    """The metrics of an application with remote engines. Step series have a replica label."""

    def __init__(self, models: Iterable[str] = ()) -> None:
        super().__init__(models)
        self._of_steps = {metric.name for metric in self.steps.collect()}
        self._replicas: dict[str, Mapping[str, Sequence[float]]] = {}

    def observe_replicas(self, model: str, values: Mapping[str, Sequence[float]]) -> None:
        """Replace the values (`metric_values`) of a model's replicas."""
        self._replicas[model] = values

    def collect(self) -> Iterator[Metric]:
        yield from (metric for metric in super().collect() if metric.name not in self._of_steps)
        replicas, num_used = dict(self._replicas), Counter[str]()
        for metric in collect(self.steps):
            metric.samples = list(_by_replica(metric.samples, replicas, num_used))
            yield metric

    def values(self) -> dict[str, dict[str, float]]:
        """Return each model's metrics over all of its replicas."""
        parts = defaultdict[tuple[str, str], list[float]](list)
        for metric in self.collect():
            for sample in metric.samples:
                if sample.labels.keys() - {_LABEL} == {MODEL_LABEL}:
                    parts[sample.labels[MODEL_LABEL], sample.name].append(sample.value)
        found: dict[str, dict[str, float]] = {}
        for (model, name), values in parts.items():
            found.setdefault(model, {})[name] = sum(values) / (len(values) if name == _SHARE else 1)
        return found


def _by_replica(
    samples: Iterable[Sample], replicas: Mapping[str, Mapping[str, Sequence[float]]], num_used: Counter[str]
) -> Iterator[Sample]:
    """Yield one metric's series by replica; `num_used` counts each model's values of earlier metrics."""
    for model, group in groupby(samples, key=lambda sample: sample.labels[MODEL_LABEL]):
        of_model = list(group)
        if not replicas.get(model):
            yield from of_model
            continue
        begin = num_used[model]
        num_used[model] += len(of_model)
        for name, values in replicas[model].items():
            for sample, value in zip(of_model, values[begin:], strict=False):
                yield sample._replace(labels={**sample.labels, _LABEL: name}, value=value)
