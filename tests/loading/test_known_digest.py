"""A digest is known without reading the weights while they cannot have changed."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.loading import ModelLoadError, known_digest
from quire.loading.digest import hash_checkpoint
from quire.loading.known_digest import MANIFEST_FILE, checkpoint_digest, stat_weights, write_manifest
from weights import age, some_tensors, write_shards


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tensors = some_tensors()
    first = {name: tensors.pop(name) for name in ("a.weight", "norm")}
    return write_shards(tmp_path / "model", [first, tensors])


def tell(directory: Path, **options: Any) -> str:
    return checkpoint_digest(directory, use_tqdm=False, **options)


def known(directory: Path) -> str | None:
    return known_digest.known_digest(directory, stat_weights(directory))


def forget(directory: Path) -> None:
    """Use the cache of another machine."""
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def change_byte(path: Path) -> None:
    """Change a byte in place: same inode and size."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes((last[0] ^ 1,)))


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_weights_are_read_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known(directory) is None
    digest = tell(directory)
    assert digest == hash_checkpoint(directory)
    monkeypatch.setattr(known_digest, "hash_checkpoint", None)
    assert tell(directory) == known(directory) == digest
    monkeypatch.chdir(directory)
    assert known(Path(".")) == digest, "one checkpoint by any path"


def _touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def _grow(path: Path) -> None:
    mtime = path.stat().st_mtime_ns
    with path.open("ab") as file:
        file.write(b"\0")
    os.utime(path, ns=(mtime, mtime))


def _replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy2(path, copy)
    copy.rename(path)


def _change_and_set_the_mtime_back(path: Path) -> None:
    mtime = path.stat().st_mtime_ns
    change_byte(path)
    os.utime(path, ns=(mtime, mtime))


@pytest.mark.parametrize("change", [_touch, _grow, _replace, _change_and_set_the_mtime_back, change_byte])
def test_any_change_of_a_file_has_it_read_again(directory: Path, change: Callable[[Path], None]) -> None:
    tell(directory)
    change(directory / "model-1.safetensors")
    assert known(directory) is None


def test_an_index_of_other_shards_has_them_read(directory: Path) -> None:
    tell(directory)
    shutil.copy2(directory / "model-1.safetensors", directory / "other.safetensors")
    index = directory / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-1", "other"))
    assert known(directory) is None


def test_a_file_that_was_just_written_is_not_trusted_to_stay(directory: Path) -> None:
    age(directory, seconds=1)
    tell(directory)
    assert known(directory) is None, "it could change within the same tick of the clock"
    age(directory, seconds=4)
    assert tell(directory) == known(directory)


