"""Settings: a field is defined once, read from text or the environment, and always validated."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from quire.config import EngineConfig
from quire.server.settings import ServerSettings
from quire.settings import (
    EnvironmentSettings,
    integer_range,
    integers,
    names,
    numbers,
    parse_size,
    setting,
    share_range,
)


@dataclass(frozen=True)
class Probe(EnvironmentSettings):
    size: int = setting("1KiB", "A size.", read=parse_size, at_least=1)
    sizes: tuple[int, ...] = setting("1,2", "Several.", read=integers, at_least=1)
    share: float = setting(0.5, "A share.", at_least=0, below=1)
    kind: str = setting("a", "A kind.", choices=("a", "b"))
    wait_s: float | None = setting(None, "A time.", name="wait", above=0)
    places: tuple[str, ...] = setting((), "Places.", name="place")
    where: Path | None = setting(None, "A file.")
    is_on: bool = setting(False, "A switch.")
    key: str | None = setting(None, "A secret.", repr=False)


def test_texts_are_read() -> None:
    assert integers("1,2,4") == (1, 2, 4)
    assert numbers("0.5,inf") == (0.5, math.inf)
    assert integer_range("64-512") == (64, 512)
    assert integer_range("7") == (7, 7)
    for wrong in ("9-3", "0-3"):
        with pytest.raises(ValueError, match="has no lengths: expected 1 <= low <= high"):
            integer_range(wrong)
    assert share_range("0.1-0.9") == (0.1, 0.9)
    assert names("swap, cost") == ("swap", "cost")
    assert [parse_size(text) for text in ("12", "4KiB", "1kb", "2g")] == [12, 4096, 1000, 2 * 1024**3]


def test_a_default_is_read_like_any_text() -> None:
    assert (Probe().size, Probe().sizes) == (1024, (1, 2))
    assert Probe(sizes="1,2", wait_s=3.0).changed("size", "sizes", "wait_s") == ["wait_s"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": "lots"}, "size='lots' is not a size; write bytes or a unit, such as 4GiB"),
        ({"size": "0"}, "size=0 must be at least 1"),
        ({"sizes": "4,x"}, "sizes='4,x' is not a list of integers such as 16 or 1,2,4"),
        ({"sizes": (4, 0)}, "sizes=4,0 must be at least 1"),
        ({"share": 1.0}, "share=1.0 must be at least 0 and below 1"),
        ({"share": math.nan}, "share=nan must be"),
        ({"kind": "c"}, "kind='c' is not one of a, b"),
        ({"wait_s": 0}, "wait_s=0 must be above 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Probe(**given)  # type: ignore[arg-type]


def test_the_environment_names_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"SIZE": "2KiB", "WAIT": "1.5", "PLACE": "a,b", "WHERE": "/x", "IS_ON": "yes", "SHARE": "0.25"}
    for name, value in variables.items():
        monkeypatch.setenv(f"QUIRE_{name}", value)
    found = Probe.from_env(size="3KiB", kind=None)
    assert found == Probe(3072, wait_s=1.5, places=("a", "b"), where=Path("/x"), is_on=True, share=0.25)


@pytest.mark.parametrize(("name", "value", "words"), [("IS_ON", "maybe", "a yes or no"), ("WAIT", "long", "a number")])
def test_a_variable_that_says_nothing_is_named(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"QUIRE_{name}", value)
    with pytest.raises(ValueError, match=f"QUIRE_{name}='{value}' is not {words}"):
        Probe.from_env()


def test_a_report_shows_no_secret_and_is_json() -> None:
    settings = Probe(key="secret", where=Path("/x"), wait_s=math.inf)
    assert "secret" not in repr(settings)
    shown = json.loads(json.dumps(settings.as_json(), allow_nan=False))
    assert (shown["key"], shown["where"], shown["wait_s"]) == ("given", "/x", "inf")


def test_the_server_is_set_by_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_MAX_QUEUE", "7")
    monkeypatch.setenv("QUIRE_KEEP_ALIVE", "3")
    monkeypatch.setenv("QUIRE_API_KEY", "read-by-somebody-else")
    settings = ServerSettings.from_env(port=0)
    assert (settings.max_queue, settings.keep_alive_s, settings.port, settings.api_keys) == (7, 3, 0, ())
    assert settings.max_body_bytes == 8 * 1024**2


def test_an_engine_without_a_process_of_its_own_cannot_be_unloaded() -> None:
    assert ServerSettings(idle_unload_s=60).load_wait_s == 120
    with pytest.raises(ValueError, match="idle_unload=60 ends a model's process"):
        ServerSettings(idle_unload_s=60, engine_process=False)


@pytest.mark.parametrize("text", ["sometimes", "threshold", "threshold:-1", "threshold:8:swap-below", "cost:1", ""])
def test_a_policy_that_is_none_is_refused_where_it_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="recovery_policy="):
        EngineConfig("m", recovery_policy=text)


def test_threads_that_no_machine_has_are_refused() -> None:
    assert EngineConfig("m", num_threads=1024).num_threads == 1024
    with pytest.raises(ValueError, match="num_threads=100000 must be at least 1 and at most 1024"):
        EngineConfig("m", num_threads=100_000)


def test_an_address_that_kubernetes_left_in_the_environment_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_PORT", "tcp://10.0.0.1:8000")
    assert ServerSettings.from_env().port == 8000


def test_an_engine_reads_sizes_from_texts() -> None:
    assert EngineConfig("m", swap_space="2GiB").swap_space == 2 * 1024**3  # type: ignore[arg-type]
