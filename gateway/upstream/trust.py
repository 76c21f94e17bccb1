"""Whom upstreams are trusted by: one TLS context for all routes of a process.

Loading the authorities takes some 40 ms, on the event loop: with one for each route, a table of 300 new routes (C2)
would stop every turn for many seconds.
"""

from __future__ import annotations

import ssl
from functools import cache

import httpx2


@cache
def trusted() -> ssl.SSLContext:
    """The authorities that the HTTP client ships with; nothing of the environment's."""
    return httpx2.create_ssl_context(trust_env=False)
