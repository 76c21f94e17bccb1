"""From a body to a turn's request (H3, S1, M1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.eligibility import StatePolicy
from gateway.core.failures import Refusal
from gateway.downstream.bodies import read_body, refuse_background, turn_request

BODY: dict[str, Any] = {"model": "m", "input": "hi", "store": False}


def refused(raw: bytes) -> str:
    """The code with which a body is refused."""
    with pytest.raises(Refusal) as caught:
        read_body(raw)
    return caught.value.code


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" \n",
        b"model=m&input=hi",
        b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--b--',
        json.dumps(BODY).encode("utf-16"),
        json.dumps(BODY).encode("utf-32-le"),
        b"\xef\xbb\xbf" + json.dumps(BODY).encode(),
        json.dumps(BODY).encode() + b"x",
        json.dumps(BODY).encode() + json.dumps(BODY).encode(),
        json.dumps(BODY).encode()[:-1],
        b'{"model":"m",}',
        b"{'model':'m'}",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"model":"m","x":NaN}',
        b'{"model":"m","x":[Infinity]}',
        b'{"model":"m","x":{"y":-Infinity}}',
        b'{"model":"m","model":"n"}',
        b'{"model":"m","input":[{"a":1,"a":2}]}',
        b'{"model":"\xff"}',
        b'{"model":"a\x00b"}',
        b'{"model":"a\nb"}',
        b"[]",
        b"null",
        b"true",
        b"7",
        b'"text"',
        b"\x1f\x8b\x08\x00",
        b"(\xb5/\xfd",
    ],
)
def test_a_body_that_is_not_one_plain_json_object_is_refused(raw: bytes) -> None:
    """H3; case 46: a 400, never a 500."""
    assert refused(raw) == "invalid_json"


@pytest.mark.parametrize(
    "raw",
    [
        b' \r\n\t{"model" : "m" } \n',
        b'{"model":"m","x":1e999}',
        b'{"model":"m","x":' + b"9" * 5000 + b"}",
        b'{"model":"m","x":-0}',
        b'{"model":"m","x":"\\ud83d \\u0000"}',
        '{"model":"m","x":"\u2028 🙂"}'.encode(),
        b'{"model":"m","mod\\u0065l2":"n","":null}',
        b'{"model":"m","x":' + b"[" * 400 + b"]" * 400 + b"}",
    ],
)
def test_what_json_allows_passes(raw: bytes) -> None:
    """H3; case 53: unknown fields, lone surrogates, numbers of any length: the upstream decides."""
    assert turn_request(read_body(raw), {}, StatePolicy()).body_for_sse(None).startswith(raw[: raw.index(b"{") + 1])


def test_a_key_that_is_the_same_in_another_spelling_stands_twice() -> None:
    """H3: two readers would read two requests."""
    assert refused(b'{"model":"m","mod\\u0065l":"n"}') == "invalid_json"


@pytest.mark.parametrize("model", [None, "", 7, ["m"], {"name": "m"}, True])
def test_a_model_is_named(model: Any) -> None:
    """M1."""
    with pytest.raises(Refusal) as caught:
        turn_request(read_body(json.dumps({**BODY, "model": model}).encode()), {}, StatePolicy())
    assert (caught.value.code, caught.value.param) == ("invalid_request", "model")


@pytest.mark.parametrize("value", [True, "false", 1, [], {}])
def test_a_background_request_is_refused(value: Any) -> None:
    """What later issues bring is refused clearly: anything but false or null."""
    body = read_body(json.dumps({**BODY, "background": value}).encode())
    with pytest.raises(Refusal) as caught:
        refuse_background(body)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "background")


@pytest.mark.parametrize("fields", [{}, {"background": False}, {"background": None}])
def test_a_request_in_the_foreground_passes(fields: dict[str, Any]) -> None:
    """S3."""
    refuse_background(read_body(json.dumps({**BODY, **fields}).encode()))


def test_a_request_carries_what_the_engine_asks() -> None:
    """S7, R10a, L1, H4: reasons, refusals, retry count, and only the headers that may go up."""
    headers = {
        "x-stainless-retry-count": "2",
        "x-gateway-replay": " Never ",
        "x-codex-turn-state": "s",
        "authorization": "Bearer secret",
        "cookie": "a=1",
    }
    request = turn_request(read_body(json.dumps({**BODY, "store": True}).encode()), headers, StatePolicy())

    assert request.model == "m"
    assert request.stateful_reasons == ("stored", "origin_bound")
    assert request.client_refused_replay is True
    assert request.client_retry_count == "2"
    assert request.headers == (("x-codex-turn-state", "s"),)


@pytest.mark.parametrize("value", ["", "always", "auto", "nevermore", "0"])
def test_only_never_refuses_a_replay(value: str) -> None:
    """R10a."""
    request = turn_request(read_body(json.dumps(BODY).encode()), {"x-gateway-replay": value}, StatePolicy())

    assert request.client_refused_replay is False


@pytest.mark.parametrize(
    ("store", "absent_store_is_false", "sent"),
    [
        (False, False, b'"store": false'),
        (True, True, b'"store": true'),
        (None, True, b'"store": false'),
        (None, False, b'"store": null'),
        ("false", True, b'"store": "false"'),
        (0, True, b'"store": 0'),
    ],
)
def test_store_is_made_explicit_where_it_is_absent_and_the_operator_says_so(
    store: Any, absent_store_is_false: bool, sent: bytes
) -> None:
    """S1; case 49: explicit values are never changed, odd ones either."""
    raw = json.dumps({**BODY, "store": store, "stream": True}).encode()
    request = turn_request(read_body(raw), {}, StatePolicy(absent_store_is_false=absent_store_is_false))

    assert sent in request.body_for_sse(None)
