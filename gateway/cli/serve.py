"""`gateway serve`: the gateway that a configuration file describes, until it is told to stop.

gateway serve                serves in this process
gateway serve --workers 4    supervises four of these (cli/workers.py), each started with the hidden `--place`
"""

from __future__ import annotations

import gc
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click
import structlog
import trio

from gateway import limits
from gateway.app import Gateway, Parts, workers_of
from gateway.cli.unusable import Unusable
from gateway.cli.workers import WORKERS_MAX, PlaceType, launcher, supervise
from gateway.config import Candidate, Config, ConfigError, Problem, load
from gateway.core.messages import Door
from gateway.server import hardened
from gateway.server import serve as server
from gateway.server.accepting import WayDown
from gateway.server.admin import PORT_MAX
from gateway.server.commands import SingleProcess, commands_of
from gateway.server.control import CannotControl, Control, control_socket, own_path
from gateway.server.descriptors import fit_sockets
from gateway.server.hardened.patience import Pace
from gateway.server.last_good import LastGood
from gateway.server.logs import configure_logs
from gateway.server.posts import State
from gateway.server.routes_desk import Read, RoutesDesk
from gateway.server.tls import CannotUseTLS, tls_context
from gateway.server.worker import Place, work
from gateway.store.database import StoreAway, StoreUnusable

logger = structlog.get_logger("gateway.server")

DEFAULT_FILE: Final = Path("gateway.toml")
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})
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
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    default=1,
    show_default=True,
    help="Processes that serve side by side; 1 is this process alone.",
)
@click.option("--tls-cert", type=click.Path(), help="In place of server.tls_certificate: a PEM chain, the leaf first.")
@click.option("--tls-key", type=click.Path(), help="In place of server.tls_key.")
@click.option("--place", type=PlaceType(), hidden=True, help="A supervisor's worker is given its place.")
def serve(
    file: Path,
    host: str | None,
    port: int | None,
    log_format: str | None,
    workers: int,
    tls_cert: str | None,
    tls_key: str | None,
    place: Place | None,
) -> None:
    """Serve the gateway that the configuration file describes.

    SIGTERM and Ctrl-C end it gently: running turns may finish within server.drain_timeout. A second one ends them at
    once. With several workers, SIGUSR2 and `gateway restart` replace them one by one, which cuts nothing. SIGHUP has
    models and routes read anew, and so has any change of their file.
    """
    given = {"host": host, "port": port, "log_format": log_format, "tls_certificate": tls_cert, "tls_key": tls_key}
    shared_by = workers if workers > 1 else shared_with(os.environ)
    config, problems = started_with(file, given, shared_by, place)
    read = partial(read_again, file, given, shared_by)
    tls = tls_of(config)
    if place is None:
        check_metrics_ports(file, config, range(workers))
        check_store(file, config, workers)
    configure_logs(config.server.log_format, config.server.log_level, None if place is None else place.number)
    if place is not None:
        gateway = gateway_of(config, read)
        tell_last_good(gateway, problems)
        run_until_stopped(partial(_serve_place, gateway, tls, place))
    elif workers > 1:
        last_good = LastGood(config, partial(read_for_workers, file, given, workers))
        supervise(last_good, workers, launcher(file, workers, given), place_named(file, host, port), read)
    else:
        gateway = gateway_of(config, read)
        check_metrics_ports(file, config, range(gateway.worker, gateway.worker + 1))
        run_until_stopped(partial(_serve, gateway, tls, read), named=place_named(file, host, port))


def started_with(
    file: Path, given: Mapping[str, object], workers: int, place: Place | None
) -> tuple[Config, Sequence[str]]:
    """The configuration to serve: what is in the files, or the last good one that a supervisor has given its worker; in
    that case with all that is wrong with the files."""
    last_good = None if place is None else place.take_last_good()
    try:
        config = with_server(read_config(file, workers), **given)
        if place is not None:
            check_store(file, config, workers)
    except Unusable as error:
        if last_good is None:
            raise
        kept = load(file, os.environ, workers=workers, kept=last_good)
        return with_server(kept, **given), error.message.splitlines()
    return config, ()


def tell_last_good(gateway: Gateway, problems: Sequence[str]) -> None:
    """Of a worker that serves it because of these problems; it reads the files again as soon as it serves."""
    if problems:
        table = gateway.config.table_hash[: limits.TABLE_DIGITS]
        logger.error("last_good_serves", table=table, problems=problems)
        gateway.reloading.ask()


