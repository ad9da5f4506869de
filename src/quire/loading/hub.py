"""Download models from the Hugging Face hub with one progress display."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from quire.config import HubOptions
from quire.loading.progress import bytes_progress, load_listener
from quire.outputs import LoadProgress


def download_files(name: str, patterns: Sequence[str], options: HubOptions) -> Path:
    """Download a repository's matching files; return their directory. The listener of a starting engine gets the
    progress. Raises the errors of `huggingface_hub.snapshot_download`."""
    from huggingface_hub import snapshot_download

    with ExitStack() as shown:
        listener = load_listener.get()
        if listener is None:
            advance = shown.enter_context(bytes_progress(f"downloading {name}", 0, sys.stderr.isatty()))
        else:
            advance = partial(_report, listener, [0])
        return Path(
            snapshot_download(
                name,
                allow_patterns=list(patterns),
                revision=options.revision,
                cache_dir=options.download_dir,
                token=options.hf_token,
                tqdm_class=_bar_class(advance),
            )
        )


def _report(listener: Callable[[LoadProgress], None], loaded: list[int], num_bytes: int, total: int) -> None:
    loaded[0] += num_bytes
    listener(LoadProgress(stage=0, num_stages=1, bytes_loaded=loaded[0], bytes_total=total, phase="download"))


def _bar_class(advance: Callable[[int, int], None]) -> type[Any]:
    """Return a silent bar for the hub's library. Its bar of bytes on disk calls `advance(num_bytes, total)`."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):
        monitor_interval = 0  # no thread

        def __init__(self, *args: Any, **options: Any) -> None:
            self._counts = options.get("unit") == "B" and str(options.get("desc", "")).startswith("Reconstruct")
            super().__init__(*args, **{**options, "file": io.StringIO()})

        def display(self, *args: Any, **options: Any) -> None:
            """Write nothing."""

        def update(self, n: float | None = 1) -> bool:
            if self._counts:
                advance(int(n or 0), int(self.total or 0))
            return bool(super().update(n))

    return Bar
