"""`gateway serve --workers N`: the supervisor's process, and how it starts its workers."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import structlog
import trio

import gateway
from gateway.cli.unusable import Unusable
from gateway.config.workers import WORKER, WORKERS
from gateway.server.commands import commands_of
from gateway.server.control import CannotControl, Control, control_socket, own_path
from gateway.server.last_good import LastGood
from gateway.server.listening import CannotListen
from gateway.server.place import Place
from gateway.server.posts import Launch
from gateway.server.reuseport import SharedAddress
from gateway.server.routes_desk import Read, RoutesDesk
from gateway.server.supervisor import Supervisor

logger = structlog.get_logger("gateway.supervisor")

WORKERS_MAX: Final = 256
"""More than any machine's cores are worth."""
HANDED_ON: Final = {"log_format": "--log-format", "tls_certificate": "--tls-cert", "tls_key": "--tls-key"}
"""Settings of the command line that workers are told; address and port they are given as open sockets."""


class PlaceType(click.ParamType[Place]):
    """A worker's place, as the supervisor writes it."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Read it."""
        try:
            return Place.read(value)
        except ValueError:
            self.fail("is a supervisor's to give: use --workers", param, ctx)


def supervise(last_good: LastGood, count: int, launch: Callable[[Place], Launch], named: str, read: Read) -> None:
    """Run `count` workers until a signal. Ends the command with their exit code. `named` leads what is wrong with the
    address to listen on; `read` reads the configuration anew."""
    try:
        code = trio.run(partial(_supervise, last_good, count, launch, read))
        gc.freeze()  # the process is over: looking through its modules took 3 s of a loaded machine's last five (T7)
    except CannotListen as error:
        raise Unusable(f"{named}{error}") from None
    except CannotControl as error:
        raise Unusable(str(error)) from None
    raise click.exceptions.Exit(code)


def launcher(file: Path, count: int, given: Mapping[str, object]) -> Callable[[Place], Launch]:
    """How one of `count` workers of this very program is started, with the command line's own settings."""
    options = [f"{HANDED_ON[name]}={value}" for name, value in given.items() if name in HANDED_ON and value is not None]
    # -P: what happens to be called `gateway` in the current folder is not what is meant.
    command = [sys.executable, "-P", "-m", "gateway", "serve", f"--config={file}", *options]
    code = str(Path(gateway.__file__).parents[1])
    python_path = os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))

    def launch(place: Place) -> Launch:
        environ = {**os.environ, "PYTHONPATH": python_path, WORKER: str(place.number), WORKERS: str(count)}
        return Launch([*command, f"--place={place}"], environ)

    return launch


async def _supervise(last_good: LastGood, count: int, launch: Callable[[Place], Launch], read: Read) -> int:
    settings = last_good.config.server
    address = await SharedAddress.find(settings.host, settings.port)
    path = own_path(settings.control_socket, os.environ, address.port)
    supervisor = Supervisor(launch, address, count, settings.drain_timeout, last_good)
    supervisor.open()
    commands = {**commands_of(supervisor), **RoutesDesk(supervisor, read, lambda: last_good.config).commands}
    async with control_socket(path) as listener, trio.open_nursery() as nursery:
        nursery.start_soon(Control(commands).serve, listener)
        url = address.url("http" if settings.tls_certificate is None else "https")
        ready = partial(logger.info, "listening", url=url, workers=count, control=str(path))
        logger.info("starting", workers=count, control=str(path))
        code = await supervisor.run(on_ready=ready)
        nursery.cancel_scope.cancel()
    return code
