"""From the start of a process to its first token, by phase, and to the whole model.

Each start is a fresh `quire serve`, which is asked as soon as its port answers, on weights whose pages were dropped
from the page cache just before (`mincore` says whether they are gone). The ways take turns, each in another place of
every turn. Python's own files and torch's stay in the page cache: what is measured is a server that is started again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from quire.bench.coldstart.figures import draw, make_report
from quire.bench.coldstart.peer import start_transformers
from quire.bench.coldstart.quality import draw_quality, read_quality
from quire.bench.coldstart.running import run_alone, run_while_loading
from quire.bench.coldstart.server import cold_server, make_prompt
from quire.bench.coldstart.start import ColdStart, Running, WeightSizes, describe_bandwidth
from quire.bench.page_cache import drop_pages, filesystem_of
from quire.bench.progress import progress
from quire.bench.settings import ColdStartSettings
from quire.config import EngineConfig
from quire.loading.checkpoint import weight_files
from quire.loading.known_digest import checkpoint_digest
from quire.loading.source import find_model
from quire.loading.stage_manifest import StageManifest, check_files, read_stage_manifest

_PHASES_TIMEOUT_S = 2.0  #: for the line of the log that says where the start went


def run(config: EngineConfig, settings: ColdStartSettings, json: Path | None, plot: Path | None) -> None:
    """Measure and publish the table.

    Raises:
        ValueError: there is nothing on this disk to start from, or the pack is of another model.
        RuntimeError: a process did not start.
    """
    quality = None if settings.quality is None else read_quality(settings.quality)
    bench = ColdStartBench(config, settings)
    starts = bench.measure()
    running = bench.measure_running() if settings.running else []
    report = make_report(bench.sizes, settings, starts, running)
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    if quality is None:
        report.publish(json, plot, lambda figure: draw(figure, report.title, starts))
    else:
        report.more["quality"] = {str(stage): value for stage, value in quality.items()}
        report.publish(json, plot, lambda figure: draw_quality(figure, report.title, starts, quality))


class ColdStartBench:
    """Starts one model in several ways."""

    def __init__(self, config: EngineConfig, settings: ColdStartSettings) -> None:
        source = find_model(config.model)
        if source is None or source.path is None:
            raise ValueError(f"{config.model} is not on this disk; name a directory, as quire save writes one")
        self.config, self.settings = config, settings
        self.directory = source.path
        self.manifest: StageManifest | None = None
        if settings.pack is not None:
            self.manifest = read_stage_manifest(settings.pack)
            check_files(self.manifest)
            weights = checkpoint_digest(source.path, use_tqdm=config.use_tqdm)
            if weights != self.manifest.weights:
                raise ValueError(f"{settings.pack} is a pack of {self.manifest.weights}; {config.model} is {weights}")
        total = sum(file.stat().st_size for file in weight_files(self.directory))
        first = total if self.manifest is None else self.manifest.stage_bytes(1)
        self.sizes = WeightSizes(config.model, total, first, filesystem_of(self.directory))

    def measure(self) -> list[ColdStart]:
        """All starts, in the order in which they were made."""
        plan = list(self._plan())
        starts = []
        with progress(len(plan), "cold starts") as advance:
            for done, (mode, bandwidth) in enumerate(plan):
                advance(done, f"{mode}, {describe_bandwidth(bandwidth)}")
                starts.append(self.start(mode, bandwidth))
        return starts

    def start(self, mode: str, bandwidth: float) -> ColdStart:
        """One cold start, to the whole model."""
        prompt = make_prompt(self.settings.prompt_len)
        if mode == "transformers":
            resident = self._drop(self.directory)
            config = self.config
            peer = start_transformers(str(self.directory), prompt, dtype=config.dtype, num_threads=config.num_threads)
            return ColdStart(mode, bandwidth, peer.ttft_s, peer.full_s, peer.phases, resident)
        config, options = self._server(mode, bandwidth)
        resident = self._drop(Path(config.model))
        with cold_server(config, options) as server:
            ttft_s = server.first_token(prompt)
            full_s = server.wait_stage()
            phases = server.wait_phases(_PHASES_TIMEOUT_S)
            return ColdStart(mode, bandwidth, ttft_s, full_s, phases, resident, server.listening_s, dict(server.stages))

    def measure_running(self) -> list[Running]:
        """Streams while the pack arrives, and on its first stage where nothing does."""
        assert self.manifest is not None
        number, length = self.settings.running, self.settings.prompt_len
        found = []
        for _ in range(self.settings.runs):
            for bandwidth in self.settings.storage_bandwidth:
                config, options = self._server("staged", bandwidth)
                self._drop(self.manifest.directory)
                loading = run_while_loading(config, options, number, length)
                alone_s = run_alone(config, number, length)
                found.append(Running(number, bandwidth, loading.tpot_s, alone_s, loading.full_s))
        return found

    def _plan(self) -> Iterator[tuple[str, float]]:
        for turn in range(self.settings.runs):
            for bandwidth in self.settings.storage_bandwidth:
                modes = [mode for mode in self.settings.modes if self._can(mode, bandwidth)]
                for i in range(len(modes)):
                    yield modes[(turn + i) % len(modes)], bandwidth

    def _can(self, mode: str, bandwidth: float) -> bool:
        """Nobody can hold back the reads of transformers; and without a pack there are no stages."""
        if mode == "staged":
            return self.manifest is not None
        return mode != "transformers" or bandwidth == math.inf

    def _server(self, mode: str, bandwidth: float) -> tuple[EngineConfig, list[str]]:
        options = [] if bandwidth == math.inf else ["--storage-bandwidth", str(int(bandwidth))]
        options += ["--load-overlap"] if mode == "overlap" else []
        directory = self.directory if mode != "staged" or self.manifest is None else self.manifest.directory
        return replace(self.config, model=str(directory)), options

    def _drop(self, directory: Path) -> float:
        """Drop the pages of a model's files. Returns the share of them that are still there."""
        return drop_pages(path for path in sorted(directory.rglob("*")) if path.is_file())
