"""Cost models on disk: reuse, and new measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quire.calibration.profiles import ProfilePlace, describe_machine
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape

FACTS = {"cpu": "a fast one", "cores": 2, "memory_gib": 8, "device": "cpu", "block_size": 16}


def some_model() -> CostModel:
    model = CostModel()
    for number in range(40):
        model.observe_step(StepShape(number % 8 + 1, number % 8 + 1, 0.0, 100 * number), 0.01)
        model.observe_transfer(("save", "load")[number % 2], 10**6, 0.02)
    return model


@pytest.fixture
def place(tmp_path: Path) -> ProfilePlace:
    place = ProfilePlace(tmp_path / "profiles", FACTS)
    place.save(some_model())
    return place


def test_a_profile_is_found_again_by_its_facts(place: ProfilePlace) -> None:
    model = place.load()
    assert model is not None
    assert model.is_calibrated
    assert model.to_dict() == some_model().to_dict()
    assert [entry.name for entry in place.directory.iterdir()] == [place.path.name], "something temporary was left"


@pytest.mark.parametrize("other", [{"cores": 4}, {"device": "cuda"}, {"block_size": 32}])
def test_other_facts_have_a_file_of_their_own_and_do_not_trust_this_one(
    place: ProfilePlace, other: dict[str, object]
) -> None:
    elsewhere = ProfilePlace(place.directory, {**FACTS, **other})
    assert elsewhere.path != place.path
    assert elsewhere.load() is None
    elsewhere.path.write_bytes(place.path.read_bytes())
    assert elsewhere.load() is None


def test_any_torn_or_changed_file_is_none_and_can_be_replaced(place: ProfilePlace) -> None:
    path = place.path
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert place.load() is None
    for at in range(0, len(whole), 31):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        assert place.load() is None, f"a changed byte at {at} went unnoticed"
    for content in (b"[]", b"null", b'{"version": 1}', b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(content)
        assert place.load() is None
    place.save(some_model())
    assert place.load() is not None


def test_a_profile_of_another_version_is_none(place: ProfilePlace) -> None:
    envelope = json.loads(place.path.read_text())
    place.path.write_text(json.dumps({**envelope, "version": 99}))
    assert place.load() is None


def test_a_profile_that_cannot_be_written_leaves_the_old_one(
    place: ProfilePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    before = place.path.read_bytes()
    monkeypatch.setattr("quire.system.user_cache.os.replace", full)
    with pytest.raises(OSError, match="no space"):
        place.save(CostModel())
    assert place.path.read_bytes() == before
    assert list(place.directory.iterdir()) == [place.path]


def test_this_machine_describes_itself_the_same_way_twice() -> None:
    machine = describe_machine("cpu")
    assert machine == describe_machine("cpu")
    assert machine != describe_machine("NVIDIA H200")
    assert int(machine["cores"]) >= 1
    json.dumps(machine)


_WRITER = """
import pathlib, sys
from quire.core.decisions.cost_model import CostModel
from quire.calibration.profiles import ProfilePlace
model = CostModel()
for _ in range(40):
    model.observe_transfer("load", 10**6, float(sys.argv[2]))
for _ in range(200):
    ProfilePlace(pathlib.Path(sys.argv[1]), {"cpu": "a fast one"}).save(model)
"""


def test_two_processes_at_one_file_leave_it_whole_at_every_moment(tmp_path: Path) -> None:
    place = ProfilePlace(tmp_path, {"cpu": "a fast one"})
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), seconds]) for seconds in ("1.0", "3.0")]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if place.path.exists():
            model = place.load()
            assert model is not None
            seen.add(round(model.load(10**6)))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {1, 3}
    assert seen
    assert [entry.name for entry in tmp_path.iterdir()] == [place.path.name]
