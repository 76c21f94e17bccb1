"""What went wrong, whose fault it is, what the client is told (F, X)."""

import json
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.events import Event, read_event
from gateway.core.failures import (
    FAULT_OF,
    PUBLIC_CODES,
    RETRYABLE_CODES,
    Failure,
    FailureKind,
    Fault,
    Observation,
    PublicCode,
    Refusal,
    UpstreamAnswer,
    clean_retry_after,
    failure_from_answer,
    failure_from_close,
    failure_from_events,
    gateway_failure,
    judge,
    status_of_code,
)

SPECIFIED_CODES: Final = {
    "stream_read_error": 502,
    "first_event_timeout": 504,
    "stream_idle_timeout": 504,
    "upstream_stream_buffer_limit": 502,
    "upstream_connect_error": 502,
    "upstream_auth_error": 502,
    "upstream_bad_response": 502,
    "websocket_response_failed": 500,
    "route_selection_failed": 500,
    "no_route_available": 503,
    "invalid_json": 400,
    "invalid_request": 400,
    "unsupported_parameter": 400,
    "unsupported_event": 400,
    "invalid_stream_id": 400,
    "previous_response_not_found": 400,
    "steering_not_supported": 400,
    "websocket_connection_limit_reached": 400,
    "invalid_api_key": 401,
    "expired_api_key": 401,
    "insufficient_balance": 402,
    "spend_limit_reached": 402,
    "model_not_allowed": 403,
    "model_not_found": 404,
    "response_not_found": 404,
    "payload_too_large": 413,
    "unsupported_content_encoding": 415,
    "rate_limit_exceeded": 429,
    "response_queue_full": 503,
    "server_draining": 503,
    "too_many_turns": 503,
    "ledger_unavailable": 503,
    "internal_error": 500,
}
SPECIFIED_RETRY_AFTER: Final = {
    "no_route_available",
    "rate_limit_exceeded",
    "response_queue_full",
    "server_draining",
    "too_many_turns",
    "ledger_unavailable",
}


# --- X: the gateway's own codes -----------------------------------------------------------------------------------


def test_the_public_codes_are_those_of_the_specification() -> None:
    """§9: the table is total, and nothing else is in it."""
    assert {code: public.status for code, public in PUBLIC_CODES.items()} == SPECIFIED_CODES


def test_only_what_waiting_helps_comes_with_a_time_to_wait() -> None:
    """§9, X2: `Retry-After` where the table has it; only such a code may be marked as retryable."""
    waits = {code for code, public in PUBLIC_CODES.items() if public.retry_after_seconds is not None}
    retryable = {code for code, public in PUBLIC_CODES.items() if public.is_retryable}

    assert (waits, retryable) == (SPECIFIED_RETRY_AFTER, SPECIFIED_RETRY_AFTER)


def test_agents_are_never_told_that_the_gateway_is_overloaded() -> None:
    """§9: they take it for the end."""
    assert "server_is_overloaded" not in PUBLIC_CODES


def test_a_code_outside_the_table_is_never_made() -> None:
    """§9: not even when it is only going to be sent."""
    with pytest.raises(KeyError):
        gateway_failure(FailureKind.INTERNAL, "oops", "")
    with pytest.raises(KeyError):
        Refusal("oops", "")


def test_a_refusal_knows_its_row() -> None:
    """X2."""
    refusal = Refusal("unsupported_parameter", "not here", param="background")

    assert (refusal.public.status, refusal.code, refusal.message, refusal.param, str(refusal)) == (
        400,
        "unsupported_parameter",
        "not here",
        "background",
        "unsupported_parameter: not here",
    )


def test_a_refusal_that_knows_more_of_the_wait_says_so() -> None:
    """X2: in place of the row's own time, and of nothing else."""
    told, plain = (Refusal("no_route_available", "", retry_after_seconds=seconds) for seconds in (17, None))
    assert told.public == PublicCode(503, "service_unavailable_error", retry_after_seconds=17)
    assert plain.public == PUBLIC_CODES["no_route_available"]


