"""What the HTTP door refuses before there is a turn: nothing is reserved, no upstream called (H1, H3, H8, X2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.lock.driver import AUTHORIZED, Client, connect, post
from gateway.lock.virtual import virtual_run
from support.gateways import MODEL, World, create, world
from support.voices import A, B

pytestmark = pytest.mark.trio(run=virtual_run)

JSON = ("content-type", "application/json")
FORM = "application/x-www-form-urlencoded"


def assert_refused(w: World, client: Client, status: int, code: str, param: str | None = None) -> None:
    """An answer in the one shape of errors, and not a trace anywhere else."""
    error = json.loads(client.body)["error"]
    assert (client.status, error["code"], error["param"]) == (status, code, param)
    assert isinstance(error["message"], str)
    assert error["message"] != ""
    assert client.headers["content-type"] == "application/json"
    assert client.headers["content-length"] == str(len(client.body))
    assert client.headers["x-request-id"] == error["request_id"]
    assert client.crash is None
    assert_nothing_happened(w)


def assert_nothing_happened(w: World) -> None:
    """Nothing reserved, no turn on record, no upstream called."""
    assert w.calls == []
    assert w.turns == []
    assert [entry.kind for entry in w.ledger.entries] == ["deposit"]


# --- who asks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Basic ZGVtby1rZXk="),),
        (("x-api-key", "demo-key"),),
    ],
)
async def test_a_request_without_a_known_key_is_refused(headers: tuple[tuple[str, str], ...]) -> None:
    """X: 401, before the body is looked at."""
    w = world(A.answer())
    for body in (create(), b"not JSON"):
        assert_refused(w, await post(w.app, body, headers=(JSON, *headers)), 401, "invalid_api_key")


async def test_a_client_that_leaves_while_it_sends_its_body_leaves_no_trace() -> None:
    """H7: there is no turn yet."""
    w = world(A.answer())
    async with connect(w.app, "http", body=None) as client:
        client.say({"type": "http.request", "body": b'{"model":', "more_body": True})
        client.leave()

    assert (client.sent, client.crash) == ([], None)
    assert_nothing_happened(w)


# --- what is asked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"model=m&input=hi",
        json.dumps(create()).encode("utf-16"),
        b"\xef\xbb\xbf" + json.dumps(create()).encode(),
        json.dumps(create()).encode() + b" x",
        b"[" * 100_000,
        b'{"model":"gpt-test","stream":true,"x":NaN}',
        b'{"model":"gpt-test","stream":true,"stream":false}',
        b"[]",
        b"\x1f\x8b\x08\x00",
    ],
    ids=[
        "empty",
        "a form",
        "utf-16",
        "a BOM",
        "trailing garbage",
        "deep nesting",
        "NaN",
        "a key twice",
        "a list",
        "gzip",
    ],
)
@pytest.mark.parametrize(
    "content_type", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
)
async def test_a_body_that_is_no_json_object_is_refused(body: bytes, content_type: str) -> None:
    """H3; case 46: a 400, whatever it says it is."""
    w = world(A.answer())
    client = await post(w.app, body, headers=(*AUTHORIZED[:1], ("content-type", content_type)))

    assert_refused(w, client, 400, "invalid_json")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data; boundary=b"]
)
async def test_a_json_body_is_one_whatever_its_type_says(content_type: str) -> None:
    """H3: the bytes count."""
    w = world(A.answer())
    client = await post(w.app, create(), headers=(*AUTHORIZED[:1], ("content-type", content_type)))

    assert client.status == 200
    assert w.calls[0].body == json.dumps(create()).encode()


@pytest.mark.parametrize("encoding", ["identity", "Identity", " identity "])
async def test_an_encoding_that_is_none_is_none(encoding: str) -> None:
    """RFC 9110: in any case."""
    w = world(A.answer())
    assert (await post(w.app, create(), headers=(*AUTHORIZED, ("content-encoding", encoding)))).status == 200


@pytest.mark.parametrize(("excess", "status"), [(-1, 200), (0, 200), (1, 413)])
@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("says_its_length", [True, False])
async def test_a_body_may_have_exactly_the_limit(excess: int, status: int, pieces: int, says_its_length: bool) -> None:
    """H3: announced or not, in one piece or in many."""
    w = world(A.answer(), limits="body_bytes_max = 2000")
    body = json.dumps(create()).encode().ljust(2000 + excess)
    length = (("content-length", str(len(body))),) if says_its_length else ()
    step = -(-len(body) // pieces)
    async with connect(w.app, "http", headers=(*AUTHORIZED, *length), body=None) as client:
        for start in range(0, len(body), step):
            more = start + step < len(body)
            client.say({"type": "http.request", "body": body[start : start + step], "more_body": more})

    assert client.status == status
    if status == 413:
        assert_refused(w, client, 413, "payload_too_large")


async def test_a_body_that_never_ends_is_refused_at_the_limit() -> None:
    """H3: nobody waits for the rest."""
    w = world(A.answer(), limits="body_bytes_max = 2000")
    async with connect(w.app, "http", body=None) as client:
        client.say({"type": "http.request", "body": b"x" * 2001, "more_body": True})

    assert_refused(w, client, 413, "payload_too_large")
    assert client.ended_at < 1.0


@pytest.mark.parametrize("value", ["true", 1, 0, [], {}])
async def test_a_stream_that_is_neither_true_nor_false_is_refused(value: Any) -> None:
    """H1."""
    w = world(A.answer())
    assert_refused(w, await post(w.app, create(stream=value)), 400, "invalid_request", "stream")


@pytest.mark.parametrize("value", ["no", "true", 1, [], {}])
async def test_a_background_that_is_neither_true_nor_false_is_refused_clearly(value: object) -> None:
    """B9, H3: whether the response goes on must not be guessed."""
    w = world(A.answer())
    assert_refused(w, await post(w.app, create(background=value)), 400, "invalid_request", "background")


async def test_a_warm_up_is_refused_clearly() -> None:
    """W9, B9: it would be generated, and charged."""
    w = world(A.answer())
    refused = await post(w.app, create(generate=False))
    assert_refused(w, refused, 400, "unsupported_parameter", "generate")


@pytest.mark.parametrize("model", [..., None, "", 7, ["gpt-test"]])
async def test_a_request_names_its_model(model: Any) -> None:
    """M1."""
    w = world(A.answer())
    assert_refused(w, await post(w.app, create(model=model)), 400, "invalid_request", "model")


@pytest.mark.parametrize("model", ["gpt-other", MODEL.upper(), f"{MODEL} ", "\ud83d", "a", "x" * 10_000])
async def test_a_model_that_is_not_served_is_not_found(model: str) -> None:
    """M1: by its exact name; case 53: whatever that is."""
    w = world(A.answer())
    assert_refused(w, await post(w.app, create(model=model)), 404, "model_not_found", "model")


async def test_generate_is_a_word_of_the_other_door_and_is_cut() -> None:
    """H3: an HTTP upstream does not know it."""
    w = world(A.answer())
    client = await post(w.app, create(generate=True))

    assert client.status == 200
    assert "generate" not in w.calls[0].fields


# --- where and how it is asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/responses/", "/v1/response", "/v2/responses", "/v1/chat/completions"]
)
async def test_a_path_that_is_not_known_is_not_found(path: str) -> None:
    """In JSON, like any error."""
    w = world(A.answer())
    async with connect(w.app, "http", path, body=json.dumps(create()).encode()) as client:
        pass

    assert_refused(w, client, 404, "invalid_request")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_a_method_that_is_not_known_is_not_allowed(method: str) -> None:
    """In JSON, like any error."""
    w = world(A.answer())
    async with connect(w.app, "http", method=method, body=json.dumps(create()).encode()) as client:
        pass

    assert_refused(w, client, 405, "invalid_request")
    assert client.headers["allow"] == "GET, HEAD, OPTIONS, POST"


@pytest.mark.parametrize("headers", [AUTHORIZED, ()])
async def test_a_get_is_told_to_upgrade(headers: tuple[tuple[str, str], ...]) -> None:
    """H8; case 41: agents fall back to HTTP at once on 426, and on nothing else; with a key or without."""
    w = world(A.answer())
    async with connect(w.app, "http", method="GET", headers=headers) as client:
        pass

    assert_refused(w, client, 426, "invalid_request")
    assert client.headers["upgrade"] == "websocket"
    assert client.headers["connection"] == "upgrade"
    assert client.headers["sec-websocket-version"] == "13"


# --- when it may not begin --------------------------------------------------------------------------------------------


async def test_a_balance_too_low_is_told_before_any_call() -> None:
    """B6: 402."""
    w = world(A.answer(), B.answer(), balance="0.000001")
    client = await post(w.app, create())

    assert_refused(w, client, 402, "insufficient_balance")
    assert "x-should-retry" not in client.headers


async def test_a_draining_gateway_takes_no_turn() -> None:
    """T7: and says when to come again."""
    w = world(A.answer())
    w.house.begin_drain()
    client = await post(w.app, create())

    assert_refused(w, client, 503, "server_draining")
    assert client.headers["x-should-retry"] == "true"
    assert client.headers["retry-after"] == str(json.loads(client.body)["error"]["retry_after"])


async def test_without_a_route_nothing_is_sent_and_a_client_may_come_again() -> None:
    """X, R14: every route is cooling down."""
    w = world(A.answer(), B.answer())
    w.house.cooling = {"a", "b"}
    client = await post(w.app, create())

    assert_refused(w, client, 503, "no_route_available")
    assert client.headers["x-should-retry"] == "true"
    assert int(client.headers["retry-after"]) > 0
