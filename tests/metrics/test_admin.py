"""The admin listener: what it answers, who may change the log's level, and how it gets its port."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import httpx2
import pytest
import trio
from trio.testing import MockClock

from gateway.lock.driver import Client, connect
from gateway.lock.virtual import virtual_run
from gateway.server.admin import AdminApp, probe_loop, serve_admin, worker_port
from support.gateways import world
from support.voices import A

virtual = pytest.mark.trio(run=virtual_run)
on_sockets = pytest.mark.trio(run=trio.run)
NOT_HERE = b'{"error": "there are GET /metrics, /healthz, /readyz and POST /log-level"}'
PATIENCE_SECONDS = 10.0
"""For a scrape of this machine's own: far above what any takes."""


@pytest.fixture(autouse=True)
def level() -> Iterator[logging.Logger]:
    """The logger whose level is changed, as it was again afterwards."""
    logger = logging.getLogger("gateway")
    before = logger.level
    yield logger
    logger.setLevel(before)


async def asked(app: AdminApp, method: str, path: str) -> Client:
    """A request from elsewhere."""
    async with connect(app, "http", path, method=method, headers=()) as client:
        pass
    return client


@asynccontextmanager
async def served(app: AdminApp) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of this machine."""
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve_admin, app, "127.0.0.1", 0))
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
            yield client
        nursery.cancel_scope.cancel()


def admin(is_ready: bool = True) -> AdminApp:
    """An app that has one metric."""
    return AdminApp(lambda: b"some_metric 1.0\n", lambda: is_ready)


# --- what it answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "is_ready", "answer"),
    [
        ("GET", "/metrics", True, (200, b"some_metric 1.0\n")),
        ("GET", "/healthz", True, (200, b'{"status": "ok"}')),
        ("GET", "/healthz", False, (200, b'{"status": "ok"}')),
        ("GET", "/readyz", True, (200, b'{"status": "ready"}')),
        ("GET", "/readyz", False, (503, b'{"status": "draining"}')),
        ("POST", "/metrics", True, (404, NOT_HERE)),
        ("POST", "/log-level", True, (403, b'{"error": "the level is changed from this machine only"}')),
    ],
)
@virtual
async def test_each_path_has_its_answer(method: str, path: str, is_ready: bool, answer: tuple[int, bytes]) -> None:
    client = await asked(admin(is_ready), method, path)
    assert (client.status, client.body) == answer
    assert client.headers["content-length"] == str(len(client.body))


@virtual
async def test_a_websocket_is_closed() -> None:
    async with connect(admin(), "websocket") as client:
        pass
    assert client.close_code == 1000


@on_sockets
async def test_prometheus_reads_it_over_a_socket() -> None:
    async with served(admin()) as client:
        response = await client.get("/metrics")
    assert (response.status_code, response.text) == (200, "some_metric 1.0\n")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


# --- the log's level --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["debug", " DEBUG\n"])
@on_sockets
async def test_the_level_is_changed_from_this_machine(word: str, level: logging.Logger) -> None:
    level.setLevel("INFO")
    async with served(admin()) as client:
        response = await client.post("/log-level", content=word)
    assert (response.status_code, response.json(), level.level) == (200, {"level": "debug"}, logging.DEBUG)


@pytest.mark.parametrize(("content", "status"), [("loud", 400), ("", 400), ("debug" + " " * 2000, 400)])
@on_sockets
async def test_what_is_no_level_changes_nothing(content: str, status: int, level: logging.Logger) -> None:
    level.setLevel("INFO")
    async with served(admin()) as client:
        response = await client.post("/log-level", content=content)
    assert (response.status_code, level.level) == (status, logging.INFO)


@on_sockets
async def test_a_web_page_changes_nothing(level: logging.Logger) -> None:
    """A browser on the operator's machine may be made to POST here; it names the page's origin."""
    level.setLevel("INFO")
    async with served(admin()) as client:
        response = await client.post("/log-level", content="debug", headers={"origin": "https://page.test"})
    assert (response.status_code, level.level) == (403, logging.INFO)


# --- the port ---------------------------------------------------------------------------------------------------


@virtual
async def test_a_taken_port_is_told_once_and_taken_once_it_is_free(logged: list[MutableMapping[str, Any]]) -> None:
    """In a rolling restart the old worker still has it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_admin, admin(), "127.0.0.1", port)
            await trio.sleep(30.5)
            taken.close()
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()
    assert [entry["event"] for entry in logged] == ["admin_cannot_listen", "admin_listening"]
    assert logged[1]["url"] == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(("port", "worker", "own"), [(9464, 0, 9464), (9464, 3, 9467), (0, 3, 0), (65535, 3, 65535)])
def test_each_worker_has_a_port_of_its_own(port: int, worker: int, own: int) -> None:
    assert worker_port(port, worker) == own


# --- the loop's lag ---------------------------------------------------------------------------------------------


@virtual
async def test_what_blocks_the_loop_is_measured() -> None:
    lags: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_loop, lags.append)
        await trio.sleep(0.3)
        cast(MockClock, trio.lowlevel.current_clock()).jump(2.0)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert [round(lag, 6) for lag in lags] == [0.0, 1.8]


# --- beside the app ---------------------------------------------------------------------------------------------


@on_sockets
async def test_it_lives_as_long_as_the_services(logged: list[MutableMapping[str, Any]]) -> None:
    w = world(A.answer(), server="metrics_port = 0")
    with trio.fail_after(PATIENCE_SECONDS):
        async with w.gateway.services():
            while not logged:  # noqa: ASYNC110 - the log has no event to wait for
                await trio.sleep(0.01)
            async with httpx2.AsyncClient(base_url=logged[0]["url"], trust_env=False) as client:
                before = (await client.get("/readyz")).status_code
                w.gateway.drain()
                after = (await client.get("/readyz")).status_code
                text = (await client.get("/metrics")).text
    assert (before, after) == (200, 503)
    assert "gateway_draining 1.0" in text
    assert "gateway_loop_lag_seconds_count" in text


@virtual
async def test_it_can_be_left_out(logged: list[MutableMapping[str, Any]]) -> None:
    w = world(A.answer(), server='metrics_port = "off"')
    async with w.gateway.services():
        await trio.sleep(5.0)
    assert logged == []
