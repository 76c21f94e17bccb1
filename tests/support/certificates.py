"""A certificate for 127.0.0.1: what a gateway is started with, and what its clients trust."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

import trustme


def with_certificate(folder: Path) -> tuple[Sequence[str], ssl.SSLContext]:
    """The options of a gateway whose certificate lies in the folder, and the context of a client."""
    authority, trust = trustme.CA(), ssl.create_default_context()
    issued = authority.issue_cert("127.0.0.1")
    authority.configure_trust(trust)
    certificate, key = folder / "gateway.pem", folder / "gateway.key"
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(certificate, append=number > 0)
    issued.private_key_pem.write_to_path(key)
    return ("--tls-cert", str(certificate), "--tls-key", str(key)), trust
