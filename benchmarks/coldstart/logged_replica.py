"""A model's replica that writes its log, with the phases of the start, to the error output of its process."""

from __future__ import annotations

import logging
from typing import Any

from quire.cluster.replica import ModelReplica


class LoggedReplica(ModelReplica):
    def __init__(self, *args: Any, **options: Any) -> None:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("quire").setLevel(logging.INFO)
        super().__init__(*args, **options)
