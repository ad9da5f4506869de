"""Our side of the comparison: a process like a baseline's, which runs workloads and prints a JSON line each.

Run with `python -m`; reads {"engine": fields of the config, "workloads": paths} from stdin. Two small requests warm it
up.
"""

from __future__ import annotations

import json
import sys

from quire.system.threads import spin_briefly


def main() -> None:
    spin_briefly()  # before torch
    from quire.bench.timing import measure
    from quire.bench.workload import read_workload
    from quire.config import EngineConfig

    asked = json.load(sys.stdin)
    workloads = [read_workload(path) for path in asked["workloads"]]
    for figure in measure([EngineConfig(**asked["engine"])], workloads, runs=1):
        print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
