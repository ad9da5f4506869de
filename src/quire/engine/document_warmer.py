"""Compute documents' KV ahead of requests, and keep it in the disk tier."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from quire.engine.engine import Engine
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams

logger = logging.getLogger("quire")


@dataclass(frozen=True, slots=True)
class Warmed:
    num_tokens: int  #: up to the last document's end
    num_kept_before: int  #: in full blocks on disk
    num_kept: int
    num_loaded: int  #: found in a tier
    num_computed: int


class DocumentWarmer:
    """Warms documents on an idle engine with a disk tier."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.step()  # reads the blocks on disk

    def warm(self, prompt: Prompt) -> Warmed:
        """Compute and save the KV of a prompt's documents, or less if the disk fails. ValueError says why the prompt
        can never be served; RuntimeError if computing failed."""
        end = prompt.documents[-1]
        keys = self._engine.document_keys(prompt)
        before = kept = self._count_kept(keys)
        found: int | None = None
        while kept < len(keys):
            params = SamplingParams(max_tokens=1, temperature=0, detokenize=False, ignore_eos=True)
            state = self._engine.add_request(prompt, params)
            try:
                while not state.is_finished:
                    self._engine.step()
            finally:
                self._engine.abort(state.request.request_id)
                self.finish()
            if state.request.error is not None:
                raise RuntimeError(f"the document could not be computed: {state.request.error}")
            if found is None:
                found = min(end, state.request.num_cached_tokens)
            last, kept = kept, self._count_kept(keys)
            if kept <= last:
                break
        size = self._engine.scheduler.config.block_size
        computed = 0 if found is None else end - found
        return Warmed(end, before * size, kept * size, found or 0, computed)

    def label(self, name: str, prompt: Prompt, start: int) -> None:
        """Name a warm prompt's documents, which begin at token `start`, for `quire kv ls` and `quire kv rm`."""
        disk = self._engine.runner.disk
        keys = self._engine.document_keys(prompt)
        first = start // self._engine.scheduler.config.block_size
        if disk is not None and first < len(keys):
            disk.store.label(name, keys[first], keys[-1], prompt.documents[-1] - start, "public")

    def finish(self) -> None:
        while self._engine.has_unfinished():
            self._engine.step()

    def _count_kept(self, keys: list[bytes]) -> int:
        on_disk = self._engine.scheduler.swap.on_disk
        return next((at for at, key in enumerate(keys) if key not in on_disk), len(keys))
