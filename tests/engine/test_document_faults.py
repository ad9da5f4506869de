"""Deleted documents are gone for all, and with any disk failure tokens stay right and no step fails."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.documents import BLOCK_SIZE, DOCUMENT, NUM_FULL, DocumentLLM, ask, cached
from engine.harness import Job, assert_all_greedy, check_books, checkpoint, drive, greedy_params, random_ids
from quire.core.block_keys import state_keys
from quire.engine.document_warmer import DocumentWarmer
from quire.prompt import Prompt
from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.layout.segment import Segment
from quire.tiers.store.offline import list_namespaces
from unprivileged import open_folder, unprivileged

FULL = NUM_FULL // 4
SHORT = greedy_params(4)


def other_store(llm: DocumentLLM) -> BlockStore:
    """Open the store as another process."""
    own, known = llm.store, llm.store.namespace
    return BlockStore(
        known.path.parent, model=known.model, root=known.root, block_bytes=own.block_bytes, max_bytes=1 << 30
    )


def keys_of(llm: DocumentLLM, job: Job, num_blocks: int = FULL) -> list[bytes]:
    """Return the block keys of a living request's document, in order."""
    seq = job.answer.request.sequences[0]  # type: ignore[union-attr]
    return llm.engine.scheduler.kv.keys_of(seq, num_blocks)


# -- deleting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_deleted", [0, 5])
def test_what_another_process_deletes_is_found_nowhere_and_who_runs_on_it_goes_on(
    tmp_path: Path, first_deleted: int
) -> None:
    llm = DocumentLLM("llama", tmp_path)
    drive(llm, [ask(0, SHORT)])
    running = [ask(1, greedy_params(16)), ask(2, greedy_params(16, n=2))]
    for job in running:
        job.send(llm.engine)
    while len(list(llm.engine.scheduler.queue.sequences.values())) < 3:
        llm.engine.step()
    keys = keys_of(llm, running[0])
    assert set(keys) == llm.on_disk
    other = other_store(llm)
    assert other.delete([keys[first_deleted]]) == FULL - first_deleted
    later = ask(3, SHORT)
    later.send(llm.engine)
    while llm.engine.has_unfinished():
        llm.engine.step()
        check_books(llm)
    assert_all_greedy("llama", [*running, later])
    assert all(sum(cached(job).values()) == NUM_FULL for job in running)
    assert sum(cached(later).values()) == 4 * first_deleted
    assert llm.on_disk == set(keys), "a later request stores it again"
    assert llm.moved["save"] == FULL + FULL - first_deleted
    other.delete(keys[:1])
    other.compact()
    llm.engine.step()
    assert llm.on_disk == set()
    other.close()
    llm.close()


def test_a_document_that_is_deleted_while_it_is_computed_is_not_kept(tmp_path: Path) -> None:
    """A request that began before the deletion restores nothing: neither blocks on their way to disk nor later ones."""
    llm = DocumentLLM("llama", tmp_path, max_num_batched_tokens=8)
    drive(llm, [ask(0, SHORT)])
    asked = ask(1, SHORT, document=[*DOCUMENT[:20], *random_ids(40, 3)])
    asked.send(llm.engine)
    while not (seqs := list(llm.engine.scheduler.queue.sequences.values())) or seqs[0].num_computed_tokens < 36:
        llm.engine.step()
    keys = keys_of(llm, asked, 15)
    assert llm.engine.scheduler.swap.num_saving_to_disk >= 2, "those of the last step, and what the writer has not done"
    other = other_store(llm)
    assert other.delete(keys[:1]) >= FULL
    drive(llm, [])
    pool = llm.engine.scheduler.kv.pool
    assert [pool.find(key) for key in keys] == [None] * 15
    assert_all_greedy("llama", [asked])
    assert llm.on_disk == set()
    other.refresh()
    assert other.num_blocks == 0
    other.close()
    llm.close()


def test_a_document_that_is_deleted_while_it_is_loaded_is_not_found_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    giver, llm = DocumentLLM("llama", tmp_path), DocumentLLM("llama", tmp_path)
    drive(giver, [ask(0, SHORT)])
    read, has_read, may_tell = llm.store.read, threading.Event(), threading.Event()

    def read_and_wait(keys: Sequence[bytes], into: Any) -> list[int]:
        failed = read(keys, into)
        has_read.set()
        assert may_tell.wait(60)
        return failed

    monkeypatch.setattr(llm.store, "read", read_and_wait)
    loading, later = ask(1, SHORT), ask(2, SHORT)
    loading.send(llm.engine)
    while not has_read.is_set():
        llm.engine.step()
    assert giver.store.delete(keys_of(llm, loading)[:1]) == FULL
    llm.engine.step()
    may_tell.set()
    later.send(llm.engine)
    drive(llm, [])
    assert_all_greedy("llama", [loading, later])
    assert cached(later) == {}
    assert len(llm.on_disk) == FULL
    giver.close()
    llm.close()


