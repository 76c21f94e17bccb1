"""H2: calls about a response that exists, forwarded to the route that made it; and M1's list of models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from gateway.lock.driver import AUTHORIZED, Client, Headers, connect
from gateway.ports import LedgerUnavailable, Origin
from gateway.records.memory import MemoryRecords
from gateway.upstream.scripted import JSON_BODY, Break, Reply, Silence
from gateway.upstream.scripts import usage_object
from gateway.upstream.sse import SSEUpstream
from support.gateways import MODEL, World, create, world
from support.virtual import in_every_order, in_orders
from support.voices import A, B

RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "model": "upstream-name", "output": []}
MADE_BY_B = Origin("main", "resp_1", "b", MODEL)


def whole(body: Any, status: int = 200, headers: Headers = ()) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply((data,), status=status, headers=(*JSON_BODY, ("x-request-id", "req_of_b"), *headers))


def two_routes(b: Reply | Sequence[Reply], *origins: Origin, **options: Any) -> World:
    records = MemoryRecords()
    records.origins.update({(origin.account, origin.response_id): origin for origin in origins or (MADE_BY_B,)})
    return world(A.answer(), b, records=records, **options)


async def ask(
    w: World, path: str = "/resp_1", method: str = "GET", query: str = "", headers: Headers = AUTHORIZED
) -> Client:
    """One by-id call, to its end."""
    async with connect(w.app, "http", f"/v1/responses{path}", method=method, query=query, headers=headers) as client:
        pass
    assert client.crash is None
    return client


def refusal(client: Client) -> tuple[int, str]:
    return client.status, json.loads(client.body)["error"]["code"]


# --- where a call goes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]
)
@in_every_order
async def test_a_call_goes_to_the_route_that_made_the_response(method: str, path: str) -> None:
    """H2, O2: its status and body come back as they are; nothing is reserved, and no turn is on record."""
    w = two_routes(whole(RESPONSE, headers=[("openai-processing-ms", "5"), ("set-cookie", "x")]))
    client = await ask(w, f"/resp_1{path}", method)

    (call,) = w.calls
    assert (call.upstream, call.method, call.path, call.body) == ("b", method, f"/v1/responses/resp_1{path}", b"")
    assert (client.status, client.body) == (200, json.dumps(RESPONSE).encode())
    assert (w.reserved, w.turns) == ([], [])
    assert {name: client.headers.get(name) for name in ("x-upstream-request-id", "openai-processing-ms")} == {
        "x-upstream-request-id": "req_of_b",
        "openai-processing-ms": "5",
    }
    assert client.headers["x-request-id"] == "req_1"
    assert "set-cookie" not in client.headers


@in_every_order
async def test_a_response_that_a_turn_delivered_can_be_read() -> None:
    """O1, H2."""
    w = world([A.answer(), whole(RESPONSE)])
    async with connect(w.app, "http", body=json.dumps(create(store=True)).encode()):
        pass
    assert (await ask(w, "/resp_of_a")).status == 200
    assert w.calls[-1].path == "/v1/responses/resp_of_a"


@pytest.mark.parametrize("named", ["resp_2", "resp_of_another", "%2e%2e", ".", "%00", "x" * 2000, "%ff", "caf%c3%a9"])
@in_orders(2)
async def test_what_is_not_known_is_not_found(named: str) -> None:
    """H2: another account's is as unknown as one that never was, and no upstream hears of it."""
    w = two_routes(whole(RESPONSE), MADE_BY_B, Origin("other", "resp_of_another", "b"), Origin("main", "..", "b"))
    for method, action in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
        assert refusal(await ask(w, f"/{named}{action}", method)) == (404, "response_not_found")
    assert w.calls == []


@pytest.mark.parametrize("path", ["/resp_1/other", "/resp_1/input_items/x", "/resp_1%2fcancel/x", "/resp_1/"])
@in_orders(1)
async def test_other_paths_are_nothing_here(path: str) -> None:
    """H2."""
    w = two_routes(whole(RESPONSE))
    client = await ask(w, path)
    assert (client.status, w.calls) == (404, [])


