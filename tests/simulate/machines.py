"""Machines and engines for tests: costs exact in binary, and an engine with random times."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from pathlib import Path

from emulated_runner import EmulatedRunner, StepFailed
from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.cost_observer import CostObserver
from quire.core.decisions.costs import StepShape
from quire.core.request import EndRules, KVScope, Order, Request, RequestStatus
from quire.core.scheduler import Scheduler
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.simulate.hardware import HardwareProfile
from quire.simulate.paper_policies import make_compared_policy
from simulate.recording import Recording, record

BLOCK_BYTES = 1024


@dataclass(frozen=True)
class ExactCosts:
    """A step takes a second plus 1/16 per token, a saved block `save_s`, a loaded one `load_s`."""

    save_s: float = 0.25
    load_s: float = 0.5
    is_link_usable = True

    def step(self, shape: StepShape) -> float:
        return 1 + shape.num_tokens / 16 if shape.num_tokens else 0.0

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        steps = 0 if beside is not None else -(-num_tokens // chunk)
        return steps + num_tokens / 16

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return num_bytes / BLOCK_BYTES * self.save_s

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return num_bytes / BLOCK_BYTES * self.load_s


def machine(*, swap_is_synchronous: bool = False, save_s: float = 0.25, load_s: float = 0.5) -> HardwareProfile:
    return HardwareProfile(
        name="exact",
        hardware="a machine without noise",
        model="a model without weights",
        costs=ExactCosts(save_s, load_s),
        bytes_per_token=BLOCK_BYTES // 4,
        swap_is_synchronous=swap_is_synchronous,
    )


def limits(**given: int | bool) -> SchedulerConfig:
    """A small engine with blocks of four tokens."""
    defaults: dict[str, int | bool] = {
        "num_blocks": 12,
        "block_size": 4,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 16,
        "max_model_len": 48,
        "enable_prefix_caching": False,
        "num_swap_slots": 64,
        "block_bytes": BLOCK_BYTES,
    }
    return SchedulerConfig(**{**defaults, **given})  # type: ignore[arg-type]


def write_recording(recording: Recording, path: Path) -> None:
    with path.open("w") as file:
        for entry in (recording.head(), *recording.events):
            file.write(json.dumps(entry) + "\n")


_DOCUMENTS = [[which] * 8 + list(range(8)) for which in range(3)]


class FakeEngine:
    """Runs random requests on the real scheduler with an emulated runner and random times, and records them."""

    def __init__(self, seed: int, policy: str, config: SchedulerConfig, *, num_requests: int = 12) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.num_requests = num_requests
        model = CostModel()
        self.scheduler = Scheduler(config, make_compared_policy(policy), model)
        self.costs = CostObserver(model, self.scheduler.recovery.log)
        self.runner = EmulatedRunner(config, link_seed=seed | 1)
        self.text = io.StringIO()
        record(self, self.text, policy=policy)
        self.tokens: dict[str, list[int]] = {}

    def clock(self) -> float:
        return self.now

    def run(self, *, only_plain: bool = False) -> None:
        """Run all requests to their end; some are aborted, stopped or fail."""
        num_added = 0
        while num_added < self.num_requests or self.scheduler.has_unfinished():
            while num_added < self.num_requests and (self.random.random() < 0.3 or not self.scheduler.queue.requests):
                self.scheduler.add(self.make_request(num_added, only_plain))
                num_added += 1
            if not only_plain and self.random.random() < 0.02:
                ids = sorted(self.scheduler.queue.requests)
                self.scheduler.finish_request(self.random.choice(ids), RequestStatus.FINISHED_ABORTED)
            self.step(fails=not only_plain and self.random.random() < 0.01)

    def step(self, *, fails: bool = False) -> None:
        scheduler = self.scheduler
        if scheduler.config.has_disk_tier and (changes := self.runner.transfer_worker.store.poll()) is not None:
            scheduler.apply_store_changes(changes)
        out = scheduler.schedule()
        seconds = self.random.lognormvariate(0, 1) if out.seq_ids else self.random.random()
        try:
            result = self.runner.execute(out, fails="late" if fails else "")
        except StepFailed:
            self.now += seconds
            scheduler.fail_step("injected")
            return
        self.now += seconds
        self.costs.observe(scheduler.step_shape, seconds, result.transfers)
        for update in scheduler.update(result):
            seq = update.sequence
            self.tokens[f"{seq.request.request_id}/{seq.index}"] = seq.output_token_ids
            if self.random.random() < 0.01 and seq.finish_reason is None and seq.request.beam is None:
                scheduler.finish_sequence(seq, RequestStatus.FINISHED_STOPPED, "a stop string")

    def make_request(self, number: int, only_plain: bool) -> Request:
        draw = self.random
        kind = "plain" if only_plain else draw.choice(["plain", "plain", "plain", "samples", "beams"])
        stops = () if only_plain else (0,)
        prompt = [draw.randrange(8) for _ in range(draw.randint(1, 24))]
        documents: tuple[int, ...] = ()
        if self.scheduler.config.has_disk_tier and draw.random() < 0.8:
            document = draw.choice(_DOCUMENTS)
            prompt = [*document, *prompt[:4]]
            documents = (len(document),)
        return Request(
            f"request-{number}",
            prompt,
            SamplingParams(n=3 if kind == "samples" else 1, max_tokens=None),
            beam=BeamSearchParams(beam_width=2, max_tokens=8) if kind == "beams" else None,
            order=Order(0 if only_plain else draw.randint(0, 1), number),
            ends=EndRules(draw.randint(1, 20), stops, stops),
            kv=KVScope(documents=documents, keeps_prompt=bool(documents) and draw.random() < 0.2),
        )

    def recording(self, path: Path) -> Recording:
        """Return a recording after a round trip through a file."""
        path.write_text(self.text.getvalue())
        return Recording.read(path)
