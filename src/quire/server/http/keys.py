"""API keys and the tenants' secret, from options, environment and files."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from quire.server.settings import ServerSettings

logger = logging.getLogger("quire.server")

KEYS_VARIABLE = "QUIRE_API_KEY"
ADMIN_KEYS_VARIABLE = "QUIRE_ADMIN_KEY"
SECRET_FILE = "tenant-secret"
SECRET_BYTES = 32


def key_id(key: str, secret: bytes | None) -> str:
    """Return a short, stable name of a key for logs and limits, which reveals nothing about it."""
    return hmac.new(secret or b"", b"key-id:" + key.encode(), hashlib.sha256).hexdigest()[:16]


def admin_ids(settings: ServerSettings) -> frozenset[str]:
    return frozenset(key_id(key, settings.tenant_secret) for key in settings.admin_keys)


def load_api_keys(
    given: Sequence[str] = (),
    *,
    file: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    option: str = "--api-key",
    variable: str = KEYS_VARIABLE,
) -> tuple[str, ...]:
    """Return all keys from the command line, the environment (separated by commas) and a file (one a line), whose
    option is `option`-file. ValueError, which never shows a key, for a source without a usable key: an empty file must
    not open the server."""
    keys = [_checked(key, f"{option}, number {number}") for number, key in enumerate(given, 1)]
    if variable in environ:
        parts = [part.strip() for part in environ[variable].split(",")]
        if not any(parts):
            raise ValueError(f"{variable} is set and names no key; give it one, or unset it to serve without keys")
        keys += [_checked(part, f"{variable}, number {number}") for number, part in enumerate(parts, 1) if part]
    if file is not None:
        keys += _keys_in(Path(file), f"{option}-file")
    return tuple(dict.fromkeys(keys))


def _keys_in(path: Path, option: str) -> list[str]:
    try:
        lines = [line.strip() for line in path.expanduser().read_text(encoding="utf-8").splitlines()]
    except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
        raise ValueError(f"{option} {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{option} {path} is not text; it has one key a line") from None
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    keys = [_checked(line, f"{option} {path}, line {number}") for number, line in numbered]
    if not keys:
        raise ValueError(f"{option} {path} has no key; write one a line, or leave the option out")
    return keys


def _checked(key: str, where: str) -> str:
    if not key:
        raise ValueError(f"the API key from {where} is empty")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"the API key from {where} has a space or a sign that a header cannot carry; use plain ASCII")
    return key


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory for state: $XDG_STATE_HOME/quire, or ~/.local/state/quire."""
    home = environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path("~/.local/state").expanduser()) / "quire"


def load_tenant_secret(directory: Path | None = None) -> bytes:
    """Return the secret for tenants' domains, from a file in `directory` (default `state_directory()`) that the first
    call makes. Processes that share it share the secret. ValueError if it cannot be read or written, or is damaged."""
    try:
        path = (directory if directory is not None else state_directory()) / SECRET_FILE
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = _read_or_make(path)
        mode = path.stat().st_mode
    except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"the secret that keeps tenants apart cannot be kept in {directory or 'the state directory'}: {reason}; "
            "set XDG_STATE_HOME to a directory that this user may write"
        ) from None
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{path} is damaged: {len(secret)} bytes in place of {SECRET_BYTES}; delete it for a new one")
    if mode & 0o077:
        logger.warning("%s can be read by others, who could tell tenants' blocks apart; chmod 600 it", path)
    return secret


def _read_or_make(path: Path) -> bytes:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # one of several starting processes makes it, and all read the same
        if not path.exists():
            descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{SECRET_FILE}-")  # mode 0600
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)  # atomically
        return path.read_bytes()
    finally:
        os.close(folder)
