"""The read benchmark reads from storage, not from the page cache."""

from __future__ import annotations

from pathlib import Path

from benchmarks.read import measure


def test_every_reader_takes_its_turns_on_a_file_that_is_not_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(5 * 2**20))
    found = measure(file, runs=2)
    assert {len(speeds) for speeds in found["bytes_s"].values()} == {2}
    assert all(speed > 0 for speeds in found["bytes_s"].values() for speed in speeds)
    assert len(found["of_fio"]) == (2 if "fio" in found["bytes_s"] else 0)
    assert 0 <= found["resident"] <= 1
