"""Plans leave out a block by hand, by bytes or by a paper, and restore it in groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from progressive.models import make_model
from quire.loading import resolve_model
from quire.progressive.plans import (
    ModelBytes,
    block_that_fits,
    bytes_by,
    deepest_block,
    model_bytes,
    plan_block,
    plan_for,
    preset_plan,
    read_plan,
    write_plan,
)

SIZES = ModelBytes((10,) * 8, 100)


def test_a_block_comes_back_in_groups_the_first_half_first() -> None:
    assert plan_block(8, 3, 7).groups == ((0, 1, 2, 7), (3, 4), (5, 6))
    assert plan_block(8, 2, 7, 3).groups[1:] == ((2, 3, 4), (5, 6))
    assert plan_block(8, 2, 7, 2).groups[1:] == ((2, 3, 4, 5, 6),)
    assert plan_block(8, 2, 7, 6).groups[1:] == ((2,), (3,), (4,), (5,), (6,))
    assert plan_block(8, 4, 5).groups == ((0, 1, 2, 3, 5, 6, 7), (4,))  # two stages for a single layer
    for num_stages in range(2, 8):
        sizes = [len(group) for group in plan_block(20, 5, 13, num_stages).groups[1:]]
        assert sum(sizes) == 8
        assert max(sizes) - min(sizes) <= 1


def test_the_papers_preset_has_its_layers_and_refuses_another_depth() -> None:
    plan = preset_plan("progressiveserve", 32)
    assert plan.layers_out(1) == tuple(range(20, 28))
    assert plan.groups[1:] == ((20, 21, 22, 23), (24, 25, 26, 27))
    with pytest.raises(ValueError, match="for models of 32 layers, and this one has 16"):
        preset_plan("progressiveserve", 16)
    with pytest.raises(ValueError, match="no preset 'other'"):
        preset_plan("other", 32)


def test_as_few_layers_are_out_as_fit() -> None:
    blocks = {size: deepest_block(8, size) for size in range(1, 8)}
    assert blocks[3] == (4, 7)
    assert block_that_fits(SIZES, 179, blocks) == (6, 7)
    assert block_that_fits(SIZES, 150, blocks) == (4, 7)
    assert block_that_fits(SIZES, 149, blocks) == (3, 7)
    with pytest.raises(ValueError, match="fits in 180 B; it needs no stages"):
        block_that_fits(SIZES, 180, blocks)
    with pytest.raises(ValueError, match="with all layers out but one it has 110 B"):
        block_that_fits(SIZES, 109, blocks)
    assert bytes_by(5.0, 125e6, 3.0) == 250_000_000
    with pytest.raises(ValueError, match="leaves no time to load"):
        bytes_by(3.0, 125e6, 3.0)


@pytest.mark.parametrize("name", ["llama-tied", "gpt2", "opt"])
def test_bytes_are_those_in_the_files(tmp_path: Path, name: str) -> None:
    sizes = model_bytes(resolve_model(str(make_model(tmp_path, name))))
    tensors = load_file(tmp_path / "model.safetensors")
    assert sizes.total == sum(tensor.nbytes for tensor in tensors.values())
    second = sum(tensor.nbytes for key, tensor in tensors.items() if ".1." in key)
    assert sizes.layers == (second,) * 3
    assert sizes.without(0, 2) == sizes.total - 2 * second


def test_a_presets_bytes_are_those_of_its_published_shape() -> None:
    sizes = model_bytes(resolve_model("random:llama-2-7b"))
    assert sizes.total == 2 * 6_738_415_616
    assert 1 - sizes.without(20, 28) / sizes.total == pytest.approx(0.240, abs=0.001)  # the paper's absent layers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 3, 3), "no block 3:3 in 8 layers"),
        ((8, 3, 9), "no block 3:9 in 8 layers"),
        ((8, 0, 8), "leave at least one in"),
        ((8, 3, 7, 1), "too few"),
        ((8, 3, 5, 4), "2 layers cannot return in 3 groups; ask for 3 stages at most"),
    ],
)
def test_what_is_no_plan_is_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_block(*arguments)
    with pytest.raises(ValueError, match="between 1 and 7 can"):
        deepest_block(8, 8)


def test_a_plan_survives_its_file_and_other_files_are_named(tmp_path: Path) -> None:
    path, plan = tmp_path / "plan.json", plan_block(8, 3, 7)
    write_plan(plan, path, model="tiny")
    assert read_plan(path)[0] == plan_for(path, 8) == plan
    assert read_plan(path)[1]["model"] == "tiny"
    with pytest.raises(ValueError, match="plans 8 layers, and the model has 9"):
        plan_for(path, 9)
    for text in ("", "[]", '{"quire_plan": 1, "num_layers": 2, "groups": [[0]]}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"plan\.json is not a plan of stages"):
            read_plan(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_plan(tmp_path / "none.json")
