"""TLS in the process itself: HTTP/1.1 over TLS 1.2 or newer, from a certificate chain and its key in PEM files.

Whatever is wrong with the files is told when they are read, which is before anything is served: the file, and the fix.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

PROTOCOLS: Final = ["http/1.1"]
"""What is negotiated. HTTP/2 is the front proxy's to speak; a client that offers nothing else is served HTTP/1.1."""


class CannotUseTLS(Exception):
    """The certificate or its key cannot be used: says which, why, and what to do."""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What the listeners shake hands with. Raises CannotUseTLS."""
    for file, what in ((certificate, "certificate"), (key, "key")):
        _check_readable(file, what)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(PROTOCOLS)
    problem = _load(context, certificate, key)
    if problem is not None:
        raise CannotUseTLS(problem)
    return context


def _check_readable(file: Path, what: str) -> None:
    try:
        file.open("rb").close()
    except OSError as error:
        why = error.strerror or str(error)
        raise CannotUseTLS(
            f"the TLS {what} {file} cannot be read: {why}; check the path, and let the gateway's user read the file"
        ) from None


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> str | None:
    """Load both; what is wrong with them. The key's password is never asked for: nobody may sit at the terminal."""
    is_encrypted = False

    def no_password() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        return ""

    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        if is_encrypted:
            return f"the TLS key {key} is encrypted; store it without a password, readable by the gateway's user only"
        if error.reason == "KEY_VALUES_MISMATCH":
            return (
                f"the TLS key {key} is not the one of the certificate {certificate}; name the two that belong together"
            )
        return f"{certificate} and {key} are no TLS certificate and key; name files in PEM format, the chain leaf first"
    return None