@pytest.mark.parametrize(("method", "path"), [("PUT", ""), ("POST", ""), ("POST", "/input_items"), ("GET", "/cancel")])
@in_orders(1)
async def test_other_methods_are_not_allowed(method: str, path: str) -> None:
    """H2."""
    w = two_routes(whole(RESPONSE))
    assert (await ask(w, f"/resp_1{path}", method)).status == 405
    assert w.calls == []


@in_orders(1)
async def test_an_id_reaches_the_upstream_as_one_segment_whatever_it_is_made_of() -> None:
    """H2: what an upstream named so, and nothing that a path could be made of."""
    named = "a b?c#d&é=%2f"
    w = two_routes(whole(RESPONSE), Origin("main", named, "b"))
    await ask(w, "/a%20b%3Fc%23d%26%C3%A9%3D%252f")
    assert w.calls[0].path == "/v1/responses/a%20b%3Fc%23d%26%C3%A9%3D%252f"


@in_every_order
async def test_a_query_is_passed_on_as_far_as_the_api_knows_it() -> None:
    """H2, H4."""
    w = two_routes(whole(RESPONSE))
    await ask(w, "/resp_1/input_items", query="after=x%26y&limit=5&include[]=a&include[]=b&key=secret&order=asc")
    assert w.calls[0].path == (
        "/v1/responses/resp_1/input_items?after=x%26y&limit=5&include%5B%5D=a&include%5B%5D=b&order=asc"
    )


@in_every_order
async def test_headers_up_are_the_allow_list_and_the_credential_the_routes_own() -> None:
    """H4."""
    w = two_routes(whole(RESPONSE))
    await ask(w, headers=[*AUTHORIZED, ("openai-beta", "x=1"), ("cookie", "c"), ("openai-organization", "o")])
    sent = dict(w.calls[0].headers)
    assert (sent["authorization"], sent["openai-beta"]) == ("Bearer credential-of-b", "x=1")
    assert {"cookie", "openai-organization"}.isdisjoint(sent)


@pytest.mark.parametrize("why", ["cooling", "gone", "draining", "away"])
@in_every_order
async def test_without_its_route_a_call_goes_nowhere(why: str) -> None:
    """O2, X."""
    w = two_routes(whole(RESPONSE), Origin("main", "resp_1", "gone" if why == "gone" else "b"))
    w.house.cooling.update({"b"} if why == "cooling" else ())
    if why == "draining":
        w.gateway.drain()
    if why == "away":
        w.records.origin = _is_away  # type: ignore[method-assign]  # the store, for this one question
    code = {"draining": "server_draining", "away": "ledger_unavailable"}.get(why, "no_route_available")
    client = await ask(w)
    assert refusal(client) == (503, code)
    assert "retry-after" in client.headers
    assert w.calls == []


async def _is_away(account: str, response_id: str) -> Origin | None:
    await trio.lowlevel.checkpoint()
    raise LedgerUnavailable(f"{account}, {response_id}")


# --- who may ask --------------------------------------------------------------------------------------------------


@in_orders(1)
async def test_a_bad_key_is_refused_and_learns_nothing() -> None:
    """H2, W1."""
    w = two_routes(whole(RESPONSE))
    for headers in ((), (("authorization", "Bearer wrong"),)):
        assert refusal(await ask(w, headers=headers)) == (401, "invalid_api_key")


@in_orders(1)
async def test_a_key_s_limits_are_by_id_calls_too() -> None:
    """B6: its models, and its requests per minute."""
    w = two_routes(whole(RESPONSE), key="requests_per_minute = 1")
    assert (await ask(w)).status == 200
    assert refusal(await ask(w)) == (429, "rate_limit_exceeded")

    w = two_routes(whole(RESPONSE), Origin("main", "resp_1", "b", "a-model-of-others"), key=f'models = ["{MODEL}"]')
    assert refusal(await ask(w)) == (403, "model_not_allowed")
    assert w.calls == []


