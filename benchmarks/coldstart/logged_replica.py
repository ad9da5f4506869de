"""A model's replica that writes its log, with the phases of the start, to the error output of its process."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from quire.async_engine.host import EngineHost
from quire.cluster.replica import ModelReplica


class LoggedReplica(ModelReplica):
    def __init__(self, name: str, *args: Any, **options: Any) -> None:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("quire").setLevel(logging.INFO)
        super().__init__(name, *args, **options)

    def _make_host(self, *args: Any) -> EngineHost:
        print(f"engine started at {time.time():.3f}", file=sys.stderr, flush=True)
        return super()._make_host(*args)
