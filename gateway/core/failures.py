"""Failures: what went wrong, whose fault it is, what the client is told (F, X).

Three tables, each total:

- `JUDGEMENTS` (F): the ordered tests by which an upstream's failure gets its kind; the first match decides.
- `CLOSES` (F4): what a WebSocket upstream's close before a terminal event means; a code that is not in it is the
  request's own fault.
- `PUBLIC_CODES` (X): every code the gateway makes itself, with its status. A code outside the table is never sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import reduce
from typing import Final

from gateway.core.events import (
    Event,
    JsonObject,
    error_code,
    error_message,
    error_status,
    is_marked_retryable,
    parse_object,
)


class Fault(Enum):
    """Whose fault a failure is (F5)."""

    CLIENT = "client"
    UPSTREAM = "upstream"
    GATEWAY = "gateway"


class FailureKind(Enum):
    """What the replay decision asks of a failure."""

    ROUTE_FAULT = "route_fault"
    """F2: this route cannot serve it, another may"""
    NEVER_SENT = "never_sent"
    """F2: no byte of the request was written (DNS, connect, TLS)"""
    READ_ERROR = "read_error"
    """the stream broke: reset, protocol error, an end without a terminal event"""
    RETRYABLE = "retryable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    """504, 524, `timeout_error`: the upstream may still be generating"""
    FIRST_EVENT_TIMEOUT = "first_event_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    BUFFER_OVERFLOW = "buffer_overflow"
    DETERMINISTIC = "deterministic"
    """the request itself is at fault"""
    NOT_RETRYABLE = "not_retryable"
    """nothing marks it as retryable"""
    CLIENT_LEFT = "client_left"
    CONNECTION_LIMIT = "connection_limit"
    DRAINING = "draining"
    ROUTE_SELECTION = "route_selection"
    INTERNAL = "internal"


FAULT_OF: Final[dict[FailureKind, Fault]] = {
    FailureKind.ROUTE_FAULT: Fault.UPSTREAM,
    FailureKind.NEVER_SENT: Fault.UPSTREAM,
    FailureKind.READ_ERROR: Fault.UPSTREAM,
    FailureKind.RETRYABLE: Fault.UPSTREAM,
    FailureKind.UPSTREAM_TIMEOUT: Fault.UPSTREAM,
    FailureKind.FIRST_EVENT_TIMEOUT: Fault.UPSTREAM,
    FailureKind.IDLE_TIMEOUT: Fault.UPSTREAM,
    FailureKind.BUFFER_OVERFLOW: Fault.UPSTREAM,
    FailureKind.DETERMINISTIC: Fault.CLIENT,
    FailureKind.NOT_RETRYABLE: Fault.UPSTREAM,
    FailureKind.CLIENT_LEFT: Fault.CLIENT,
    FailureKind.CONNECTION_LIMIT: Fault.CLIENT,
    FailureKind.DRAINING: Fault.GATEWAY,
    FailureKind.ROUTE_SELECTION: Fault.GATEWAY,
    FailureKind.INTERNAL: Fault.GATEWAY,
}


@dataclass(frozen=True, slots=True)
class PublicCode:
    """A code of the gateway's own: HTTP status, the error's type, and whether a client may simply send again."""

    status: int
    type: str
    retry_after_seconds: int | None = None

    @property
    def is_retryable(self) -> bool:
        """X2: true only where nothing was sent upstream and waiting helps."""
        return self.retry_after_seconds is not None


PUBLIC_CODES: Final[dict[str, PublicCode]] = {
    "stream_read_error": PublicCode(502, "upstream_error"),
    "first_event_timeout": PublicCode(504, "timeout_error"),
    "stream_idle_timeout": PublicCode(504, "timeout_error"),
    "upstream_stream_buffer_limit": PublicCode(502, "upstream_error"),
    "upstream_connect_error": PublicCode(502, "upstream_error"),
    "upstream_auth_error": PublicCode(502, "upstream_error"),
    "upstream_bad_response": PublicCode(502, "upstream_error"),
    "websocket_response_failed": PublicCode(500, "server_error"),
    "route_selection_failed": PublicCode(500, "server_error"),
    "no_route_available": PublicCode(503, "service_unavailable_error", retry_after_seconds=5),
    "invalid_json": PublicCode(400, "invalid_request_error"),
    "invalid_request": PublicCode(400, "invalid_request_error"),
    "unsupported_parameter": PublicCode(400, "invalid_request_error"),
    "unsupported_event": PublicCode(400, "invalid_request_error"),
    "invalid_stream_id": PublicCode(400, "invalid_request_error"),
    "previous_response_not_found": PublicCode(400, "invalid_request_error"),
    "steering_not_supported": PublicCode(400, "invalid_request_error"),
    "websocket_connection_limit_reached": PublicCode(400, "invalid_request_error"),
    "invalid_api_key": PublicCode(401, "authentication_error"),
    "expired_api_key": PublicCode(401, "authentication_error"),
    "insufficient_balance": PublicCode(402, "insufficient_balance"),
    "spend_limit_reached": PublicCode(402, "insufficient_balance"),
    "model_not_allowed": PublicCode(403, "permission_error"),
    "model_not_found": PublicCode(404, "not_found_error"),
    "response_not_found": PublicCode(404, "not_found_error"),
    "payload_too_large": PublicCode(413, "invalid_request_error"),
    "unsupported_content_encoding": PublicCode(415, "invalid_request_error"),
    "rate_limit_exceeded": PublicCode(429, "rate_limit_error", retry_after_seconds=1),
    "response_queue_full": PublicCode(503, "service_unavailable_error", retry_after_seconds=1),
    "server_draining": PublicCode(503, "service_unavailable_error", retry_after_seconds=1),
    "too_many_turns": PublicCode(503, "service_unavailable_error", retry_after_seconds=1),
    "ledger_unavailable": PublicCode(503, "service_unavailable_error", retry_after_seconds=1),
    "internal_error": PublicCode(500, "server_error"),
}


class Refusal(Exception):
    """A request that never becomes a turn: nothing was reserved, nothing sent. `public` is the code's row; KeyError for
    a code outside the table. `retry_after_seconds` takes the place of the row's where more is known."""

    def __init__(
        self, code: str, message: str, param: str | None = None, *, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        row = PUBLIC_CODES[code]
        self.public = row if retry_after_seconds is None else replace(row, retry_after_seconds=retry_after_seconds)
        self.code = code
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """An upstream's HTTP answer other than an event stream: delivered unchanged where the table says so."""

    status: int
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        """The first header of that (lower-case) name."""
        return next((value for held, value in self.headers if held == name), None)


@dataclass(frozen=True, slots=True)
class Failure:
    """A turn's or attempt's failure. `events` (upstream's own, in order) or `answer` are delivered unchanged; with
    neither, the gateway makes the failure from `code`, `status` and `message`. `told` is the object that came in the
    place of events, delivered or not: it may tell that the attempt was metered (R4)."""

    kind: FailureKind
    code: str
    status: int
    message: str
    events: tuple[Event, ...] = field(default=(), repr=False)
    answer: UpstreamAnswer | None = None
    told: JsonObject | None = field(default=None, compare=False, repr=False)

    @property
    def fault(self) -> Fault:
        """Whose fault it is."""
        return FAULT_OF[self.kind]


def gateway_failure(kind: FailureKind, code: str, message: str) -> Failure:
    """A failure in the gateway's own words; KeyError for a code outside the table (X)."""
    return Failure(kind, code, PUBLIC_CODES[code].status, message)


# --- judging an upstream's failure (F) --------------------------------------------------------------------------

RETRYABLE_CODES: Final = frozenset(
    {
        "server_error",
        "internal_error",
        "internal_server_error",
        "server_is_overloaded",
        "overloaded",
        "overloaded_error",
        "slow_down",
        "service_unavailable",
        "service_unavailable_error",
        "vector_store_timeout",
        "rate_limit_exceeded",
        "rate_limit_error",
        "websocket_connection_limit_reached",
        "upstream_bad_response",
    }
)
"""The default of a route's `retryable_codes` (row 5 of F)."""
DETERMINISTIC_CODES: Final = (
    "invalid_*",
    "image_*",
    "*_policy*",
    "unsupported_*",
    "context_length_exceeded",
    "previous_response_not_found",
    "data_residency_mismatch",
    "empty_image_file",
    "failed_to_download_image",
    "model_not_found",
    "string_above_max_length",
)
"""Patterns of codes that say the request itself is at fault (row 3 of F)."""
ROUTE_FAULT_CODES: Final = frozenset({"insufficient_quota", "credit_balance_exhausted"})
ROUTE_FAULT_STATUSES: Final = frozenset({401, 402, 403})
"""F2: the gateway's own account with the upstream is at fault."""
BAD_RESPONSE: Final = "upstream_bad_response"
UNNAMED: Final = BAD_RESPONSE
"""X5: what a failure without a code of its own is called, where the gateway has to name it."""
TIMEOUT_STATUSES: Final = frozenset({504, 524})
TIMEOUT_CODES: Final = frozenset({"timeout_error"})
RETRYABLE_STATUSES: Final = frozenset({408, 409, 429})
NEVER_RETRYABLE_STATUSES: Final = frozenset({501, 505})
REQUEST_TOO_LARGE: Final = re.compile(r"request (?:is |was )?too large", re.IGNORECASE)
"""A rate limit that no other route lifts: the one request is larger than a whole minute's allowance."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of an upstream's failure."""

    status: int | None = None
    code: str | None = None
    message: str = ""
    retryable: bool | None = None
    retryable_codes: frozenset[str] = RETRYABLE_CODES


def _is_deterministic(seen: Observation) -> bool:
    if seen.code == "rate_limit_exceeded":
        return REQUEST_TOO_LARGE.search(seen.message) is not None
    return seen.code is not None and _matches_deterministic(seen.code)


def _matches_deterministic(code: str) -> bool:
    return any(fnmatchcase(code.lower(), pattern) for pattern in DETERMINISTIC_CODES)


def _is_retryable_status(status: int | None) -> bool:
    if status is None or status in NEVER_RETRYABLE_STATUSES:
        return False
    return status in RETRYABLE_STATUSES or 500 <= status <= 599


Judgement = tuple[FailureKind, Callable[[Observation], bool]]

JUDGEMENTS: Final[tuple[Judgement, ...]] = (
    (FailureKind.UPSTREAM_TIMEOUT, lambda seen: seen.status in TIMEOUT_STATUSES or seen.code in TIMEOUT_CODES),
    (FailureKind.ROUTE_FAULT, lambda seen: seen.status in ROUTE_FAULT_STATUSES or seen.code in ROUTE_FAULT_CODES),
    (FailureKind.DETERMINISTIC, _is_deterministic),
    (FailureKind.RETRYABLE, lambda seen: seen.retryable is True),
    (FailureKind.NOT_RETRYABLE, lambda seen: seen.retryable is False),
    (FailureKind.RETRYABLE, lambda seen: seen.code in seen.retryable_codes),
    (FailureKind.RETRYABLE, lambda seen: _is_retryable_status(seen.status)),
    (FailureKind.DETERMINISTIC, lambda seen: seen.status is not None and 400 <= seen.status <= 499),
    (FailureKind.NOT_RETRYABLE, lambda _: True),
)
"""The order is the law: e.g. a quota error is a route's fault although its status is 429."""


def judge(seen: Observation) -> FailureKind:
    """The kind of an upstream's failure: the first judgement that matches."""
    return next(kind for kind, matches in JUDGEMENTS if matches(seen))


def failure_from_events(events: tuple[Event, ...], retryable_codes: frozenset[str]) -> Failure:
    """A failure told by an `error` event, a `response.failed`, or both (E6): what the `failed` does not say the `error`
    does; deterministic in either wins; both are delivered in order."""
    told = [observe_event(event, retryable_codes) for event in events if event.type in ("response.failed", "error")]
    seen = reduce(_completed_by, reversed(told), Observation(retryable_codes=retryable_codes))
    is_deterministic = any(judge(observation) is FailureKind.DETERMINISTIC for observation in told)
    kind = FailureKind.DETERMINISTIC if is_deterministic else judge(seen)
    code = seen.code or UNNAMED
    return Failure(kind, code, _status_to_show(seen.status) or status_of_code(code), seen.message, events=events)


def _completed_by(later: Observation, earlier: Observation) -> Observation:
    """Two events of one failure: what the later one leaves open is as the earlier one says."""
    return replace(
        later,
        status=earlier.status if later.status is None else later.status,
        code=later.code or earlier.code,
        message=later.message or earlier.message,
        retryable=earlier.retryable if later.retryable is None else later.retryable,
    )


def _status_to_show(status: int | None) -> int | None:
    """F2: a status that blames the gateway's own account is never the client's."""
    return PUBLIC_CODES["upstream_auth_error"].status if status in ROUTE_FAULT_STATUSES else status


def observe_event(event: Event, retryable_codes: frozenset[str]) -> Observation:
    """What an `error` or `response.failed` event says of itself."""
    body = event.body
    return Observation(
        status=error_status(body),
        code=error_code(body),
        message=error_message(body) or "",
        retryable=is_marked_retryable(body),
        retryable_codes=retryable_codes,
    )


def failure_from_answer(answer: UpstreamAnswer, retryable_codes: frozenset[str]) -> Failure:
    """A failure told by an HTTP answer. One that is no error at all is a bad response (P9); one that blames the
    gateway's own account is never passed on as it is (F2)."""
    if not 400 <= answer.status <= 599:
        kind = judge(Observation(code=BAD_RESPONSE, retryable_codes=retryable_codes))
        return gateway_failure(kind, BAD_RESPONSE, f"the upstream answered {answer.status} without an event stream")
    body = parse_object(answer.body)
    code = error_code(body)
    message = error_message(body) or f"the upstream answered with status {answer.status}"
    kind = judge(Observation(answer.status, code, message, is_marked_retryable(body), retryable_codes))
    if answer.status in ROUTE_FAULT_STATUSES:
        text = f"the upstream refused the gateway's own credential (status {answer.status})"
        return gateway_failure(kind, "upstream_auth_error", text)
    return Failure(kind, code or UNNAMED, answer.status, message, answer=answer)


STATUS_OF_CODE: Final[dict[str, int]] = {
    "model_not_found": 404,
    "websocket_connection_limit_reached": 400,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "slow_down": 429,
    "insufficient_quota": 429,
    "credit_balance_exhausted": 429,
    "server_is_overloaded": 503,
    "overloaded": 503,
    "overloaded_error": 503,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "timeout_error": 504,
}


def status_of_code(code: str) -> int:
    """The status to show for an upstream's code that came without one (agents stall on an error without status)."""
    named = STATUS_OF_CODE.get(code)
    if named is not None:
        return named
    return 400 if _matches_deterministic(code) else 500


# --- WebSocket closes (F4) --------------------------------------------------------------------------------------

CLOSES: Final[dict[int, FailureKind]] = {
    **dict.fromkeys((1000, 1001, 1005, 1006, 1011, 1012, 1013), FailureKind.READ_ERROR),
    **dict.fromkeys((1015, 4402), FailureKind.ROUTE_FAULT),
}
"""Every other code, 1002, 1003, 1007, 1008, 1009 and the rest of 4xxx among them, would come again: deterministic."""


def failure_from_close(code: int) -> Failure:
    """A WebSocket upstream closed before a terminal event; a drop without a close is 1006."""
    kind = CLOSES.get(code, FailureKind.DETERMINISTIC)
    public = "stream_read_error" if kind is FailureKind.READ_ERROR else BAD_RESPONSE
    return gateway_failure(kind, public, f"the upstream closed the connection with code {code}")


# --- retry-after (F5) -------------------------------------------------------------------------------------------

RETRY_AFTER_SECONDS_MAX: Final = 86_400
_DAY, _MONTH, _TIME = "[A-Z][a-z]{2}", "[A-Z][a-z]{2}", "[0-9]{2}:[0-9]{2}:[0-9]{2}"
HTTP_DATE: Final = re.compile(
    rf"{_DAY}, [0-9]{{2}} {_MONTH} [0-9]{{4}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-{_MONTH}-[0-9]{{2}} {_TIME} GMT"
    rf"|{_DAY} {_MONTH} [ 0-9][0-9] {_TIME} [0-9]{{4}}"
)
"""The three forms of RFC 9110, 5.6.7. A date parser would take, and choke on, much else."""


def clean_retry_after(value: str | None) -> str | None:
    """A `retry-after` worth passing on: whole seconds up to a day, or an HTTP date, kept as written; else None."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return text if len(text) <= 5 and int(text) <= RETRY_AFTER_SECONDS_MAX else None
    return text if HTTP_DATE.fullmatch(text) else None