def test_every_kind_is_somebodys_fault() -> None:
    """F5."""
    assert set(FAULT_OF) == set(FailureKind)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (FailureKind.READ_ERROR, Fault.UPSTREAM),
        (FailureKind.DETERMINISTIC, Fault.CLIENT),
        (FailureKind.CLIENT_LEFT, Fault.CLIENT),
        (FailureKind.DRAINING, Fault.GATEWAY),
        (FailureKind.INTERNAL, Fault.GATEWAY),
    ],
)
def test_a_failure_says_whose_fault_it_is(kind: FailureKind, fault: Fault) -> None:
    """F5."""
    assert gateway_failure(kind, "internal_error", "").fault is fault


# --- F: the judgements, each with its neighbours ------------------------------------------------------------------

TIMED_OUT: Final = FailureKind.UPSTREAM_TIMEOUT
ROUTE: Final = FailureKind.ROUTE_FAULT
DETERMINISTIC: Final = FailureKind.DETERMINISTIC
RETRYABLE: Final = FailureKind.RETRYABLE
NOT_RETRYABLE: Final = FailureKind.NOT_RETRYABLE
TOO_LARGE: Final = "Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 35364."


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        pytest.param(Observation(504), TIMED_OUT, id="1-status-504"),
        pytest.param(Observation(524), TIMED_OUT, id="1-status-524"),
        pytest.param(Observation(code="timeout_error"), TIMED_OUT, id="1-code"),
        pytest.param(Observation(401, "timeout_error"), TIMED_OUT, id="1-before-2"),
        pytest.param(Observation(504, "insufficient_quota"), TIMED_OUT, id="1-before-2-by-status"),
        pytest.param(Observation(504, "invalid_prompt"), TIMED_OUT, id="1-before-3"),
        pytest.param(Observation(504, retryable=True), TIMED_OUT, id="1-before-4"),
        pytest.param(Observation(504, "server_error"), TIMED_OUT, id="1-before-5"),
        pytest.param(Observation(503), RETRYABLE, id="1-not-503"),
        pytest.param(Observation(525), RETRYABLE, id="1-not-525"),
        pytest.param(Observation(401), ROUTE, id="2-status-401"),
        pytest.param(Observation(402), ROUTE, id="2-status-402"),
        pytest.param(Observation(403), ROUTE, id="2-status-403"),
        pytest.param(Observation(400), DETERMINISTIC, id="2-not-400"),
        pytest.param(Observation(404), DETERMINISTIC, id="2-not-404"),
        pytest.param(Observation(429, "insufficient_quota"), ROUTE, id="2-quota"),
        pytest.param(Observation(429, "credit_balance_exhausted"), ROUTE, id="2-credit"),
        pytest.param(Observation(401, "invalid_api_key"), ROUTE, id="2-before-3"),
        pytest.param(Observation(403, retryable=False), ROUTE, id="2-before-4"),
        pytest.param(Observation(code="insufficient_quota", retryable=False), ROUTE, id="2-before-4-by-code"),
        pytest.param(Observation(code="invalid_prompt"), DETERMINISTIC, id="3-invalid"),
        pytest.param(Observation(code="invalid_"), DETERMINISTIC, id="3-invalid-shortest"),
        pytest.param(Observation(code="INVALID_PROMPT"), DETERMINISTIC, id="3-any-case"),
        pytest.param(Observation(code="not_invalid_prompt"), NOT_RETRYABLE, id="3-not-in-the-middle"),
        pytest.param(Observation(code="image_too_small"), DETERMINISTIC, id="3-image"),
        pytest.param(Observation(code="cyber_policy"), DETERMINISTIC, id="3-policy-last"),
        pytest.param(Observation(code="misalignment_policy_violation"), DETERMINISTIC, id="3-policy-inside"),
        pytest.param(Observation(code="policy"), NOT_RETRYABLE, id="3-not-policy-alone"),
        pytest.param(Observation(code="unsupported_value"), DETERMINISTIC, id="3-unsupported"),
        pytest.param(Observation(code="context_length_exceeded"), DETERMINISTIC, id="3-context"),
        pytest.param(Observation(code="previous_response_not_found"), DETERMINISTIC, id="3-previous"),
        pytest.param(Observation(code="data_residency_mismatch"), DETERMINISTIC, id="3-residency"),
        pytest.param(Observation(500, "invalid_prompt", retryable=True), DETERMINISTIC, id="3-before-4-and-6"),
        pytest.param(Observation(429, "rate_limit_exceeded", TOO_LARGE), DETERMINISTIC, id="3-request-too-large"),
        pytest.param(Observation(429, "rate_limit_exceeded", "slow down"), RETRYABLE, id="3-not-an-ordinary-limit"),
        pytest.param(Observation(429, "tokens", TOO_LARGE), RETRYABLE, id="3-not-another-code"),
        pytest.param(Observation(429, "rate_limit_exceeded", TOO_LARGE, True), DETERMINISTIC, id="3-large-before-4"),
        pytest.param(Observation(400, retryable=True), RETRYABLE, id="4-true-before-6"),
        pytest.param(Observation(code="whatever", retryable=True), RETRYABLE, id="4-true-before-7"),
        pytest.param(Observation(500, "server_error", retryable=False), NOT_RETRYABLE, id="4-false-before-5-and-6"),
        pytest.param(Observation(code="server_error"), RETRYABLE, id="5-default"),
        pytest.param(Observation(400, "server_error"), RETRYABLE, id="5-before-6"),
        pytest.param(Observation(code="mine", retryable_codes=frozenset({"mine"})), RETRYABLE, id="5-a-routes-own"),
        pytest.param(
            Observation(code="server_error", retryable_codes=frozenset({"mine"})), NOT_RETRYABLE, id="5-replaced"
        ),
        pytest.param(Observation(408), RETRYABLE, id="6-408"),
        pytest.param(Observation(409), RETRYABLE, id="6-409"),
        pytest.param(Observation(429), RETRYABLE, id="6-429"),
        pytest.param(Observation(500), RETRYABLE, id="6-500"),
        pytest.param(Observation(529), RETRYABLE, id="6-529"),
        pytest.param(Observation(599), RETRYABLE, id="6-599"),
        pytest.param(Observation(407), DETERMINISTIC, id="6-other-4xx-407"),
        pytest.param(Observation(410), DETERMINISTIC, id="6-other-4xx-410"),
        pytest.param(Observation(499), DETERMINISTIC, id="6-other-4xx-499"),
        pytest.param(Observation(501), NOT_RETRYABLE, id="7-501"),
        pytest.param(Observation(505), NOT_RETRYABLE, id="7-505"),
        pytest.param(Observation(399), NOT_RETRYABLE, id="7-399"),
        pytest.param(Observation(600), NOT_RETRYABLE, id="7-600"),
        pytest.param(Observation(code="mystery"), NOT_RETRYABLE, id="7-unknown-code"),
        pytest.param(Observation(), NOT_RETRYABLE, id="7-nothing"),
    ],
)
def test_the_first_judgement_that_matches_decides(seen: Observation, kind: FailureKind) -> None:
    """F, §5: each row, its edges, and each row before the next ones."""
    assert judge(seen) is kind


