"""Hostile bodies and large answers take the event loop no longer than ordinary ones.

The bound is on the processor time of the loop's thread between two ticks, which a busy machine does not lengthen.
`python -m benchmarks.hostile` measures the same attacks one by one, with pauses by the clock, other clients and memory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import ROOT
from benchmarks.hostile import ATTACKS, COMPLETIONS, Attacker, HostedServer

MAX_PAUSE_S = 0.05
FEW_MESSAGES = {"messages": [{"role": "user", "content": ""}] * 20_000, "max_tokens": 1}
METADATA = {f"k{number}": "v" * 480 for number in range(32)}
DOCUMENTS = [{"name": f"n{number}", "text": f"A ferry leaves {number}.", "metadata": METADATA} for number in range(300)]


@pytest.fixture(scope="module")
def server() -> Iterator[HostedServer]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        server = HostedServer(ROOT, log, "--rag-dir", str(Path(folder, "rag")), "--embedder", "hashing")
        try:
            yield server
        finally:
            server.end()


def listed(attacker: Attacker) -> None:
    attacker.post("/v1/collections", {"name": "c"})
    attacker.post("/v1/collections/c/documents", {"documents": DOCUMENTS})
    answer = attacker.post("/v1/collections/c/documents?limit=1000", b"", method="GET")
    assert answer is not None
    assert answer.status_code == 200


def named(name: str) -> Callable[[Attacker], object]:
    return next(attack.run for attack in ATTACKS if attack.name == name)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(named("20,000 errors"), id="errors"),
        pytest.param(lambda attacker: attacker.post("/v1/chat/completions", FEW_MESSAGES), id="messages"),
        pytest.param(lambda attacker: attacker.complete(prompt=[5] * 1_000_000), id="token ids"),
        pytest.param(lambda attacker: attacker.complete(prompt="word " * 300_000), id="text", marks=pytest.mark.slow),
        pytest.param(named("prompt_logprobs"), id="log-probabilities of a prompt", marks=pytest.mark.slow),
        pytest.param(lambda attacker: attacker.complete(n=64, max_tokens=16, ignore_eos=True), id="64 answers"),
        pytest.param(lambda attacker: attacker.post(COMPLETIONS, b"[" * 1_000_000), id="nested"),
        pytest.param(listed, id="documents"),
    ],
)
def test_no_body_and_no_answer_holds_the_event_loop(server: HostedServer, attack: Callable[[Attacker], object]) -> None:
    attacker = Attacker(server.url)
    attacker.complete(max_tokens=2)
    server.pauses.clear()
    attack(attacker)
    time.sleep(0.2)  # the tick behind the answer reports the pause
    assert attacker.statuses
    assert max((used for _, used in server.pauses), default=0.0) <= MAX_PAUSE_S
