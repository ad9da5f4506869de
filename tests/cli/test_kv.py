"""`quire kv` shows and changes the stored blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from tiers.store.stores import chain, key, offset, open_store, segments, write


@pytest.fixture
def kv_dir(tmp_path: Path) -> Path:
    store = open_store(tmp_path)
    write(store, chain(1, 2, 3))
    store.label("[bold]manual.pdf", key(1), key(2), num_tokens=1234)
    store.close()
    return tmp_path / "kv"


def quire(kv_dir: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["kv", *map(str, arguments), "--kv-dir", str(kv_dir)])


def test_listing_shows_models_and_documents(kv_dir: Path, tmp_path: Path) -> None:
    output = quire(kv_dir, "ls", "--json", tmp_path / "figures").output
    assert "tiny-000102030405" in output
    assert "[bold]manual.pdf" in output
    assert "1,234" in output
    assert "2 of 2" in output
    (figures,) = json.loads((tmp_path / "figures").read_text())
    assert (figures["model"], figures["num_blocks"], figures["documents"][0]["num_tokens"]) == ("tiny", 3, 1234)


def test_an_empty_namespace_is_listed(kv_dir: Path) -> None:
    assert quire(kv_dir, "prune", "--max-bytes", "0").exit_code == 0
    assert not segments(kv_dir.parent)
    assert " 0 " in quire(kv_dir, "ls").output


def test_verifying_ends_with_1_where_something_is_damaged(kv_dir: Path) -> None:
    result = quire(kv_dir, "verify")
    assert (result.exit_code, "damaged: " in result.output) == (0, False)
    (path,) = segments(kv_dir.parent)
    data = bytearray(path.read_bytes())
    data[offset(1) + 150] ^= 1
    path.write_bytes(data)
    result = quire(kv_dir, "verify")
    assert (result.exit_code, result.output.count("damaged: ")) == (1, 1)


def test_a_document_is_deleted(kv_dir: Path) -> None:
    assert "3 blocks deleted" in quire(kv_dir, "rm", "tiny", "[bold]manual.pdf").output
    result = quire(kv_dir, "rm", "tiny", "[bold]manual.pdf")
    assert result.exit_code == 2
    assert "no document" in result.output
