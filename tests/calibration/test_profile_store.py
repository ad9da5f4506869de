"""Cost models on disk: what is found again, and what is measured anew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quire.calibration.profile_store import describe_machine, load_profile, profile_path, save_profile
from quire.core.costs.cost_model import CostModel
from quire.core.costs.interface import StepShape

NAMESPACE = bytes(range(32))
MACHINE: dict[str, str | int] = {"cpu": "a fast one", "cores": 2, "memory_gib": 8, "device": "cpu"}


def some_model() -> CostModel:
    model = CostModel()
    for number in range(40):
        model.observe_step(StepShape(number % 8 + 1, number % 8 + 1, 0.0, 100 * number), 0.01)
        model.observe_transfer(("save", "load")[number % 2], 10**6, 0.02)
    return model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = profile_path(tmp_path / "profiles", MACHINE, NAMESPACE)
    save_profile(path, some_model(), MACHINE, NAMESPACE)
    return path


def test_a_profile_is_found_again_by_machine_and_namespace(path: Path) -> None:
    model = load_profile(path, MACHINE, NAMESPACE)
    assert model is not None
    assert model.is_calibrated
    assert model.to_dict() == some_model().to_dict()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "something temporary was left"


def test_each_machine_and_namespace_has_its_own_file(tmp_path: Path) -> None:
    other_machine = {**MACHINE, "device": "cuda"}
    paths = {
        profile_path(tmp_path, machine, namespace)
        for machine in (MACHINE, other_machine)
        for namespace in (NAMESPACE, b"", b"\1" * 32)
    }
    assert len(paths) == 6


def test_a_profile_of_another_machine_or_namespace_is_none(path: Path) -> None:
    assert load_profile(path, {**MACHINE, "cores": 4}, NAMESPACE) is None
    assert load_profile(path, MACHINE, b"other") is None
    assert load_profile(path.with_name("missing.json"), MACHINE, NAMESPACE) is None


def test_any_torn_or_changed_file_is_none_and_can_be_replaced(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert load_profile(path, MACHINE, NAMESPACE) is None
    for at in range(0, len(whole), 31):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        assert load_profile(path, MACHINE, NAMESPACE) is None, f"a changed byte at {at} went unnoticed"
    for content in (b"[]", b"null", b'{"version": 1}', b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(content)
        assert load_profile(path, MACHINE, NAMESPACE) is None
    save_profile(path, some_model(), MACHINE, NAMESPACE)
    assert load_profile(path, MACHINE, NAMESPACE) is not None


def test_a_profile_of_another_version_is_none(path: Path) -> None:
    envelope = json.loads(path.read_text())
    path.write_text(json.dumps({**envelope, "version": 99}))
    assert load_profile(path, MACHINE, NAMESPACE) is None


def test_a_profile_that_cannot_be_written_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    before = path.read_bytes()
    monkeypatch.setattr("quire.calibration.profile_store.json.dump", full)
    with pytest.raises(OSError, match="no space"):
        save_profile(path, CostModel(), MACHINE, NAMESPACE)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_this_machine_describes_itself_the_same_way_twice() -> None:
    machine = describe_machine("cpu")
    assert machine == describe_machine("cpu")
    assert machine != describe_machine("NVIDIA H200")
    assert int(machine["cores"]) >= 1
    json.dumps(machine)


_WRITER = """
import pathlib, sys
from quire.core.costs.cost_model import CostModel
from quire.calibration.profile_store import save_profile
model = CostModel()
for _ in range(40):
    model.observe_transfer("load", 10**6, float(sys.argv[2]))
for _ in range(200):
    save_profile(pathlib.Path(sys.argv[1]), model, {"cpu": "a fast one"}, b"name")
"""


def test_two_processes_at_one_file_leave_it_whole_at_every_moment(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), seconds]) for seconds in ("1.0", "3.0")]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            model = load_profile(path, {"cpu": "a fast one"}, b"name")
            assert model is not None
            seen.add(round(model.load(10**6).seconds))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {1, 3}
    assert seen
    assert [entry.name for entry in tmp_path.iterdir()] == ["profile.json"]
