"""The configuration, read and validated whole (C1): all that is wrong with its files is told at once.

gateway.toml --tomllib--> document --tables.py--> GatewayDocument --+-----------> Config
                              |        | errors, in words by explain.py   |         ^ values.py
                              +--references.py--> problems --> ConfigError, or none-+
routes.toml  --tomllib--> document --tables.py--> RoutesDocument ---+

section.py     what all tables have in common       tables.py     the files as they are written
files.py       reading, and where routes stand      profiles.py   what differs between upstreams
amounts.py     money and prices                     pricelists.py prices from a published list
sources.py     secrets by env, file or inline
instants.py    time zones, and when a key ends
addresses.py   base URLs and headers                references.py what only shows between two tables
problems.py    a problem: file, key path, fix       explain.py    validation errors in words
workers.py     which worker of how many this is
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gateway import limits
from gateway.config.explain import explain
from gateway.config.files import Candidate, Files, Kept, KeptFiles, parse_toml, read_routes_text, read_text, too_large
from gateway.config.instants import instant_of
from gateway.config.problems import ConfigError, Problem
from gateway.config.references import gateway_problems, routes_problems, table_at
from gateway.config.section import Section
from gateway.config.sources import Surroundings
from gateway.config.tables import (
    Document,
    Estimate,
    GatewayDocument,
    KeyTable,
    LedgerTable,
    Limits,
    ListedRoute,
    RoutesDocument,
    RouteTable,
    Server,
)
from gateway.config.values import Account, Config, ModelConfig, RouteConfig, StaticKey, hash_of
from gateway.core.keys import Key, KeyLimits
from gateway.core.routing import Listed, in_order

__all__ = [
    "Account",
    "Candidate",
    "Config",
    "ConfigError",
    "Estimate",
    "LedgerTable",
    "Limits",
    "ModelConfig",
    "Problem",
    "RouteConfig",
    "Server",
    "StaticKey",
    "hash_of",
    "load",
    "load_ledger",
    "load_routes",
    "parse",
]

HOT = tuple(RoutesDocument.model_fields)
"""The tables that are swapped while it serves."""
S = TypeVar("S", bound=Section)


def load(
    path: Path,
    environ: Mapping[str, str],
    candidate: Candidate | None = None,
    *,
    workers: int = 1,
    kept: Kept | None = None,
) -> Config:
    """The configuration in the file at `path`, and in the routes file that it names, if it does; with a `candidate` as
    if that stood in the routes file. It is for so many `workers` (C6). What another reading has `kept` is read in the
    place of files. Raises ConfigError with everything that is wrong with it."""
    files = Files() if kept is None else KeptFiles(kept)
    files.watch(path)
    outside = Surroundings(environ, path.parent, inline_is_allowed=False, files=files, workers=workers)
    try:
        config = _parse(read_text(path, files), str(path), outside, candidate)
    except ConfigError as error:
        error.stamps = files.kept.stamps
        raise
    return replace(config, file=path, kept=files.kept)


def load_routes(candidate: Candidate, environ: Mapping[str, str], directory: Path, *, workers: int = 1) -> str:
    """The hash of the table in a routes file that no gateway.toml names; relative secret files start at `directory`.
    Raises ConfigError."""
    document = _checked_size(candidate)
    surroundings = Surroundings(environ, directory, inline_is_allowed=False, workers=workers)
    validated, problems = _routes_of(document, surroundings, candidate.name)
    if validated is None or problems:
        raise ConfigError(problems)
    return hash_of(*_build_table(validated))


def load_ledger(path: Path, environ: Mapping[str, str]) -> LedgerTable:
    """The `ledger` table alone, for whoever reads the books and has no use for the upstreams' secrets; raises
    ConfigError with what is wrong with it."""
    file, document = str(path), parse_toml(read_text(path), str(path))
    surroundings = _surroundings(document, Surroundings(environ, path.parent, inline_is_allowed=False))
    cold = {name: table for name, table in document.items() if name not in HOT}
    _, problems = _validate(GatewayDocument, cold, surroundings, file)
    problems += gateway_problems(document, None, surroundings, file)
    own = [problem for problem in problems if problem.path.split(".")[0] == "ledger"]
    if own:
        raise ConfigError(own)
    return LedgerTable.model_validate(table_at(document, "ledger"), context=surroundings)


def parse(
    text: str, *, file: str, environ: Mapping[str, str], directory: Path, candidate: Candidate | None = None
) -> Config:
    """The configuration in `text`: `file` is its name in problems, `directory` where relative files start."""
    return _parse(text, file, Surroundings(environ, directory, inline_is_allowed=False), candidate)


def _parse(text: str, file: str, outside: Surroundings, candidate: Candidate | None) -> Config:
    document = parse_toml(text, file)
    surroundings = _surroundings(document, outside)
    if isinstance(document.get("routes"), str):
        return _parse_two(document, surroundings, file, candidate)
    if candidate is not None:
        fix = f'move routes and models from {file} to a file of their own, and write routes = "routes.toml" there'
        raise ConfigError([Problem(candidate.name, "", "would take the place of no file", fix)])
    validated, problems = _validate(Document, document, surroundings, file)
    problems += gateway_problems(document, document, surroundings, file)
    problems += routes_problems(document, surroundings, file)
    if validated is None or problems:
        raise ConfigError(problems)
    return _build(validated, validated)


def _parse_two(document: dict[str, Any], surroundings: Surroundings, file: str, candidate: Candidate | None) -> Config:
    """A gateway.toml that names its routes file, and that file."""
    path = surroundings.directory / document["routes"]
    cold = {name: table for name, table in document.items() if name not in HOT}
    validated, problems = _validate(GatewayDocument, cold, surroundings, file)
    if "models" in document:
        fix = f"move it to {path}, or write the routes here too"
        problems.append(Problem(file, "models", "stands apart from the routes, which are in a file of their own", fix))
    hot, of_routes, routes_document = None, [], None
    surroundings.files.watch(path)
    try:
        routes_document = _routes_document(path, file, surroundings.files, candidate)
    except ConfigError as error:
        of_routes = list(error.problems)
    else:
        inside = replace(surroundings, directory=path.parent)
        hot, of_routes = _routes_of(routes_document, inside, str(path) if candidate is None else candidate.name)
    problems += gateway_problems(document, routes_document, surroundings, file, f"of {path.name}")
    problems += of_routes
    if validated is None or hot is None or problems:
        raise ConfigError(problems)
    return replace(_build(validated, hot), routes_file=path)


def _routes_document(path: Path, file: str, files: Files, candidate: Candidate | None) -> dict[str, Any]:
    if path.resolve() == Path(file).resolve():
        fix = "name another file, or write the tables [routes.NAME] here"
        raise ConfigError([Problem(file, "routes", "names this very file", fix)])
    if candidate is not None:
        return _checked_size(candidate)
    return parse_toml(read_routes_text(path, files), str(path))


def _checked_size(candidate: Candidate) -> dict[str, Any]:
    if len(candidate.text.encode()) > limits.ROUTES_FILE_BYTES_MAX:
        raise ConfigError([too_large(candidate.name)])
    return parse_toml(candidate.text, candidate.name)


def _routes_of(
    document: dict[str, Any], surroundings: Surroundings, name: str
) -> tuple[RoutesDocument | None, list[Problem]]:
    """A routes file, validated; tables that are the other file's are told so."""
    strangers = [table for table in document if table in GatewayDocument.model_fields]
    own = {table: document[table] for table in document if table not in strangers}
    validated, problems = _validate(RoutesDocument, own, surroundings, name)
    fix = "move it there: it is read when the gateway starts"
    problems += [Problem(name, table, "belongs in gateway.toml", fix) for table in strangers]
    return validated, [*problems, *routes_problems(document, surroundings, name)]


