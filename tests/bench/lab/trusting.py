"""Run a command of the gateway that trusts the lab's authority, too: `python trusting.py FILE serve --config ...`.

The gateway verifies its upstreams by the system's authorities alone, whatever the environment says; the lab's upstream
has no certificate of theirs. What a handshake and a record cost is the same.
"""

from __future__ import annotations

import ssl
import sys
from typing import Any


def trust(authority: str) -> None:
    """Each context that takes the system's authorities takes this one with them."""
    for name in ("load_default_certs", "load_verify_locations"):
        setattr(ssl.SSLContext, name, _with_authority(getattr(ssl.SSLContext, name), authority))


def _with_authority(load: Any, authority: str) -> Any:
    also = ssl.SSLContext.load_verify_locations

    def load_both(self: ssl.SSLContext, *given: Any, **named: Any) -> None:
        load(self, *given, **named)
        also(self, authority)

    return load_both


if __name__ == "__main__":
    trust(sys.argv.pop(1))
    from gateway.__main__ import main

    main()
