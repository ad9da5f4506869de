"""A rank on each host."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from pathlib import Path

from benchmarks.soak.requests import MODEL
from benchmarks.two_hosts.hosts import RATES, SMALL, URL, Network, RayHosts, Rows, Server, ask, compare, complete


def ranks(network: Network, folder: Path) -> Rows:
    """One replica of two ranks, a rank on each host."""
    rows: Rows = []
    texts = {}
    options = ["--kv-cache-memory", "128MiB", *SMALL[:2], *SMALL[-4:]]
    for name, count in (("one rank", "1"), ("two ranks on one host", "2")):
        server = Server(network, 0, folder, [*options[:-4], "--num-threads", count, *options[-2:], MODEL], count)
        texts[name] = timed_text(server.url)
        rows.append((name, f"{texts[name][0]:.1f} ms per token"))
        network.kill()
    spread = ["--tensor-parallel-size", "2", "--replica-machines", "2", *options, MODEL]
    hosts = RayHosts(network, folder, spread)
    try:
        hosts.join()
        began = hosts.wait_ready()
        rows.append(("a rank on each host: ready after", f"{began:.1f} s"))
        for rate in RATES:
            network.limit(rate)
            texts[rate] = timed_text(URL)
            rows.append((f"a rank on each host, {rate}", f"{texts[rate][0]:.1f} ms per token"))
        same = sum(text == texts["one rank"][1] for _, text in texts.values())
        rows.append(("texts equal to one rank's", f"{same} of {len(texts)}"))
        network.limit("200mbit")
        rows.append(pause(network, hosts, "link down for 2 s", 2, is_killed=False))
        rows.append(pause(network, hosts, "second host vanishes, and is back after 15 s", 15, is_killed=True))
    finally:
        hosts.stop()
        network.restore()
    return rows


def timed_text(url: str) -> tuple[float, str]:
    """Milliseconds per token, the median of three, and the text."""
    complete(url, prompt="The number 5", max_tokens=100)
    found = [complete(url, prompt="The number 5", max_tokens=100) for _ in range(3)]
    return statistics.median(seconds for seconds, _ in found) * 10, found[0][1]["choices"][0]["text"]


def pause(network: Network, hosts: RayHosts, name: str, seconds: float, *, is_killed: bool) -> tuple[str, str]:
    """Cut the link in the middle of streams; restore it later, with a new Ray node if `is_killed`."""
    before = asyncio.run(ask(URL))

    def back() -> None:
        time.sleep(seconds)
        if is_killed:
            network.kill(1)
        network.restore()
        if is_killed:
            hosts.join()

    def cut() -> None:
        network.cut()
        threading.Thread(target=back).start()

    after = asyncio.run(ask(URL, cut))
    return f"ranks: {name}", compare(before, after)
