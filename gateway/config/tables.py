"""The file as it is written, table by table: names, types, bounds and defaults. What only shows between two tables
(a key's account, a model's routes) is in `references.py`.
"""

from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from gateway import limits
from gateway.config.addresses import BaseUrl, CredentialHeader, Headers, Host
from gateway.config.amounts import Balance, Nanodollars, PriceTable, WrittenPrice
from gateway.config.instants import Expiry, TimeZone
from gateway.config.problems import refusal
from gateway.config.profiles import with_profile
from gateway.config.section import Section
from gateway.config.sources import Credential, Secret, SecretLine, SecretSource, Surroundings
from gateway.core.failures import RETRYABLE_CODES
from gateway.core.keys import UTC

TIMEOUT_SECONDS_MAX: Final = 3600.0
"""Nothing outlives the 60 minutes of a connection (T5); a larger figure is one in milliseconds."""
BYTES_MAX: Final = 1024 * limits.MIB
INBOUND_BYTES_MAX: Final = 1024 * BYTES_MAX
COUNT_MAX: Final = 65536
"""Bounds of the bounds: beyond them one client could take the process's memory."""
TOKENS_MAX: Final = 10_000_000
"""Above any model's output, below what would overflow a price."""
PRIORITY_MAX: Final = 100
WEIGHT_MAX: Final = 1000
"""Finer shares than a thousandth, or more steps than a hundred, are a figure in the wrong place."""

Name = Annotated[str, Field(pattern=r"^[!-~]{1,128}$")]
"""Names go into logs, metrics, the ledger and command lines: visible ASCII, no spaces."""

Timeout = Annotated[float, Field(gt=0, le=TIMEOUT_SECONDS_MAX)]
Grace = Annotated[float, Field(ge=0, le=TIMEOUT_SECONDS_MAX)]
Pause = Annotated[float, Field(ge=1, le=TIMEOUT_SECONDS_MAX)]
"""What a client's request may take: below a second, honest ones are cut by a lost packet."""
Size = Annotated[int, Field(ge=1, le=BYTES_MAX)]
Count = Annotated[int, Field(ge=1, le=COUNT_MAX)]
Days = Annotated[int, Field(ge=1, le=36500)]
RequestsPerMinute = Annotated[int, Field(ge=1, le=limits.REQUESTS_PER_MINUTE_MAX)]
Tokens = Annotated[int, Field(ge=0, le=TOKENS_MAX)]


def _off_is_none(value: object) -> object:
    return None if value == "off" else value


Port = Annotated[int, Field(ge=0, le=65535)]
OptionalPort = Annotated[Port | None, BeforeValidator(_off_is_none)]
"""A port, or "off" for none."""


def _from_the_files_folder(path: str, info: ValidationInfo) -> str:
    """A relative path starts at the directory of the configuration file, as a secret's does."""
    return str(cast("Surroundings", info.context).directory / path)


FilePath = Annotated[str, Field(min_length=1), AfterValidator(_from_the_files_folder)]


