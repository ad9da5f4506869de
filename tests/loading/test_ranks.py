"""A rank reads its own parts of a checkpoint only, and gets the same weights as a single rank."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from checkpoints import make_checkpoint
from quire.loading.checkpoint import read_headers
from quire.loading.modules.fitting import part_of
from quire.loading.reading.reader import ByteReader, runs_in_order_of_use
from quire.models.base import CausalLM
from quire.models.parallel import ALONE, ParallelGroup
from quire.models.parallel.split import TensorShare
from ranks import load, load_in_processes, on_ranks
from tensors import tensors_of


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_part_of_any_tensor_comes_as_it_is(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    shape = data.draw(st.sampled_from([(70,), (1, 90), (50, 64), (129, 33)]))
    dim = data.draw(st.integers(0, len(shape) - 1))
    edges = sorted(data.draw(st.sets(st.integers(0, shape[dim]), min_size=2, max_size=6)))
    ranges = tuple(zip(edges[::2], edges[1::2], strict=False))
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16]))
    tensor = torch.arange(math.prod(shape)).view(shape).to(dtype)
    directory = tmp_path_factory.mktemp("parts")
    save_file({"before": torch.ones(3, dtype=torch.bfloat16), "t": tensor}, directory / "model.safetensors")
    part = part_of(read_headers(directory)["t"], TensorShare(shape, dim, ranges))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quire.loading.reading.reader.PIECE_BYTES", 4096)
        is_direct = data.draw(st.booleans())
        reader = ByteReader(runs_in_order_of_use([part]), num_reads=2, uses_direct_io=is_direct)
        reader.start()
        found = b""
        while (piece := reader.next_piece()) is not None:
            for entry, offset, data_of in piece.parts():
                assert (entry, offset) == (part, len(found))
                found += bytes(data_of)
            reader.release(piece)
        reader.close()
    expected = torch.cat([tensor.narrow(dim, start, end - start) for start, end in ranges], dim=dim)
    assert part.shape == expected.shape
    assert found == expected.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_random_weights_are_those_of_one_rank(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)
    monkeypatch.setattr("quire.loading.modules.fill.CHUNK", 1009)  # less than most tensors, more than a row
    directory = make_checkpoint(name, tmp_path, vocab_size=253)
    (directory / "model.safetensors").unlink()

    def make(group: ParallelGroup) -> CausalLM:
        return load(directory, group, load_format="random", seed=5)

    whole = tensors_of(make(ALONE))
    for model in on_ranks(2, make):
        shares = model.checkpoint_shares()
        for name_, view in tensors_of(model).items():
            share = shares.get(name_, TensorShare(tuple(whole[name_].shape), 0, ((0, len(whole[name_])),)))
            parts = [whole[name_].narrow(share.dim, start, end - start) for start, end in share.ranges]
            assert torch.equal(view, torch.cat(parts, dim=share.dim)), name_
        assert all("norm" in each or "ln_" in each or "bias" in each for each in whole if each not in shares)


@pytest.mark.parametrize("differs_at", [None, 3, 250])
def test_all_ranks_take_a_tied_head_that_the_files_hold_all_the_same_for_what_it_is(
    differs_at: int | None, tmp_path: Path
) -> None:
    """Each rank sees its own rows, and only one rank sees the differing row."""
    directory = make_checkpoint("qwen2", tmp_path)
    tensors = load_file(directory / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    if differs_at is not None:
        tensors["lm_head.weight"][differs_at] += 1
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    models = on_ranks(2, lambda group: load(directory, group))
    assert [model.config.tie_word_embeddings for model in models] == [differs_at is None] * 2


def test_two_processes_read_and_hold_half_each(tmp_path: Path) -> None:
    directory = make_checkpoint("gpt2", tmp_path / "model", n_embd=256, n_layer=4, vocab_size=32_769)
    (alone,) = load_in_processes(directory, 1, tmp_path)
    ranks = load_in_processes(directory, 2, tmp_path)
    assert len(set(alone.tokens)) > 10
    for rank in ranks:
        assert rank.tokens == alone.tokens
        assert rank.bytes_read < 0.55 * alone.bytes_read
        assert rank.memory < 0.6 * alone.memory