# --- what comes back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 409, 410, 429, 500])
@in_orders(2)
async def test_a_failure_is_the_upstreams_own(status: int) -> None:
    """X2: also a 404 or a 410 of a response that is kept no longer."""
    w = two_routes(B.status(status, "some_code"))
    client = await ask(w)
    assert (client.status, json.loads(client.body)["error"]["code"]) == (status, "some_code")


@pytest.mark.parametrize("status", [401, 402, 403])
@in_orders(1)
async def test_a_credential_that_is_refused_is_the_gateways_own_affair(status: int) -> None:
    """F2."""
    assert refusal(await ask(two_routes(B.status(status)))) == (502, "upstream_auth_error")


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(refuses=True), "upstream_connect_error"),
        (Reply((b"{", Break()), headers=JSON_BODY), "stream_read_error"),
        (Reply(status=302), "upstream_bad_response"),
        (whole(b"x" * 2_000_000), "upstream_stream_buffer_limit"),
    ],
    ids=["refuses", "breaks", "redirects", "too large"],
)
@in_orders(2)
async def test_an_upstream_that_cannot_be_heard_is_named(reply: Reply, code: str) -> None:
    """X, P9."""
    w = two_routes(reply, limits="event_bytes_max = 1_000_000")
    assert refusal(await ask(w)) == (502, code)


@in_orders(1)
async def test_an_answer_may_take_a_minute() -> None:
    """H2: at the exact instant."""
    w = two_routes(Reply((), headers=JSON_BODY, head_seconds=1000))
    client = await ask(w)
    assert (refusal(client), client.started_at) == ((504, "first_event_timeout"), 60.0)


@in_every_order
async def test_a_client_that_leaves_ends_the_call() -> None:
    """H7."""
    w = two_routes(Reply((Silence(),), headers=JSON_BODY))
    async with connect(w.app, "http", "/v1/responses/resp_1", method="GET") as client:
        await trio.sleep(3)
        client.leave()
    assert (client.ended_at, [call.closed_at for call in w.calls]) == (3.0, [3.0])


@pytest.mark.parametrize("alias", [True, False])
@in_orders(2)
async def test_the_model_has_the_clients_name_where_the_routes_differs(alias: bool) -> None:
    """M3: by splice; every other byte as it came."""
    body = b'{"id": "resp_1",  "model":"upstream-name", "n": 1.0}'
    w = two_routes(whole(body), route_extras={"b": 'model = "upstream-name"'} if alias else {})
    client = await ask(w)
    assert client.body == (body.replace(b"upstream-name", MODEL.encode()) if alias else body)


NO_OBJECTS = [
    b"<html>it works</html>",
    b"[]",
    b"null",
    b'"text"',
    b"\xff",
    b'{"a": 1} {"b": 2}',
    b"{",
    b'{"id": "r',
    b"",
]


@pytest.mark.parametrize("body", NO_OBJECTS)
@pytest.mark.parametrize(
    ("method", "action"), [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]
)
@in_orders(1)
async def test_a_success_that_is_no_json_object_is_not_passed_on(body: bytes, method: str, action: str) -> None:
    """P9, X2: what the API answers is an object; what stands in its place is no client's to read."""
    is_cut = body == b"" or body.startswith(b"{")
    for status in (200, 202):
        client = await ask(two_routes(whole(body, status=status)), f"/resp_1{action}", method)
        assert refusal(client) == (502, "stream_read_error" if is_cut else "upstream_bad_response")
        assert json.loads(client.body)["error"]["request_id"] == "req_1"


@in_orders(1)
async def test_nothing_is_an_answer_where_nothing_was_to_be_said() -> None:
    """P9: 204 has no body."""
    w = two_routes(Reply((), status=204))
    client = await ask(w, method="DELETE")
    assert (client.status, client.body) == (204, b"")


@pytest.mark.parametrize("body", [b'{"model": 5}', b'{"object": "list"}', b'\n {"id": "\xff"}\n'])
@in_orders(1)
async def test_a_body_without_a_model_is_passed_on_as_it_is(body: bytes) -> None:
    """M3."""
    w = two_routes(whole(body), route_extras={"b": 'model = "upstream-name"'})
    assert (await ask(w)).body == body


