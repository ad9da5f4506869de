"""Two hosts: network namespaces joined by a link of limited bandwidth. Linux, root, Ray, sshfs.

    python -m benchmarks.two_hosts [--rate 200mbit] [--trials replicas,version,ranks,kv]

The first host has the Ray head, the HTTP proxy and the client; `tc … tbf` limits the link in both directions, with no
added latency. Both hosts have the files and processors of this machine. Trials:

replicas: a progressive model on each host, read over HTTP from the first; prefix routing; the second host vanishes (its
          link goes down) in the middle of streams.
version:  the second host has another version of Quire.
ranks:    one replica with a rank on each host, against two ranks on one host.
kv:       a server on each host, one KV directory, which the second one mounts by sshfs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.two_hosts.hosts import Network, Rows
from benchmarks.two_hosts.kv import kv
from benchmarks.two_hosts.ranks import ranks
from benchmarks.two_hosts.replicas import replicas, version

TRIALS: dict[str, Callable[[Network, Path], Rows]] = {
    "replicas": replicas,
    "version": version,
    "ranks": ranks,
    "kv": kv,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--trials", default=",".join(TRIALS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    network, rows = Network(options.rate), Rows()
    try:
        with tempfile.TemporaryDirectory(prefix="quire-hosts-", dir="/var/tmp") as folder:
            for name in options.trials.split(","):
                for row in TRIALS[name](network, Path(folder)):
                    print(name, *row, sep=" | ", flush=True)
                    rows.append((name, *row))
    finally:
        network.remove()
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
