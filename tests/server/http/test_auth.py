"""API keys and tenants: admission, and sharing of blocks."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from quire.core.block_keys import PUBLIC_ONLY, next_key
from quire.server.http.keys import key_id, load_api_keys, load_tenant_secret, state_directory
from quire.server.http.middleware import PUBLIC_KEY_ID, Authenticate, CheckHost, domains_of
from quire.server.settings import ServerSettings
from server.asgi import ask, tell_state

KEYS = ("sk-first", "sk-second")
SETTINGS = ServerSettings(api_keys=KEYS, tenant_secret=b"s" * 32)
LOCKED = Authenticate(tell_state, SETTINGS)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


# -- who is let in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_every_key_opens_and_is_known_by_an_id_that_is_not_the_key(key: str) -> None:
    state = ask(LOCKED, headers=bearer(key)).json()["state"]
    assert state["key_id"] == key_id(key, SETTINGS.tenant_secret)
    assert key not in str(state)


def test_the_scheme_is_read_as_http_says_in_any_case() -> None:
    assert ask(LOCKED, headers={"Authorization": "bearer sk-first"}).status_code == 200


@pytest.mark.parametrize("more", [{}, {"Authorization": "Basic dXNlcjpwYXNz"}], ids=["alone", "behind a proxy's login"])
def test_a_key_may_come_as_x_api_key(more: dict[str, str]) -> None:
    state = ask(LOCKED, headers={"x-api-key": "sk-second", **more}).json()["state"]
    assert state["key_id"] == key_id("sk-second", SETTINGS.tenant_secret)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": "sk-third"},
        {"x-api-key": ""},
        {**bearer("sk-third"), "x-api-key": "sk-first"},
        bearer("sk-third"),
        bearer("sk-firs"),
        bearer("sk-firstt"),
        bearer(""),
        {"Authorization": "sk-first"},
        {"Authorization": "Basic sk-first"},
        {"Authorization": b"Bearer sk-f\xefrst"},
    ],
)
def test_without_a_key_of_the_server_nothing_answers(headers: dict[str, str]) -> None:
    for path in ("/v1/models", "/v1/completions", "/metrics", "/version", "/openapi.json", "/health/", "/nothing"):
        answer = ask(LOCKED, "POST", path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        error = answer.json()["error"]
        assert (error["type"], error["code"], error["param"]) == ("authentication_error", "invalid_api_key", None)
        assert "sk-" not in error["message"]


def test_health_needs_no_key() -> None:
    assert ask(LOCKED, path="/health").status_code == 200


def test_metrics_and_version_are_open_by_option() -> None:
    opened = Authenticate(tell_state, replace(SETTINGS, open_metrics=True))
    for path in ("/metrics", "/version"):
        assert ask(opened, path=path).status_code == 200
        assert ask(LOCKED, path=path).status_code == 401
    assert ask(opened, path="/v1/models").status_code == 401


def test_an_open_path_knows_its_sender_by_a_good_key_only() -> None:
    for headers, is_someone in ((bearer("sk-first"), True), (bearer("sk-third"), False), ({}, False)):
        answer = ask(LOCKED, path="/", headers=headers)
        assert (answer.status_code, "key_id" in answer.json()["state"]) == (200, is_someone)


def test_without_keys_everyone_is_let_in_as_the_public() -> None:
    assert ask(Authenticate(tell_state, ServerSettings())).json()["state"]["key_id"] == PUBLIC_KEY_ID


# -- where keys come from ----------------------------------------------------------------------------------------------


def test_keys_come_from_options_the_environment_and_a_file_together(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# the team\nfrom-file\n\n  padded  \r\n")
    keys = load_api_keys(["a", "b"], file=file, environ={"QUIRE_API_KEY": "c, d,a"})
    assert keys == ("a", "b", "c", "d", "from-file", "padded")


def test_without_any_source_there_are_no_keys() -> None:
    assert load_api_keys(environ={}) == ()


def test_a_source_without_a_usable_key_is_an_error_and_not_an_open_server(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("# no keys yet\n\n")
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="empty has no key; write one a line"):
        load_api_keys(file=empty, environ={})
    with pytest.raises(ValueError, match="is not text"):
        load_api_keys(file=binary, environ={})
    with pytest.raises(ValueError, match="missing cannot be read: No such file"):
        load_api_keys(file=tmp_path / "missing", environ={})
    with pytest.raises(ValueError, match="keys cannot be read: Could not determine home directory"):
        load_api_keys(file="~nobody-has-this-name/keys", environ={})
    with pytest.raises(ValueError, match="QUIRE_API_KEY is set and names no key"):
        load_api_keys(environ={"QUIRE_API_KEY": " , "})
    with pytest.raises(ValueError, match="--api-key, number 2 is empty"):
        load_api_keys(["a", ""], environ={})


@pytest.mark.parametrize("key", ["two words", "schlüssel", "tab\tkey", "line\nbreak"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="--api-key, number 1") as refusal:
        load_api_keys([key], environ={})
    assert key not in str(refusal.value)


# -- tenants -----------------------------------------------------------------------------------------------------------


def test_the_secret_is_made_once_for_its_owner_alone_and_stays_over_restarts(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "quire"
    secret = load_tenant_secret(directory)
    assert len(secret) == 32
    assert load_tenant_secret(directory) == secret
    assert [path.name for path in directory.iterdir()] == ["tenant-secret"]
    assert stat.S_IMODE((directory / "tenant-secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert load_tenant_secret(tmp_path / "elsewhere") != secret


def test_servers_that_start_together_agree_on_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(load_tenant_secret, [tmp_path] * 64))) == 1


def test_a_damaged_secret_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "tenant-secret").write_bytes(b"short")
    with pytest.raises(ValueError, match="damaged: 5 bytes in place of 32; delete it"):
        load_tenant_secret(tmp_path)


def test_a_secret_that_cannot_be_kept_is_an_error_that_says_where_to_put_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="Not a directory; set XDG_STATE_HOME"):
        load_tenant_secret(tmp_path / "file" / "quire")


def test_a_secret_that_others_can_read_is_said_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_tenant_secret(tmp_path)
    (tmp_path / "tenant-secret").chmod(0o644)
    load_tenant_secret(tmp_path)
    assert "chmod 600" in caplog.text


def test_the_state_directory_follows_xdg() -> None:
    assert state_directory({"XDG_STATE_HOME": "/var/lib/x"}) == Path("/var/lib/x/quire")
    assert state_directory({"XDG_STATE_HOME": ""}) == Path.home() / ".local/state/quire"


def test_tenants_name_the_same_tokens_differently_and_each_the_same_after_a_restart(tmp_path: Path) -> None:
    def name(key: str) -> bytes:
        settings = ServerSettings(api_keys=KEYS, tenant_secret=load_tenant_secret(tmp_path))
        domains = domains_of(key_id(key, settings.tenant_secret), settings)
        ((first, domain),) = domains
        assert first == 0
        return next_key(b"", domain, [1, 2, 3])

    assert name("sk-first") == name("sk-first")
    assert name("sk-first") != name("sk-second")


def test_without_keys_everyone_shares() -> None:
    assert domains_of(PUBLIC_KEY_ID, ServerSettings()) == PUBLIC_ONLY


@pytest.mark.parametrize(
    ("host", "is_accepted"),
    [
        ("localhost:8000", True), ("127.0.0.1:8000", True), ("[::1]:8000", True), ("app.localhost", True),
        ("LLM.example:443", True), ("rebound.example", False), ("rebound.example:8000", False), ("10.0.0.1", False),
        ("", False),
    ],
)  # fmt: skip
def test_a_local_server_without_keys_answers_to_its_own_names_only(host: str, is_accepted: bool) -> None:
    app = CheckHost(tell_state, ServerSettings(allowed_hosts=("llm.example",)))
    answer = ask(app, headers={"Host": host})
    assert answer.status_code == (200 if is_accepted else 403)
    if not is_accepted:
        assert answer.json()["error"]["code"] == "host_not_allowed"
        assert "--allowed-host" in answer.json()["error"]["message"]
    assert ask(CheckHost(tell_state, ServerSettings(allowed_hosts=("*",))), headers={"Host": host}).status_code == 200