def tls_of(config: Config) -> ssl.SSLContext | None:
    """What to shake hands with, if the configuration wants it."""
    certificate, key = config.server.tls_certificate, config.server.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Unusable("TLS needs a certificate and its key; give both (--tls-cert and --tls-key), or neither")
    try:
        return tls_context(Path(certificate), Path(key))
    except CannotUseTLS as error:
        raise Unusable(str(error)) from None


def read_again(file: Path, given: Mapping[str, object], workers: int, candidate: Candidate | None = None) -> Config:
    """The configuration as it is in its files now, with the command line's own settings. Raises ConfigError."""
    return with_server(load(file, os.environ, candidate, workers=workers), **given)


def shared_with(environ: Mapping[str, str]) -> int:
    """How many workers share what is there at once (C6), as the environment tells a single process."""
    try:
        return workers_of(environ)
    except ConfigError as error:
        raise Unusable(str(error)) from None


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


def store_problem(file: Path, config: Config, workers: int) -> Problem | None:
    """C6: books in memory would be several books."""
    if workers == 1 or config.ledger.store != "memory":
        return None
    problem = f'is "memory", which each of {workers} workers would have for itself'
    return Problem(str(file), "ledger.store", problem, 'write "sqlite" or "postgres", or serve with one worker')


def check_store(file: Path, config: Config, workers: int) -> None:
    """Raises Unusable."""
    problem = store_problem(file, config, workers)
    if problem is not None:
        raise Unusable(str(problem))


def read_for_workers(file: Path, given: Mapping[str, object], workers: int) -> Config:
    """The configuration in the files as a worker could begin with it. Raises ConfigError."""
    config = read_again(file, given, workers)
    problem = store_problem(file, config, workers)
    if problem is not None:
        raise ConfigError([problem])
    return config


def check_metrics_ports(file: Path, config: Config, workers: range) -> None:
    """Raises Unusable if one of the workers' metrics ports is none, or the one that is served at."""
    settings, first = config.server, config.server.metrics_port
    if not first:
        return
    fix = f'write another port, or "off"; worker k takes server.metrics_port + k ({first + workers[0]}'
    fix += f" to {first + workers[-1]})" if len(workers) > 1 else ")"
    if first + workers[-1] > PORT_MAX:
        raise Unusable(f"{file}: server.metrics_port: is {first}, too high for worker {workers[-1]}; {fix}")
    shares_host = settings.metrics_host == settings.host or not WILDCARDS.isdisjoint(
        (settings.metrics_host, settings.host)
    )
    if shares_host and settings.port - first in workers:
        raise Unusable(f"{file}: server.metrics_port: is {first}, and {settings.port} is served at; {fix}")


async def _serve(gateway: Gateway, tls: ssl.SSLContext | None, read: Read) -> bool:
    settings = gateway.config.server
    listeners = await server.listen(settings.host, settings.port)
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


async def _serve_place(gateway: Gateway, tls: ssl.SSLContext | None, place: Place) -> bool:
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


def place_named(file: Path, host: str | None, port: int | None) -> str:
    """Where the address to listen on was given, as the beginning of what is wrong with it."""
    settings = (("server.host", "--host", host), ("server.port", "--port", port))
    return ", ".join(f"{file}: {key}" if value is None else option for key, option, value in settings) + ": "


def run_until_stopped(main: Callable[[], Awaitable[bool]], named: str = "") -> None:
    """The process's Trio run, its end as an exit code. `named` leads what is wrong with the address."""
    try:
        hardened.install()  # it is told here, and not by a traceback out of the run
        ended_by_itself = trio.run(main)
        gc.freeze()  # the process is over: to look through what 500 cut turns leave took 0.9 s of its last five
    except server.CannotListen as error:
        raise Unusable(f"{named}{error}") from None
    except (hardened.UnmeasuredVersion, CannotControl) as error:
        raise Unusable(str(error)) from None
    if not ended_by_itself:
        raise click.exceptions.Exit(CUT_SHORT)


def read_config(file: Path, workers: int = 1) -> Config:
    """The configuration in the file; every problem on its own line where there is one."""
    try:
        return load(file, os.environ, workers=workers)
    except ConfigError as error:
        is_missing = file == DEFAULT_FILE and not file.exists()
        hint = "\nname one with --config; `gateway demo` needs none" if is_missing else ""
        raise Unusable(f"{error}{hint}") from None


def with_server(config: Config, **given: object) -> Config:
    """The configuration with the command line's own settings of its `server` table; None leaves the file's."""
    update = {name: value for name, value in given.items() if value is not None}
    return replace(config, server=config.server.model_copy(update=update))
