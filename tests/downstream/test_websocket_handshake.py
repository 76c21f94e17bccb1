"""The WebSocket door before the first frame (W1, H8)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.lock.driver import AUTHORIZED, Headers, connect
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripts import event
from support.gateways import create_frame, world
from support.voices import ANSWERED, A

pytestmark = pytest.mark.trio(run=virtual_run)

SIZE_HEADER = "x-codex-websocket-max-message-bytes"


@pytest.mark.parametrize("headers", [(), (("authorization", "Bearer wrong"),), (("authorization", "Basic x"),)])
async def test_a_bad_key_is_refused_before_the_upgrade(headers: Headers) -> None:
    """W1: a plain 401, with the error in its body."""
    w = world(A.answer())
    async with connect(w.app, "websocket", headers=headers) as client:
        pass

    assert client.sent[0][1]["type"] == "websocket.http.response.start"
    assert client.status == 401
    assert client.headers["content-type"] == "application/json"
    assert client.headers["x-request-id"] == json.loads(client.body)["error"]["request_id"] == "req_1"
    assert json.loads(client.body)["error"]["code"] == "invalid_api_key"
    assert client.crash is None


async def test_a_draining_gateway_refuses_the_upgrade_with_503() -> None:
    """T7, X: never 429, which agents take for the end."""
    w = world(A.answer())
    w.house.begin_drain()
    async with connect(w.app, "websocket") as client:
        pass

    assert client.status == 503
    assert client.headers["retry-after"] == "1"
    assert json.loads(client.body)["error"]["code"] == "server_draining"


async def test_another_path_is_not_found() -> None:
    """In JSON, before the upgrade."""
    w = world(A.answer())
    async with connect(w.app, "websocket", "/v1/realtime") as client:
        pass

    assert client.status == 404
    assert json.loads(client.body)["error"]["code"] == "invalid_request"


async def test_the_upgrade_tells_the_connection_s_id_and_how_large_a_message_may_be() -> None:
    """W1."""
    async with connect(world(A.answer()).app, "websocket") as client:
        await client.wait_for(lambda client: bool(client.headers))
        client.leave()

    assert client.headers["x-request-id"] == "req_1"
    assert client.headers[SIZE_HEADER] == str(32 * 1024 * 1024)


async def test_the_size_that_is_told_is_the_one_that_holds() -> None:
    """W1: `body_bytes_max`."""
    w = world(A.answer(), limits="body_bytes_max = 1000")
    async with connect(w.app, "websocket") as client:
        client.send_text(json.dumps(create_frame()).ljust(1000))
        await client.wait_for(lambda client: client.has_last_word)
        client.leave()

    assert client.headers[SIZE_HEADER] == "1000"
    assert client.told == ANSWERED


@pytest.mark.parametrize(
    ("offered", "accepted"),
    [
        ((), None),
        (("openai-beta.responses.v1",), "openai-beta.responses.v1"),
        (("responses", "other"), "responses"),
    ],
)
async def test_an_offered_subprotocol_is_accepted(offered: tuple[str, ...], accepted: str | None) -> None:
    """W1: clients that offer one close when none is taken."""
    async with connect(world(A.answer()).app, "websocket", subprotocols=offered) as client:
        await client.wait_for(lambda client: bool(client.sent))
        client.leave()

    (accept,) = [message for _, message in client.sent if message["type"] == "websocket.accept"]
    assert accept["subprotocol"] == accepted


async def test_frames_right_behind_the_handshake_are_not_lost() -> None:
    """W1: sent before the upgrade is answered."""
    w = world([A.answer(), A.answer()])
    async with connect(w.app, "websocket") as client:
        for number in range(2):
            client.send_text(create_frame(event_id=str(number)))
        await client.wait_for(lambda client: len(client.told) == 2 * len(ANSWERED))
        client.leave()

    assert client.told == ANSWERED * 2


async def test_a_client_that_leaves_in_the_handshake_leaves_no_trace() -> None:
    """H7."""
    w = world(A.answer())
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        client.leave()

    assert client.crash is None
    w.assert_at_rest()


async def test_the_upgrade_s_headers_go_up_with_each_turn() -> None:
    """H4: agents send theirs once, with the handshake."""
    w = world(A.answer())
    async with connect(
        w.app, "websocket", headers=(*AUTHORIZED, ("OpenAI-Beta", "responses_websockets"), ("cookie", "a=1"))
    ) as client:
        client.send_text(create_frame())
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.told.count("completed") == 2)
        client.leave()

    assert [dict(call.headers).get("openai-beta") for call in w.calls] == ["responses_websockets"] * 2
    assert ["cookie" in dict(call.headers) for call in w.calls] == [False] * 2


async def test_what_an_upstreams_handshake_says_stops_at_a_client_that_has_had_its_own() -> None:
    """H4, H5, E10: the client's codex headers go up in it; its answer is in no frame, and events like it pass."""
    said = (("x-codex-turn-state", "state of a"), ("x-models-etag", "etag of a"))
    told = event("codex.rate_limits", rate_limits={"primary": 1})
    reply = A.reply(A.created, told, A.delta(), A.completed())
    w = world(replace(reply, headers=(*reply.headers, *said)), route='transport = "websocket"')
    async with connect(w.app, "websocket", headers=(*AUTHORIZED, ("x-codex-window-id", "w"))) as client:
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.last_words == 1)
        client.leave()

    assert dict(w.calls[0].headers)["x-codex-window-id"] == "w"
    assert client.told == ["created", "codex.rate_limits", "output_text.delta", "completed"]
    assert [word in str(client.headers) + client.body.decode() for _, word in said] == [False, False]