class Server(Section):
    """How the gateway listens, waits, charges and logs. Durations are seconds."""

    host: Host = "127.0.0.1"
    port: Port = Field(default=8080, description="0 is any free port")
    absent_store: Literal["upstream", "false"] = Field(default="upstream", description="S1")
    start: Literal["late", "early"] = Field(default="late", description="H9")
    start_latest: Timeout = Field(default=limits.START_LATEST_SECONDS, description="H9")
    connection_grace: Grace = Field(default=0.0, description="W6")
    connection_limit: float = Field(
        default=limits.CONNECTION_SECONDS_MAX,
        gt=0,
        le=limits.CONNECTION_SECONDS_MAX,
        description="T5: may be shortened, never made longer than what clients are told",
    )
    drain_timeout: Grace = Field(default=limits.DRAIN_SECONDS_MAX, description="T7")
    write_timeout: Timeout = Field(default=limits.WRITE_SECONDS_MAX, description="T6")
    head_timeout: Pause = Field(
        default=limits.HEAD_SECONDS_MAX, description="from a request head's first byte to its end"
    )
    body_pause: Pause = Field(
        default=limits.BODY_PAUSE_SECONDS_MAX,
        description="what a request body may lag behind limits.body_bytes_per_second_min",
    )
    body_timeout: Pause = Field(default=limits.BODY_SECONDS_MAX, description="for a whole request body")
    replay_side_effect_tools: bool = Field(default=False, description="S6")
    replay_expanded_continuations: bool = Field(
        default=False, description="W10: what goes on from memory may be replayed if its full input is stateless"
    )
    failed_metered: Literal["charge", "void"] = Field(
        default="charge", description="B3: a failure with usage, no output"
    )
    delivered_unmetered: Literal["estimate", "void"] = Field(default="estimate", description="B3: output without usage")
    allow_inline_secrets: bool = Field(default=False, description="C1")
    data_plane: Literal["fast", "plain"] = Field(
        default="fast",
        description="how a turn's bytes go: over the gateway's own sockets, or through httpx2, trio-websocket and ASGI",
    )
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    tls_certificate: FilePath | None = Field(default=None, description="a PEM chain, the leaf first")
    tls_key: FilePath | None = Field(default=None, description="its key, PEM, without a password")
    control_socket: FilePath | None = Field(
        default=None, description="for `gateway status` and the like; in $XDG_RUNTIME_DIR if left out"
    )
    metrics_host: Host = "127.0.0.1"
    metrics_port: OptionalPort = Field(
        default=9464,
        description="of /metrics, /healthz and /readyz; worker k takes this port + k; 0 is any, off is none",
    )
    trusted_hops: int = Field(
        default=0,
        ge=0,
        le=limits.TRUSTED_HOPS_MAX,
        description="proxies in front that add to x-forwarded-for; 0 takes the peer's address",
    )


SHARED: Final = (
    "inbound_bytes_max",
    "all_remembered_bytes_max",
    "connections_max",
    "sockets_max",
    "connections_per_key_max",
    "turns_max",
    "turns_per_key_max",
)
"""C6: what several workers share, each having its part."""


