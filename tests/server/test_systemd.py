"""A `Type=notify` service with a watchdog, with systemd played by a socket."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.server.lifecycle import notify
from server.tiny_server import tiny_server

PERIOD_S = 0.25


class Systemd:
    """The listening end of the notify socket."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)

    def hear(self, timeout_s: float) -> str | None:
        self.socket.settimeout(timeout_s)
        try:
            return self.socket.recv(4096).decode()
        except (TimeoutError, BlockingIOError):
            return None

    def hear_until(self, wanted: str) -> None:
        deadline = time.monotonic() + 60
        while (heard := self.hear(max(0.01, deadline - time.monotonic()))) is not None:
            if wanted in heard:
                return
        pytest.fail(f"{wanted} was never said")


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    found = Systemd(path)
    yield found
    found.socket.close()


def test_a_server_says_that_it_is_ready_that_it_lives_and_that_it_ends(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(int(2 * PERIOD_S * 1e6)))
    with tiny_server() as server:
        systemd.hear_until(f"READY=1\nSTATUS=serving at {server.url}")
        for _ in range(3):
            assert systemd.hear(20 * PERIOD_S) == "WATCHDOG=1"
        server.process.send_signal(signal.SIGSTOP)  # it hangs
        while systemd.hear(0) is not None:
            pass  # the earlier messages
        assert systemd.hear(6 * PERIOD_S) is None, "and systemd would end it"
        server.process.send_signal(signal.SIGCONT)
        systemd.hear_until("WATCHDOG=1")
        server.send(signal.SIGTERM)
        systemd.hear_until("STOPPING=1")
        assert server.wait_for_end() == 0


def test_an_abstract_socket_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"quire-test-{tmp_path.name}-{time.monotonic_ns()}"
    listener = Systemd("\0" + name)
    monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
    notify("READY=1")
    assert listener.hear(1) == "READY=1"


def test_a_missing_listener_is_logged_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    assert "systemd cannot be notified of READY=1" in caplog.text


def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    assert not caplog.records
