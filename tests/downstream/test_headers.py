"""Which headers cross the gateway (H4, H5; case 43)."""

from __future__ import annotations

import pytest

from gateway.downstream.headers import headers_down, headers_read, headers_up, retry_after


@pytest.mark.parametrize(
    "name",
    [
        "OpenAI-Beta",
        "Idempotency-Key",
        "originator",
        "session-id",
        "session_id",
        "conversation_id",
        "thread-id",
        "x-client-request-id",
        "X-Codex-Window-Id",
        "x-codex-turn-metadata",
        "x-codex-turn-state",
        "x-codex-beta-features",
    ],
)
def test_what_agents_and_the_api_use_goes_up(name: str) -> None:
    """H4."""
    assert headers_up([(name, "value")]) == ((name.lower(), "value"),)


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "proxy-authorization",
        "cookie",
        "x-api-key",
        "api-key",
        "x-codex-access-token",
        "x-codex-authorization",
        "X-Codex-Session-Cookie",
        "x-codex-client-secret",
        "openai-organization",
        "openai-project",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-real-ip",
        "via",
        "host",
        "connection",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
        "accept",
        "accept-encoding",
        "user-agent",
        "x-stainless-retry-count",
        "x-gateway-replay",
        "x-request-id",
        "openai-beta-x",
        "xx-codex-a",
        "",
    ],
)
def test_everything_else_stays_here(name: str) -> None:
    """H4: never cookies, forwarded-for, organisation, project, or any credential."""
    assert headers_up([(name, "value")]) == ()


def test_of_a_requests_headers_those_are_read_that_say_anything() -> None:
    """H4, R10a: of one name the last, in the place of the first; a value may hold any byte of latin-1."""
    raw = [
        (b"host", b"x"),
        (b"x-codex-turn-state", b"one"),
        (b"x-gateway-replay", b"never"),
        (b"x-stainless-retry-count", b"1"),
        (b"x-stainless-lang", b"python"),
        (b"authorization", b"Bearer x"),
        (b"originator", b"caf\xe9"),
        (b"x-codex-turn-state", b"two"),
    ]
    assert list(headers_read(raw).items()) == [
        ("x-codex-turn-state", "two"),
        ("x-gateway-replay", "never"),
        ("x-stainless-retry-count", "1"),
        ("originator", "caf\xe9"),
    ]


UPSTREAM = (
    ("content-type", "text/event-stream"),
    ("content-length", "123"),
    ("content-encoding", "gzip"),
    ("transfer-encoding", "chunked"),
    ("connection", "x-secret, keep-alive"),
    ("keep-alive", "timeout=5"),
    ("te", "trailers"),
    ("trailer", "x-usage"),
    ("upgrade", "h2c"),
    ("proxy-authenticate", "Basic"),
    ("x-secret", "1"),
    ("set-cookie", "a=1"),
    ("set-cookie", "b=2"),
    ("server", "cloudflare"),
    ("date", "Wed, 21 Oct 2026 07:28:00 GMT"),
    ("cf-ray", "1"),
    ("alt-svc", "h3"),
    ("strict-transport-security", "max-age=1"),
    ("openai-model", "another-model"),
    ("openai-organization", "org-1"),
    ("openai-project", "proj-1"),
    ("x-should-retry", "true"),
    ("x-request-id", "req_up_1"),
    ("x-request-id", "req_up_2"),
    ("openai-processing-ms", "12"),
    ("openai-version", "2020-10-01"),
    ("x-ratelimit-limit-requests", "60"),
    ("x-ratelimit-remaining-tokens", "caf\xe9"),
    ("ratelimit-limit", "9"),
    ("x-codex-turn-state", "s"),
    ("x-models-etag", "e"),
    ("x-reasoning-included", "true"),
)


def test_of_the_upstream_s_headers_the_listed_ones_go_down_and_no_other() -> None:
    """H5; case 43: no framing, no hop-by-hop, no cookie, no second request id, no `openai-model` (M3)."""
    assert headers_down(UPSTREAM) == (
        ("openai-processing-ms", "12"),
        ("openai-version", "2020-10-01"),
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-tokens", "caf\xe9"),
        ("ratelimit-limit", "9"),
        ("x-codex-turn-state", "s"),
        ("x-models-etag", "e"),
        ("x-reasoning-included", "true"),
        ("x-upstream-request-id", "req_up_1"),
    )


def test_an_upstream_without_a_request_id_gets_none_invented() -> None:
    """H5."""
    assert headers_down((("content-type", "text/event-stream"),)) == ()


@pytest.mark.parametrize("value", ["0", "30", "86400", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_retry_after_is_kept_as_it_is(value: str) -> None:
    """F5; case 45: seconds or a date."""
    assert retry_after((("retry-after", value),)) == (("retry-after", value),)


@pytest.mark.parametrize("value", ["-1", "1e9", "abc", "", "86401", "9" * 40, "1.5", "٣", "Wed, 99 Foo"])
def test_a_retry_after_that_makes_no_sense_is_dropped(value: str) -> None:
    """F5; case 45: and never a crash."""
    assert retry_after((("retry-after", value),)) == ()


def test_without_a_retry_after_there_is_none() -> None:
    """F5."""
    assert retry_after((("x-request-id", "1"),)) == ()
