"""`gateway serve`: the gateway that a configuration file describes, until it is told to stop."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click
import trio

from gateway.app import Gateway
from gateway.cli.unusable import Unusable
from gateway.config import Config, ConfigError, load
from gateway.server import serve as server
from gateway.server.logs import configure_logs

DEFAULT_FILE: Final = Path("gateway.toml")
CUT_SHORT: Final = 1
"""The exit code after a second signal: turns were cut."""


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="GATEWAY_CONFIG",
    default=DEFAULT_FILE,
    show_default=True,
    show_envvar=True,
    help="The configuration file.",
)
@click.option("--host", help="The address to listen on, in place of the file's server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="In place of server.port; 0 takes any free port.")
@click.option("--log-format", type=click.Choice(["json", "console"]), help="In place of server.log_format.")
def serve(file: Path, host: str | None, port: int | None, log_format: str | None) -> None:
    """Serve the gateway that the configuration file describes.

    SIGTERM and Ctrl-C end it gently: running turns may finish within server.drain_timeout. A second one cuts them.
    """
    config = with_server(read_config(file), host=host, port=port, log_format=log_format)
    configure_logs(config.server.log_format, config.server.log_level)
    run_until_stopped(partial(_serve, Gateway(config)))


async def _serve(gateway: Gateway) -> bool:
    listeners = await server.listen(gateway.config.server.host, gateway.config.server.port)
    return await serve_gateway(gateway, listeners)


async def serve_gateway(gateway: Gateway, listeners: Sequence[trio.SocketListener]) -> bool:
    """Serve it until a signal. Whether its turns could end by themselves."""
    settings = gateway.config.server
    return await server.serve(
        gateway.app,
        listeners,
        on_drain=gateway.drain,
        drain_seconds=settings.drain_timeout,
        websocket_message_bytes_max=gateway.config.limits.body_bytes_max,
        write_seconds=settings.write_timeout,
    )


def run_until_stopped(main: Callable[[], Awaitable[bool]]) -> None:
    """The process's Trio run, its end as an exit code."""
    try:
        ended_by_itself = trio.run(main)
    except server.CannotListen as error:
        raise Unusable(str(error)) from None
    if not ended_by_itself:
        raise click.exceptions.Exit(CUT_SHORT)


def read_config(file: Path) -> Config:
    """The configuration in the file; every problem on its own line where there is one."""
    try:
        return load(file, os.environ)
    except ConfigError as error:
        is_missing = file == DEFAULT_FILE and not file.exists()
        hint = "\nname one with --config; `gateway demo` needs none" if is_missing else ""
        raise Unusable(f"{error}{hint}") from None


def with_server(config: Config, **given: object) -> Config:
    """The configuration with the command line's own settings of its `server` table; None leaves the file's."""
    update = {name: value for name, value in given.items() if value is not None}
    return replace(config, server=config.server.model_copy(update=update))