@pytest.mark.parametrize("code", sorted(RETRYABLE_CODES))
def test_the_default_codes_are_retryable_unless_the_request_is_too_large(code: str) -> None:
    """F, row 5."""
    assert judge(Observation(code=code)) is RETRYABLE


def test_the_default_codes_are_those_of_the_specification() -> None:
    """F, row 5."""
    assert " ".join(sorted(RETRYABLE_CODES)) == (
        "internal_error internal_server_error overloaded overloaded_error rate_limit_error rate_limit_exceeded "
        "server_error server_is_overloaded service_unavailable service_unavailable_error slow_down "
        "upstream_bad_response vector_store_timeout websocket_connection_limit_reached"
    )


# --- E6: failures told by events ----------------------------------------------------------------------------------


def event(payload: Any) -> Event:
    data = json.dumps(payload).encode()
    found = read_event(data, b"data: " + data + b"\n\n")
    assert found is not None
    return found


def error(code: Any = None, message: str = "", **members: Any) -> Event:
    return event({"type": "error", "error": {"code": code, "message": message}, **members})


def failed(code: Any = None, message: str = "", **members: Any) -> Event:
    return event({"type": "response.failed", "response": {"error": {"code": code, "message": message}}, **members})


def told(*events: Event) -> Failure:
    return failure_from_events(events, RETRYABLE_CODES)


