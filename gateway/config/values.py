"""The configuration as the rest of the program sees it: checked, resolved and frozen.

The names of fields carry their units where the file's do not. Secrets are kept out of every repr.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from gateway import limits
from gateway.config.files import Kept, Stamp
from gateway.config.tables import Estimate, LedgerTable, Limits, Server
from gateway.core.background import Fingerprint
from gateway.core.failures import RETRYABLE_CODES
from gateway.core.keys import Key
from gateway.core.money import Price
from gateway.core.routing import Listed


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays: a balance at the start, or None for an unlimited one (B6)."""

    name: str
    balance_nanodollars: int | None


@dataclass(frozen=True, slots=True)
class StaticKey:
    """A key of the file's own: who it is, and what a client shows."""

    key: Key
    secret: str = field(repr=False)


ACCOUNT_HEADERS: Final = frozenset({"openai-organization", "openai-project"})
"""Headers that choose among the accounts behind one base URL."""


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """A configured way to run a model. `base_url` has no trailing slash; `credential` is None if none is sent;
    `upstream_model` is None if the client's name goes up; header names are in lower case; `request_bytes_max` is None
    where a request may have any size (C5), `attempts_max` where any number may run at once (C6)."""

    name: str
    base_url: str
    price: Price
    credential: str | None = field(default=None, repr=False)
    upstream_model: str | None = None
    first_event_seconds: float = limits.FIRST_EVENT_SECONDS
    idle_seconds: float = limits.IDLE_SECONDS
    response_seconds: float = limits.RESPONSE_SECONDS
    connect_seconds: float = limits.CONNECT_SECONDS
    retryable_codes: frozenset[str] = frozenset(RETRYABLE_CODES)
    headers: tuple[tuple[str, str], ...] = ()
    transport: Literal["sse", "websocket"] = "sse"
    request_bytes_max: int | None = None
    socket_age_seconds: float = limits.UPSTREAM_SOCKET_SECONDS_MAX
    socket_idle_seconds: float = limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX
    idle_sockets_max: int = limits.UPSTREAM_IDLE_SOCKETS_MAX
    attempts_max: int | None = None
    is_draining: bool = False
    credential_header: str = "authorization"
    credential_form: Literal["bearer", "plain"] = "bearer"
    stores_by_default: bool = True

    @property
    def fingerprint(self) -> Fingerprint:
        """Which upstream it is (B9): kept with a turn, so that the name may come to stand for another."""
        account = sorted(header for header in self.headers if header[0] in ACCOUNT_HEADERS)
        place = hashlib.sha256(json.dumps([self.base_url, account]).encode())
        shown = [self.credential, self.credential_header, self.credential_form, sorted(self.headers)]
        access = hashlib.sha256(json.dumps(shown).encode())
        return Fingerprint(place.hexdigest(), access.digest()[:SECRET_DIGEST_BYTES].hex())

    @property
    def account(self) -> tuple[str, str | None]:
        """Whose places its attempts take (C6), whatever else is said of it; a secret is part of it."""
        return self.base_url, self.credential


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A client's name of a model: its list of routes, and the output that a request reserves if it names none."""

    name: str
    listed: tuple[Listed, ...]
    max_output_tokens: int

    @property
    def routes(self) -> tuple[str, ...]:
        """Their names, as they are listed."""
        return tuple(entry.name for entry in self.listed)


SECRET_DIGEST_BYTES: Final = 2
"""What of a secret's SHA-256 counts: a rotated secret changes the table's hash, and the hash cannot confirm a guess of
the secret, for one of 65,536 fits."""


def hash_of(routes: Mapping[str, RouteConfig], models: Mapping[str, ModelConfig]) -> str:
    """SHA-256 over what a table says, in hexadecimal digits; the order of its tables and its wording do not count."""
    content = {
        "routes": {name: _said(route) for name, route in routes.items()},
        "models": {name: _said(model) for name, model in models.items()},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_plain).encode()).hexdigest()


def _said(value: RouteConfig | ModelConfig) -> dict[str, Any]:
    """Its fields, a secret's beginning of a digest in its place."""
    said = {one.name: getattr(value, one.name) for one in fields(value)}
    if said.get("credential") is not None:
        digest = hashlib.sha256(said["credential"].encode()).digest()
        said["credential"] = digest[:SECRET_DIGEST_BYTES].hex()
    return said


def _plain(value: Any) -> Any:
    """What JSON has no form for: sets, and values of their own."""
    return sorted(value) if isinstance(value, frozenset) else asdict(value)


@dataclass(frozen=True, slots=True)
class Config:
    """All of it. `accounts`, `routes` and `models` are by name, in the order of the file; the last two are swapped
    while it serves (C2). `routes_file` is where they stand if `file` names one, None if they stand in `file` itself."""

    server: Server
    limits: Limits
    estimate: Estimate
    ledger: LedgerTable
    accounts: Mapping[str, Account]
    keys: tuple[StaticKey, ...]
    routes: Mapping[str, RouteConfig]
    models: Mapping[str, ModelConfig]
    file: Path | None = field(default=None, compare=False)
    routes_file: Path | None = field(default=None, compare=False)
    kept: Kept = field(default_factory=lambda: Kept({}, {}), compare=False, repr=False)
    """All that was read: from it the same can be read once more."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that are watched."""
        return tuple(self.kept.stamps)

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        """How they stood when they were read."""
        return tuple(self.kept.stamps.values())

    @property
    def table_hash(self) -> str:
        """Which table it is: alike for equal models and routes."""
        return hash_of(self.routes, self.models)
