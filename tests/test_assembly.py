"""An engine's namespace: the digest of its weights, if known, and its config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import quire.assembly.model as assembly_model
from quire.assembly import LoadedModel, load, make_engine, start_engine
from quire.assembly import runner as assembly_runner
from quire.assembly.rank import config_of_rank
from quire.config import EngineConfig
from quire.core.block_keys import Namespace
from quire.kernels.loaded import load_kernels, runnable_levels
from quire.loading import ModelLoadError
from quire.loading.digest import hash_checkpoint
from quire.loading.known_digest import checkpoint_digest
from quire.loading.reading.checkpoint_reading import begin_reading
from quire.runner.ranks.group import FileRendezvous
from quire.sampling_params import SamplingParams
from weights import age, write_model


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def config_of(model: str | Path, **options: Any) -> EngineConfig:
    return EngineConfig(str(model), device="cpu", num_kv_blocks=8, skip_tokenizer_init=True, use_tqdm=False, **options)


def namespace_of(model: str | Path, *, is_persistent: bool = False, **options: Any) -> Namespace:
    config = config_of(model, **options)
    return assembly_runner.namespace_of(load(config), config, is_persistent=is_persistent)


def test_weights_without_a_known_digest_are_named_after_the_process_and_not_read_again(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    namespaces = {namespace_of(model) for _ in range(2)}
    assert len(namespaces) == 2
    assert all(namespace.weights.startswith("process:") for namespace in namespaces)


def test_a_known_digest_is_used_and_one_that_is_needed_is_taken(tmp_path: Path) -> None:
    model, copy, other = (write_model(tmp_path / name, seed) for name, seed in (("m", 0), ("copy", 0), ("other", 1)))
    digest = checkpoint_digest(model, use_tqdm=False)
    assert namespace_of(model).weights == digest
    persistent = namespace_of(copy, is_persistent=True)
    assert persistent == namespace_of(model) == namespace_of(copy)
    assert namespace_of(other, is_persistent=True) != persistent
    assert namespace_of(model, block_size=32) != persistent
    assert namespace_of(model, dtype="bfloat16") != persistent


def test_random_weights_have_a_name_that_outlives_the_process(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    tiny = namespace_of("random:tiny")
    assert tiny == namespace_of("random:tiny", is_persistent=True)
    others = [
        namespace_of("random:tiny", seed=1),
        namespace_of("random:tiny", dtype="bfloat16"),
        namespace_of(model, load_format="random"),
        namespace_of(model, load_format="random", seed=1),
    ]
    assert len({tiny.weights, *(other.weights for other in others)}) == 5
    config = config_of("random:tiny")
    assert assembly_runner.namespace_of(load(config), replace(config, seed=1)) == tiny, (
        "the seed that the weights were made with"
    )


def test_kv_of_other_kernels_has_another_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    here = namespace_of("random:tiny")
    levels = [level for level in (*runnable_levels(), "none") if level != load_kernels().level]
    others = set()
    for level in levels:
        monkeypatch.setenv("QUIRE_KERNELS", level)
        others.add(namespace_of("random:tiny"))
    assert len(others - {here}) == len(levels)
    assert {replace(other, computed_by=here.computed_by) for other in others} <= {here}, "nothing else differs"


@pytest.mark.parametrize("is_known", [False, True])
def test_weights_that_change_while_they_are_loaded_get_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    model = write_model(tmp_path / "model")
    if is_known:
        checkpoint_digest(model, use_tqdm=False)
    wait: Callable[..., Any] = assembly_model.wait_with_progress

    def wait_and_change(*arguments: Any, **options: Any) -> None:
        wait(*arguments, **options)
        write_model(model, seed=1)
        age(model)

    monkeypatch.setattr(assembly_model, "wait_with_progress", wait_and_change)
    config = config_of(model)
    loaded: LoadedModel = load(config)
    assert assembly_runner.namespace_of(loaded, config).weights.startswith("process:")
    with pytest.raises(ModelLoadError, match="changed after they were loaded"):
        assembly_runner.namespace_of(loaded, config, is_persistent=True)


def test_an_engines_fingerprint_is_that_of_its_namespace() -> None:
    config = config_of("random:tiny")
    loaded = load(config)
    engines = [make_engine(config, loaded) for _ in range(2)]
    root = assembly_runner.namespace_of(loaded, config).root()
    assert {engine.system_fingerprint for engine in engines} == {f"fp_{root.hex()[:10]}"}


def test_weights_are_hashed_on_their_way_where_kv_is_kept_and_no_digest_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "model")
    expected = hash_checkpoint(model)
    monkeypatch.setattr("quire.loading.known_digest.hash_checkpoint", None)  # nothing is read twice
    config = config_of(model, kv_dir=str(tmp_path / "kv"), load_overlap=True)
    assert load(config).weights == expected, "no overlap, since KV needs a name"
    assert load(config_of(model)).weights == expected, "the digest is kept"


def test_an_engine_whose_layers_are_still_arriving_computes_the_same(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    tokens = []
    for options in ({}, {"load_overlap": True, "storage_bandwidth": 2**20}):
        config = config_of(model, **options)
        reading = begin_reading(str(model), bandwidth=config.storage_bandwidth)
        engine = make_engine(config, load(config, reading=reading))
        state = engine.add_request([5, 6, 7], SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True))
        while engine.has_unfinished():
            engine.step()
        tokens.append(state.to_output().outputs[0].token_ids)
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 8


def test_a_file_that_changes_while_its_layers_are_computed_with_is_refused_before_the_first_token(
    tmp_path: Path,
) -> None:
    model = write_model(tmp_path / "model")
    reading = begin_reading(str(model))
    age(model, seconds=90)
    loaded = load(config_of(model, load_overlap=True), reading=reading)
    assert loaded.loader is not None
    with pytest.raises(ModelLoadError, match="changed while they were loaded"):
        loaded.loader.wait_stage(1)


def test_sizes_are_of_all_ranks_together_and_threads_and_bandwidths_of_the_machine() -> None:
    config = EngineConfig(
        "m", kv_cache_memory="4GiB", swap_space="2GiB", swap_bandwidth="1GB", num_threads=8, pin_prefix="text"
    )
    first, last = (config_of_rank(config, rank, 4, ranks_here=2) for rank in (0, 3))
    assert (first.kv_cache_memory, first.swap_space) == (2**30, 2**29)
    assert (first.swap_bandwidth, first.num_threads) == (500_000_000, 4)
    assert first.pin_prefix == "text"
    assert last == replace(first, pin_prefix=None, skip_tokenizer_init=True, use_tqdm=False)


@pytest.mark.parametrize("load_overlap", [False, True])
def test_ranks_can_meet_while_layers_are_still_arriving(load_overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[Path] = []

    def start(config: EngineConfig, others: object, rendezvous: FileRendezvous, *_: object, **__: object) -> Any:
        places.append(Path(rendezvous.path).parent)
        return SimpleNamespace(promoter=None, on_close=[])

    monkeypatch.setattr("quire.assembly.start.start_on_ranks", start)
    process: Any = SimpleNamespace(build=lambda make: None, end=lambda: None)
    config = EngineConfig("random:tiny", device="cpu", tensor_parallel_size=2, load_overlap=load_overlap)
    engine = start_engine(config, processes=[process])
    assert places[0].exists() is load_overlap
    for end in engine.on_close:
        end()
    assert not places[0].exists()
