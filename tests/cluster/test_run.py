"""Starting Ray: failures are one clear error."""

from __future__ import annotations

import os
from typing import Any

import pytest

from quire.cluster.run import _cluster


def test_ray_that_does_not_start_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def fail(**_: Any) -> None:
        raise FileNotFoundError("no directory\nand ten more lines")

    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(ValueError, match=r"^Ray does not start \(FileNotFoundError: no directory\); its logs are in /"):
        _cluster(None, 1).__enter__()
