"""A real cluster on this machine: Ray Serve, its proxy, the application, and replica processes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.ray_server import HAS_RAY, WITHOUT_RAY, RayServer, completion, ray_server, two_machines
from command_line import app
from quire import LLM, SamplingParams

needs_ray = pytest.mark.skipif(not HAS_RAY, reason=WITHOUT_RAY)


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = CliRunner().invoke(app, ["serve", "--ray", "--model", "random:tiny", "--port", "8123"])
    assert refused.exit_code == 2
    assert "pip install 'quire-llm[ray]'" in refused.output


def stream(server: RayServer, **body: Any) -> Iterator[dict[str, Any]]:
    with (
        server.client() as client,
        client.stream("POST", "/v1/completions", json=completion(stream=True, **body)) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


def text_of(chunks: list[dict[str, Any]]) -> str:
    assert not [chunk for chunk in chunks if "error" in chunk], chunks[-1]
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


@needs_ray
def test_a_model_is_served_on_ray_and_nothing_is_left_behind() -> None:
    with ray_server("--model=random:tiny", "--max-replicas=2") as server:
        chunks = list(stream(server, max_tokens=16))
        assert text_of(chunks) == server.complete(max_tokens=16)["choices"][0]["text"]
        answers = server.complete(prompt=["One", "Two", "Three", "Four", "Five", "Six"], n=2, temperature=1)
        assert [choice["index"] for choice in answers["choices"]] == list(range(12))  # six calls of one HTTP request
        assert len(server.replicas()) == 1
        counted = r'quire_generation_tokens_total\{model_name="random:tiny",replica="\w+"\} ([1-9].*)'
        with server.client() as client:
            server.wait_for(lambda: re.search(counted, client.get("/metrics").text), "the figures of the replica")
        assert server.stop() == 0
        server.wait_for(lambda: not server.processes(), "the end of all processes")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayServer]:
    """Two float32 replicas that store prompts' KV in one directory, so tokens are reproducible."""
    options = f"--min-replicas=2 --max-replicas=2 --kv-dir={tmp_path_factory.mktemp('kv')} --kv-dir-keep-prompts"
    with ray_server("--model=quire-mini", "--dtype=float32", "--num-kv-blocks=600", *options.split()) as server:
        server.wait_for(lambda: len(server.replicas()) == 2, "two replicas")
        yield server


def kill_in_mid_stream(server: RayServer, find_victim: Any) -> None:
    """Kill the process of a stream; the tokens equal an undisturbed stream's, and a new process starts."""
    length = 600
    whole = server.complete(max_tokens=length)["choices"][0]["text"]
    before = set(server.replicas())
    chunks, victim = [], None
    for chunk in stream(server, max_tokens=length):
        chunks.append(chunk)
        if victim is None and len(chunks) == 20:
            victim = find_victim(server)
            os.kill(victim, signal.SIGKILL)
    assert victim is not None
    assert text_of(chunks) == whole
    began = time.monotonic()
    server.wait_for(lambda: len(server.replicas()) == len(before) and victim not in server.processes(), "healing")
    print(f"healed {time.monotonic() - began:.1f} s after the stream's end")
    assert server.complete(max_tokens=length)["choices"][0]["text"] == whole


def busiest(pids: list[int]) -> int:
    """Return the process that used the most processor time recently."""

    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = {pid: ticks(pid) for pid in pids}
    time.sleep(0.2)
    return max(pids, key=lambda pid: ticks(pid) - before[pid])


@needs_ray
@pytest.mark.slow  # half a minute of cluster
@pytest.mark.timeout(300)
def test_a_replica_that_is_killed_in_mid_stream_changes_no_token(pair: RayServer) -> None:
    kill_in_mid_stream(pair, lambda server: busiest(server.replicas()))


@needs_ray
@pytest.mark.slow  # likewise
@pytest.mark.timeout(300)
def test_an_engine_process_that_is_killed_in_mid_stream_changes_no_token(pair: RayServer) -> None:
    def find_engine(server: RayServer) -> int:
        return busiest([pid for pid in server.processes() if _command(pid).endswith(b"\0engine\0")])

    kill_in_mid_stream(pair, find_engine)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@needs_ray
