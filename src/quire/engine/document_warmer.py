"""Compute documents' KV ahead of requests, and keep it in the disk tier."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from quire.engine.engine import Engine
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams

logger = logging.getLogger("quire")


@dataclass(frozen=True, slots=True)
class Warmed:
    num_tokens: int  #: up to the last document's end
    num_kept_before: int  #: in full blocks on disk, with their states
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
        keys = self._engine.document_keys(prompt)
        before = kept = self._count_kept(prompt, keys)
        found = computed = 0
        is_first = True
        while kept < len(keys):
            part = prompt if keys[kept] not in self._on_disk else self._up_to_state(prompt, kept)
            params = SamplingParams(max_tokens=1, temperature=0, detokenize=False, ignore_eos=True)
            state = self._engine.add_request(part, params)
            try:
                while not state.is_finished:
                    self._engine.step()
            finally:
                self._engine.abort(state.request.request_id)
                self.finish()
            if state.request.error is not None:
                raise RuntimeError(f"the document could not be computed: {state.request.error}")
            if is_first:
                found = min(part.documents[-1], state.request.num_cached_tokens)
                computed, is_first = part.documents[-1] - found, False
            last, kept = kept, self._count_kept(prompt, keys)
            if kept <= last:
                break
        size = self._engine.scheduler.config.block_size
        return Warmed(prompt.documents[-1], before * size, kept * size, found, computed)

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

    @property
    def _on_disk(self) -> set[bytes]:
        return self._engine.scheduler.swap.on_disk

    def _up_to_state(self, prompt: Prompt, block: int) -> Prompt:
        """Return a prompt up to the end of the document that ends after a block, whose state is missing."""
        size = self._engine.scheduler.config.block_size
        documents = tuple(end for end in prompt.documents if end // size <= block + 1)
        end = documents[-1]
        domains = tuple(span for span in prompt.domains if span[0] < end)
        return replace(prompt, token_ids=prompt.token_ids[:end], documents=documents, domains=domains)

    def _count_kept(self, prompt: Prompt, keys: list[bytes]) -> int:
        """Count the first blocks on disk, up to one whose state is missing."""
        disk, on_disk = self._engine.scheduler.disk, self._on_disk
        missing = [] if disk is None else disk.missing_states(prompt.documents, keys)
        return next((at for at, key in enumerate(keys) if key not in on_disk or at in missing), len(keys))
