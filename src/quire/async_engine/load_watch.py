"""How far a model has come: for those who look on while it is loaded, and for those who wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from quire.outputs import LoadProgress

logger = logging.getLogger("quire")

_BEGIN = LoadProgress(stage=0, num_stages=1, bytes_loaded=0, bytes_total=0, phase="imports")


class LoadWatch:
    """Args:
        name: of the model.
        on_progress: called with `progress` whenever it changes, in the thread of whoever said so.

    Attributes:
        progress: None before loading has begun for the first time.
    """

    def __init__(self, name: str, on_progress: Callable[[LoadProgress], None]) -> None:
        self.progress: LoadProgress | None = None
        self._name = name
        self._on_progress = on_progress

    @property
    def stage(self) -> int:
        """That serves: 1 before anything is known, and 0 while the first one is missing."""
        return self.progress.stage if self.progress is not None else 1

    def begin(self) -> None:
        """Loading begins, be it again."""
        self._note(_BEGIN)

    def take(self, progress: LoadProgress, *, is_ready: bool) -> None:
        """Loading has come further.

        Args:
            is_ready: the model serves already.
        """
        if is_ready and progress.num_stages == 1 and progress.error is None:
            progress = replace(progress, stage=1)  # the rest of a model without stages, which serves meanwhile
        if progress.num_stages > 1 and progress.stage > (self.progress.stage if self.progress is not None else 0):
            logger.info("%s: %s", self._name, _describe(progress))
        self._note(progress)

    def note_ready(self) -> None:
        """A model without stages serves."""
        self._note(replace(self.progress or _BEGIN, stage=1))

    def note_failed(self, error: str | None) -> None:
        """It never will be there."""
        self._note(replace(self.progress or _BEGIN, stage=0, error=error, phase="failed"))

    def note_unloaded(self) -> None:
        """Its memory was given back."""
        self._note(replace(self.progress or _BEGIN, stage=0, bytes_loaded=0, seconds_left=None, phase="unloaded"))

    def _note(self, progress: LoadProgress) -> None:
        self.progress = progress
        self._on_progress(progress)


class LoadWaits:
    """Requests that wait for a model. `len` is how many. To be used under one lock."""

    def __init__(self) -> None:
        self._changes: set[Future[None]] = set()

    def __len__(self) -> int:
        return len(self._changes)

    def begin(self) -> Future[None]:
        """One more waits for what is returned, and then looks again; `leave` when it does not any more."""
        change: Future[None] = Future()
        self._changes.add(change)
        return change

    def leave(self, change: Future[None]) -> None:
        self._changes.discard(change)

    def end(self) -> None:
        """The model is there, or never will be: have all look."""
        for change in self._changes:
            if change.set_running_or_notify_cancel():
                change.set_result(None)
        self._changes.clear()


def _describe(progress: LoadProgress) -> str:
    """A stage that serves from now on, in words."""
    if progress.is_complete:
        what = "the whole model" if progress.stage == progress.num_stages else "no later one is loaded"
        return f"stage {progress.stage} of {progress.num_stages} serves: {what}"
    share = f", {progress.bytes_loaded / progress.bytes_total:.0%} is loaded" if progress.bytes_total else ""
    left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
    return f"stage {progress.stage} of {progress.num_stages} serves{share}{left}"
