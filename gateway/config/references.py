"""What only shows between two tables: names that lead nowhere, routes listed twice, keys with one secret.

It reads the document as it was parsed, valid or not, so that these problems are told together with all the others.
A value of the wrong type is passed over here: the tables have told it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic import TypeAdapter, ValidationError

from gateway import limits
from gateway.config.problems import KeyPath, Problem, key_path, suggestion
from gateway.config.profiles import with_profile
from gateway.config.sources import Secret, Surroundings
from gateway.config.tables import COUNT_MAX

_SECRET: Final = TypeAdapter[str](Secret)

Table = Mapping[str, object]
Finding = tuple[KeyPath, str, str]


def gateway_problems(
    document: Table, routes: Table | None, surroundings: Surroundings, file: str, where: str = "of this file"
) -> list[Problem]:
    """Those of gateway.toml, in the order of its tables. `routes` is the document with the models, None if it cannot be
    had; `where` says which that is."""
    findings = (
        *_half_of_tls(document),
        *_too_few_sockets(document),
        *_wrong_store(document),
        *_unknown_accounts(document),
        *_same_secrets(document, surroundings),
        *(() if routes is None else _unknown_models(document, routes, where)),
    )
    return [Problem(file, key_path(path), problem, fix) for path, problem, fix in findings]


def routes_problems(routes: Table, surroundings: Surroundings, file: str) -> list[Problem]:
    """Those of the models and their routes."""
    findings = (
        *_hidden_credentials(routes),
        *_too_little_concurrency(routes, surroundings.workers),
        *_wrong_routes(routes),
    )
    return [Problem(file, key_path(path), problem, fix) for path, problem, fix in findings]


def table_at(table: object, name: str) -> Table:
    """The table of that name, empty if it is missing or something else."""
    inner = table.get(name) if isinstance(table, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _half_of_tls(document: Table) -> Iterator[Finding]:
    """Half of it would be served without TLS, or not at all."""
    server = table_at(document, "server")
    for here, there in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if here in server and there not in server:
            yield ("server", here), f"is of no use without server.{there}", f"add server.{there}, or remove it"


def _too_few_sockets(document: Table) -> Iterator[Finding]:
    """Each connection that is served has a socket: with fewer of these, `connections_max` could never be reached, and
    who comes beyond would be turned away unheard."""
    written = table_at(document, "limits")
    sockets = written.get("sockets_max", limits.SOCKETS_MAX)
    connections = written.get("connections_max", limits.CONNECTIONS_MAX)
    if type(sockets) is int and type(connections) is int and sockets < connections:
        fix = f"write limits.sockets_max = {min(2 * connections, COUNT_MAX)}, or lower limits.connections_max"
        if "sockets_max" in written:
            problem = f"is {sockets}, fewer than limits.connections_max, which is {connections}"
            yield ("limits", "sockets_max"), problem, fix
        else:
            problem = f"is {connections}, more than limits.sockets_max, which is {sockets} if left out"
            yield ("limits", "connections_max"), problem, fix


def _wrong_store(document: Table) -> Iterator[Finding]:
    ledger = table_at(document, "ledger")
    is_postgres, has_dsn = ledger.get("store") == "postgres", "dsn" in ledger
    if is_postgres and not has_dsn:
        yield ("ledger", "dsn"), "is missing: postgres needs it", 'add dsn = { env = "GATEWAY_DSN" }'
    if has_dsn and not is_postgres:
        yield ("ledger", "dsn"), "is for postgres only", 'write store = "postgres", or remove it'


def _unknown_accounts(document: Table) -> Iterator[Finding]:
    accounts = list(table_at(document, "accounts"))
    for name in table_at(document, "keys"):
        account = table_at(table_at(document, "keys"), name).get("account")
        if isinstance(account, str) and account not in accounts:
            yield ("keys", name, "account"), "names no account of this file", suggestion(account, accounts)


def _unknown_models(document: Table, routes: Table, where: str) -> Iterator[Finding]:
    known = list(table_at(routes, "models"))
    for name in table_at(document, "keys"):
        models = table_at(table_at(document, "keys"), name).get("models")
        for position, model in enumerate(models if isinstance(models, list) else []):
            if isinstance(model, str) and model not in known:
                yield ("keys", name, "models", position), f"names no model {where}", suggestion(model, known)


def _same_secrets(document: Table, surroundings: Surroundings) -> Iterator[Finding]:
    """A secret that two keys share would let one client pay from the other's account."""
    owners: dict[str, str] = {}
    for name in table_at(document, "keys"):
        secret = _secret(table_at(table_at(document, "keys"), name).get("secret"), surroundings)
        if secret is None:
            continue
        owner = owners.setdefault(secret, name)
        if owner != name:
            yield ("keys", name, "secret"), f"is the same secret as {key_path(('keys', owner))}'s", "give each its own"


def _secret(source: object, surroundings: Surroundings) -> str | None:
    try:
        return _SECRET.validate_python(source, context=surroundings)
    except ValidationError:
        return None


def _hidden_credentials(document: Table) -> Iterator[Finding]:
    """A header of the route's own would go up in the place of its credential."""
    for name, written in table_at(document, "routes").items():
        route = with_profile(written)
        header = route.get("credential_header") if isinstance(route, dict) else None
        for own in table_at(route, "headers"):
            if isinstance(header, str) and own.lower() == header.lower():
                yield ("routes", name, "headers", own), "is the header that carries the credential", "remove it"


def _too_little_concurrency(document: Table, workers: int) -> Iterator[Finding]:
    """C6: of less than one place each some workers would have none, and refuse for ever what comes to them; with one
    each they would have more than there are."""
    for name, route in table_at(document, "routes").items():
        places = route.get("concurrency") if isinstance(route, Mapping) else None
        if type(places) is int and 0 < places < workers:
            problem = f"is {places}, less than one for each of {workers} workers, which share it"
            fix = f"write {workers} or more, or serve with --workers {places}"
            yield ("routes", name, "concurrency"), problem, fix


def _wrong_routes(document: Table) -> Iterator[Finding]:
    known = list(table_at(document, "routes"))
    for name in table_at(document, "models"):
        routes = table_at(table_at(document, "models"), name).get("routes")
        listed = routes if isinstance(routes, list) else []
        names = [entry.get("name") if isinstance(entry, Mapping) else entry for entry in listed]
        for position, (entry, route) in enumerate(zip(listed, names, strict=True)):
            path: KeyPath = ("models", name, "routes", position)
            if isinstance(route, str) and route not in known:
                inner: KeyPath = ("name",) if isinstance(entry, Mapping) else ()
                yield (*path, *inner), "names no route of this file", suggestion(route, known)
            elif isinstance(route, str) and route in names[:position]:
                yield path, "lists a route a second time", "remove it"
        yield from _two_ways_of_listing(name, listed)


def _two_ways_of_listing(model: str, listed: Sequence[object]) -> Iterator[Finding]:
    """Names stand in their order, tables share a priority unless they say otherwise: of a list that has both nobody
    could say what it means."""
    if any(isinstance(entry, str) for entry in listed) and any(isinstance(entry, Mapping) for entry in listed):
        fix = "write every entry as a table, or every one as a name"
        yield ("models", model, "routes"), "mixes names and tables", fix
