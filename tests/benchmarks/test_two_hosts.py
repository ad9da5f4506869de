"""Two network namespaces as hosts: one vanishes."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.two_hosts import hosts as two_hosts
from cluster.ray_server import HAS_RAY, WITHOUT_RAY


@pytest.fixture
def network() -> Iterator[two_hosts.Network]:
    if sys.platform != "linux" or os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need Linux, root, ip and tc")
    try:
        found = two_hosts.Network("200mbit")
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"network namespaces are not allowed here: {error}")
    yield found
    found.remove()


@pytest.mark.skipif(not HAS_RAY, reason=WITHOUT_RAY)
@pytest.mark.slow  # a minute of cluster
@pytest.mark.timeout(400)
def test_a_host_that_vanishes_in_the_middle_of_streams_loses_none_and_changes_no_token(
    network: two_hosts.Network, tmp_path: Path
) -> None:
    hosts = two_hosts.RayHosts(network, tmp_path, two_hosts.TWO_REPLICAS, joined=True)
    try:
        hosts.wait_ready()
        hosts.wait_second()
        before = asyncio.run(two_hosts.ask(two_hosts.URL, tokens=900))
        after = asyncio.run(two_hosts.ask(two_hosts.URL, network.cut, tokens=900))
        # The second host had streams.
        two_hosts.wait_for(lambda: "sent no report for" in hosts.log.read_text(), "the loss of a replica", hosts.log)
    finally:
        hosts.stop()
    assert [text for text, _, _ in after] == [text for text, _, _ in before]
    assert sum(num_errors for _, _, num_errors in after) == 0
