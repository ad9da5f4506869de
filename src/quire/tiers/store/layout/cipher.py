"""Encryption of KV on disk, by AES-256-GCM with a key from a file. An altered record cannot be decrypted."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import secrets

SEAL_BYTES = 24  #: tag and nonce
_TAG_BYTES = 16
_KEY_BYTES = 32
_HOW = "make one with: (umask 077; openssl rand -base64 32 > FILE)"


class Cipher:
    """Encrypts with a secret of 32 bytes. ValueError without the library."""

    def __init__(self, secret: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers import Cipher as Context
            from cryptography.hazmat.primitives.ciphers import algorithms, modes
        except ImportError:
            raise ValueError("kv_dir_key needs another package: pip install 'quire-llm[encryption]'") from None
        digest = hashlib.blake2b(key=secret, digest_size=64).digest()  # so that the name reveals no key
        aes = algorithms.AES(digest[:_KEY_BYTES])
        self.name = f"aes-256-gcm:{digest[_KEY_BYTES:].hex()[:32]}"  #: of the key, the same for the same secret
        self._context = lambda nonce, tag: Context(aes, modes.GCM(nonce, tag))
        self._invalid_tag = InvalidTag

    def encrypt(self, about: bytes, data: memoryview | bytes | bytearray) -> tuple[bytes, bytes]:
        """Encrypt data. Returns its seal, which also covers `about`, and as many encrypted bytes."""
        salt = secrets.token_bytes(SEAL_BYTES - _TAG_BYTES)
        encryptor = self._context(_nonce(about, salt), None).encryptor()
        encryptor.authenticate_additional_data(about)
        encrypted = encryptor.update(data)
        encryptor.finalize()
        return encryptor.tag + salt, encrypted

    def decrypt(self, about: bytes, seal: bytes, data: memoryview | bytearray) -> bool:
        """Decrypt data in place. Returns False if it, its seal or `about` was altered; it is then undefined."""
        tag, salt = seal[:_TAG_BYTES], seal[_TAG_BYTES:]
        decryptor = self._context(_nonce(about, salt), tag).decryptor()
        decryptor.authenticate_additional_data(about)
        decryptor.update_into(data, data)
        try:
            decryptor.finalize()
        except self._invalid_tag:
            return False
        return True


def _nonce(about: bytes, salt: bytes) -> bytes:
    return hashlib.sha256(salt + about).digest()[:12]


def open_cipher(path: str | os.PathLike[str] | None) -> Cipher | None:
    """Return the cipher of a key file; None without one. ValueError if it cannot be used."""
    if path is None:
        return None
    name = f"kv_dir_key={str(path)!r}"
    try:
        with open(os.path.expanduser(path), "rb") as file:
            found, data = os.fstat(file.fileno()), file.read(1024)
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror or error}; {_HOW}") from None
    if found.st_uid == os.getuid() and found.st_mode & 0o077:  # another owner's file is a container's mounted secret
        raise ValueError(f"{name} may be read by others; keep it to yourself with: chmod 600 {path}")
    secret = _decode(data)
    if secret is None:
        raise ValueError(f"{name} holds no key of {_KEY_BYTES} bytes, raw, in base64 or in hex; {_HOW}")
    return Cipher(secret)


def _decode(data: bytes) -> bytes | None:
    candidates = [data]
    for decode in (bytes.fromhex, base64.b64decode):
        with contextlib.suppress(ValueError):
            candidates.append(decode(data.decode().strip()))
    return next((each for each in candidates if len(each) == _KEY_BYTES), None)
