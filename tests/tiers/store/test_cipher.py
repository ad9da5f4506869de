"""KV encrypted by a key: readable with it only, and altered records are misses."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from command_line import app
from quire.tiers.disk_space import DiskSpace
from quire.tiers.store import offline
from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.layout.cipher import Cipher, open_cipher
from quire.tiers.store.layout.record import HEADER_BYTES, Row, encode_record, read_record, with_checksum
from tiers.store.stores import ROOT, chain, contents, key, keys, open_store, readable, segments, write

pytest.importorskip("cryptography")

SECRET, OTHER_SECRET = bytes(32), bytes([1]) * 32
BLOCK_BYTES = 2048
NAME = "tiny-000102030405"


def open_encrypted(directory: Path, secret: bytes = SECRET, dtype: str = "", root: bytes = ROOT) -> BlockStore:
    cipher = Cipher(secret)
    facts = {"encrypted_by": cipher.name}
    return open_store(directory, cipher=cipher, facts=facts, block_bytes=BLOCK_BYTES, dtype=dtype, root=root)


@pytest.mark.parametrize("dtype", ["", "bfloat16"])
def test_blocks_and_names_are_read_with_the_key_and_leave_no_plain_bytes(tmp_path: Path, dtype: str) -> None:
    store = open_encrypted(tmp_path, dtype=dtype)
    assert write(store, chain(1, 2, 3, 4, 5, 6)) == []
    store.label("secret.pdf", key(1), key(3))
    assert readable(store, keys(1, 2, 3, 4, 5, 6)) == keys(1, 2, 3, 4, 5, 6)
    store.close()
    found = offline.verify(tmp_path / "kv", cipher=Cipher(SECRET))
    assert (found.num_blocks, found.damaged, found.num_coded > 0) == (6, [], dtype != "")
    data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret.pdf" not in data
    for row in contents(keys(1, 2, 3, 4, 5, 6), BLOCK_BYTES):
        pieces = row.tobytes() + (row[1::2] & 127).tobytes() + row[::2].tobytes()  # as they are, and as coded
        assert not any(pieces[at : at + 16] in data for at in range(0, len(pieces) - 16, 16))
    store = open_encrypted(tmp_path, dtype=dtype)
    assert readable(store, keys(3, 1)) == keys(3, 1)
    assert list(store.labels()) == ["secret.pdf"]
    store.close()


def test_compaction_and_deletion_keep_the_others(tmp_path: Path) -> None:
    store = open_encrypted(tmp_path)
    write(store, [*chain(1, 2), *chain(3)])
    store.label("first", key(1), key(2))
    store.close()
    with pytest.raises(ValueError, match="is encrypted; name the file of its key"):
        offline.delete_label(tmp_path / "kv", "tiny", "first", Cipher(OTHER_SECRET))
    assert offline.delete_label(tmp_path / "kv", "tiny", "first", Cipher(SECRET)) == 2
    store = open_encrypted(tmp_path)
    assert readable(store, keys(1, 2, 3)) == keys(3)
    store.close()
    assert offline.verify(tmp_path / "kv", cipher=Cipher(SECRET)).num_blocks == 1


def test_a_store_opened_by_another_key_reads_and_deletes_nothing(tmp_path: Path) -> None:
    store = open_encrypted(tmp_path)
    write(store, chain(1, 2))
    store.label("first", key(1), key(2))
    store.close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.seg")}
    other = open_encrypted(tmp_path, OTHER_SECRET, root=bytes(32))  # as the key enters the root
    assert readable(other, keys(1, 2)) == []
    other.close()
    for cipher in (None, Cipher(OTHER_SECRET)):
        found = offline.verify(tmp_path / "kv", cipher=cipher)
        assert NAME in found.locked
        assert (found.num_blocks, found.damaged) == (0, [])
        stats = next(each for each in offline.list_namespaces(tmp_path / "kv", cipher) if each.name == NAME)
        assert (stats.num_blocks, stats.documents, stats.is_locked) == (2, [], True)
    assert {path: path.read_bytes() for path in before} == before
    wrong = open_encrypted(tmp_path, OTHER_SECRET)  # with the right root all the same
    assert readable(wrong, keys(1, 2)) == []
    assert list(wrong.labels()) == []
    wrong.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, HEADER_BYTES + 63), flip=st.integers(1, 255))
def test_no_altered_record_is_intact_even_with_new_checksums(at: int, flip: int) -> None:
    cipher, row = Cipher(SECRET), Row(key(1), key(0), 0.5, 3)
    record = bytearray(b"".join(encode_record(ROOT, row, bytes(range(64)), cipher)))
    assert read_record(ROOT, 64, memoryview(record), cipher) == row
    record[at] ^= flip
    record[:HEADER_BYTES] = with_checksum(bytes(record[: HEADER_BYTES - 8]), HEADER_BYTES, ROOT)
    found = read_record(ROOT, 64, memoryview(record), cipher)
    assert found is None or HEADER_BYTES - 8 <= at < HEADER_BYTES


def test_an_altered_block_is_a_miss(tmp_path: Path) -> None:
    store = open_encrypted(tmp_path)
    write(store, chain(1, 2, 3))
    store.close()
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of the last block
    path.write_bytes(data)
    store = open_encrypted(tmp_path)
    assert readable(store, keys(1, 2, 3)) == keys(1, 2)
    store.close()
    assert len(offline.verify(tmp_path / "kv", cipher=Cipher(SECRET)).damaged) == 1


def test_equal_blocks_are_encrypted_differently() -> None:
    cipher, row = Cipher(SECRET), Row(key(1), key(0), 0.0, 0)
    assert len({bytes(encode_record(ROOT, row, bytes(64), cipher)[1]) for _ in range(10)}) == 10


def test_swapped_blocks_are_encrypted(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path, 3, BLOCK_BYTES, ROOT, Cipher(SECRET))
    blocks, into = contents(keys(1, 2, 3), BLOCK_BYTES), np.empty((3, BLOCK_BYTES), np.uint8)
    assert space.write([0, 1, 2], keys(1, 2, 3), blocks) == []
    on_disk = os.pread(space._file.fd, 1 << 20, 0)
    assert not any(row[:16].tobytes() in on_disk for row in blocks)
    assert space.read([0, 1, 2], keys(1, 2, 3), into) == []
    assert np.array_equal(into, blocks)
    assert space.read([0], keys(2), into[:1]) == [0]


@pytest.mark.parametrize("text", [SECRET, SECRET.hex().encode() + b"\n", base64.b64encode(SECRET) + b"\n"])
def test_a_key_file_is_raw_hex_or_base64(tmp_path: Path, text: bytes) -> None:
    path = key_file(tmp_path, text)
    cipher = open_cipher(path)
    assert cipher is not None
    assert cipher.name == Cipher(SECRET).name != Cipher(OTHER_SECRET).name


def test_a_mistake_with_a_key_file_says_how_to_mend_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_cipher(None) is None
    with pytest.raises(ValueError, match=r"cannot be read: No such file.*openssl rand -base64 32 > FILE"):
        open_cipher(tmp_path / "nothing")
    for text in (b"", b"password\n", SECRET.hex().encode()[:-2], b"\xff" * 31):
        with pytest.raises(ValueError, match=r"holds no key of 32 bytes.*openssl"):
            open_cipher(key_file(tmp_path, text))
    path = key_file(tmp_path, SECRET)
    path.chmod(0o640)
    with pytest.raises(ValueError, match=f"may be read by others.*chmod 600 {path}"):
        open_cipher(path)
    path.chmod(0o400)
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ValueError, match=r"kv_dir_key needs .*pip install 'quire-llm\[encryption\]'"):
        open_cipher(path)


def key_file(directory: Path, text: bytes) -> Path:
    path = directory / "key"
    path.unlink(missing_ok=True)
    path.write_bytes(text)
    path.chmod(0o600)
    return path


def test_the_commands_take_the_key(tmp_path: Path) -> None:
    store = open_encrypted(tmp_path)
    write(store, chain(1, 2))
    store.label("secret.pdf", key(1), key(2))
    store.close()

    def quire(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["kv", *map(str, arguments), "--kv-dir", str(tmp_path / "kv")])

    with_key = ("--kv-dir-key", key_file(tmp_path, SECRET))
    for command in ("ls", "verify"):
        result = quire(command)
        assert (result.exit_code, f"{NAME} is encrypted" in result.output) == (0, True)
        result = quire(command, *with_key)
        assert (result.exit_code, "is encrypted" in result.output) == (0, False)
    assert "secret.pdf" in quire("ls", *with_key).output
    assert quire("rm", "tiny", "secret.pdf").exit_code == 2
    assert "2 blocks deleted" in quire("rm", "tiny", "secret.pdf", *with_key).output
    assert quire("prune", "--max-bytes", 0).exit_code == 0
    assert segments(tmp_path) == []
