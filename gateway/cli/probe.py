"""`gateway probe`: one turn with any gateway, and its timeline. Exit code 0 only on `response.completed`."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import click
import trio

from gateway.cli.conversation import Question, converse_over_http, converse_over_websocket, websocket_url
from gateway.cli.timeline import Ended, Moment, Timeline, is_completed, summary
from gateway.cli.welcome import DEFAULT_PORT_URL

NOT_COMPLETED: Final = 1
"""The exit code of a turn that was played and did not complete; 2 is one that could not be played."""
SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


def responses_url(url: str) -> str:
    """The endpoint of a base URL as SDKs take it, of a bare host, or of the endpoint itself, as http or https."""
    address = _address(url)
    if address is None:
        raise click.BadParameter(f"{url!r} is no URL like {DEFAULT_PORT_URL}/v1")
    path = address.path.rstrip("/") or "/v1"
    path += "" if path.endswith("/responses") else "/responses"
    return urlunsplit((SCHEMES[address.scheme], address.netloc, path, address.query, ""))


def _address(url: str) -> SplitResult | None:
    try:
        address = urlsplit(url)
        is_usable = address.scheme in SCHEMES and bool(address.hostname) and address.port != 0
    except ValueError:
        return None
    return address if is_usable else None


@click.command()
@click.option("--websocket", is_flag=True, help="Over WebSocket instead of HTTP.")
@click.option(
    "--url",
    default=f"{DEFAULT_PORT_URL}/v1",
    show_default=True,
    callback=lambda _context, _option, value: responses_url(value),
    help="The gateway's base URL, as an SDK takes it.",
)
@click.option("--key", envvar="GATEWAY_KEY", default="demo-key", show_default=True, show_envvar=True)
@click.option("--model", default="gpt-demo", show_default=True)
@click.option("--input", "text", default="hello", show_default=True, help="What is asked.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True, help="Seconds.")
def probe(websocket: bool, url: str, key: str, model: str, text: str, timeout: float) -> None:
    """Play one turn and print what came when, what was held for how long, the outcome and the ids.

    The defaults fit `gateway demo`. The exit code is 0 only if the turn ends with response.completed.
    """
    question = Question(url, key, model, text)
    click.echo(f"{websocket_url(url) if websocket else f'POST {url}'}, model {model}\n")
    moments = trio.run(_play, question, websocket, timeout)
    click.echo("\n" + "\n".join(summary(moments)))
    if not is_completed(moments):
        raise click.exceptions.Exit(NOT_COMPLETED)


async def _play(question: Question, over_websocket: bool, seconds_max: float) -> list[Moment]:
    """The turn's moments; their lines are printed as they happen."""
    moments: list[Moment] = []
    timeline = Timeline()

    def report(moment: Moment) -> None:
        moments.append(moment)
        for line in timeline.add(moment):
            click.echo(line)

    converse = converse_over_websocket if over_websocket else converse_over_http
    with trio.move_on_after(seconds_max) as scope:
        await converse(question, report)
    if scope.cancelled_caught:
        report(Ended(seconds_max, f"nothing more within {seconds_max:g} s"))
    for line in timeline.finish():
        click.echo(line)
    return moments