@pytest.mark.parametrize(
    ("events", "kind", "code", "status"),
    [
        pytest.param((error("server_error"),), RETRYABLE, "server_error", 500, id="error-alone"),
        pytest.param((failed("slow_down"),), RETRYABLE, "slow_down", 429, id="failed-alone"),
        pytest.param((error("mystery"), failed("server_error")), RETRYABLE, "server_error", 500, id="the-faileds-code"),
        pytest.param((error("server_error"), failed("mystery")), NOT_RETRYABLE, "mystery", 500, id="even-if-worse"),
        pytest.param((error("server_error"), failed(None)), RETRYABLE, "server_error", 500, id="else-the-errors"),
        pytest.param(
            (error("invalid_prompt"), failed("server_error")), DETERMINISTIC, "server_error", 500, id="either-1"
        ),
        pytest.param(
            (error("server_error"), failed("invalid_prompt")), DETERMINISTIC, "invalid_prompt", 400, id="either-2"
        ),
        pytest.param(
            (error("server_error", status=504), failed("server_error")), TIMED_OUT, "server_error", 504, id="status"
        ),
        pytest.param(
            (error(None, status=503), failed(None)), RETRYABLE, "upstream_bad_response", 503, id="status-only"
        ),
        pytest.param((error("x", status=504), failed("x", status=503)), RETRYABLE, "x", 503, id="the-faileds-status"),
        pytest.param(
            (error("rate_limit_exceeded", TOO_LARGE), failed("rate_limit_exceeded", "Rate limit reached")),
            DETERMINISTIC,
            "rate_limit_exceeded",
            429,
            id="too-large-in-the-error-only",
        ),
        pytest.param(
            (error("tokens", TOO_LARGE), failed("rate_limit_exceeded")),
            DETERMINISTIC,
            "rate_limit_exceeded",
            429,
            id="the-code-of-one-and-the-words-of-the-other",
        ),
        pytest.param((error("x", retryable=True), failed("y")), RETRYABLE, "y", 500, id="marked-in-the-error"),
        pytest.param(
            (error("x", retryable=True), failed("y", retryable=False)), NOT_RETRYABLE, "y", 500, id="marked-twice"
        ),
        pytest.param(
            (error("insufficient_quota"), failed("insufficient_quota")), ROUTE, "insufficient_quota", 429, id="quota"
        ),
        pytest.param((failed(None),), NOT_RETRYABLE, "upstream_bad_response", 500, id="nothing-said"),
        pytest.param((error(7),), NOT_RETRYABLE, "upstream_bad_response", 500, id="code-is-a-number"),
    ],
)
def test_a_failure_in_two_steps_is_one_failure(
    events: tuple[Event, ...], kind: FailureKind, code: str, status: int
) -> None:
    """E6."""
    failure = told(*events)

    assert (failure.kind, failure.code, failure.status) == (kind, code, status)


def test_a_failure_keeps_all_its_events_in_order() -> None:
    """E6, E10: also those that came between the two steps and tell nothing."""
    events = (error("server_error", "first"), event({"type": "keepalive"}), failed(None))
    failure = told(*events)

    assert (failure.events, failure.message) == (events, "first")


@pytest.mark.parametrize(
    "payload",
    [
        {"error": "overloaded"},
        {"type": "error", "error": "text"},
        {"type": "error", "error": ["text"]},
        {"type": "error", "error": None},
        {"type": "error", "error": {"code": {"a": 1}, "message": 7, "status": [], "retryable": "yes"}},
        {"type": "error", "code": None, "message": None},
        {"type": "response.failed"},
        {"type": "response.failed", "response": None},
        {"type": "response.failed", "response": {"error": "text"}},
        {"type": "response.failed", "response": {"error": []}},
    ],
)
def test_bug_16_errors_of_any_shape_are_failures_that_nothing_marks_as_retryable(payload: Any) -> None:
    """E8."""
    assert told(event(payload)).kind is NOT_RETRYABLE


@pytest.mark.parametrize("status", [401, 402, 403])
def test_an_event_that_blames_the_gateways_account_has_no_status_of_the_clients(status: int) -> None:
    """F2, X5: the HTTP door answers with the failure's status."""
    failure = told(error("invalid_api_key", status=status))

    assert (failure.kind, failure.status) == (ROUTE, 502)


