"""The server's socket. Imports little: `quire serve` opens it before anything else."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from quire.server.settings import ServerSettings


@contextmanager
def listening(settings: ServerSettings) -> Iterator[socket.socket]:
    """Open the socket, and close it at the end. Raises ValueError as `listen`."""
    listener = listen(settings)
    try:
        yield listener
    except BaseException:
        if settings.uds is not None:
            Path(settings.uds).unlink(missing_ok=True)
        raise
    finally:
        listener.close()


def listen(settings: ServerSettings) -> socket.socket:
    """Open the socket. Raises ValueError if the address cannot be used."""
    if settings.uds is not None:
        return _listen_at(settings.uds)
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
    except OSError as error:
        named = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
        raise ValueError(f"cannot listen on {host}:{port}: {named}; choose another --host or --port") from None
    # Connections inherit it. asyncio sets it on sockets of its own only; without it a stream's small writes wait for
    # the client's delayed acknowledgements, tens of milliseconds each.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url_of(settings: ServerSettings, listener: socket.socket) -> str:
    """Return the URL for clients on this machine."""
    if settings.uds is not None:
        return f"unix:{settings.uds}"
    host = settings.host
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    scheme = "https" if settings.ssl_certfile is not None else "http"
    return f"{scheme}://{reachable}:{listener.getsockname()[1]}"


def is_local(settings: ServerSettings) -> bool:
    """Whether only this machine can connect."""
    return settings.uds is not None or settings.host == "localhost" or is_loopback(settings.host)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _listen_at(path: str) -> socket.socket:
    """Open a Unix socket. A stale socket is replaced; a live one, or another file, is an error."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if Path(path).is_socket() and _is_stale(path):
            Path(path).unlink()
        listener.bind(path)
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen at {path}: {error.strerror or error}; choose another --uds") from None
    return listener


def _is_stale(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(path) == errno.ECONNREFUSED
