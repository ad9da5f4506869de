"""Ranks as threads that meet in a directory, and what they need of torch."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from quire.kernels.loaded import load_kernels
from quire.models.parallel.split import ModelSplit, Share
from quire.ops.arrays import as_numpy, as_tensor, numpy_dtype
from quire.runner.ranks import shared_memory
from quire.runner.ranks.group import DirectoryStore, FileRendezvous, RankGroup, TcpRendezvous

needs_kernels = pytest.mark.skipif(load_kernels().functions is None, reason="ranks share memory by kernels")


def on_group(size: int, path: Path, run: Callable[[RankGroup], Any]) -> list[Any]:
    """Return each rank's result or error."""
    results: list[Any] = [None] * size

    def work(rank: int) -> None:
        try:
            results[rank] = run(RankGroup(rank, size, FileRendezvous(str(path / "meeting"))))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def part(rank: int, dtype: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(shape, dtype=np.float32).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("kernels", ["", "none"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_ranks_add_and_gather_arrays_of_both_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, kernels: str, kind: str
) -> None:
    if kernels:
        monkeypatch.setenv("QUIRE_KERNELS", kernels)
    elif load_kernels().functions is None:
        pytest.skip("ranks share memory by kernels")
    given: Callable[[np.ndarray], Any] = as_tensor if kind == "torch" else lambda array: array

    def run(group: RankGroup) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert (group._memory is None) == (kernels == "none")
        x, y = given(part(group.rank, dtype, 3, 200)), given(part(group.rank, dtype, 200, 5, 7).transpose(1, 2, 0)[::2])
        assert group.all_reduce(x) is x
        share = Share(8, ((3 * group.rank, min(8, 3 * group.rank + 3)),), 3)
        whole = ModelSplit.gather(
            SimpleNamespace(group=group),  # type: ignore[arg-type]
            given(part(9, dtype, 4, 8))[:, slice(*share.ranges[0])],
            share,
        )
        found = x, group.all_gather(y), whole
        assert all(isinstance(each, torch.Tensor) == (kind == "torch") for each in found)
        return as_numpy(found[0]), as_numpy(found[1]), as_numpy(found[2])

    results = on_group(3, tmp_path, run)
    sums, gathered, wholes = zip(*results, strict=True)
    exact = sum(part(rank, dtype, 3, 200).astype(np.float64) for rank in range(3))
    step = {"float32": 1e-6, "bfloat16": 2**-6, "float16": 2**-9}[dtype]
    np.testing.assert_allclose(sums[0].astype(np.float64), exact, rtol=step, atol=4 * step)
    parts = [part(rank, dtype, 200, 5, 7).transpose(1, 2, 0)[::2] for rank in range(3)]
    for total, rows, whole in zip(sums, gathered, wholes, strict=True):
        assert total.tobytes() == sums[0].tobytes()
        assert np.array_equal(rows, np.concatenate(parts, axis=-1))
        assert np.array_equal(whole, part(9, dtype, 4, 8))


@needs_kernels
def test_without_room_in_memory_a_temporary_file_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    made = shared_memory.os.open
    full = shared_memory.os.posix_fallocate

    def open_file(path: Any, *arguments: Any) -> int:
        opened.append(Path(path))
        if str(path).startswith("/dev/shm/quire") and is_missing:
            raise FileNotFoundError(path)
        return made(path, *arguments)

    def allocate(descriptor: int, *arguments: Any) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve().parent == Path("/dev/shm"):
            raise OSError(28, "no space left on device")
        full(descriptor, *arguments)

    monkeypatch.setattr(shared_memory.os, "open", open_file)
    monkeypatch.setattr(shared_memory.os, "posix_fallocate", allocate)
    monkeypatch.setattr(shared_memory.tempfile, "gettempdir", lambda: str(tmp_path))
    for is_missing in (True, False):
        opened.clear()
        meeting = tmp_path / str(is_missing)
        meeting.mkdir()
        total = on_group(2, meeting, lambda group: group.all_reduce(np.ones(3, dtype=np.float32)).tolist())
        assert total == [[2.0] * 3] * 2
        assert [path.parent for path in opened[:2]] == [Path("/dev/shm"), tmp_path]
        assert not [path for path in opened if path.exists()]


RANK = """
import sys
sys.modules["torch"] = None
import numpy as np
from quire.runner.ranks.group import FileRendezvous, RankGroup, TcpRendezvous
group = RankGroup(int(sys.argv[1]), 2, FileRendezvous(sys.argv[2]))
x = group.all_reduce(np.full(5, 1.0 + group.rank, dtype=np.float32))
print(x.tolist(), group.all_gather(x[:1]).tolist(), group.exchange("name", group.rank))
try:
    RankGroup(0, 2, TcpRendezvous("localhost", 1))
except ConnectionError as error:
    print(error)
"""


@needs_kernels
def test_ranks_on_one_machine_need_no_torch_and_others_are_told_what_to_install(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", RANK, str(rank), str(tmp_path / "meeting")] for rank in range(2)]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    for rank in ranks:
        said, _ = rank.communicate(timeout=60)
        assert said.startswith("[3.0, 3.0, 3.0, 3.0, 3.0] [3.0, 3.0] [0, 1]\n")
        assert "need torch: pip install 'quire-llm[torch]'" in said
        assert rank.returncode == 0


def test_a_key_has_its_whole_value_as_soon_as_it_is_set(tmp_path: Path) -> None:
    store, values = DirectoryStore(str(tmp_path / "meeting")), {f"a/{i} b": str(i) * 50_000 for i in range(10)}
    reader = DirectoryStore(str(tmp_path / "meeting"))
    writer = threading.Thread(target=lambda: [store.set(*item) for item in values.items()])
    writer.start()
    for key, value in values.items():
        while not reader.check([key]):
            pass
        assert reader.get(key).decode() == value
    writer.join()
    assert not reader.check(["a/0 b", "another"])
    assert (tmp_path / "meeting").stat().st_mode & 0o77 == 0


def test_ranks_of_several_machines_meet_at_a_port() -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = TcpRendezvous("127.0.0.1", free.getsockname()[1])
    results: list[Any] = [None] * 2

    def work(rank: int) -> None:
        results[rank] = RankGroup(rank, 2, rendezvous).exchange("name", rank)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[0, 1], [0, 1]]
