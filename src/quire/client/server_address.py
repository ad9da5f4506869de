"""The address of an OpenAI-compatible server: base URL, API key and connection properties."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_ROUTES = ("/chat/completions", "/completions", "/models")


@dataclass(frozen=True)
class ServerAddress:
    """A server's base URL and key. Construct it by `ServerAddress.of`."""

    base_url: str  #: including /v1
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, api_key: str | None = None) -> ServerAddress:
        """Parse a URL with or without /v1, or with a route such as /v1/completions. Raises ValueError for others."""
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

    def ask(self, method: str, path: str, *, timeout_s: float | None, **options: Any) -> Any:
        """Send one request below the base URL. Returns the answer's JSON; raises RemoteError."""
        import httpx

        from quire.client.errors import error_from_exception, error_from_response

        url = f"{self.base_url}/{path}"
        try:
            answer = httpx.request(method, url, timeout=timeout_s, **self.client_options, **options)
        except httpx.HTTPError as error:
            raise error_from_exception(error, url) from None
        if answer.status_code != 200:
            raise error_from_response(answer.status_code, answer.content, url)
        return answer.json()

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of an httpx client or request."""
        return {"headers": self.headers, "trust_env": not self.is_local, "verify": self.is_encrypted}

    @property
    def is_encrypted(self) -> bool:
        """Whether it uses TLS. Otherwise loading root certificates would waste 30 ms."""
        return self.base_url.startswith("https:")

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, reached without a proxy."""
        host = urlsplit(self.base_url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"
