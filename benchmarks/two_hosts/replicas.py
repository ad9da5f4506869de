"""A replica on each host: routing, a host that vanishes, a host with another version."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import quire
from benchmarks.soak.requests import MODEL
from benchmarks.two_hosts.hosts import (
    ADDRESSES,
    NUM_STREAMS,
    TWO_REPLICAS,
    URL,
    Answers,
    Network,
    RayHosts,
    Rows,
    ask,
    compare,
    complete,
    prompt_of,
    wait_for,
)


def replicas(network: Network, folder: Path) -> Rows:
    """A progressive model on each host, prefix routing, and a host that vanishes."""
    pack = make_pack(folder)
    with files_at(pack.parent) as url:
        hosts = RayHosts(network, folder, [*TWO_REPLICAS[:-1], f"{MODEL}={url}/{pack.name}"])
        try:
            first = hosts.wait_ready()
            second = hosts.join_and_answer()
            wait_for(lambda: last_stage() == 3, "the last stage", hosts.log)
            return [
                ("first replica serves, from the start of `quire serve`", f"{first:.1f} s"),
                ("second host's replica answers, from the start of its Ray node", f"{second:.1f} s"),
                *routing(hosts),
                *vanish(network, hosts),
            ]
        finally:
            hosts.stop()
            network.restore()


def last_stage() -> int:
    return min(
        int(complete(URL, prompt=[5 + each], max_tokens=1)[1]["usage"]["stages"][-1]["stage"]) for each in (0, 1)
    )


def routing(hosts: RayHosts) -> Rows:
    """Ask about eight documents of 512 tokens three times, in turns."""
    before, cached = hosts.tokens(), 0
    for turn in range(3):
        for number in range(8):
            prompt = [*prompt_of(number, 512), 50 + turn]
            answer = complete(URL, prompt=prompt, max_tokens=4)[1]
            cached += turn > 0 and answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 496
    time.sleep(1.0)
    shares = sorted(int(hosts.tokens()[name] - before[name]) // 4 for name in before)
    return [("16 repeated prompts that found their prefix on their host; requests by host", f"{cached}; {shares}")]


def vanish(network: Network, hosts: RayHosts) -> Rows:
    """The second host vanishes in the middle of streams, three times."""
    answers: list[tuple[Answers, Answers]] = []
    late: list[concurrent.futures.Future[float]] = []

    def ask_late(number: int) -> float:
        time.sleep(1)
        return complete(URL, prompt=prompt_of(50 + number, 64), max_tokens=4)[0]

    for turn in range(3):
        if turn:
            network.kill(1)
            network.restore()
            hosts.join_and_answer()
        before = asyncio.run(ask(URL))
        with concurrent.futures.ThreadPoolExecutor() as threads:

            def cut() -> None:
                network.cut()
                late.extend(threads.submit(ask_late, number) for number in range(4))

            answers.append((before, asyncio.run(ask(URL, cut))))
    found = [compare(before, after) for before, after in answers]
    slowest = max(each.result() for each in late)
    return [
        *((f"second host vanishes ({turn})", each) for turn, each in enumerate(found, start=1)),
        ("12 requests of 4 tokens, sent 1 s after the host vanished", f"all answered, within {slowest:.1f} s"),
    ]


@contextlib.contextmanager
def files_at(directory: Path) -> Iterator[str]:
    """An HTTP server with ranges on the first host."""
    from range_server import serve_directory

    with serve_directory(directory, ADDRESSES[0]) as served:
        yield served.url


def make_pack(folder: Path) -> Path:
    from quire.progressive.packs.pack import pack
    from quire.progressive.stage_plan import StagePlan

    groups = (tuple(each for each in range(16) if not 11 <= each < 15), (11, 12), (13, 14))
    pack(MODEL, StagePlan(16, groups), folder / "pack", use_tqdm=False)
    return folder / "pack"


def version(network: Network, folder: Path) -> Rows:
    """The second host has another version; later the same."""
    other = folder / "other"
    shutil.copytree(Path(quire.__file__).parent, other / "quire")
    file = other / "quire" / "__init__.py"
    file.write_text(file.read_text().replace(f'"{quire.__version__}"', '"0.0.1"'))
    hosts = RayHosts(network, folder, TWO_REPLICAS)
    try:
        hosts.wait_ready()
        hosts.join(PYTHONPATH=str(other))
        wait_for(lambda: "has Quire 0.0.1" in hosts.log.read_text(errors="replace"), "a refusal", hosts.log)
        answers = asyncio.run(ask(URL))
        num_good = sum(bool(text) and not errors for text, _, errors in answers)
        network.kill(1)
        second = hosts.join_and_answer()
    finally:
        hosts.stop()
    why = next(line for line in hosts.log.read_text(errors="replace").splitlines() if "has Quire 0.0.1" in line)
    return [
        ("second host's replica with another version", f"refused: {why[why.index('RuntimeError: ') + 14 :]}"),
        ("streams meanwhile, on the first host", f"{num_good} of {NUM_STREAMS} whole"),
        ("second replica answers, from the start of a Ray node with the same version", f"{second:.1f} s"),
    ]
