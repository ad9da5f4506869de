"""Measure cold starts of `quire serve`, by loading mode and read bandwidth. Each start is a fresh process whose weights
were dropped from the page cache (`mincore` reports the rest); Python and torch stay cached. Modes take turns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from quire.bench.bench_settings import ColdStartSettings
from quire.bench.coldstart.cold_server import ColdServer, make_prompt
from quire.bench.progress import progress
from quire.config import EngineConfig
from quire.loading.checkpoint import weight_files
from quire.loading.known_digest import checkpoint_digest
from quire.loading.source import find_model
from quire.loading.stage_manifest import StageManifest, check_files, read_stage_manifest
from quire.system.page_cache import drop_pages, filesystem_of

_PHASES_TIMEOUT_S = 2.0  #: for the log line with the phases of the start


@dataclass(frozen=True)
class ColdStart:
    """Timings of one start, in seconds since the process was spawned."""

    mode: str  #: of a staged start, the name of the pack's directory
    bandwidth: float  #: limit of reads in bytes a second, or infinity
    ttft_s: float
    full_s: float  #: until the full model serves
    phases: Mapping[str, float] = field(default_factory=dict)  #: duration of each, as the process logs it
    resident: float = 0.0  #: share of the files' pages that were in memory before
    listening_s: float | None = None  #: until the port answers; None for a script
    stages: Mapping[int, float] = field(default_factory=dict)  #: when each stage was first seen serving

    @property
    def rest_s(self) -> float:
        """Time to the first token outside of all phases."""
        return self.ttft_s - sum(self.phases.values())


@dataclass(frozen=True)
class WeightSizes:
    """Weight files of the measured model."""

    model: str
    num_bytes: int  #: all weights
    first_bytes: Mapping[str, int]  #: weights of the first stage, by mode, of each pack
    filesystem: str  #: ext4, tmpfs, ...

    def share_left_out(self, mode: str) -> float:
        return max(0.0, 1.0 - self.first_bytes[mode] / self.num_bytes)


def describe_bandwidth(bandwidth: float) -> str:
    return "unlimited" if bandwidth == math.inf else f"{bandwidth / 1e6:g} MB/s"


class ColdStartBench:
    """Starts one model in several modes."""

    def __init__(self, config: EngineConfig, settings: ColdStartSettings) -> None:
        source = find_model(config.model)
        if source is None or source.path is None:
            raise ValueError(f"{config.model} is not on this disk; name a directory, as quire save writes one")
        self.config, self.settings = config, settings
        self.directory = source.path
        self.packs: dict[str, StageManifest] = {}
        for pack in settings.pack:
            manifest = read_stage_manifest(pack)
            check_files(manifest)
            weights = checkpoint_digest(source.path, use_tqdm=config.use_tqdm)
            if weights != manifest.weights:
                raise ValueError(f"{pack} is a pack of {manifest.weights}; {config.model} is {weights}")
            if pack.name in (*settings.known_modes, *self.packs):
                raise ValueError(f"{pack}: another mode or pack is named {pack.name}; rename the directory")
            self.packs[pack.name] = manifest
        self.modes = [each for mode in settings.modes for each in (self.packs if mode == "staged" else [mode])]
        total = sum(file.stat().st_size for file in weight_files(self.directory))
        first = {name: manifest.stage_bytes(1) for name, manifest in self.packs.items()}
        self.sizes = WeightSizes(config.model, total, first, filesystem_of(self.directory))

    def measure(self) -> list[ColdStart]:
        """All starts, in the order in which they ran."""
        plan = list(self._plan())
        starts = []
        with progress(len(plan), "cold starts") as advance:
            for done, (mode, bandwidth) in enumerate(plan):
                advance(done, f"{mode}, {describe_bandwidth(bandwidth)}")
                starts.append(self.start(mode, bandwidth))
        return starts

    def start(self, mode: str, bandwidth: float) -> ColdStart:
        """Run one cold start until the full model serves."""
        config, options = self.server_options(mode, bandwidth)
        resident = self.drop_files(Path(config.model))
        with closing(ColdServer(config, options)) as server:
            ttft_s = server.first_token(make_prompt(self.settings.prompt_len))
            full_s = server.wait_stage()
            phases = server.wait_phases(_PHASES_TIMEOUT_S)
            return ColdStart(mode, bandwidth, ttft_s, full_s, phases, resident, server.listening_s, dict(server.stages))

    def can_start(self, mode: str, bandwidth: float) -> bool:
        """Whether a mode exists at this bandwidth."""
        return True

    def server_options(self, mode: str, bandwidth: float) -> tuple[EngineConfig, list[str]]:
        options = [] if bandwidth == math.inf else ["--storage-bandwidth", str(int(bandwidth))]
        options += ["--load-overlap"] if mode == "overlap" else []
        directory = self.packs[mode].directory if mode in self.packs else self.directory
        return replace(self.config, model=str(directory)), options

    def drop_files(self, directory: Path) -> float:
        """Drop a model's files from the page cache. Returns the share of their pages that remain."""
        return drop_pages(path for path in sorted(directory.rglob("*")) if path.is_file())

    def _plan(self) -> Iterator[tuple[str, float]]:
        for turn in range(self.settings.runs):
            for bandwidth in self.settings.storage_bandwidth:
                modes = [mode for mode in self.modes if self.can_start(mode, bandwidth)]
                for i in range(len(modes)):
                    yield modes[(turn + i) % len(modes)], bandwidth