def test_a_routes_own_codes_count_in_events_too() -> None:
    """F, row 5 before row 6."""
    failure = failure_from_events((error("mine", status=400),), frozenset({"mine"}))

    assert failure.kind is RETRYABLE


def test_no_events_make_no_failure_to_replay() -> None:
    """E8: nothing to judge is nothing to retry."""
    assert told().kind is NOT_RETRYABLE


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("invalid_prompt", 400),
        ("context_length_exceeded", 400),
        ("previous_response_not_found", 400),
        ("websocket_connection_limit_reached", 400),
        ("model_not_found", 404),
        ("rate_limit_exceeded", 429),
        ("insufficient_quota", 429),
        ("server_is_overloaded", 503),
        ("timeout_error", 504),
        ("server_error", 500),
        ("mystery", 500),
        ("", 500),
    ],
)
def test_an_error_without_a_status_is_shown_with_one(code: str, status: int) -> None:
    """E10: agents stall without it."""
    assert status_of_code(code) == status


# --- F2, P9, X5: failures told by an HTTP answer ------------------------------------------------------------------


def answered(status: int, body: Any = b"") -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failure_from_answer(UpstreamAnswer(status, body=raw), RETRYABLE_CODES)


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        pytest.param(400, {"error": {"code": "invalid_prompt"}}, DETERMINISTIC, "invalid_prompt", id="R8"),
        pytest.param(400, b"<html>", DETERMINISTIC, "upstream_bad_response", id="R8-no-error-object"),
        pytest.param(404, {"error": {"code": None, "type": "gone"}}, DETERMINISTIC, "gone", id="R8-type-for-code"),
        pytest.param(429, {"error": {"code": "insufficient_quota"}}, ROUTE, "insufficient_quota", id="F2-quota"),
        pytest.param(429, {"error": {"code": "slow_down"}}, RETRYABLE, "slow_down", id="R15"),
        pytest.param(500, b"", RETRYABLE, "upstream_bad_response", id="R15-empty"),
        pytest.param(500, b"\xff" * 9, RETRYABLE, "upstream_bad_response", id="R15-not-UTF-8"),
        pytest.param(500, {"error": {"code": "x", "retryable": False}}, NOT_RETRYABLE, "x", id="R8a-marked"),
        pytest.param(599, b"", RETRYABLE, "upstream_bad_response", id="R15-599"),
        pytest.param(
            429,
            {"error": {"code": "rate_limit_exceeded", "message": TOO_LARGE}},
            DETERMINISTIC,
            "rate_limit_exceeded",
            id="R8-too-large",
        ),
        pytest.param(501, {"error": "no"}, NOT_RETRYABLE, "upstream_bad_response", id="R8a-501"),
        pytest.param(504, {"error": {"code": "server_error"}}, TIMED_OUT, "server_error", id="R5"),
    ],
)
def test_an_http_failure_is_judged_by_status_and_code_and_kept_for_delivery(
    status: int, body: Any, kind: FailureKind, code: str
) -> None:
    """F, X1, X5."""
    failure = answered(status, body)

    assert (failure.kind, failure.code, failure.status, failure.answer is not None) == (kind, code, status, True)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"error": {"code": "invalid_api_key", "message": "Incorrect API key provided: sk-..."}}, ROUTE),
        (402, b"", ROUTE),
        (403, {"error": {"code": "unsupported_country_region_territory"}}, ROUTE),
        (403, {"error": {"code": "timeout_error"}}, TIMED_OUT),
    ],
)
def test_the_gateways_own_bad_credential_is_never_the_clients(status: int, body: Any, kind: FailureKind) -> None:
    """F2: neither status nor words nor headers of it."""
    failure = answered(status, body)

    assert (failure.kind, failure.code, failure.status, failure.answer, "sk-" in failure.message) == (
        kind,
        "upstream_auth_error",
        502,
        None,
        False,
    )


