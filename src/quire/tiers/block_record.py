"""A swapped KV block as it lies on disk: its bytes, behind a header that names it.

    magic, version, lengths of key and namespace, length of the data, key, namespace, checksum over all of that and
    the data: 128 bytes, then the data

A record that was torn, altered, or written for another key or namespace is told from an intact one.
"""

from __future__ import annotations

import struct

import xxhash

HEADER_BYTES = 128
_NAME_BYTES = 32  # a key's and a namespace's digest
_FIELDS = struct.Struct(f"<8sIBBxxQ{_NAME_BYTES}s{_NAME_BYTES}s")
_CHECKSUM_BYTES = 16
_MAGIC = b"quire-kv"
_VERSION = 1


def encode_header(key: bytes, namespace: bytes, data: memoryview | bytes) -> bytes:
    """The header of a record of contiguous bytes."""
    if max(len(key), len(namespace)) > _NAME_BYTES:
        raise ValueError(f"keys and namespaces of records have at most {_NAME_BYTES} bytes")
    fields = _FIELDS.pack(_MAGIC, _VERSION, len(key), len(namespace), len(data), key, namespace)
    fields = fields.ljust(HEADER_BYTES - _CHECKSUM_BYTES, b"\0")
    checksum = xxhash.xxh3_128(fields)
    checksum.update(data)
    return fields + checksum.digest()


def is_intact(header: bytes | bytearray, key: bytes, namespace: bytes, data: memoryview | bytes) -> bool:
    """Whether header and data are, byte for byte, a record of this key in this namespace."""
    return header == encode_header(key, namespace, data)
