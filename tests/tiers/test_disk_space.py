"""A swap file belongs to its process, leaves nothing behind, and never returns a wrong byte."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire.tiers.disk_space import DiskSpace
from quire.tiers.store.layout.record import HEADER_BYTES
from tiers.blocks import NAMESPACE, key
from unprivileged import open_folder, unprivileged

BLOCK_BYTES = 40
RECORD_BYTES = HEADER_BYTES + BLOCK_BYTES
NUM_SLOTS = 8


@pytest.fixture
def space(tmp_path: Path) -> Iterator[DiskSpace]:
    space = DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    yield space
    space.close()


def contents(*numbers: int) -> np.ndarray:
    return np.stack([np.arange(n, n + BLOCK_BYTES).astype(np.uint8) for n in numbers])


def write(space: DiskSpace, slots: list[int]) -> list[int]:
    """Write slots whose content and key equal their number."""
    return space.write(slots, [key(slot) for slot in slots], contents(*slots))


def lost(space: DiskSpace, slots: list[int]) -> list[int]:
    """Return unreadable slots, and check the others."""
    into = np.full((len(slots), BLOCK_BYTES), 99, np.uint8)
    failed = space.read(slots, [key(slot) for slot in slots], into)
    for i, slot in enumerate(slots):
        assert i in failed or np.array_equal(into[i : i + 1], contents(slot)), "a wrong byte"
    return [slots[i] for i in failed]


def test_what_was_written_is_read(space: DiskSpace) -> None:
    assert write(space, [3, 4, 5, 0, 7]) == []
    assert lost(space, [0, 7, 5, 4, 3]) == []
    assert lost(space, [1, 2, 3]) == [1, 2]  # never written


def test_a_slot_has_its_last_content_only(space: DiskSpace) -> None:
    write(space, [2])
    space.write([2], [key(77)], contents(77))
    assert lost(space, [2]) == [2]
    into = np.empty((1, BLOCK_BYTES), np.uint8)
    assert space.read([2], [key(77)], into) == []
    assert np.array_equal(into, contents(77))


def test_neighbouring_slots_are_written_and_read_at_once(space: DiskSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    for name in ("pwritev", "preadv"):
        original = getattr(os, name)

        def counted(file: int, parts: list[memoryview], at: int, name: str = name, original=original) -> int:
            calls.append((name, at // RECORD_BYTES))
            return original(file, parts, at)

        monkeypatch.setattr(os, name, counted)
    write(space, [0, 1, 2, 5, 6])
    lost(space, [1, 2, 5, 7, 0])
    assert calls == [("pwritev", 0), ("pwritev", 5), ("preadv", 1), ("preadv", 5), ("preadv", 7), ("preadv", 0)]


def test_runs_longer_than_the_system_takes_at_once(tmp_path: Path) -> None:
    count = 1300
    space = DiskSpace(tmp_path, count, BLOCK_BYTES, NAMESPACE)
    assert write(space, list(range(count))) == []
    assert lost(space, list(range(count))) == []


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 3 * RECORD_BYTES - 1), flip=st.integers(1, 255))
def test_a_flipped_bit_anywhere_loses_its_block_and_no_other(space: DiskSpace, at: int, flip: int) -> None:
    write(space, [0, 1, 2])
    (byte,) = os.pread(space._file.fd, 1, at)
    os.pwrite(space._file.fd, bytes([byte ^ flip]), at)
    assert lost(space, [0, 1, 2]) == [at // RECORD_BYTES]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(end=st.integers(0, 4 * RECORD_BYTES))
def test_a_file_that_was_cut_loses_what_it_lost(space: DiskSpace, end: int) -> None:
    write(space, [0, 1, 2, 3])
    os.ftruncate(space._file.fd, end)
    assert lost(space, [0, 1, 2, 3]) == [slot for slot in range(4) if (slot + 1) * RECORD_BYTES > end]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(end=st.integers(1, RECORD_BYTES - 1))
def test_a_torn_write_loses_its_block(space: DiskSpace, end: int) -> None:
    """Part of the new record is written, before a part of the old one."""
    write(space, [4])
    start = 4 * RECORD_BYTES
    before = os.pread(space._file.fd, RECORD_BYTES, start)
    space.write([4], [key(9)], contents(9))
    after = os.pread(space._file.fd, RECORD_BYTES, start)
    torn = after[:end] + before[end:]
    os.pwrite(space._file.fd, torn, start)
    into = np.empty((1, BLOCK_BYTES), np.uint8)
    assert (space.read([4], [key(9)], into) == [0]) == (torn != after)
    assert (space.read([4], [key(4)], into) == [0]) == (torn != before)


def test_a_record_of_another_namespace_is_none(tmp_path: Path) -> None:
    mine, other = (DiskSpace(tmp_path, 1, BLOCK_BYTES, namespace) for namespace in (b"mine", b"other"))
    write(other, [0])
    os.pwrite(mine._file.fd, os.pread(other._file.fd, RECORD_BYTES, 0), 0)
    assert lost(mine, [0]) == [0]


@pytest.mark.parametrize("num_whole", [0, 1, 2])
def test_a_disk_that_fills_up_loses_what_did_not_fit(
    space: DiskSpace, monkeypatch: pytest.MonkeyPatch, num_whole: int
) -> None:
    original = os.pwritev
    room = num_whole * RECORD_BYTES + 50

    def pwritev(file: int, parts: list[memoryview], at: int) -> int:
        nonlocal room
        data = b"".join(parts)[:room]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= len(data)
        return original(file, [data], at)

    monkeypatch.setattr(os, "pwritev", pwritev)
    assert write(space, [1, 2, 3]) == list(range(num_whole, 3))
    assert write(space, [6]) == [0]
    monkeypatch.undo()
    assert lost(space, [1, 2, 3, 6]) == [*range(1 + num_whole, 4), 6]
    assert write(space, [1, 2, 3, 6]) == [], "and goes on once there is room"
    assert lost(space, [1, 2, 3, 6]) == []


def test_a_disk_that_does_not_answer_loses_what_was_asked(space: DiskSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    write(space, [0, 1])

    def preadv(file: int, parts: list[memoryview], at: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", preadv)
    assert lost(space, [0, 1]) == [0, 1]


def test_the_file_has_no_name_and_the_directory_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    space = DiskSpace(folder, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    assert list(folder.iterdir()) == []
    name = os.readlink(f"/proc/self/fd/{space._file.fd}")
    assert f"quire-swap-{os.getpid()}-" in name, "someone who looks sees whose it is"
    assert os.fstat(space._file.fd).st_mode & 0o077 == 0


def test_closing_gives_the_file_back_and_what_follows_fails(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    file = space._file.fd
    space.close()
    space.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    assert write(space, [0]) == [0]
    assert lost(space, [0]) == [0]


def test_a_space_that_is_forgotten_gives_its_file_back(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    file = space._file.fd
    del space
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_two_in_one_directory_do_not_meet(tmp_path: Path) -> None:
    one, two = (DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE) for _ in range(2))
    write(one, [0, 1])
    assert lost(two, [0, 1]) == [0, 1]
    assert lost(one, [0, 1]) == []


def test_where_names_cannot_be_removed_the_file_goes_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "not while it is open")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        space = DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    (path,) = tmp_path.iterdir()
    other = DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    assert path.exists(), "it is in use"
    write(space, [0])
    assert lost(space, [0]) == []
    other.close()
    space.close()
    assert not path.exists()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "quire-swap-1-00000000.kv"
    used = tmp_path / "quire-swap-2-00000000.kv"
    other = tmp_path / "notes.kv"
    for path in (left, used, other):
        path.write_bytes(b"x")
    with used.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
        assert sorted(tmp_path.iterdir()) == [other, used]


def test_kill_9_leaves_nothing_behind(tmp_path: Path) -> None:
    block = contents(0)
    child = os.fork()
    if child == 0:
        space = DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
        os.kill(os.getpid(), signal.SIGKILL if space.write([0], [key(0)], block) == [] else signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Limit the size of files by the operating system."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_is_found_out_at_the_start(tmp_path: Path) -> None:
    with largest_file(5 * RECORD_BYTES), pytest.raises(ValueError, match="File too large"):
        DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_not_grow_any_more_loses_what_does_not_fit(space: DiskSpace) -> None:
    with largest_file(2 * RECORD_BYTES + 50):
        assert write(space, [0, 1, 2, 3, 4]) == [2, 3, 4]
        assert write(space, [5]) == [0]
    assert lost(space, [0, 1, 2, 3, 4, 5]) == [2, 3, 4, 5]


def test_a_directory_that_this_user_may_not_write_or_name_is_refused() -> None:
    with open_folder() as folder:
        folder.chmod(0o555)
        for path, why in ((folder, "Permission denied"), (folder / "below", "Permission denied"), ("~no-such", "home")):
            with unprivileged(), pytest.raises(ValueError, match=f"cannot be used: .*{why}.*where this user may write"):
                DiskSpace(path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        with pytest.raises(ValueError, match="cannot be used"):
            DiskSpace(path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)


def test_a_full_disk_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(file: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(ValueError, match="No space left on device"):
        DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_does_not_give_back_what_it_got_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", lambda file, count, at: bytes(count))
    with pytest.raises(ValueError, match="cannot be read again"):
        DiskSpace(tmp_path, NUM_SLOTS, BLOCK_BYTES, NAMESPACE)


def test_more_than_the_disk_has_free_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"free, and swapping may take .*lower swap_space"):
        DiskSpace(tmp_path, 1 << 40, BLOCK_BYTES, NAMESPACE)
