"""Whom upstreams are trusted by: one TLS context for all routes of a process.

Loading the authorities takes some 40 ms, on the event loop: with one for each route, a table of 300 new routes (C2)
would stop every turn for many seconds.
"""

from __future__ import annotations

import os
import ssl
import sys
from functools import cache


@cache
def trusted() -> ssl.SSLContext:
    """The authorities of the operating system; nothing of the environment's. Where OpenSSL was not built to find them,
    the HTTP client knows where to look: its import is a tenth of a start, for those who need it."""
    file, directory = openssl_authorities()
    if (file is None and directory is None) or not sys.platform.startswith("linux"):
        import httpx2

        return httpx2.create_ssl_context(trust_env=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(file, directory)
    return context


def openssl_authorities() -> tuple[str | None, str | None]:
    """The file and the directory that are there, of those that were compiled in. A directory counts where OpenSSL can
    look authorities up in it: by names that end with a number."""
    paths = ssl.get_default_verify_paths()
    file = paths.openssl_cafile if os.path.isfile(paths.openssl_cafile) else None
    directory = paths.openssl_capath if os.path.isdir(paths.openssl_capath) else None
    if directory is not None and not any(name.endswith(".0") for name in os.listdir(directory)):
        directory = None
    return file, directory