@pytest.mark.parametrize("status", [0, 101, 200, 204, 301, 302, 304, 399, 600, 999])
def test_an_answer_that_is_neither_a_stream_nor_an_error_is_a_bad_response(status: int) -> None:
    """P9: retryable, whatever its body says, and never passed on."""
    failure = answered(status, {"error": {"code": "invalid_prompt"}})

    assert (failure.kind, failure.code, failure.status, failure.answer) == (
        RETRYABLE,
        "upstream_bad_response",
        502,
        None,
    )


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, {"error": {"message": "their words"}}, "their words"),
        (400, b"", "the upstream answered with status 400"),
        (302, b"", "the upstream answered 302 without an event stream"),
        (401, {"error": {"message": "their words"}}, "the upstream refused the gateway's own credential (status 401)"),
    ],
)
def test_a_failure_has_words(status: int, body: Any, message: str) -> None:
    """X2: the upstream's own, or what happened."""
    assert answered(status, body).message == message


def test_a_routes_own_codes_count_in_answers_too() -> None:
    """F, row 5 before row 6."""
    failure = failure_from_answer(UpstreamAnswer(400, body=b'{"error":{"code":"mine"}}'), frozenset({"mine"}))

    assert failure.kind is RETRYABLE


def test_a_route_may_have_bad_responses_not_retried() -> None:
    """P9, F row 5: the code is one of the route's `retryable_codes`."""
    failure = failure_from_answer(UpstreamAnswer(302), frozenset({"server_error"}))

    assert failure.kind is NOT_RETRYABLE


@given(st.integers(-1, 1_000), st.binary(max_size=50) | st.just(b'{"error":' + b"[" * 100_000))
@example(500, b'{"error":{"code":' + b"9" * 5_000 + b"}}")
@settings(max_examples=150, deadline=None)
def test_no_answer_can_raise(status: int, body: bytes) -> None:
    """E8."""
    assert answered(status, body).kind in {TIMED_OUT, ROUTE, DETERMINISTIC, RETRYABLE, NOT_RETRYABLE}


def test_an_answers_first_header_of_a_name_counts() -> None:
    """F5."""
    answer = UpstreamAnswer(429, (("retry-after", "3"), ("retry-after", "9")))

    assert (answer.header("retry-after"), answer.header("x-request-id")) == ("3", None)


# --- F4: closes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closes", "kind", "code"),
    [
        pytest.param(
            [1000, 1001, 1005, 1006, 1011, 1012, 1013], FailureKind.READ_ERROR, "stream_read_error", id="F4-read"
        ),
        pytest.param([1015, 4402], ROUTE, "upstream_bad_response", id="F2-route"),
        pytest.param([1002, 1003, 1007, 1008, 1009], DETERMINISTIC, "upstream_bad_response", id="F4-request"),
        pytest.param([999, 1004, 1010, 1014, 1016, 3000], DETERMINISTIC, "upstream_bad_response", id="F4-unlisted"),
        pytest.param([4000, 4401, 4403, 4999], DETERMINISTIC, "upstream_bad_response", id="F4-other-4xxx"),
    ],
)
def test_a_close_before_the_end_has_its_meaning(closes: list[int], kind: FailureKind, code: str) -> None:
    """F4: and its code is in the message."""
    failures = [failure_from_close(close) for close in closes]

    assert [
        (failure.kind, failure.code, str(close) in failure.message)
        for failure, close in zip(failures, closes, strict=True)
    ] == [(kind, code, True)] * len(closes)


# --- F5: retry-after ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("30", "30"),
        (" 30 ", "30"),
        ("0", "0"),
        ("86400", "86400"),
        ("86401", None),
        ("99999", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"),
        ("Sun Nov  6 08:49:37 1994", "Sun Nov  6 08:49:37 1994"),
        ("-1", None),
        ("+1", None),
        ("1e9", None),
        ("1.5", None),
        ("abc", None),
        ("", None),
        (None, None),
        ("٣٠", None),
        ("000030", None),
        ("30\r\nx: y", None),
        ("9" * 5_000, None),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
        ("Wed, 21 Oct 2015 07:28:00 +99999999999999", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT, 30", None),
    ],
)
def test_bug_45_a_retry_after_is_kept_as_written_or_dropped(value: str | None, kept: str | None) -> None:
    """F5."""
    assert clean_retry_after(value) == kept


@given(st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]{2}, [0-9]+ [A-Z][a-z]{2} [0-9]+ [0-9:]+ [A-Z+0-9]+"))
@settings(max_examples=120, deadline=None)
def test_no_retry_after_can_raise(value: str) -> None:
    """E8."""
    assert clean_retry_after(value) in (None, value.strip())
