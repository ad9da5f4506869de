"""Where a server is: its URL, the key it wants, and how a connection to it is made. Nothing is sent here."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_ROUTES = ("/chat/completions", "/completions", "/models")


@dataclass(frozen=True)
class ServerAddress:
    """An OpenAI-compatible server. Make it with `ServerAddress.of`."""

    base_url: str  #: up to and including /v1
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, api_key: str | None = None) -> ServerAddress:
        """From a URL as people write it: with or without /v1, or with a whole route such as
        /v1/completions. Anything else is a ValueError."""
        parts = urlsplit(url.strip())
        try:
            is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # the port is no number, or too large
            is_server = False
        if not is_server:
            raise ValueError(f"{url!r} is not a URL of a server; write it like http://127.0.0.1:8000")
        path = parts.path.rstrip("/")
        for route in _ROUTES:
            path = path.removesuffix(route)
        return cls(f"{parts.scheme}://{parts.netloc}{path or '/v1'}", api_key)

    @property
    def chat_url(self) -> str:
        return f"{self.base_url}/chat/completions"

    @property
    def completions_url(self) -> str:
        return f"{self.base_url}/completions"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    @property
    def is_encrypted(self) -> bool:
        """Over TLS. Where it is not, reading the world's certificates would be 30 ms for nothing."""
        return self.base_url.startswith("https:")

    @property
    def is_local(self) -> bool:
        """On this machine: no proxy has any business on the way there."""
        host = urlsplit(self.base_url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"
