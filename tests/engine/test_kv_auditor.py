"""Audits of found KV: what is right passes, what is wrong is found, dropped and computed again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from documents import config_of, run, start
from engine.harness import checkpoint
from quire.assembly import LoadedModel, load
from quire.core.block_keys import PUBLIC, extend_keys, state_keys, tenant_domain
from quire.engine.kv_auditor import KVAuditor
from quire.kernels.loaded import has_exact_kernels
from quire.prompt import Prompt
from quire.tiers.store.layout.record import FILE_HEADER_BYTES, HEADER_BYTES, decode_header, encode_header

pytestmark = pytest.mark.skipif(not has_exact_kernels("cpu", "float32"), reason="torch's bits depend on the batch")

ANN = tenant_domain("ann", b"secret")
PROMPT = Prompt(token_ids=list(range(40, 140)), domains=((0, PUBLIC), (32, ANN)))  # six blocks, of two domains


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    if not has_exact_kernels("cpu", request.param):
        pytest.skip(f"{request.param} is not exact here")
    return load(config_of(tmp_path_factory.mktemp("kv"), dtype=request.param))


@pytest.fixture(autouse=True)
def _whole_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each audit cover its whole prefix, also where the machine is slow."""
    monkeypatch.setattr("quire.engine.kv_auditor._STEP_S", 1e6)


class Audited:
    """An engine over one directory, and the results of its audits."""

    def __init__(self, directory: Path, loaded: LoadedModel, **options: Any) -> None:
        dtype = str(loaded.model.dtype).removeprefix("torch.")
        options |= {"kv_dir_keep_prompts": True, "kv_dir_coding": "off"}  # so that `alter` finds the bits
        self.engine = start(config_of(directory, dtype=dtype, **options), loaded)
        self.engine.auditor = KVAuditor(self.engine, 1e9, seed=1)
        self.results: Counter[tuple[str, str]] = Counter()
        self.engine.on_stats.append(lambda stats: self.results.update(stats.audits))

    @property
    def auditor(self) -> KVAuditor:
        assert self.engine.auditor is not None
        return self.engine.auditor

    def audit(self) -> None:
        self.auditor.begin()
        while self.engine.has_unfinished():
            self.engine.step()
        self.engine.scheduler.check_integrity()
        assert not self.engine.scheduler.kv.pool.num_used


def alter(audited: Audited, block: int, state_record: int | None = None) -> None:
    """Flip one bit of a block on disk, or of its state, and repair its checksums."""
    namespace = audited.engine.runner.disk.store.namespace  # type: ignore[union-attr]
    keys: list[bytes] = []
    extend_keys(keys, namespace.root, PROMPT.domains, PROMPT.token_ids, 16, 6)
    key = keys[block] if state_record is None else state_keys(keys[block], state_record + 1)[-1]
    size = HEADER_BYTES + namespace.block_bytes
    for path in namespace.path.glob("*.seg"):
        data = bytearray(path.read_bytes())
        for at in range(FILE_HEADER_BYTES, len(data) - size + 1, size):
            row = decode_header(namespace.root, namespace.block_bytes, data[at : at + HEADER_BYTES])
            if row is not None and row.key == key:
                data[at + HEADER_BYTES + 100] ^= 1
                data[at : at + HEADER_BYTES] = encode_header(namespace.root, row, data[at + HEADER_BYTES : at + size])
        path.write_bytes(data)


def test_right_kv_passes_in_each_tier(tmp_path: Path, loaded: LoadedModel) -> None:
    first = Audited(tmp_path, loaded)
    run(first.engine, PROMPT)
    run(first.engine, PROMPT)
    again = Audited(tmp_path, loaded)
    run(again.engine, PROMPT)
    for audited, tier in ((first, "device"), (again, "disk")):
        audited.audit()
        assert audited.results == {(tier, "equal"): 1}
        assert audited.auditor.wait_s() is None, "each hit is audited once"


