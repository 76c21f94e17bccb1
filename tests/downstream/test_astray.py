"""Paths that lead nowhere: answered in JSON, in the API's own words, and never by sending the client elsewhere (X2)."""

from __future__ import annotations

import json

import pytest

from gateway.lock.driver import AUTHORIZED, connect
from gateway.ports import Origin
from gateway.records.memory import MemoryRecords
from gateway.upstream.scripted import JSON_BODY, Reply
from support.gateways import world
from support.virtual import in_orders
from support.voices import A

NO_RESPONSE = [
    "/v1/responses//resp_1",
    "/v1/responses/resp_1/",
    "/v1/responses/resp_1//input_items",
    "/v1/responses/resp_1/unknown",
    "/v1/responses/resp_1/input_items/more",
    "/v1/responses/a%2Fb",
    "/v1/responses/a%2fb",
    "/v1/responses/resp_1%2F",
    "/v1/responses/resp_1%2Finput_items",
    "/v1/responses/resp_1/%2E%2E",
    "/v1/responses/%2E%2E/models",
    "/v1/responses/..",
    "/v1/responses/%252F",
]
NOWHERE = [
    "/",
    "//",
    "/v1",
    "/v1/",
    "/v1//responses",
    "/v1/responses/",
    "/v1/responses//",
    "/v1/responses/%2F",
    "/v1/responsesx",
    "/v1/models/",
    "/health/",
]


async def ask(path: str, method: str) -> tuple[int, str, str, list[str]]:
    """The status, the content type and the code of the answer, and the upstream's calls."""
    records = MemoryRecords()
    made = Origin("main", "resp_1", "a", "gpt-test")
    records.origins["main", "resp_1"] = made
    w = world(Reply((b"{}",), headers=JSON_BODY), records=records)
    async with connect(w.app, "http", path, method=method, headers=AUTHORIZED) as client:
        pass
    assert client.crash is None
    assert "location" not in client.headers
    code = json.loads(client.body)["error"]["code"]
    return client.status, client.headers["content-type"], code, [f"{call.method} {call.path}" for call in w.calls]


@pytest.mark.parametrize("path", NO_RESPONSE)
@in_orders(1)
async def test_where_no_response_is_the_answer_says_so(path: str) -> None:
    """H2, O2: a slash of an id's own is no slash of the path, and an empty part is no part."""
    assert await ask(path, "GET") == (404, "application/json", "response_not_found", [])


@pytest.mark.parametrize("path", NOWHERE)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@in_orders(1)
async def test_no_path_sends_a_client_elsewhere(path: str, method: str) -> None:
    """X2."""
    status, content, code, calls = await ask(path, method)
    assert (status, content, calls) == (404, "application/json", [])
    assert code in ("invalid_request", "model_not_found")


@in_orders(1)
async def test_a_slash_of_an_id_s_own_cancels_nothing() -> None:
    """H2: what is sent to `/resp_1%2Fcancel` is about a response of that name, and not about `resp_1`."""
    assert await ask("/v1/responses/resp_1%2Fcancel", "POST") == (404, "application/json", "response_not_found", [])


@in_orders(1)
async def test_a_response_that_is_there_is_found() -> None:
    """H2: as it was."""
    assert (await ask_plainly("/v1/responses/resp_1")) == ["GET /v1/responses/resp_1"]
    assert (await ask_plainly("/v1/responses/resp%5F1")) == ["GET /v1/responses/resp_1"]


async def ask_plainly(path: str) -> list[str]:
    records = MemoryRecords()
    records.origins["main", "resp_1"] = Origin("main", "resp_1", "a", "gpt-test")
    w = world(Reply((b"{}",), headers=JSON_BODY), A.answer(), records=records)
    async with connect(w.app, "http", path, method="GET", headers=AUTHORIZED) as client:
        pass
    assert (client.crash, client.status) == (None, 200)
    return [f"{call.method} {call.path}" for call in w.calls]