@in_orders(1)
async def test_a_route_of_websockets_is_asked_over_http() -> None:
    """H2, C5: at the same base URL."""
    w = two_routes(whole(RESPONSE), route_extras={"b": 'transport = "websocket"'})
    assert isinstance(w.gateway.routes.ways["b"].by_id, SSEUpstream)


# --- events, once more --------------------------------------------------------------------------------------------

STREAM = "stream=true&starting_after=1"


@in_every_order
async def test_a_stream_is_resumed_byte_for_byte_as_it_comes() -> None:
    """H2, E10, X1: nothing is held, and the body ends with the terminal event."""
    w = two_routes(B.reply(B.in_progress, 20.0, B.delta(), 20.0, B.completed(), Silence()))
    client = await ask(w, query=STREAM)
    assert client.times == [(0.0, "in_progress"), (20.0, "output_text.delta"), (40.0, "completed")]
    assert [at for at, _ in client.comments] == [15.0, 35.0]
    assert (client.body_ended_at, client.headers["content-type"]) == (40.0, "text/event-stream; charset=utf-8")
    assert dict(w.calls[0].headers)["accept"] == "text/event-stream"
    assert (w.calls[0].path, w.reserved) == (f"/v1/responses/resp_1?{STREAM}", [])


@in_orders(1)
async def test_a_resumed_stream_shows_the_clients_model() -> None:
    """M3."""
    done = B.ending("completed", usage_object(1, 1), model="upstream-name")
    w = two_routes(B.reply(done), route_extras={"b": 'model = "upstream-name"'})
    assert (await ask(w, query=STREAM)).events[0].payload["response"]["model"] == MODEL


@pytest.mark.parametrize(
    ("reply", "at", "failure"),
    [
        pytest.param(B.status(404, "not_there"), 0.0, (404, "not_there"), id="a status"),
        pytest.param(B.status(401), 0.0, (502, "upstream_auth_error"), id="a refused credential"),
        pytest.param(B.reply(Silence()), 25.0, (504, "first_event_timeout"), id="T2"),
        pytest.param(B.reply(B.delta(), Silence()), 300.0, (504, "stream_idle_timeout"), id="T4"),
        pytest.param(B.reply(B.delta(), Break()), 0.0, (502, "stream_read_error"), id="a break"),
        pytest.param(whole(RESPONSE), 0.0, (502, "upstream_bad_response"), id="no stream"),
    ],
)
@in_orders(2)
async def test_a_resumed_stream_that_fails_says_so_once(reply: Reply, at: float, failure: tuple[int, str]) -> None:
    """X2, X3: with its real status if nothing has left yet."""
    client = await ask(two_routes(reply), query=STREAM)
    assert (client.events[-1].at, client.failure) == (at, failure)
    assert client.told[-1] == f"error {failure[1]}"


@in_orders(1)
async def test_a_failure_in_a_resumed_stream_is_numbered_on() -> None:
    """X3."""
    client = await ask(two_routes(B.reply(B.delta(number=7), Break())), query=STREAM)
    assert client.events[-1].payload["sequence_number"] == 8


@in_every_order
async def test_a_client_that_leaves_a_resumed_stream_ends_the_call() -> None:
    """H7."""
    w = two_routes(B.reply(B.in_progress, Silence()))
    async with connect(w.app, "http", "/v1/responses/resp_1", method="GET", query=STREAM) as client:
        await trio.sleep(3)
        client.leave()
    assert [call.closed_at for call in w.calls] == [3.0]


@in_orders(1)
async def test_only_a_response_itself_is_streamed() -> None:
    """H2: `stream` on anything else is the upstream's to judge."""
    w = two_routes(whole({"object": "list"}))
    client = await ask(w, "/resp_1/input_items", query="stream=true")
    assert (client.status, client.is_stream) == (200, False)
