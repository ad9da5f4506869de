"""Block keys: a chain of digests over everything that a block's bytes depend on.

``key_i = H(key_{i-1} || domain_i || tokens_i)``; the chain's root is the namespace. A key is the same in every tier and
process, so it uses SHA-256 and never `hash()`. Fields are tagged and length-prefixed, so that none runs into another.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple

_VERSION = b"quire-kv-2"


def _tagged(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<I", len(data)) + data


_TAG_OF_PARENT = _tagged(b"p", bytes(32))[:-32]  #: before a key


@dataclass(frozen=True)
class Namespace:
    """Everything but the tokens that a block's bytes depend on. Engines with equal namespaces may exchange blocks."""

    weights: str  #: digest of the weights, or a name unique to this process
    dtype: str  #: dtype of the arithmetic
    kv_dtype: str
    geometry: str  #: layers, heads, head size, block size
    rope: str
    arithmetic: str  #: digest of every other config value that changes a result
    computed_by: str = ""  #: kernels and their build, or torch's version and the kind of device
    quantization: str = "none"
    layers: str = ""  #: the stage: `name_layers`
    parallel_slice: str = "0/1"
    layout: str = "block-major-1"
    encrypted_by: str = ""  #: name of the key of KV on disk

    @staticmethod
    def name_layers(
        in_place: Sequence[int], num_layers: int, adapter: str = "", bits: Sequence[int] | None = None
    ) -> str:
        """Return a digest of a stage's layers (ascending indices), adapter and mantissa bits (None: all); "" for the
        full model without an adapter."""
        if not adapter and bits is None and list(in_place) == list(range(num_layers)):
            return ""
        packed = _tagged(b"l", struct.pack(f"<{len(in_place)}I", *in_place)) + _tagged(b"a", adapter.encode())
        return hashlib.sha256(packed if bits is None else packed + _tagged(b"m", bytes(bits))).hexdigest()

    def root(self) -> bytes:
        """Return the parent key of a sequence's first block. 32 bytes."""
        parts = [_tagged(b"v", _VERSION)]
        for f in fields(self):
            if f.name == "encrypted_by" and not self.encrypted_by:
                continue  # so that KV of earlier versions is found
            parts.append(_tagged(b"n", f.name.encode()) + _tagged(b"f", str(getattr(self, f.name)).encode()))
        return hashlib.sha256(b"".join(parts)).digest()


def adapter_root(root: bytes, digest: str) -> bytes:
    """Return the namespace key of a request's adapter on the model whose own namespace key is `root`."""
    return hashlib.sha256(_tagged(b"p", root) + _tagged(b"a", digest.encode())).digest()


class Domain(NamedTuple):
    """Who may share a block. Along a sequence it may narrow at a block boundary, and never widen."""

    level: int  #: 0 public, 1 collection, 2 tenant (`TENANT`)
    name: bytes = b""
    salt: bytes = b""  #: narrows the domain to requests with the same salt; never replaces a tenant

    def salted(self, salt: str | None) -> Domain:
        """Return the part of this domain with a salt; the domain itself without one."""
        return self._replace(salt=hashlib.sha256(salt.encode("utf-8", "surrogatepass")).digest()) if salt else self


PUBLIC = Domain(0)
TENANT = 2  #: the level of tenants' domains


def collection_domain(name: str) -> Domain:
    return Domain(1, name.encode())


def tenant_domain(key_id: str, server_secret: bytes) -> Domain:
    """Return the domain of an API key: an HMAC, so that names on disk reveal nothing and survive restarts."""
    return Domain(TENANT, hmac.new(server_secret, key_id.encode(), hashlib.sha256).digest())


DomainSpans = tuple[tuple[int, Domain], ...]  #: (first token, domain), by first token

PUBLIC_ONLY: DomainSpans = ((0, PUBLIC),)


def check_domains(spans: DomainSpans) -> None:
    """Raise ValueError unless spans begin at token 0, are in order, and never widen."""
    if not spans or spans[0][0] != 0:
        raise ValueError("domain spans begin at token 0")
    for (start, domain), (next_start, next_domain) in pairwise(spans):
        if next_start <= start:
            raise ValueError(f"domain spans are ordered by their first token; {next_start} comes after {start}")
        is_salted = next_domain.salt and next_domain == domain._replace(salt=next_domain.salt) and not domain.salt
        if next_domain.level <= domain.level and not is_salted:
            raise ValueError(
                f"a domain may narrow and never widen; at token {next_start} level {next_domain.level} follows "
                f"{domain.level}"
            )


def domain_of_block(spans: DomainSpans, block_end: int) -> Domain:
    domain = spans[0][1]
    for start, later in spans[1:]:
        if start >= block_end:
            break
        domain = later
    return domain


def next_key(parent: bytes, domain: Domain, tokens: Sequence[int]) -> bytes:
    """Return the key of the block with `tokens` after the block with key `parent`. 32 bytes."""
    packed = struct.pack(f"<{len(tokens)}Q", *tokens)
    return hashlib.sha256(_tagged(b"p", parent) + _describe(domain) + _tagged(b"t", packed)).digest()


def state_keys(key: bytes, count: int) -> list[bytes]:
    """Return the keys of the records that hold the recurrent state after the block with a key."""
    return [hashlib.sha256(_tagged(b"p", key) + _tagged(b"r", struct.pack("<Q", at))).digest() for at in range(count)]


def _describe(domain: Domain) -> bytes:
    described = _tagged(b"d", bytes((domain.level,)) + domain.name)
    return described + _tagged(b"s", domain.salt) if domain.salt else described


def extend_keys(
    keys: list[bytes], root: bytes, spans: DomainSpans, tokens: Sequence[int], block_size: int, num_blocks: int
) -> None:
    """Extend `keys` to the first `num_blocks` full blocks of `tokens`."""
    first = len(keys)
    if len(spans) > 1 or num_blocks <= first + 1:
        for i in range(first, num_blocks):
            domain = domain_of_block(spans, (i + 1) * block_size)
            keys.append(next_key(keys[-1] if keys else root, domain, tokens[i * block_size : (i + 1) * block_size]))
        return
    # The fast path of most prompts: the bytes of `next_key`, with their constant parts packed once.
    packed = struct.pack(
        f"<{(num_blocks - first) * block_size}Q", *tokens[first * block_size : num_blocks * block_size]
    )
    size, sha256 = 8 * block_size, hashlib.sha256
    between = _describe(spans[0][1]) + _tagged(b"t", packed[:size])[:-size]
    parent = _tagged(b"p", keys[-1] if keys else root)
    for at in range(0, len(packed), size):
        key = sha256(parent + between + packed[at : at + size]).digest()
        keys.append(key)
        parent = _TAG_OF_PARENT + key
