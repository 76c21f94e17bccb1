"""`gateway serve`: the gateway that a configuration file describes, until it is told to stop.

gateway serve                serves in this process
gateway serve --workers 4    supervises four of these (cli/workers.py), each started with the hidden `--place`
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from gateway.cli.configured import DEFAULT_FILE, read_config, with_server
from gateway.cli.imports import importing
from gateway.cli.unusable import Unusable
from gateway.cli.workers import WORKERS_MAX, PlaceType, launcher, supervise
from gateway.config import Candidate, Config, ConfigError, Problem, load
from gateway.config.workers import workers_of
from gateway.server.last_good import LastGood
from gateway.server.listening import PORT_MAX
from gateway.server.logs import configure_logs
from gateway.server.place import Place
from gateway.server.tls import CannotUseTLS, tls_context

WILDCARDS: Final = frozenset({"0.0.0.0", "::"})


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
    if place is None and workers > 1:
        last_good = LastGood(config, partial(read_for_workers, file, given, workers))
        supervise(last_good, workers, launcher(file, workers, given), place_named(file, host, port), read)
        return
    with importing():  # most of a start: a supervisor serves nobody, and a file with mistakes is told of without it
        from gateway.cli import serving
    gateway = serving.gateway_of(config, read)
    if place is not None:
        serving.tell_last_good(gateway, problems)
        serving.run_until_stopped(partial(serving.serve_place, gateway, tls, place))
    else:
        check_metrics_ports(file, config, range(gateway.worker, gateway.worker + 1))
        served = partial(serving.serve_alone, gateway, tls, read)
        serving.run_until_stopped(served, named=place_named(file, host, port))


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


def place_named(file: Path, host: str | None, port: int | None) -> str:
    """Where the address to listen on was given, as the beginning of what is wrong with it."""
    settings = (("server.host", "--host", host), ("server.port", "--port", port))
    return ", ".join(f"{file}: {key}" if value is None else option for key, option, value in settings) + ": "
