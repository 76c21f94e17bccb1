"""The configuration file `gateway.toml`, read and validated whole (C1): all that is wrong with it is told at once.

text --tomllib--> document --tables.py--> Document -----------------------> Config
                      |        | errors, in words by explain.py                ^ values.py
                      +--references.py--> problems --> ConfigError, or none ---+

section.py     what all tables have in common       tables.py     the file as it is written
amounts.py     money and prices                     pricelists.py prices from a published list
sources.py     secrets by env, file or inline
instants.py    time zones, and when a key ends
addresses.py   base URLs and headers                references.py what only shows between two tables
problems.py    a problem: file, key path, fix       explain.py    validation errors in words
"""

import ast
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gateway import limits
from gateway.config.explain import explain
from gateway.config.instants import instant_of
from gateway.config.problems import ConfigError, Problem, key_path
from gateway.config.references import reference_problems, table_at
from gateway.config.sources import Surroundings
from gateway.config.tables import Document, Estimate, KeyTable, LedgerTable, Limits, RouteTable, Server
from gateway.config.values import Account, Config, ModelConfig, RouteConfig, StaticKey
from gateway.core.keys import Key, KeyLimits

__all__ = [
    "Account",
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
    "load",
    "load_ledger",
    "parse",
]


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """The configuration in the file at `path`; raises ConfigError with everything that is wrong with it."""
    return parse(_read(path), file=str(path), environ=environ, directory=path.parent)


def load_ledger(path: Path, environ: Mapping[str, str]) -> LedgerTable:
    """The `ledger` table alone, for whoever reads the books and has no use for the upstreams' secrets; raises
    ConfigError with what is wrong with it."""
    file, document = str(path), _parse_toml(_read(path), str(path))
    surroundings = _surroundings(document, environ, path.parent)
    _, problems = _validate(document, surroundings, file)
    problems += reference_problems(document, surroundings, file)
    own = [problem for problem in problems if problem.path.split(".")[0] == "ledger"]
    if own:
        raise ConfigError(own)
    return LedgerTable.model_validate(table_at(document, "ledger"), context=surroundings)


def parse(text: str, *, file: str, environ: Mapping[str, str], directory: Path) -> Config:
    """The configuration in `text`: `file` is its name in problems, `directory` where relative secret files start."""
    document = _parse_toml(text, file)
    surroundings = _surroundings(document, environ, directory)
    validated, problems = _validate(document, surroundings, file)
    problems += reference_problems(document, surroundings, file)
    if validated is None or problems:
        raise ConfigError(problems)
    return _build(validated)


def _surroundings(document: Mapping[str, object], environ: Mapping[str, str], directory: Path) -> Surroundings:
    inline_is_allowed = table_at(document, "server").get("allow_inline_secrets") is True
    return Surroundings(environ, directory, inline_is_allowed)


def _validate(document: dict[str, Any], surroundings: Surroundings, file: str) -> tuple[Document | None, list[Problem]]:
    """Errors are returned, so that ConfigError is raised outside `except`: pydantic's error, which holds the file's
    values, must not hang on it as its context."""
    try:
        return Document.model_validate(document, context=surroundings), []
    except ValidationError as error:
        return None, list(explain(error, file))


# --- the file -----------------------------------------------------------------------------------------------------

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)\Z")
_DECLARED_TWICE: Final = re.compile(r"Cannot declare (\(.*\)) twice")


def _read(path: Path) -> str:
    """The file's text; a byte order mark, which Windows editors write, is no part of it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problem = Problem(str(path), "", f"cannot be read ({error.strerror})", "check the path and its permissions")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = Problem(str(path), f"line {line}", "is not UTF-8 text", "save the file as UTF-8")
    raise ConfigError([problem])


def _parse_toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # tomllib.TOMLDecodeError, or an integer of thousands of digits
        message = str(error)
    raise ConfigError([_syntax_problem(message, file)])


def _syntax_problem(message: str, file: str) -> Problem:
    """tomllib's message taken apart: TOML itself refuses two tables, or two keys of a table, with one name."""
    place = _PLACE.search(message)
    where = f"line {place[1]}, column {place[2]}" if place and place[1] else "the end of the file"
    what = _PLACE.sub("", message)
    twice = _DECLARED_TWICE.fullmatch(what)
    if twice:
        table = key_path(ast.literal_eval(twice[1]))
        return Problem(file, where, f"declares the table {table} a second time", "rename or remove one of the two")
    if what == "Cannot overwrite a value" or what.startswith("Duplicate inline table key"):
        return Problem(file, where, "sets a key a second time", "remove one of the two")
    return Problem(file, where, f"is not valid TOML ({what})", "correct the syntax there")


# --- the result ---------------------------------------------------------------------------------------------------


def _build(document: Document) -> Config:
    return Config(
        server=document.server,
        limits=document.limits,
        estimate=document.estimate,
        ledger=document.ledger,
        accounts={name: Account(name, table.balance) for name, table in document.accounts.items()},
        keys=tuple(StaticKey(_build_key(name, table), table.secret) for name, table in document.keys.items()),
        routes={name: _build_route(name, table) for name, table in document.routes.items()},
        models={
            name: ModelConfig(name, table.routes, table.max_output_tokens) for name, table in document.models.items()
        },
    )


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
    )


def _request_bytes_max(table: RouteTable) -> int | None:
    """C5: a WebSocket has a limit also where the file names none."""
    if table.request_bytes_max is None and table.transport == "websocket":
        return limits.WEBSOCKET_REQUEST_BYTES_MAX
    return table.request_bytes_max
