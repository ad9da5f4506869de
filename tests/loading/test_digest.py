"""Equal tensors have equal digests in any files, and different tensors different ones."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from quire.loading import ModelLoadError, resolve_model
from quire.loading.digest import hash_checkpoint, random_digest
from weights import some_tensors, write_shards

GOLDEN = "sha256:5b8e40d698e27d995bfbde14a923615613e5f30b40ff13b9fd69aa8e557354f3"


def digest_of(directory: Path, *shards: dict[str, Tensor]) -> str:
    return hash_checkpoint(write_shards(directory, shards or [some_tensors()]))


def test_digests_on_disk_stay_valid_over_versions(tmp_path: Path) -> None:
    """If this fails, all KV on disk becomes unreachable: raise the version in `digest.py` and say so."""
    assert digest_of(tmp_path) == GOLDEN


@settings(max_examples=15, deadline=None)
@given(st.permutations(sorted(some_tensors())), st.sets(st.integers(1, 4)), st.sampled_from(["model", "x"]))
def test_shards_their_names_and_the_order_in_them_do_not_count(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], cuts: set[int], prefix: str
) -> None:
    tensors, edges = some_tensors(), [0, *sorted(cuts), len(names)]
    shards = [{name: tensors[name] for name in names[start:end]} for start, end in pairwise(edges)]
    directory = write_shards(tmp_path_factory.mktemp("shards"), shards, prefix)
    assert hash_checkpoint(directory) == GOLDEN


def test_metadata_padding_of_the_header_and_other_files_do_not_count(tmp_path: Path) -> None:
    save_file(some_tensors(), tmp_path / "model.safetensors", metadata={"format": "pt", "by": "x" * 100})
    (tmp_path / "other.safetensors").write_bytes(b"not named by an index")
    assert hash_checkpoint(tmp_path) == GOLDEN


@pytest.mark.parametrize(("piece", "num_threads"), [(1, 1), (7, 3), (2**24, 1)])
def test_neither_pieces_nor_threads_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, num_threads: int
) -> None:
    monkeypatch.setattr("quire.loading.digest._PIECE_BYTES", piece)
    passed: list[int] = []
    write_shards(tmp_path, [some_tensors()])
    assert hash_checkpoint(tmp_path, num_threads=num_threads, advance=passed.append) == GOLDEN
    assert sum(passed) == sum(tensor.nbytes for tensor in some_tensors().values())


def _flip(tensors: dict[str, Tensor]) -> None:
    tensors["a.weight"].view(torch.uint8)[7, 47] ^= 1


def _rename(tensors: dict[str, Tensor]) -> None:
    tensors["c.bias"] = tensors.pop("b.bias")


def _swap(tensors: dict[str, Tensor]) -> None:
    tensors["a.weight"], tensors["b.weight"] = tensors["b.weight"], tensors["a.weight"]


def _retype(tensors: dict[str, Tensor]) -> None:
    tensors["norm"] = tensors["norm"].view(torch.bfloat16)


def _reshape(tensors: dict[str, Tensor]) -> None:
    tensors["a.weight"] = tensors["a.weight"].view(12, 8)


def _add(tensors: dict[str, Tensor]) -> None:
    tensors["rotary_emb.inv_freq"] = torch.ones(2)


def _drop(tensors: dict[str, Tensor]) -> None:
    del tensors["empty"]


@pytest.mark.parametrize("change", [_flip, _rename, _swap, _retype, _reshape, _add, _drop])
def test_any_other_tensor_is_another_digest(tmp_path: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = some_tensors()
    change(tensors)
    assert digest_of(tmp_path, tensors) != GOLDEN


def test_a_file_that_is_cut_off_has_no_digest(tmp_path: Path) -> None:
    path = write_shards(tmp_path, [some_tensors()]) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelLoadError, match="truncated"):
        hash_checkpoint(tmp_path)
    with pytest.raises(ModelLoadError, match="contains no weights"):
        hash_checkpoint(tmp_path / "nothing")


def test_an_interrupt_ends_hashing_in_the_midst_of_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.loading.digest._PIECE_BYTES", 1)
    passed: list[int] = []
    main, never = threading.main_thread().ident, threading.Event()
    assert main is not None

    def interrupt(num_bytes: int) -> None:
        passed.append(num_bytes)
        if len(passed) == 20:  # the main thread waits by then
            signal.pthread_kill(main, signal.SIGINT)  # Ctrl-C
        never.wait(0.001)

    write_shards(tmp_path, [{"a": torch.ones(500), "b": torch.ones(500)}])
    with pytest.raises(KeyboardInterrupt):
        hash_checkpoint(tmp_path, num_threads=1, advance=interrupt)
    assert len(passed) < 2000


def test_random_weights_are_named_without_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(preset: str = "random:tiny", dtype: str = "float32", seed: int = 0) -> str:
        return random_digest(resolve_model(preset).config, dtype=dtype, seed=seed)

    monkeypatch.setattr(np.random, "Generator", None)
    assert name() == name()
    others = [name("random:gpt2"), name("random:gpt2-medium"), name(dtype="bfloat16"), name(seed=1)]
    monkeypatch.setattr(np, "__version__", "99.0")
    assert len({*others, name()}) == 5, "numpy may draw other numbers in another version"
    assert all(digest.startswith("random:") for digest in others)