@pytest.mark.slow  # likewise
@pytest.mark.timeout(300)
def test_new_replicas_find_the_kv_on_disk_of_those_that_were_killed(pair: RayServer) -> None:
    prompt = "Where does Tom Weber, the baker, live? " * 20

    def num_cached() -> int:
        return int(pair.complete(prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert num_cached() == 0
    time.sleep(3)  # blocks are written after the answer
    old = pair.replicas()
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    pair.wait_for(lambda: not set(old) & set(pair.replicas()) and len(pair.replicas()) == 2, "two new replicas")
    assert num_cached() > 100


@needs_ray
@pytest.mark.slow  # two minutes: replicas start and stop by the clock
@pytest.mark.timeout(400)
def test_replicas_follow_the_load_from_none_to_two_and_back_and_no_request_fails() -> None:
    options = "--min-replicas=0 --max-replicas=2 --target-requests=4 --scale-down-after=6 --max-model-len=2048"
    with ray_server("--model=random:tiny", "--num-kv-blocks=600", *options.split()) as server:
        failures: list[str] = []
        num_done = [0]
        is_over = threading.Event()

        def ask(number: int) -> None:
            while not is_over.is_set():
                try:
                    chunks = list(stream(server, prompt=f"Question {number}", max_tokens=600))
                    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
                    assert text_of(chunks)
                    num_done[0] += 1
                except Exception as error:
                    failures.append(repr(error))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        threads[0].start()
        server.wait_for(lambda: len(server.replicas()) == 1, "the first replica")
        for thread in threads[1:]:
            thread.start()
        server.wait_for(lambda: len(server.replicas()) == 2, "the second replica")
        server.wait_for(lambda: num_done[0] > 60, "many answers")
        is_over.set()
        for thread in threads:
            thread.join()
        server.wait_for(lambda: not server.replicas(), "the end of all replicas")
        assert not failures


def with_title(text: bytes) -> Any:
    return lambda server: busiest([pid for pid in server.processes() if text in _command(pid)])


def check_two_ranks(server: RayServer, title: bytes) -> None:
    """Kill one of two ranks; the tokens equal those of one rank."""
    whole = server.complete(max_tokens=600)["choices"][0]["text"]
    one_rank = LLM("quire-mini", dtype="float32", num_kv_blocks=600)
    (answer,) = one_rank.generate("Hello", SamplingParams(temperature=0, max_tokens=600, ignore_eos=True))
    assert whole == answer.outputs[0].text
    kill_in_mid_stream(server, with_title(title))
    assert len([pid for pid in server.processes() if title in _command(pid)]) == 1


@needs_ray
@pytest.mark.slow  # half a minute of cluster
@pytest.mark.timeout(300)
def test_a_rank_beside_its_replica_that_is_killed_in_mid_stream_changes_no_token() -> None:
    options = "--dtype=float32 --num-kv-blocks=600 --tensor-parallel-size=2"
    with ray_server("--model=quire-mini", *options.split()) as server:
        check_two_ranks(server, b"rank 1 of 2")
        os.kill(server.replicas()[0], signal.SIGKILL)
        server.wait_for(lambda: server.complete()["choices"], "the next replica")
        assert server.stop() == 0
        server.wait_for(lambda: not server.processes(), "the end of all processes")


@needs_ray
@pytest.mark.slow  # a minute of cluster
@pytest.mark.timeout(300)
def test_a_rank_on_another_machine_that_is_killed_in_mid_stream_changes_no_token() -> None:
    options = "--dtype=float32 --num-kv-blocks=600 --tensor-parallel-size=2 --replica-machines=2"
    with (
        two_machines(num_cpus=2) as (address, environment),
        ray_server("--model=quire-mini", f"--ray-address={address}", *options.split(), **environment) as server,
    ):
        check_two_ranks(server, b"ray::RankActor")
        assert server.stop() == 0
        server.wait_for(lambda: not [pid for pid in server.processes() if b"RankActor" in _command(pid)], "no orphans")


@needs_ray
@pytest.mark.slow  # ten seconds of cluster
def test_ranks_for_which_no_machine_has_room_are_refused() -> None:
    with ray_server("--model=quire-mini", "--replica-cpus=4096", is_ready=False) as server:
        assert server.process.wait(100) == 2
        assert "needs 4096 CPUs on one machine" in server.log
