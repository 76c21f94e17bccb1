"""`gateway probe` against scripted peers on loopback sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click
import pytest
import trio
from click.testing import CliRunner, Result
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

from gateway.cli import gateway
from gateway.cli.probe import responses_url
from gateway.upstream.scripted import Break, Reply, Script, Silence
from gateway.upstream.scripts import event, http_failure, prelude, text_answer, two_step_failure
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS

ANSWER = text_answer(["one ", "two ", "three"], response_id="resp_1")


def probe(*options: str, **environment: str) -> Result:
    return CliRunner(env={"GATEWAY_KEY": None, **environment}).invoke(gateway, ["probe", *options])


@contextmanager
def scripted_gateway(reply: Reply) -> Iterator[tuple[str, Script]]:
    """Something that answers as a gateway would: its base URL, and what it was asked."""
    script = Script("gateway", [reply])
    with LoopbackUpstreams([script]) as servers:
        yield servers.base_url("gateway"), script


# --- HTTP -------------------------------------------------------------------------------------------------------


def test_a_turn_that_completes() -> None:
    with scripted_gateway(ANSWER) as (url, script):
        result = probe("--url", url, "--model", "gpt-x", "--input", "hi", GATEWAY_KEY="sk-1")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == f"POST {url}/responses, model gpt-x"
    assert "response.output_text.delta × 3, until" in result.output
    assert "outcome  response.completed after" in result.output
    (call,) = script.calls
    assert call.fields == {"model": "gpt-x", "input": "hi", "store": False, "stream": True}
    assert ("authorization", "Bearer sk-1") in call.headers


REPLIES: dict[str, tuple[Reply, str]] = {
    "failed": (two_step_failure("server_error", "broken", response_id="r"), "response.failed before any output"),
    "refused": (http_failure(429, "rate_limit_exceeded", "slow down"), "status 429 after"),
    "reset": (Reply((*prelude("r"), Break())), "no terminal event, before any output: the connection broke ("),
    "ended": (Reply(prelude("r")), "no terminal event, before any output: the stream ended; that is a failure"),
    "incomplete": (Reply((event("response.incomplete"),)), "response.incomplete before any output"),
    "silent": (Reply((*prelude("r"), Silence())), "no terminal event, before any output: nothing more within 0.5 s"),
    "mute": (Reply(head_seconds=1000), "no terminal event, before any output: nothing more within 0.5 s"),
    "dropped": (Reply(refuses=True), "no terminal event, before any output: the connection broke ("),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_turn_that_was_played_and_did_not_complete_is_exit_code_1(name: str) -> None:
    reply, said = REPLIES[name]
    with scripted_gateway(reply) as (url, _):
        result = probe("--url", url, "--timeout", "0.5" if name in ("silent", "mute") else "60")
    assert (result.exit_code, said in result.stdout) == (1, True), result.output


# --- WebSocket --------------------------------------------------------------------------------------------------


@contextmanager
def websocket_gateway(*frames: str, status: int = 101) -> Iterator[str]:
    """A WebSocket peer that answers the first frame with these, then closes with 1011; or refuses the upgrade."""
    ports: list[int] = []
    is_open = threading.Event()
    scope = trio.CancelScope()

    async def handle(request: WebSocketRequest) -> None:
        if status != 101:
            return await request.reject(status, body=b'{"error": {"code": "invalid_api_key"}}')
        connection = await request.accept(extra_headers=[(b"x-request-id", b"req_1")])
        try:
            await connection.get_message()
            for frame in frames:
                await connection.send_message(frame)
            await connection.aclose(1011)
        except ConnectionClosed:
            return

    async def main() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        with scope:
            async with trio.open_nursery() as nursery:
                server = await nursery.start(partial(serve_websocket, handle, "127.0.0.1", 0, None))
                ports.append(server.port)
                is_open.set()

    tokens: list[trio.lowlevel.TrioToken] = []
    thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
    thread.start()
    assert is_open.wait(PATIENCE_SECONDS)
    try:
        yield f"http://127.0.0.1:{ports[0]}/v1"
    finally:
        tokens[0].run_sync_soon(scope.cancel)
        thread.join(PATIENCE_SECONDS)


def test_a_websocket_turn_that_completes() -> None:
    frames = ['{"type": "response.created"}', '{"type": "response.x"}', "no event", '{"type": "response.completed"}']
    with websocket_gateway(*frames) as url:
        result = probe("--websocket", "--url", url)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == f"{url.replace('http', 'ws', 1)}/responses, model gpt-demo"
    assert "response.created came together with the first output: held at most" in result.output
    assert "x-request-id              req_1" in result.output


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (['{"type": "error", "status": 500, "error": {"code": "internal_error"}}'], "error before any output"),
        (['{"type": "response.x"}'], "no terminal event, after output: the connection was closed with 1011"),
    ],
)
def test_a_websocket_turn_that_does_not_complete_is_exit_code_1(frames: list[str], said: str) -> None:
    with websocket_gateway(*frames) as url:
        result = probe("--websocket", "--url", url)
    assert (result.exit_code, said in result.stdout) == (1, True), result.output


def test_a_refused_upgrade_is_exit_code_1() -> None:
    with websocket_gateway(status=401) as url:
        result = probe("--websocket", "--url", url)
    assert (result.exit_code, "outcome  status 401 after" in result.stdout) == (1, True), result.output
    assert ": invalid_api_key" in result.stdout


# --- what cannot be played --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "scheme"), [([], "http"), (["--websocket"], "ws")], ids=["http", "websocket"])
def test_a_gateway_that_is_not_there_is_exit_code_2(option: list[str], scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = probe(*option, "--url", f"http://127.0.0.1:{port}")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"cannot reach {scheme}://127.0.0.1:{port}/v1/responses: ")
    assert result.stderr.endswith("; is the gateway running? `gateway demo` starts one\n")


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "ftp://gateway", "http://", "http://gateway:port", "http://[gateway"]
)
def test_what_is_no_url_is_exit_code_2(url: str) -> None:
    result = probe("--url", url)
    assert result.exit_code == 2
    assert "is no URL like http://127.0.0.1:8080/v1" in result.stderr


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://gateway", "http://gateway/v1/responses"),
        ("http://gateway:8080/", "http://gateway:8080/v1/responses"),
        ("https://gateway/v1", "https://gateway/v1/responses"),
        ("wss://gateway/v1/responses", "https://gateway/v1/responses"),
        ("ws://gateway/openai/v1/", "http://gateway/openai/v1/responses"),
    ],
)
def test_a_base_url_a_host_and_the_endpoint_itself_are_understood(url: str, endpoint: str) -> None:
    assert responses_url(url) == endpoint


def test_a_timeout_must_be_positive() -> None:
    assert probe("--timeout", "0").exit_code == click.UsageError.exit_code == 2
