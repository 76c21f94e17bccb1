"""The secrets of keys: 256 random bits behind a prefix that people and secret scanners know. Only digests are kept.

A digest without salt is enough: nobody can guess 256 random bits, and what is looked up by its digest takes no longer
for a better guess.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

PREFIX: Final = "gw-"
SECRET_BYTES: Final = 32
"""256 bits."""

_SECRET: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


def new_secret() -> str:
    """A secret that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def new_key_id() -> str:
    """A name for one key of several with the same name: no secret."""
    return f"key_{secrets.token_hex(8)}"


def is_secret(text: str) -> bool:
    """Whether it has the shape of a secret that was made here: nothing else is worth a lookup."""
    return _SECRET.fullmatch(text) is not None


def digest_of(secret: str) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