def _surroundings(document: Mapping[str, object], outside: Surroundings) -> Surroundings:
    return replace(outside, inline_is_allowed=table_at(document, "server").get("allow_inline_secrets") is True)


def _validate(
    form: type[S], document: dict[str, Any], surroundings: Surroundings, file: str
) -> tuple[S | None, list[Problem]]:
    """Errors are returned, so that ConfigError is raised outside `except`: pydantic's error, which holds the file's
    values, must not hang on it as its context."""
    try:
        return form.model_validate(document, context=surroundings), []
    except ValidationError as error:
        return None, list(explain(error, file, form))


# --- the result ---------------------------------------------------------------------------------------------------


def _build(document: GatewayDocument, hot: RoutesDocument) -> Config:
    routes, models = _build_table(hot)
    return Config(
        server=document.server,
        limits=document.limits,
        estimate=document.estimate,
        ledger=document.ledger,
        accounts={name: Account(name, table.balance) for name, table in document.accounts.items()},
        keys=tuple(StaticKey(_build_key(name, table), table.secret) for name, table in document.keys.items()),
        routes=routes,
        models=models,
    )


def _build_table(hot: RoutesDocument) -> tuple[dict[str, RouteConfig], dict[str, ModelConfig]]:
    routes = {name: _build_route(name, table) for name, table in hot.routes.items()}
    models = {
        name: ModelConfig(name, _build_list(table.routes), table.max_output_tokens)
        for name, table in hot.models.items()
    }
    return routes, models


def _build_key(name: str, table: KeyTable) -> Key:
    return Key(
        name=name,
        account=table.account,
        replay_never=table.replay == "never",
        expires_at=None if table.expires is None else instant_of(table.expires, table.time_zone),
        limits=KeyLimits(
            models=None if table.models is None else frozenset(table.models),
            requests_per_minute=table.requests_per_minute,
            spend_per_day_nanodollars=table.spend_per_day,
            spend_per_month_nanodollars=table.spend_per_month,
            time_zone=table.time_zone,
        ),
    )


def _build_route(name: str, table: RouteTable) -> RouteConfig:
    return RouteConfig(
        name=name,
        base_url=table.base_url,
        price=table.price,
        credential=table.credential,
        upstream_model=table.model,
        first_event_seconds=table.first_event_timeout,
        idle_seconds=table.idle_timeout,
        response_seconds=table.response_timeout,
        connect_seconds=table.connect_timeout,
        retryable_codes=frozenset(table.retryable_codes),
        headers=tuple(table.headers.items()),
        transport=table.transport,
        request_bytes_max=_request_bytes_max(table),
        socket_age_seconds=table.socket_age_limit,
        socket_idle_seconds=table.socket_idle_timeout,
        idle_sockets_max=table.idle_sockets_max,
        attempts_max=table.concurrency,
        is_draining=table.state == "drain",
        credential_header=table.credential_header,
        credential_form=table.credential_form,
        stores_by_default=table.stores_by_default,
    )


def _build_list(entries: Sequence[ListedRoute]) -> tuple[Listed, ...]:
    """M1: where no entry has a priority or a weight, their order is their priority."""
    if all(entry.priority is None and entry.weight is None for entry in entries):
        return in_order(entry.name for entry in entries)
    return tuple(Listed(entry.name, entry.priority or 1, entry.weight or 1) for entry in entries)


def _request_bytes_max(table: RouteTable) -> int | None:
    """C5: a WebSocket has a limit also where the file names none."""
    if table.request_bytes_max is None and table.transport == "websocket":
        return limits.WEBSOCKET_REQUEST_BYTES_MAX
    return table.request_bytes_max