# -- faults ----------------------------------------------------------------------------------------------------------


def fails_all(wanted: Sequence[Any], data: Any) -> list[int]:
    return list(range(len(wanted)))


def raises(wanted: Sequence[Any], data: Any) -> list[int]:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def check_serves(llm: DocumentLLM, num_questions: int = 3) -> list[Job]:
    """Check several requests at once, and one more afterwards."""
    jobs = drive(llm, [ask(i, SHORT, arrival=i) for i in range(num_questions)])
    jobs += drive(llm, [ask(num_questions, SHORT)])
    assert_all_greedy("llama", jobs)
    return jobs


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a KV directory with the document."""
    llm = DocumentLLM("llama", tmp_path / "kv")
    drive(llm, [ask(9, SHORT)])
    assert len(llm.on_disk) == FULL
    llm.close()
    return tmp_path / "kv"


@pytest.mark.parametrize(("fail", "budget"), [(fails_all, 7), (raises, 7), (fails_all, 512)])
def test_where_every_read_fails_it_computes(
    kept: Path, monkeypatch: pytest.MonkeyPatch, fail: Any, budget: int
) -> None:
    llm = DocumentLLM("llama", kept, max_num_batched_tokens=budget)
    monkeypatch.setattr(llm.store, "read", fail)
    jobs = check_serves(llm)
    assert all("disk" not in cached(job) for job in jobs)
    assert llm.moved["load"] == 0 < llm.failed["load"]
    llm.close()


@pytest.mark.parametrize("fail", [fails_all, raises])
def test_where_every_write_fails_it_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: Any) -> None:
    llm, other = DocumentLLM("llama", tmp_path), DocumentLLM("llama", tmp_path)
    monkeypatch.setattr(llm.store, "write", fail)
    check_serves(llm)
    assert (llm.on_disk, llm.moved["save"]) == (set(), 0)
    assert llm.failed["save"] > 0
    check_serves(other)  # which does not wait for claims of the first
    assert len(other.on_disk) == FULL
    llm.close()
    other.close()


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = DocumentLLM("llama", tmp_path)

    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        for name in ("pwrite", "pwritev"):
            patch.setattr(os, name, full)
        check_serves(llm)
        assert llm.on_disk == set()
    llm.close()


def test_a_store_that_is_full_evicts(tmp_path: Path) -> None:
    llm = DocumentLLM("llama", tmp_path, kv_dir_size=1 << 20, max_model_len=256)
    jobs = []
    for i in range(5):
        jobs += drive(llm, [ask(i, greedy_params(1), document=random_ids(240, i))])
    assert llm.moved["save"] == 5 * 60
    for i in range(5, 8):
        jobs += drive(llm, [ask(i, greedy_params(1), document=random_ids(240, i))])
    assert_all_greedy("llama", jobs[-1:])
    assert len(llm.on_disk) < 8 * 60
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 1 << 20
    llm.close()


def test_a_directory_that_cannot_be_written_to(kept: Path) -> None:
    with open_folder() as folder:
        directory = folder / "kv"
        shutil.copytree(kept, directory)
        for path in [directory, *directory.rglob("*")]:
            if os.geteuid() == 0:
                os.chown(path, 65534, 65534)
            path.chmod(0o500 if path.is_dir() else 0o400)
        model = shutil.copytree(checkpoint("llama"), folder / checkpoint("llama").name)
        for path in [model, *model.iterdir()]:
            path.chmod(0o755)
        with unprivileged():
            llm = DocumentLLM(model, directory)
            assert llm.store.is_read_only
            jobs = check_serves(llm)
            assert cached(jobs[0]) == {"disk": NUM_FULL}
            new = ask(1, SHORT, document=random_ids(33, 1))
            assert_all_greedy("llama", drive(llm, [new]))
            assert len(llm.on_disk) == FULL
            llm.close()


def unlink_segments(directory: Path) -> None:
    for path in directory.glob("*/*.seg"):
        path.unlink()


def unlink_all(directory: Path) -> None:
    shutil.rmtree(directory)


def cut_segments(directory: Path) -> None:
    for path in directory.glob("*/*.seg"):
        os.truncate(path, path.stat().st_size // 2)


def corrupt_each_record(directory: Path) -> None:
    """Corrupt a bit of the header, or all numbers of the block, so that a load leaves NaNs."""
    (namespace,) = list_namespaces(directory)
    for path in directory.glob("*/*.seg"):
        data = bytearray(path.read_bytes())
        segment = Segment(0, path, bytes.fromhex(namespace.root), namespace.block_bytes)
        assert segment.load_index()
        for row in range(FULL):
            at, size = segment.offset(row), segment.num_bytes(row)
            if row % 2:
                data[at + row * 9] ^= 1 << row % 8
            else:
                data[at + 128 : at + size] = bytes([255] * (size - 128))
        with path.open("r+b") as file:  # in place, as disk errors are
            file.write(data)


def read_slowly(llm: DocumentLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a busy disk: blocks arrive in several reports, and queued loads may be cancelled."""
    read = llm.store.read

    def slow_read(*args: Any) -> list[int]:
        time.sleep(0.003)
        return read(*args)

    monkeypatch.setattr(llm.store, "read", slow_read)


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("damage", [unlink_segments, unlink_all, cut_segments, corrupt_each_record])
def test_files_that_are_damaged_under_a_running_engine(
    kept: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], is_slow: bool
) -> None:
    llm = DocumentLLM("llama", kept)
    if is_slow:
        read_slowly(llm, monkeypatch)
    drive(llm, [Job((1, 2, 3), SHORT)])
    assert len(llm.on_disk) == FULL
    damage(kept)
    jobs = check_serves(llm)
    assert cached(jobs[0]).get("disk", 0) == (4 * (FULL // 2) if damage is cut_segments else 0)
    new = ask(1, SHORT, document=random_ids(33, 1))
    assert_all_greedy("llama", drive(llm, [new]))
    llm.close()
    if damage is not unlink_all:
        found = [cached_after_restart(kept)]
        while found[-1] < NUM_FULL:
            found.append(cached_after_restart(kept))
            assert found[-1] > found[-2], "a block that was found damaged was saved again"


def cached_after_restart(kept: Path) -> int:
    """Return the document's tokens that a new engine loads.

    An untried block may still be damaged: an engine stops loading at the first damaged block, and saves recomputed
    blocks in place of the ones it tried.
    """
    llm = DocumentLLM("llama", kept)
    (job,) = drive(llm, [ask(5, SHORT)])
    assert_all_greedy("llama", [job])
    llm.close()
    return cached(job).get("disk", 0)


@pytest.mark.parametrize("row", [4, FULL - 1, FULL])  # KV of the document's middle, and the first records of the state
@pytest.mark.parametrize("name", ["qwen3_5", "lfm2"])
def test_a_damaged_record_of_a_model_with_states_is_a_miss_and_is_saved_again(
    name: str, row: int, tmp_path: Path
) -> None:
    llm = DocumentLLM(name, tmp_path)
    drive(llm, [ask(0, SHORT)])
    num_records = len(llm.on_disk)
    assert num_records > FULL
    llm.close()
    (namespace,) = list_namespaces(tmp_path)
    (path,) = tmp_path.glob("*/*.seg")
    segment = Segment(0, path, bytes.fromhex(namespace.root), namespace.block_bytes)
    assert segment.load_index()
    data = bytearray(path.read_bytes())
    data[segment.offset(row) + segment.num_bytes(row) - 1] ^= 1
    path.write_bytes(data)
    for expected in ({}, {"disk": NUM_FULL}):
        llm = DocumentLLM(name, tmp_path)
        jobs = drive(llm, [ask(1, SHORT), ask(2, SHORT)])
        assert_all_greedy(name, jobs)
        assert cached(jobs[0]) == expected
        assert len(llm.on_disk) == num_records
        llm.close()


@pytest.mark.parametrize("name", ["qwen3_5", "lfm2"])
def test_a_document_whose_state_is_gone_is_warmed_again(name: str, tmp_path: Path) -> None:
    prompt = Prompt(token_ids=DOCUMENT, documents=(16, len(DOCUMENT)))
    for lost, following in ((BLOCK_SIZE, NUM_FULL), (NUM_FULL, 16), (16, 16)):  # ends of states; at first all is gone
        llm = DocumentLLM(name, tmp_path)
        engine, warmer = llm.engine, DocumentWarmer(llm.engine)
        made = warmer.warm(prompt)
        assert (made.num_kept_before, made.num_kept) == (lost - BLOCK_SIZE, NUM_FULL)
        assert made.num_computed > 0
        assert warmer.warm(prompt).num_computed == 0
        key = engine.document_keys(prompt)[following // BLOCK_SIZE - 1]
        states = state_keys(key, engine.scheduler.kv.num_state_records)
        assert llm.on_disk >= {*states}
        llm.store.delete(states)
        engine.step()
        assert llm.on_disk.isdisjoint(states)
        llm.close()
