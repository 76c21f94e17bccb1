"""What goes up with a call, and how an answer that is no stream of events becomes a failure: any transport (F, P9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from gateway.core.events import parse_object
from gateway.core.failures import (
    BAD_RESPONSE,
    Failure,
    FailureKind,
    UpstreamAnswer,
    failure_from_answer,
    gateway_failure,
)
from gateway.core.messages import Headers

USER_AGENT: Final = "responses-gateway"
NAMES_KEPT_MAX: Final = 256
"""Headers' names, of all upstreams."""
WireHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Credential:
    """What the route shows its upstream, and in which header: after `Bearer`, or plain."""

    secret: str = field(repr=False)
    header: str = "authorization"
    is_bearer: bool = True

    @property
    def headers(self) -> Mapping[str, str]:
        """As it goes up."""
        return {self.header: f"Bearer {self.secret}" if self.is_bearer else self.secret}


class CallHeaders:
    """H4: what goes up with each call of a route, made once: what the gateway asks for, and the route's own."""

    def __init__(self, own: Mapping[str, str], credential: Credential | None, route: Headers) -> None:
        shown = {} if credential is None else credential.headers
        self._own = _encoded({**own, "user-agent": USER_AGENT, **shown, **dict(route)}.items())

    def __repr__(self) -> str:
        return f"<CallHeaders {len(self._own)}>"

    def behind(self, client: Headers) -> WireHeaders:
        """With the client's forwardable headers, whose values may hold any byte of latin-1; of one name the last."""
        return list({**_encoded(client), **self._own}.items())


def _encoded(headers: Iterable[tuple[str, str]]) -> dict[bytes, bytes]:
    return {name.encode("latin-1"): value.encode("latin-1") for name, value in headers}


def headers_of(raw: list[tuple[bytes, bytes]]) -> Headers:
    """Names in lower case, values as they came."""
    return tuple([(_name_of(name), value.decode("latin-1")) for name, value in raw])


@lru_cache(NAMES_KEPT_MAX)
def _name_of(raw: bytes) -> str:
    """The same object for each answer: an upstream says the same names again and again, and turns keep them."""
    return raw.decode("latin-1").lower()


def refused(status: int, headers: Headers, body: bytes | None, retryable_codes: frozenset[str]) -> Failure:
    """The status decides, even where the body cannot be read (None): no 504 is replayed, and no 400."""
    failure = failure_from_answer(UpstreamAnswer(status, headers, body or b""), retryable_codes)
    if body is not None:
        return replace(failure, told=parse_object(body))
    if failure.answer is None:
        return failure
    return replace(bad_response(f"the body of status {status}", retryable_codes), kind=failure.kind)


def bad_response(what: str, retryable_codes: frozenset[str], body: bytes = b"") -> Failure:
    """P9: an answer that cannot be used, of which this body was read."""
    kind = FailureKind.RETRYABLE if BAD_RESPONSE in retryable_codes else FailureKind.NOT_RETRYABLE
    failure = gateway_failure(kind, BAD_RESPONSE, f"the upstream's answer cannot be used: {what}")
    return replace(failure, told=parse_object(body))


def never_sent(why: str) -> Failure:
    """F2: no byte of the request was written."""
    return gateway_failure(FailureKind.NEVER_SENT, "upstream_connect_error", why)


def read_error(why: str) -> Failure:
    """The stream broke."""
    return gateway_failure(FailureKind.READ_ERROR, "stream_read_error", why)


def too_large(why: str) -> Failure:
    """R7: one event passed its limit."""
    return gateway_failure(FailureKind.BUFFER_OVERFLOW, "upstream_stream_buffer_limit", why)


def why(error: Exception | str) -> str:
    """What a client may know of an error: its kind, never its text, which may name hosts."""
    kind = error if isinstance(error, str) else type(error).__name__
    return f"the upstream connection failed ({kind})"