@pytest.mark.parametrize("block", [0, 3, 5])
def test_a_flipped_bit_with_a_right_checksum_is_found_and_computed_again(
    block: int, tmp_path: Path, loaded: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    first = Audited(tmp_path, loaded)
    expected = run(first.engine, PROMPT).request.sequences[0].output_token_ids
    alter(first, block)
    audited = Audited(tmp_path, loaded)
    assert run(audited.engine, PROMPT).request.cached_tokens == {"disk": 96}
    audited.audit()
    assert audited.results == {("disk", "different"): 1}
    assert f"tokens {16 * block} to {16 * block + 15} of a prefix found in the tier disk differ" in caplog.text
    assert "1 of" in caplog.text
    audited.engine.step()  # learns what was deleted
    assert len(audited.engine.scheduler.swap.on_disk) == block
    state = run(audited.engine, PROMPT)
    assert state.request.cached_tokens == ({"disk": 16 * block} if block else {})
    assert state.request.sequences[0].output_token_ids == expected
    assert len(audited.engine.scheduler.swap.on_disk) == 6, "saved again"


@pytest.mark.parametrize("altered", [None, (2, None), (5, 0)])  # nothing, KV that is thin on the device, the state
def test_states_are_audited_with_the_kv(
    altered: tuple[int, int | None] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hybrid = load(config_of(tmp_path, str(checkpoint("qwen3_5")), skip_tokenizer_init=True))
    options: dict[str, Any] = {"model": str(checkpoint("qwen3_5")), "skip_tokenizer_init": True}
    first = Audited(tmp_path, hybrid, **options)
    expected = run(first.engine, PROMPT).request.sequences[0].output_token_ids
    if altered is not None:
        alter(first, *altered)
    audited = Audited(tmp_path, hybrid, **options)
    assert run(audited.engine, PROMPT).request.cached_tokens == {"disk": 96}
    audited.audit()
    assert audited.results == {("disk", "equal" if altered is None else "different"): 1}
    if altered is not None:
        assert f"tokens {16 * altered[0]} to" in caplog.text
        audited.engine.step()  # learns what was deleted
        state = run(audited.engine, PROMPT)
        assert state.request.cached_tokens == {}
        assert state.request.sequences[0].output_token_ids == expected


def test_after_a_second_mismatch_the_disk_is_not_used(tmp_path: Path, loaded: LoadedModel) -> None:
    audited = Audited(tmp_path, loaded)
    run(audited.engine, PROMPT)
    for _ in range(2):
        audited.engine.reset_prefix_cache()
        alter(audited, 2)
        run(audited.engine, PROMPT)
        audited.audit()
        run(audited.engine, PROMPT)
    assert audited.results == {("disk", "different"): 2}
    assert not audited.engine.scheduler.swap.on_disk
    audited.engine.reset_prefix_cache()
    assert run(audited.engine, PROMPT).request.cached_tokens == {}
    assert Audited(tmp_path, loaded).engine.scheduler.swap.on_disk, "its files stay"


def test_a_request_cancels_an_audit(tmp_path: Path, loaded: LoadedModel) -> None:
    audited = Audited(tmp_path, loaded, max_num_batched_tokens=16)
    run(audited.engine, PROMPT)
    run(audited.engine, PROMPT)
    audited.auditor.begin()
    audited.engine.step()
    assert audited.engine.has_unfinished()
    run(audited.engine, list(range(200, 240)))
    assert not audited.results
    assert not audited.engine.scheduler.kv.pool.num_used
    audited.audit()
    assert audited.results == {("device", "equal"): 1}


def test_what_has_left_the_device_is_not_audited(tmp_path: Path, loaded: LoadedModel) -> None:
    audited = Audited(tmp_path, loaded)
    run(audited.engine, PROMPT)
    run(audited.engine, PROMPT)
    audited.engine.reset_prefix_cache()
    audited.audit()
    assert not audited.results
    assert audited.auditor.wait_s() is None


def test_audits_are_spread_over_the_hour(tmp_path: Path, loaded: LoadedModel) -> None:
    audited = Audited(tmp_path, loaded)
    audited.engine.auditor = auditor = KVAuditor(audited.engine, 6.0)
    assert auditor.wait_s() is None
    run(audited.engine, PROMPT)
    run(audited.engine, PROMPT)
    wait_s = auditor.wait_s()
    assert wait_s is not None
    assert 290 < wait_s < 910
