"""An engine of the KV soak in its own process, which may be killed at any time.

Reads a JSON request per line and writes a JSON answer per line.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from quire.assembly import load, make_engine
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams

BLOCK_SIZE = 4


class LoadingCosts(CostModel):
    """Costs that always load from disk, so a recomputed document is a late one."""

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return num_tokens * 0.05  # so that patience lasts for a minute

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return 0.0


def make(model: str, kv_dir: str | None, num_blocks: int = 1000, budget: int = 32) -> Engine:
    """Make an engine.

    Args:
        model: the checkpoint.
        kv_dir: the KV directory; None computes everything.
        budget: tokens per step, small so that documents take many steps.
    """
    config = EngineConfig(
        model, device="cpu", dtype="float32", skip_tokenizer_init=True, use_tqdm=False, block_size=BLOCK_SIZE,
        num_kv_blocks=num_blocks, max_num_seqs=8, max_num_batched_tokens=budget, num_threads=1, kv_dir=kv_dir,
    )  # fmt: skip
    return make_engine(config, load(config), cost_model=LoadingCosts())


def add(engine: Engine, asked: dict[str, Any], **more: Any) -> RequestState:
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=asked["max_tokens"], **more)
    prompt = Prompt(token_ids=asked["document"] + asked["question"], documents=(len(asked["document"]),))
    return engine.add_request(prompt, params, request_id=asked["id"])


def store_of(engine: Engine) -> Any:
    assert engine.runner.disk is not None
    return engine.runner.disk.store


def answer(engine: Engine, state: RequestState) -> dict[str, Any]:
    request, store = state.request, store_of(engine)
    return {
        "id": request.request_id,
        "tokens": request.sequences[0].output_token_ids,
        "cached": request.cached_tokens,
        "error": request.error,
        "num_preemptions": request.num_preemptions,
        "failed_checks": store.stats.failed_checks,
        "write_errors": store.stats.write_errors,
    }


def serve(engine: Engine, lines: SimpleQueue[str | None]) -> None:
    """Answer all lines."""
    is_open = True
    while is_open or engine.has_unfinished():
        try:
            while is_open:
                line = lines.get(block=not engine.has_unfinished())
                is_open = line is not None
                if line is not None:
                    add(engine, json.loads(line))
        except Empty:
            pass
        for state in engine.step() if engine.has_unfinished() else ():
            if state.is_finished:
                print(json.dumps(answer(engine, state)), flush=True)


def main() -> None:
    engine = make(sys.argv[1], sys.argv[2])
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    print(json.dumps({"is_ready": True, "num_blocks": store_of(engine).num_blocks}), flush=True)
    serve(engine, lines)


if __name__ == "__main__":
    assert Path(sys.argv[1]).is_dir()
    main()
