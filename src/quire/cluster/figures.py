"""What the replicas' engines count in each step, among the metrics of the application: a series a replica.

A replica counts as one process does, and tells its figures without names, twice a second: both sides have the same
series in the same order. Knows no Ray.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from prometheus_client import Metric
from prometheus_client.samples import Sample

from quire.server.metrics.families import MODEL_LABEL, collect
from quire.server.metrics.metrics import Metrics

_LABEL = "replica"
_SHARE = "quire_kv_cache_usage_perc"  #: the one figure that replicas do not add up


def figures_of(metrics: Metrics) -> list[float]:
    """What an engine has counted so far, where these are the metrics of its model alone."""
    return [sample.value for metric in collect(metrics.steps) for sample in metric.samples]


class ClusterMetrics(Metrics):
    """The metrics of an application whose engines are elsewhere. A model's series of steps have a label more, once its
    replicas have told theirs; those of a replica that is gone are gone with it."""

    def __init__(self, models: Iterable[str] = ()) -> None:
        super().__init__(models)
        self._of_steps = {metric.name for metric in self.steps.collect()}
        self._replicas: dict[str, Mapping[str, Sequence[float]]] = {}

    def observe_replicas(self, model: str, figures: Mapping[str, Sequence[float]]) -> None:
        """Take in what the replicas of a model that there are have counted so far, each by `figures_of`."""
        self._replicas[model] = figures

    def collect(self) -> Iterator[Metric]:
        """Every series."""
        yield from (metric for metric in super().collect() if metric.name not in self._of_steps)
        replicas, told = dict(self._replicas), Counter[str]()
        for metric in collect(self.steps):
            metric.samples = list(_by_replica(metric.samples, replicas, told))
            yield metric

    def values(self) -> dict[str, dict[str, float]]:
        """As of one process, of a model's replicas together."""
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
    samples: Iterable[Sample], replicas: Mapping[str, Mapping[str, Sequence[float]]], told: Counter[str]
) -> Iterator[Sample]:
    """One metric's series, those of each replica together; `told` has how many figures of a model went before."""
    for model, group in groupby(samples, key=lambda sample: sample.labels[MODEL_LABEL]):
        of_model = list(group)
        if not replicas.get(model):
            yield from of_model
            continue
        begin = told[model]
        told[model] += len(of_model)
        for name, figures in replicas[model].items():
            for sample, value in zip(of_model, figures[begin:], strict=False):
                yield sample._replace(labels={**sample.labels, _LABEL: name}, value=value)
