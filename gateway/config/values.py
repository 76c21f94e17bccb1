"""The configuration as the rest of the program sees it: checked, resolved and frozen.

The names of fields carry their units where the file's do not. Secrets are kept out of every repr.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway import limits
from gateway.config.tables import Estimate, LedgerTable, Limits, Server
from gateway.core.failures import RETRYABLE_CODES
from gateway.core.keys import Key
from gateway.core.money import Price


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


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """A configured way to run a model. `base_url` has no trailing slash; `credential` is None if none is sent;
    `upstream_model` is None if the client's name goes up; header names are in lower case; `request_bytes_max` is None
    where a request may have any size (C5)."""

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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A client's name of a model: its routes in order, and the output that a request reserves if it names none."""

    name: str
    routes: tuple[str, ...]
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Config:
    """All of it. `accounts`, `routes` and `models` are by name, in the order of the file."""

    server: Server
    limits: Limits
    estimate: Estimate
    ledger: LedgerTable
    accounts: Mapping[str, Account]
    keys: tuple[StaticKey, ...]
    routes: Mapping[str, RouteConfig]
    models: Mapping[str, ModelConfig]
