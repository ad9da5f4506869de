"""Documents' KV, made before anybody asks: computed where the disk tier has none, and kept there."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from quire.engine.engine import Engine
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams

logger = logging.getLogger("quire")


@dataclass(frozen=True, slots=True)
class Warmed:
    """What became of the documents of one prompt. All in tokens, of full blocks where it says kept."""

    num_tokens: int  #: up to the last document's end
    num_kept_before: int
    num_kept: int
    num_loaded: int  #: found in a tier and used
    num_computed: int


class DocumentWarmer:
    """Args:
    engine: with a disk tier, and nothing to do.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.step()  # hears what is on disk

    def warm(self, prompt: Prompt) -> Warmed:
        """Have the KV of a prompt's documents on disk. Returns when it is there.

        What the disk does not take, since it is full for example, is not kept: `Warmed` tells.

        Raises:
            ValueError: the prompt can never be served; the message says why.
            RuntimeError: computing it failed.
        """
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
        """Name the documents of a prompt that is warm, for people: `quire kv ls` shows them, and `rm` deletes them.

        Args:
            start: the first document's first token.
        """
        disk = self._engine.runner.disk
        keys = self._engine.document_keys(prompt)
        first = start // self._engine.scheduler.config.block_size
        if disk is not None and first < len(keys):
            disk.store.label(name, keys[first], keys[-1], prompt.documents[-1] - start, "public")

    def finish(self) -> None:
        """Wait until all that is under way to disk has come there."""
        while self._engine.has_unfinished():
            self._engine.step()

    def _count_kept(self, keys: list[bytes]) -> int:
        """Blocks on disk, from the first on without a gap."""
        on_disk = self._engine.scheduler.swap.on_disk
        return next((at for at, key in enumerate(keys) if key not in on_disk), len(keys))
