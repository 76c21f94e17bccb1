"""The gateway of a process that serves: its stores opened, its doors served, until a signal.

It imports the app and all that it stands on, which is most of a start: imported by who serves, and by nobody else.
"""

from __future__ import annotations

import gc
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import click
import structlog
import trio

from gateway import limits
from gateway.app import Gateway, Parts
from gateway.cli.unusable import Unusable
from gateway.config import Config, ConfigError
from gateway.core.messages import Door
from gateway.server import hardened
from gateway.server import serve as server
from gateway.server.accepting import WayDown
from gateway.server.commands import SingleProcess, commands_of
from gateway.server.control import CannotControl, Control, control_socket, own_path
from gateway.server.descriptors import fit_sockets
from gateway.server.hardened.patience import Pace
from gateway.server.listening import CannotListen, listen
from gateway.server.place import Place
from gateway.server.posts import State
from gateway.server.routes_desk import Read, RoutesDesk
from gateway.server.worker import work
from gateway.store.database import StoreAway, StoreUnusable

logger = structlog.get_logger("gateway.server")

YOUNG_OBJECTS_MAX: Final = 10_000
"""So many objects come between two looks for garbage among them. A turn leaves none, for nothing of it is in a ring: at
the interpreter's own 700 they were looked through for nothing, which was a tenth of a short turn."""
CUT_SHORT: Final = 1
"""The exit code after a second signal: turns were cut."""


def gateway_of(config: Config, read: Callable[[], Config] | None = None) -> Gateway:
    """The gateway of this process, its stores opened."""
    try:
        return Gateway(config, Parts(read=read))
    except ConfigError as error:
        raise Unusable(str(error)) from None
    except (StoreAway, StoreUnusable) as error:
        raise Unusable(f"ledger: {error}") from None
    except OSError as error:
        raise Unusable(f"ledger.spool: {error}; let the gateway's user write there, or name another folder") from None


def tell_last_good(gateway: Gateway, problems: Sequence[str]) -> None:
    """Of a worker that serves it because of these problems; it reads the files again as soon as it serves."""
    if problems:
        table = gateway.config.table_hash[: limits.TABLE_DIGITS]
        logger.error("last_good_serves", table=table, problems=problems)
        gateway.reloading.ask()


def run_until_stopped(main: Callable[[], Awaitable[bool]], named: str = "") -> None:
    """The process's Trio run, its end as an exit code. `named` leads what is wrong with the address."""
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    try:
        hardened.install()  # it is told here, and not by a traceback out of the run
        ended_by_itself = trio.run(main)
        gc.freeze()  # the process is over: to look through what 500 cut turns leave took 0.9 s of its last five
    except CannotListen as error:
        raise Unusable(f"{named}{error}") from None
    except (hardened.UnmeasuredVersion, CannotControl) as error:
        raise Unusable(str(error)) from None
    if not ended_by_itself:
        raise click.exceptions.Exit(CUT_SHORT)


async def serve_alone(gateway: Gateway, tls: ssl.SSLContext | None, read: Read) -> bool:
    """Serve it in a process that nobody supervises, which answers at a control socket of its own."""
    settings = gateway.config.server
    listeners = await listen(settings.host, settings.port)
    single = SingleProcess(gateway.worker, lambda: gateway.engine.running_turns, gateway.reloading, gateway.live)
    desk = RoutesDesk(single, read, lambda: gateway.reloading.config)
    ended_by_itself = False
    async with AsyncExitStack() as held:
        control = await _open_control(held, settings.control_socket, listeners[0].socket.getsockname()[1])
        async with trio.open_nursery() as nursery:
            if control is not None:
                nursery.start_soon(Control({**commands_of(single), **desk.commands}).serve, control)
            ended_by_itself = await serve_gateway(
                gateway,
                listeners,
                on_listening=partial(single.enter, State.READY),
                on_drain=partial(single.enter, State.DRAINING),
                tls=tls,
            )
            nursery.cancel_scope.cancel()
    return ended_by_itself


async def serve_place(gateway: Gateway, tls: ssl.SSLContext | None, place: Place) -> bool:
    """Serve it in a supervisor's place."""
    serving = partial(serve_gateway, gateway, tls=tls)
    return await work(place, serving, lambda: gateway.engine.running_turns, gateway.reloading, gateway.live)


async def serve_gateway(
    gateway: Gateway,
    listeners: Sequence[trio.SocketListener],
    way_down: WayDown | None = None,
    on_listening: Callable[[], None] = lambda: None,
    *,
    on_drain: Callable[[], None] = lambda: None,
    tls: ssl.SSLContext | None = None,
) -> bool:
    """Serve it until a signal. Whether its turns could end by themselves."""
    settings, bounds = gateway.config.server, gateway.config.limits

    def drain() -> None:
        gateway.drain()
        on_drain()

    gateway.sockets.fit(fit_sockets(bounds.sockets_max, bounds.turns_max))
    async with gateway.services():
        return await server.serve(
            gateway.app,
            listeners,
            on_drain=drain,
            on_cut_short=gateway.cut_short,
            on_reload=gateway.reloading.ask,
            drain_seconds=settings.drain_timeout,
            websocket_message_bytes_max=bounds.body_bytes_max,
            write_seconds=settings.write_timeout,
            pace=Pace(
                settings.head_timeout, settings.body_pause, bounds.body_bytes_per_second_min, settings.body_timeout
            ),
            sockets=gateway.sockets,
            on_cut=gateway.meter.connection_cut,
            on_refused=partial(gateway.meter.refused, Door.HTTP),
            inbound=gateway.inbound,
            is_fast=settings.data_plane == "fast",
            tls=tls,
            way_down=way_down,
            on_listening=on_listening,
        )


async def _open_control(held: AsyncExitStack, named: str | None, port: int) -> trio.SocketListener | None:
    """The control socket, for as long as the stack holds it. What the configuration names is there or nothing is
    served; one that nobody has named is a convenience, without which a process serves all the same."""
    try:
        path = own_path(named, os.environ, port)
        listener = await held.enter_async_context(control_socket(path))
    except CannotControl as error:
        if named is not None:
            raise
        logger.warning("control_not_available", why=str(error))
        return None
    logger.info("control_listening", path=str(path))
    return listener