def test_files_that_change_meanwhile_or_since_they_were_loaded_have_no_digest(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = stat_weights(directory)
    assert tell(directory, files=files)

    def hash_and_change(*arguments: Any, **options: Any) -> str:
        digest = hash_checkpoint(*arguments, **options)
        change_byte(directory / "model-0.safetensors")
        return digest

    monkeypatch.setattr(known_digest, "hash_checkpoint", hash_and_change)
    _touch(directory / "model-0.safetensors")
    with pytest.raises(ModelLoadError, match="changed while they were hashed"):
        tell(directory)
    assert known(directory) is None
    with pytest.raises(ModelLoadError, match="changed after they were loaded"):
        tell(directory, files=files)


def test_a_cached_file_that_is_broken_counts_as_none(directory: Path) -> None:
    digest = tell(directory)
    (path,) = Path(os.environ["XDG_CACHE_HOME"], "quire", "digests").iterdir()
    whole = path.read_text()
    kept = json.loads(whole)
    broken = [whole[:-9], "", "[]", "[" * 9000, "null", whole.replace(digest, digest[:-1] + "z")]
    broken += [
        whole.replace(digest[-20:], "0" * 20),
        json.dumps(kept | {"version": 0}),
        json.dumps({**kept, "files": 1}),
    ]
    for text in broken:
        path.write_text(text)
        assert known(directory) is None, text
    assert tell(directory) == digest
    assert path.read_text() == whole


def test_a_cache_that_cannot_be_written_is_no_error(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert tell(directory) == hash_checkpoint(directory)
    assert known(directory) is None


# -- the manifest ------------------------------------------------------------------------------------------------------


def test_a_manifest_is_believed_where_nothing_is_cached(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = write_manifest(directory, use_tqdm=False)
    assert digest == hash_checkpoint(directory)
    copy = Path(shutil.copytree(directory, directory.parent / "copy"))
    for file in copy.glob("*.safetensors"):  # archives keep whole seconds
        seconds = int(file.stat().st_mtime)
        os.utime(file, (seconds, seconds))
    monkeypatch.setattr(known_digest, "hash_checkpoint", None)
    assert known(copy) == tell(copy, is_strict=True) == digest


def _train_on(directory: Path) -> None:
    change_byte(directory / "model-0.safetensors")  # same name, same size


def _change_and_set_all_mtimes_to_one_day(directory: Path) -> None:
    for file in directory.glob("*.safetensors"):
        os.utime(file, (1, 1))
    write_manifest(directory, use_tqdm=False)
    change_byte(directory / "model-0.safetensors")
    os.utime(directory / "model-0.safetensors", (1, 1))


def _copy_without_mtimes(directory: Path) -> None:
    age(directory, seconds=30)


def _take_another_size(directory: Path) -> None:
    _grow(directory / "model-0.safetensors")


def _reshard(directory: Path) -> None:
    (directory / "model.safetensors.index.json").unlink()
    write_shards(directory, [some_tensors()])


def _edit_manifest(**changes: Any) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        path = directory / MANIFEST_FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def _break_manifest(directory: Path) -> None:
    (directory / MANIFEST_FILE).write_bytes(b"\xff{")


@pytest.mark.parametrize(
    "change",
    [
        _train_on,
        _change_and_set_all_mtimes_to_one_day,
        _copy_without_mtimes,
        _take_another_size,
        _reshard,
        _break_manifest,
        _edit_manifest(quire_manifest=2),
        _edit_manifest(weights="sha256:0"),
        _edit_manifest(files=[]),
    ],
)
def test_a_manifest_that_does_not_fit_is_not_believed(
    directory: Path, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(directory, use_tqdm=False)
    change(directory)
    forget(directory)
    assert known(directory) is None
    with pytest.raises(ModelLoadError, match=f"write it again with `quire digest --write-manifest {directory}`"):
        tell(directory, is_strict=True)
    monkeypatch.setattr(known_digest, "hash_checkpoint", lambda *_, **__: "sha256:hashed")
    with caplog.at_level(logging.WARNING):
        assert tell(directory) == "sha256:hashed"
    assert "The weights are hashed instead" in caplog.text


def test_a_manifest_is_written_anew_from_the_bytes(directory: Path) -> None:
    tell(directory)
    _edit_manifest_of_another(directory)
    with pytest.raises(ModelLoadError, match="names another digest than the weights have"):
        tell(directory, is_strict=True)
    assert tell(directory) == hash_checkpoint(directory), "what was hashed here is believed rather"
    assert write_manifest(directory, use_tqdm=False) == tell(directory, is_strict=True)
    assert (directory / MANIFEST_FILE).stat().st_mode & 0o777 == 0o644
    assert len(list(directory.glob("*manifest*"))) == 1


def _edit_manifest_of_another(directory: Path) -> None:
    write_manifest(directory, use_tqdm=False)
    _edit_manifest(weights="sha256:" + "0" * 64)(directory)


def test_a_manifest_waits_until_a_change_of_the_weights_would_show(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(known_digest.time, "sleep", waits.append)
    write_manifest(directory, use_tqdm=False)
    age(directory, seconds=0)
    write_manifest(directory, use_tqdm=False)
    assert waits[0] == 0
    assert 1 < waits[1] <= 3
    age(directory, seconds=-60)
    with pytest.raises(ModelLoadError, match="dated in the future"):
        write_manifest(directory, use_tqdm=False)


def test_a_manifest_that_cannot_be_written_is_one_message(directory: Path) -> None:
    (directory / MANIFEST_FILE).mkdir()
    with pytest.raises(ModelLoadError, match=r"manifest\.json cannot be written"):
        write_manifest(directory, use_tqdm=False)
    assert not list(directory.glob(".quire*")), "no half of one is left"


def test_two_checkpoints_are_kept_apart(tmp_path: Path) -> None:
    one, two = (
        write_shards(tmp_path / name, [{"t": torch.full((3,), value)}]) for name, value in (("1", 1.0), ("2", 2.0))
    )
    assert tell(one) != tell(two)
    assert (known(one), known(two)) == (tell(one), tell(two))