class Limits(Section):
    """Bounds that an operator may move; the others are constants of `gateway/limits.py`."""

    hold_bytes_max: Size = limits.HOLD_BYTES_MAX
    hold_events_max: Count = limits.HOLD_EVENTS_MAX
    event_bytes_max: Size = limits.EVENT_BYTES_MAX
    body_bytes_max: Size = limits.BODY_BYTES_MAX
    inbound_bytes_max: int = Field(default=limits.INBOUND_BYTES_MAX, ge=1, le=INBOUND_BYTES_MAX)
    body_bytes_per_second_min: int = Field(default=limits.BODY_BYTES_PER_SECOND_MIN, ge=1, le=limits.MIB)
    waiting_creates_max: int = Field(default=limits.WAITING_CREATES_MAX, ge=0, le=COUNT_MAX)
    waiting_bytes_max: int = Field(default=limits.WAITING_BYTES_MAX, ge=0, le=BYTES_MAX)
    remembered_bytes_max: Size = limits.REMEMBERED_BYTES_MAX
    all_remembered_bytes_max: int = Field(default=limits.ALL_REMEMBERED_BYTES_MAX, ge=1, le=INBOUND_BYTES_MAX)
    connections_max: Count = limits.CONNECTIONS_MAX
    sockets_max: Count = limits.SOCKETS_MAX
    connections_per_key_max: Count = limits.CONNECTIONS_PER_KEY_MAX
    turns_max: Count = limits.TURNS_MAX
    turns_per_key_max: Count = limits.TURNS_PER_KEY_MAX

    def shared_by(self, workers: int) -> "Limits":
        """One worker's part of them (C6). Rounded down, so that all of them together keep within the limit; at least 1,
        for a worker that takes nothing is none."""
        return self.model_copy(update={name: max(1, getattr(self, name) // workers) for name in SHARED})


class Estimate(Section):
    """B4: what a part that is not text counts for, in tokens."""

    image_tokens: Tokens = 1000
    file_tokens: Tokens = 5000


class LedgerTable(Section):
    """Where money and records last. Paths are relative to the file."""

    store: Literal["sqlite", "postgres", "memory"] = Field(
        default="sqlite", description="one host; any number of nodes; or gone with the process, for trying things out"
    )
    path: FilePath = Field(default="gateway.sqlite", validate_default=True, min_length=1, description="of sqlite")
    dsn: SecretLine | None = Field(
        default=None, repr=False, description="of postgres", examples=['dsn = { env = "GATEWAY_DSN" }']
    )
    spool: FilePath = Field(
        default="gateway.spool",
        validate_default=True,
        min_length=1,
        description="a directory on a local disk: keeps what the store cannot take while it is away",
    )
    lease: float = Field(default=limits.LEASE_SECONDS, ge=1, le=600, description="B7, seconds")
    record_days: Days = Field(default=limits.RECORD_DAYS, description="L1: how long turns and attempts are kept")
    origin_days: Days = Field(default=limits.ORIGIN_DAYS_MAX, description="O1")


class AccountTable(Section):
    """Who pays (B6)."""

    balance: Balance = Field(examples=['balance = "unlimited" or an amount of dollars like "12.50"'])


class KeyTable(Section):
    """What a client shows to be let in."""

    account: str = Field(examples=['account = "NAME" of a table in accounts'])
    secret: Secret = Field(examples=['secret = { env = "GATEWAY_KEY" }'])
    replay: Literal["auto", "never"] = Field(default="auto", description="R10a")
    expires: Expiry | None = Field(default=None, description="a date or a time of the key's time zone")
    models: tuple[str, ...] | None = Field(default=None, strict=False, min_length=1, description="all if left out")
    requests_per_minute: RequestsPerMinute | None = Field(default=None, description="C6: in all workers together")
    spend_per_day: Nanodollars | None = Field(default=None, description="B6: dollars, what runs included")
    spend_per_month: Nanodollars | None = Field(default=None, description="B6")
    time_zone: TimeZone = Field(default=UTC, description="whose days and months the limits count by")


class RouteTable(Section):
    """A configured way to run a model. Durations are seconds. What a route leaves out it has from its profile, if that
    says it (profiles.py)."""

    profile: Literal["openai", "azure", "xai", "openrouter", "vllm", "ollama"] = Field(
        default="openai", description="whose ways the upstream has"
    )
    base_url: BaseUrl = Field(
        examples=['base_url = "https://api.openai.com/v1"'],
        description="`/responses` is appended; may be left out where the profile is written and has one",
    )
    transport: Literal["sse", "websocket"] = Field(default="sse", description="C5; the base URL is the same for both")
    credential: Credential = Field(examples=['credential = { env = "OPENAI_API_KEY" }, or "none" if it needs none'])
    credential_header: CredentialHeader = Field(default="authorization", description="which header carries it")
    credential_form: Literal["bearer", "plain"] = Field(default="bearer", description="`Bearer` before it, or nothing")
    stores_by_default: bool = Field(
        default=True, description="S1: whether the upstream keeps the response of a request that does not say `store`"
    )
    model: Name | None = Field(default=None, description="the upstream's name of the model; the client's if left out")
    first_event_timeout: Timeout = Field(default=limits.FIRST_EVENT_SECONDS, description="T2")
    idle_timeout: Timeout = Field(default=limits.IDLE_SECONDS, description="T4")
    response_timeout: Timeout = Field(
        default=limits.RESPONSE_SECONDS, description="H1: for a whole response, where no stream was asked for"
    )
    connect_timeout: Timeout = Field(default=limits.CONNECT_SECONDS, description="T3")
    request_bytes_max: Size | None = Field(
        default=None, description="C5: a larger request goes to another route; websocket: 16 MiB if left out"
    )
    socket_age_limit: Timeout = Field(
        default=limits.UPSTREAM_SOCKET_SECONDS_MAX, description="websocket: no turn begins on an older socket"
    )
    socket_idle_timeout: Timeout = Field(
        default=limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX, description="websocket: one that idles longer is closed"
    )
    idle_sockets_max: int = Field(
        default=limits.UPSTREAM_IDLE_SOCKETS_MAX, ge=0, le=COUNT_MAX, description="websocket: kept for the next turn"
    )
    retryable_codes: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=tuple(sorted(RETRYABLE_CODES)), strict=False, description="rule 5 of the failure table"
    )
    headers: Headers = Field(default={}, description="H4: sent with every request")
    concurrency: Count | None = Field(
        default=None,
        description="C6: attempts at once, in all workers together, one for each at least; when it is full other "
        "routes serve",
    )
    state: Literal["serve", "drain"] = Field(default="serve", description="C3: drain takes neither turns nor replays")
    price: WrittenPrice = Field(
        examples=['price = "free" or { input = "1.25", output = "10" }'], description="M2: dollars per million tokens"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_profile(cls, written: Any) -> Any:
        return with_profile(written)


class ListedRoute(Section):
    """A route in a model's list (M1)."""

    name: str = Field(examples=['name = "NAME" of a table in routes'])
    priority: int | None = Field(default=None, ge=1, le=PRIORITY_MAX, description="M1: 1, the default, is asked first")
    weight: int | None = Field(
        default=None, ge=1, le=WEIGHT_MAX, description="M1: the share among routes of one priority; 1 if left out"
    )


def _entry_of_a_name(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict):
        return value
    raise refusal("must be the name of a route, or a table", 'write "NAME", or { name = "NAME", weight = 3 }')


def _some(entries: tuple[ListedRoute, ...]) -> tuple[ListedRoute, ...]:
    """A bound of the field would count the usable entries, and call a list of one mistake empty."""
    if not entries:
        raise refusal("is empty", "add at least one entry")
    return entries


Entry = Annotated[ListedRoute, BeforeValidator(_entry_of_a_name)]


class ModelTable(Section):
    """The name a client uses, and the routes that serve it (M1): names alone are asked in their order."""

    routes: Annotated[tuple[Entry, ...], AfterValidator(_some)] = Field(
        strict=False, examples=['routes = ["NAME"] of tables in routes']
    )
    max_output_tokens: int = Field(
        default=16384, ge=1, le=TOKENS_MAX, description="B6: reserved if the request names none"
    )


class GatewayDocument(Section):
    """What needs a restart to change. A gateway without an account or a key can serve nobody."""

    server: Server = Server()
    limits: Limits = Limits()
    estimate: Estimate = Estimate()
    ledger: LedgerTable = Field(default_factory=lambda: cast("LedgerTable", {}), validate_default=True)
    accounts: dict[Name, AccountTable] = Field(min_length=1, examples=["a table [accounts.NAME]"])
    keys: dict[Name, KeyTable] = Field(min_length=1, examples=["a table [keys.NAME]"])


class RoutesDocument(Section):
    """What is swapped while it serves (C2): a routes file, or these tables in gateway.toml."""

    routes: dict[Name, RouteTable] = Field(min_length=1, examples=["a table [routes.NAME]"])
    models: dict[Name, ModelTable] = Field(min_length=1, examples=['a table [models."NAME"]'])


class Document(RoutesDocument, GatewayDocument):
    """Both in one file; the order of the fields is that of the problems."""


ANY_NAME: Final = "*"
SECTIONS: Final[dict[tuple[str, ...], type[Section]]] = {
    # which table stands where: what an error's key path is looked up in
    ("server",): Server,
    ("limits",): Limits,
    ("estimate",): Estimate,
    ("ledger",): LedgerTable,
    ("ledger", "dsn"): SecretSource,
    ("accounts", ANY_NAME): AccountTable,
    ("keys", ANY_NAME): KeyTable,
    ("keys", ANY_NAME, "secret"): SecretSource,
    ("routes", ANY_NAME): RouteTable,
    ("routes", ANY_NAME, "credential"): SecretSource,
    ("routes", ANY_NAME, "price"): PriceTable,
    ("models", ANY_NAME): ModelTable,
    ("models", ANY_NAME, "routes", ANY_NAME): ListedRoute,
}
