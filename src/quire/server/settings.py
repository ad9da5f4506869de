"""What an operator may choose about the server, as one frozen dataclass; an engine's choices are in `EngineConfig`.

Knows names, defaults and ranges; knows nothing about HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ServerSettings:
    """Limits, safety and addresses of one server process."""

    host: str = "127.0.0.1"
    port: int = 8000  #: 0 takes a free one
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_keyfile_password: str | None = field(default=None, repr=False)
    ssl_ca_certs: str | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)  #: none: everyone may ask
    tenant_secret: bytes | None = field(default=None, repr=False)
    """Names the tenants' KV blocks; the same after a restart, if kept."""
    max_body_bytes: int = 8 * 1024**2
    max_queue: int = 1024  #: requests that wait, a model; further ones get 429
    max_concurrent_per_key: int | None = None
    max_answers: int = 1024  #: of one completion request: its prompts times n
    cors_origins: tuple[str, ...] = ()  #: none: no page of another origin may ask
    shutdown_timeout_s: float = 30  #: how long running requests may take to finish after SIGTERM
    heartbeat_timeout_s: float = 5  #: an engine that does not answer within this is hanging
    log_interval_s: float = 10  #: between two log lines of load
    keep_alive_s: float = 15  #: a stream without news sends a comment so often, so that proxies keep it open

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_queue", "max_concurrent_per_key", "max_answers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        for name in ("heartbeat_timeout_s", "log_interval_s", "keep_alive_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0 seconds")
        if not self.shutdown_timeout_s >= 0:
            raise ValueError(f"shutdown_timeout_s={self.shutdown_timeout_s} must be 0 seconds or more")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port} is not a port; they go from 0 (any free one) to 65535")
        if any(not key for key in self.api_keys):
            raise ValueError("an API key is empty; leave it out or give it characters")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile is given without ssl_certfile; TLS needs the certificate too")
