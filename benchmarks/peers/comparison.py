"""Figures of a comparison of engines, and verdicts against the targets."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.roofline import Work, best_rate
from benchmarks.peers.targets import FIGURES, TARGETS
from quire.bench.report import summarise
from quire.bench.workload import Workload

OWN = "quire"  #: our own name among the engines
_SUMMARISED = ("wall_s", "out_tok_s", "total_tok_s", "ttft_s", "tpot_s")

Line = Mapping[str, Any]
Lines = dict[str, list[Line | None]]  #: by workload, an engine's line of each turn


@dataclass
class Comparison:
    """Measurements of all turns."""

    precision: str
    workloads: list[Workload]
    engines: dict[str, str]  #: that took part, ours first: name -> precision
    lines: dict[str, Lines]  #: by engine
    machine: list[dict[str, Any]]  #: by turn, what `limits` printed
    works: list[Work]
    step_bytes: float  #: weights that each step reads
    problems: dict[str, str] = field(default_factory=dict)  #: by engine, why it is missing, or a part of its figures

    def figures(self) -> list[dict[str, Any]]:
        """A figure per workload and engine, over all turns."""
        found = []
        for workload in self.workloads:
            for name in self.engines:
                lines = [line for line in self.lines[name][workload.name] if line is not None]
                if lines:
                    medians = {key: summarise(map(_median, _with(lines, key))) for key in _SUMMARISED}
                    peak = [float(_number(line["peak_rss_mib"])) for line in lines if line.get("peak_rss_mib")]
                    got = {key: lines[0].get(key) for key in ("out", "out_got", "first_tokens")}
                    found.append(
                        {"workload": workload.name, "engine": name, "weights": self.engines[name], "turns": len(lines)}
                        | medians | got | {"peak_rss_mib": summarise(peak)}
                    )  # fmt: skip
        return found

    @property
    def read_bytes_s(self) -> float | None:
        """Median read bandwidth of all turns; None if it was not measured."""
        reads = [each["read_bytes_s"] for each in self.machine]
        return statistics.median(reads) if reads else None

    def rates(self) -> dict[int, float]:
        """Highest operations per second by rows, of torch or of any engine with a single prompt."""
        kind = "int8" if self.precision in ("int8", "int4") else "bf16"
        best: dict[int, float] = {}
        for turn in self.machine:
            for rows, rate in turn[kind].items():
                best[int(rows)] = max(best.get(int(rows), 0.0), rate)
        for workload, work in zip(self.workloads, self.works, strict=True):
            if work.kind == "prefill":
                for rate in self._prompt_rates(workload.name, work):
                    best[work.prompt_rows] = max(best.get(work.prompt_rows, 0.0), rate)
        return best

    def _prompt_rates(self, workload: str, work: Work) -> list[float]:
        ttft_s = [
            line["ttft_s"]["min"]
            for name, precision in self.engines.items()
            if precision == self.precision
            for line in self.lines[name][workload]
            if line is not None and line.get("ttft_s")
        ]
        return [(work.prompt_operations + work.decode_operations) / seconds for seconds in ttft_s]

    def verdicts(self) -> list[dict[str, Any]]:
        """A row per workload: ours against the best engine of the same precision, and against the limit."""
        rates = self.rates()
        return [self._verdict(*each, rates) for each in zip(self.workloads, self.works, strict=True)]

    def _verdict(self, workload: Workload, work: Work, rates: Mapping[int, float]) -> dict[str, Any]:
        key, heading, scale, is_more = FIGURES[work.kind]
        own = self.lines[OWN][workload.name]
        peers = {
            name: lines
            for name, precision in self.engines.items()
            if name != OWN and precision == self.precision and _with(lines := self.lines[name][workload.name], key)
        }
        best = min(peers, key=lambda name: _overall(peers[name], key) * (-1 if is_more else 1), default=None)
        ratios = [] if best is None else _paired(own, peers[best], key)
        ratio = summarise(ratios)
        row: dict[str, Any] = {"workload": workload.name, "kind": work.kind, "figure": heading}
        row |= {"ours": _scaled(own, key, scale), "peer": best, "ratio": ratio}
        row["theirs"] = None if best is None else _scaled(peers[best], key, scale)
        row["limit_s"], row["of_limit"] = self._limit(workload, work, own, rates)
        target = TARGETS.get(self.precision, {}).get(work.kind)
        row["wanted"] = None if target is None else target.describe(work.kind)
        kept = (
            None if target is None else target.is_kept(work.kind, ratio["median"] if ratio else None, row["of_limit"])
        )
        return row | {"kept": None if kept is None else "kept" if kept else "missed"}

    def _limit(
        self, workload: Workload, work: Work, own: Sequence[Line | None], rates: Mapping[int, float]
    ) -> tuple[float | None, float | None]:
        if self.read_bytes_s is None or not rates:
            return None, None
        if work.kind == "stream":
            limit_s = self.step_bytes / self.read_bytes_s
        else:
            limit_s = work.seconds(
                self.read_bytes_s, best_rate(rates, work.prompt_rows), best_rate(rates, work.decode_rows)
            )
        key = {"stream": "tpot_s", "prefill": "ttft_s"}.get(work.kind, "wall_s")
        if not _with(own, key):
            return limit_s, None
        ours_s = _overall(own, key)
        return limit_s, ours_s / limit_s if work.kind == "stream" else limit_s / ours_s

    def notes(self) -> list[str]:
        """Notes about engines, missing engines and the machine."""
        there = ", ".join(name for name in self.engines if name != OWN) or "none"
        notes = [f"Peers that were there: {there}."]
        notes += [f"{name}: {why}." for name, why in self.problems.items()]
        if self.machine:
            reads = summarise(each["read_bytes_s"] / 1e9 for each in self.machine)
            assert reads is not None
            rates = ", ".join(f"{rate / 1e9:,.0f} at {rows}" for rows, rate in sorted(self.rates().items()))
            notes.append(
                f"Memory reads: {reads['median']:.1f} GB/s ({reads['min']:.1f}–{reads['max']:.1f}). Highest matrix "
                f"rates in 10⁹ operations a second, by rows: {rates}."
            )
        for figure in self.figures():
            if figure["out"] != figure["out_got"]:
                notes.append(
                    f"{figure['engine']} made {figure['out_got']} of {figure['out']} tokens of {figure['workload']}."
                )
        return notes


def _number(value: Any) -> float:
    return float(value["median"] if isinstance(value, dict) else value)


def _median(value: Mapping[str, float]) -> float:
    return value["median"]


def _with(lines: Sequence[Line | None], key: str) -> list[dict[str, float]]:
    return [line[key] for line in lines if line is not None and line.get(key)]


def _overall(lines: Sequence[Line | None], key: str) -> float:
    return statistics.median(map(_median, _with(lines, key)))


def _scaled(lines: Sequence[Line | None], key: str, scale: float) -> dict[str, float] | None:
    return summarise(_median(each) * scale for each in _with(lines, key))


def _paired(own: Sequence[Line | None], theirs: Sequence[Line | None], key: str) -> list[float]:
    return [
        a[key]["median"] / b[key]["median"]
        for a, b in zip(own, theirs, strict=False)
        if a is not None and b is not None and a.get(key) and b.get(key)
    ]
