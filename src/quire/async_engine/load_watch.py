"""The progress of loading a model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from quire.outputs import LoadProgress

logger = logging.getLogger("quire")

_BEGIN = LoadProgress(stage=0, num_stages=1, bytes_loaded=0, bytes_total=0, phase="imports")


class LoadWatch:
    """Keeps and logs the progress of loading. `on_progress` receives each change, in any thread."""

    def __init__(self, name: str, on_progress: Callable[[LoadProgress], None]) -> None:
        self.progress: LoadProgress | None = None
        self._name = name
        self._on_progress = on_progress

    @property
    def stage(self) -> int:
        """The served stage: 1 before anything is known, 0 while the first stage is missing."""
        return self.progress.stage if self.progress is not None else 1

    def report_start(self) -> None:
        """Loading starts, possibly again."""
        self._set(_BEGIN)

    def report(self, progress: LoadProgress, *, is_ready: bool) -> None:
        """Loading has progressed."""
        if is_ready and progress.num_stages == 1 and progress.error is None:
            progress = replace(progress, stage=1)  # a model without stages serves while the rest arrives
        if progress.num_stages > 1 and progress.stage > (self.progress.stage if self.progress is not None else 0):
            logger.info("%s: %s", self._name, _describe(progress))
        self._set(progress)

    def change(self, **values: Any) -> None:
        self._set(replace(self.progress or _BEGIN, **values))

    def _set(self, progress: LoadProgress) -> None:
        self.progress = progress
        self._on_progress(progress)


def _describe(progress: LoadProgress) -> str:
    if progress.is_complete:
        what = "the whole model" if progress.stage == progress.num_stages else "no later one is loaded"
        return f"stage {progress.stage} of {progress.num_stages} serves: {what}"
    share = f", {progress.bytes_loaded / progress.bytes_total:.0%} is loaded" if progress.bytes_total else ""
    left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
    return f"stage {progress.stage} of {progress.num_stages} serves{share}{left}"
