"""Which headers cross the gateway, up and down: allow-lists, as data (H4, H5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.core.failures import clean_retry_after
from gateway.core.messages import Headers

UP_NAMES: Final = frozenset(
    {
        "openai-beta",
        "idempotency-key",
        "originator",
        "session-id",
        "session_id",
        "conversation_id",
        "thread-id",
        "x-client-request-id",
    }
)
"""H4: what agents and the API itself use. Never cookies, forwarded-for, organisation, project, or any credential."""
UP_PREFIXES: Final = ("x-codex-",)

DOWN_NAMES: Final = frozenset(
    {"openai-beta", "openai-processing-ms", "openai-version", "x-models-etag", "x-reasoning-included"}
)
DOWN_PREFIXES: Final = ("x-ratelimit-", "ratelimit-", "x-codex-")
"""H5: of the delivered attempt. Never hop-by-hop, framing, set-cookie, or `openai-model` (M3)."""
SECRET_WORDS: Final = ("authorization", "cookie", "token", "secret", "api-key")
"""A header of an allowed prefix that speaks of a credential does not go up all the same."""

REPLAY_HEADER: Final = "x-gateway-replay"
RETRY_COUNT_HEADER: Final = "x-stainless-retry-count"
"""What a client tells the gateway itself."""
_READ_NAMES: Final = frozenset({name.encode() for name in (*UP_NAMES, REPLAY_HEADER, RETRY_COUNT_HEADER)})
_READ_PREFIXES: Final = tuple([prefix.encode() for prefix in UP_PREFIXES])


def headers_read(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Those of a turn's headers that say anything here, by name, of one name the last. The server has names in lower
    case (ASGI); a client's value may hold any byte of latin-1. Most headers are not even decoded."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in raw
        if name in _READ_NAMES or name.startswith(_READ_PREFIXES)
    }


def headers_up(headers: Iterable[tuple[str, str]]) -> Headers:
    """The client's headers that an upstream gets."""
    kept = []
    for name, value in headers:
        lowered = name.lower()
        if (lowered in UP_NAMES or lowered.startswith(UP_PREFIXES)) and not _speaks_of_a_secret(lowered):
            kept.append((lowered, value))
    return tuple(kept)


def headers_down(headers: Headers) -> Headers:
    """The delivered attempt's headers that the client gets; the upstream's request id under a name of its own."""
    kept, request_id = [], None
    for name, value in headers:
        if name in DOWN_NAMES or name.startswith(DOWN_PREFIXES):
            kept.append((name, value))
        elif name == "x-request-id" and request_id is None:
            request_id = value
    return tuple(kept if request_id is None else [*kept, ("x-upstream-request-id", request_id)])


def chosen_subprotocol(offered: Sequence[str]) -> str | None:
    """W1: the first of those that a client offers: it hangs up if none comes back."""
    return next(iter(offered), None)


def retry_after(headers: Headers) -> Headers:
    """F5: the upstream's `retry-after`, if it makes sense."""
    value = clean_retry_after(next((value for name, value in headers if name == "retry-after"), None))
    return () if value is None else (("retry-after", value),)


def _speaks_of_a_secret(name: str) -> bool:
    return any(word in name for word in SECRET_WORDS)
