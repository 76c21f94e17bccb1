"""`gateway demo`: the real gateway in front of two upstreams on this machine, the first of which fails before output.

    client --> gateway --> first     fails before its first output, each time in another way
                      `--> second    answers

All of it runs in this process: the gateway with deploy/demo.toml, the upstreams on loopback sockets at the addresses
which that file names, or at free ports where these are taken.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import trio

from gateway.app import Gateway, Parts
from gateway.cli.configured import with_server
from gateway.cli.serving import run_until_stopped, serve_gateway
from gateway.cli.welcome import welcome
from gateway.config import Config, parse
from gateway.server.listening import listen, url_of
from gateway.server.logs import configure_logs
from gateway.turn.house import PatientHouse
from gateway.upstream.scripted import Break, Reply, Script, serve_scripted
from gateway.upstream.scripts import http_failure, text_answer, two_step_failure


@dataclass(frozen=True, slots=True)
class Act:
    """What an upstream does with a call, in words and as it is played."""

    words: str
    reply: Reply


OVERLOADED: Final = "server_is_overloaded"
MISHAPS: Final = (
    Act(
        "fails in two steps: created, in_progress, error, response.failed",
        two_step_failure(OVERLOADED, "The engine is overloaded.", response_id="resp_nobody_sees"),
    ),
    Act("answers 200 and resets the connection before any event", Reply((Break(),))),
    Act("answers 503", http_failure(503, OVERLOADED, "The engine is overloaded.", "service_unavailable_error")),
    Act("answers 200 with an empty body", Reply()),
    Act("drops the connection without an answer", Reply(refuses=True)),
)

ANSWER: Final = (
    "The first upstream failed before it had said a word, so nothing had reached you and nothing had been metered. "
    "The gateway dropped that attempt and asked the second upstream, and this is its one clean answer."
)
WORD_SECONDS: Final = 0.03
THINKING_SECONDS: Final = 0.25
"""Between the lifecycle events and the first word: what is held for so long shows in the probe's timeline."""


def demo_acts() -> Mapping[str, tuple[Act, ...]]:
    """What the upstream of each route of demo.toml does, call after call, then from the start again."""
    words = [f"{word} " for word in ANSWER.split(" ")]
    reply = text_answer(words, response_id="resp_demo", pause=WORD_SECONDS, first_pause=THINKING_SECONDS)
    acts = {"first": MISHAPS, "second": (Act("answers", reply),)}
    return {
        name: tuple(_with_request_id(act, f"{name}-{number}") for number, act in enumerate(plays, start=1))
        for name, plays in acts.items()
    }


def _with_request_id(act: Act, request_id: str) -> Act:
    """Real upstreams name their requests; a client gets the name as `x-upstream-request-id`."""
    headers = (*act.reply.headers, ("x-request-id", f"upstream-{request_id}"))
    return replace(act, reply=replace(act.reply, headers=headers))


class Narrated(Script):
    """A script that tells on the terminal what it does to each call."""

    def __init__(self, name: str, acts: tuple[Act, ...]) -> None:
        super().__init__(name, [act.reply for act in acts], is_cycle=True)
        self._acts = acts

    def next_reply(self) -> Reply:
        """The reply to the next call."""
        reply = super().next_reply()
        words = next(act.words for act in self._acts if act.reply is reply)
        click.secho(f"upstream {self.name}: {words}", fg="cyan")
        return reply


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="The gateway's port, 8080 if left out; 0 takes a free one.")
def demo(port: int | None) -> None:
    """Start a gateway and two upstreams to try it with: nothing to configure, no network, no money."""
    config = with_server(demo_config(), port=port)
    configure_logs(config.server.log_format, config.server.log_level)
    run_until_stopped(partial(_demo, config))


def demo_config() -> Config:
    """demo.toml: an installed wheel carries it, a checkout has it in deploy/."""
    embedded = resources.files("gateway") / "embedded" / "demo.toml"
    file = embedded if embedded.is_file() else Path(__file__).parents[2] / "deploy" / "demo.toml"
    return parse(file.read_text(encoding="utf-8"), file=str(file), environ=os.environ, directory=Path())


async def _demo(config: Config) -> bool:
    """A route that fails each time would soon be left alone (C3): not here, where each turn is to show a replay."""
    listeners = await listen(config.server.host, config.server.port)
    ended_by_itself = False
    async with trio.open_nursery() as upstreams:
        for name, acts in demo_acts().items():
            base_url = await _start_upstream(upstreams, Narrated(name, acts), config.routes[name].base_url)
            config = replace(config, routes={**config.routes, name: replace(config.routes[name], base_url=base_url)})
        click.echo(welcome(config, url_of(listeners[0])))
        ended_by_itself = await serve_gateway(Gateway(config, Parts(house=PatientHouse())), listeners)
        upstreams.cancel_scope.cancel()
    return ended_by_itself


async def _start_upstream(nursery: trio.Nursery, script: Script, base_url: str) -> str:
    """Serve the script at its route's address, or at a free port if another program has that one. Its base URL."""
    address = urlsplit(base_url)
    host = address.hostname or "127.0.0.1"
    try:
        port = await _start_at(nursery, script, host, address.port or 0)
    except OSError:
        port = await _start_at(nursery, script, host, 0)
    return address._replace(netloc=f"{host}:{port}").geturl()


async def _start_at(nursery: trio.Nursery, script: Script, host: str, port: int) -> int:
    bound: int = await nursery.start(serve_scripted, script, host, port)
    return bound
