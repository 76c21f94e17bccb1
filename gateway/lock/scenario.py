"""A scenario as data (K1): the request, what each upstream does at which instant, what the client does. One TOML file.

    about = "A stream that breaks before its first event is run once more, on the other route."
    rules = ["R15"]                       the rules it shows, by id; `cases` are bug reports by number

    [request]                             members of the request, on top of DEFAULTS
    [[upstream]]                          one reply of a route, in order; steps are in `notation.py`
    route = "a"
    does = ["created", 3.0, "break"]
    [[client]]                            what the client does beside, each at its time
    at = 2.0
    does = "leaves"
    [origins]                             responses that were made before, and by which route
    [[call]]                              a call about a response, over HTTP, behind the requests
    [house]  [[fault]]  [config]          how the house stands, what a store does wrong, what the operator configured
    [[swap]]                              another table of routes, from a time on (C2)
    tells_whole_records = true            records tell of door, key, client, money and each kind of token, too
    [differs]                             columns in which the doors differ, and why

Every mistake is told at once, with file, key and fix; what two keys of a table make of each other is told when each of
them is right.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from gateway.config.problems import Problem, refusal, suggestion
from gateway.config.section import Section
from gateway.lock.files import Unreadable, text_of
from gateway.lock.mistakes import mistakes
from gateway.lock.notation import SECONDS_MAX, STEPS_MAX, NotationError, Speaker, is_json
from gateway.ports import Ledger, Records

T = TypeVar("T")
DoorName = Literal["http", "websocket"]
RouteName = Literal["a", "b", "c"]
DOORS: Final[tuple[DoorName, ...]] = get_args(DoorName)
ROUTES: Final[tuple[str, ...]] = get_args(RouteName)
"""In the order in which they are asked, and in which an operator's stand in for them."""
COLUMNS: Final = ("client", "upstream", "money", "records")
MODEL: Final = "gpt-test"
DEFAULTS: Final[Mapping[str, Any]] = {"model": MODEL, "input": "hi", "store": False}
"""The request if a scenario says nothing of it: one that may be run twice."""

BETWEEN_TURNS_SECONDS: Final = 1.0
"""From a turn's last word to the next request, if nothing else is said."""

CALLS: Final = {
    store: [name for name in vars(port) if not name.startswith("_")]
    for store, port in (("ledger", Ledger), ("records", Records))
}

At = Annotated[float, Field(ge=0, le=SECONDS_MAX)]

HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""RFC 9110, 5.5: another line would be another header."""


def _as_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if HEADER_NAME.fullmatch(name) is None or HEADER_VALUE.fullmatch(value) is None:
            raise refusal(f"{name!r} is no header", "write a token and one line of Latin-1")
    return headers


def _in_json(value: Any) -> Any:
    if not is_json(value):
        raise refusal("holds a date or a number that JSON has no word for", "write it as a text")
    return value


@lru_cache(maxsize=1)
def _rule_ids() -> tuple[str, ...]:
    text = resources.files("gateway").joinpath("rulebook.toml").read_text(encoding="utf-8")
    return tuple(name for chapter in tomllib.loads(text).values() for name in chapter if name != "title")


def _known_rule(name: str) -> str:
    if name not in _rule_ids():
        raise refusal(f"{name!r} is no rule", "use an id that `gateway rules` explains")
    return name


def _as_key(key: str) -> str:
    if HEADER_VALUE.fullmatch(key) is None:
        raise refusal("cannot stand in a header", "write one line of Latin-1")
    return key


def _some(entries: tuple[T, ...]) -> tuple[T, ...]:
    """A bound of the field would count the usable entries, and call a list of one mistake empty."""
    if not entries:
        raise refusal("is empty", "add at least one entry")
    return entries


def _once_each(doors: tuple[DoorName, ...]) -> tuple[DoorName, ...]:
    if len(set(doors)) < len(doors):
        raise refusal("names a door twice", "name each once")
    return doors


def _as_step(step: Any) -> Any:
    return _spoken((step,))[0]


def _spoken(does: tuple[Any, ...]) -> tuple[Any, ...]:
    """Also of all steps together: there is a bound of their number."""
    try:
        Speaker("a1", MODEL).steps(does)
    except NotationError as error:
        raise refusal(error.problem, error.fix) from None
    return does


def _routes_as_tables(config: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for name, route in config.get("routes", {}).items():
        if not isinstance(route, dict):
            raise refusal(f"routes.{name} is no table", "write its settings as a table")
    return config


Headers = Annotated[dict[str, str], AfterValidator(_as_headers)]
Key = Annotated[str, AfterValidator(_as_key)]
Members = Annotated[dict[str, Any], AfterValidator(_in_json)]
RuleId = Annotated[str, AfterValidator(_known_rule)]
Steps = Annotated[tuple[Annotated[Any, AfterValidator(_as_step)], ...], AfterValidator(_spoken)]
CaseNumber = Annotated[int, Field(ge=1)]


class UpstreamReply(Section):
    """One answer of a route. Durations are seconds."""

    route: RouteName = Field(description="whose answer it is; its second one answers its second call, and so on")
    does: Steps = Field(default=(), strict=False, description="what it does, in the notation below")
    status: int = Field(default=200, ge=100, le=599, description="of the answer, or of the handshake")
    code: str | None = Field(
        default=None, description="of the error object that a status of 4xx or 5xx has as its body"
    )
    body: str | None = Field(default=None, description="the whole body, in the place of `does` and `code`")
    headers: Headers = Field(default={}, description="of the answer, beside the usual ones")
    refuses: bool = Field(default=False, description="the connection is refused")
    connect_seconds: At = Field(default=0.0, description="until the connection stands")
    head_seconds: At = Field(default=0.0, description="from the request to the answer's head")
    is_numbered: bool = Field(default=True, description="whether its events have sequence numbers")

    @model_validator(mode="after")
    def _refuses_or_answers(self) -> UpstreamReply:
        answered = self.model_fields_set - {"route", "refuses", "connect_seconds"}
        if self.refuses and answered:
            raise refusal(f"refuses the connection and has {', '.join(sorted(answered))}", "keep one of the two")
        return self


class ClientAct(Section):
    """What the client does beside its requests, at a time: `sends` a frame on its WebSocket, `posts` its request once
    more, on an HTTP connection of its own, `connects` another WebSocket; as somebody else, if it is told to."""

    at: At = Field(description="seconds from the beginning")
    does: Literal["leaves", "half-closes", "stalls", "reads", "sends", "posts", "connects"] = Field(
        description="`reads` goes on after `stalls`; who `half-closes` says no more, and would still read"
    )
    frame: Members | None = Field(default=None, description="on a WebSocket: an object, sent as text")
    text: str | None = Field(default=None, description="a text frame as it is")
    hex: str | None = Field(default=None, description="a binary frame", pattern=r"^([0-9a-fA-F]{2})*$")
    times: int = Field(default=1, ge=1, le=STEPS_MAX, description="how often it does that, at once")
    request: Members = Field(default={}, description="of a post: members on top of its first request's")
    headers: Headers = Field(default={}, description="of another connection: over the scenario's own")
    key: Key | None = Field(default=None, description="of another connection: in the place of the scenario's")

    @model_validator(mode="after")
    def _says_it_on_another_connection(self) -> ClientAct:
        meant = {"posts": (), "connects": ("request",)}.get(self.does, ("request", "headers", "key"))
        said = [name for name in meant if name in self.model_fields_set]
        if said:
            raise refusal(f"{self.does} with {' and '.join(said)}", "leave it out, or let it post")
        return self

    @model_validator(mode="after")
    def _sends_something(self) -> ClientAct:
        count = sum(value is not None for value in (self.frame, self.text, self.hex))
        if count != (self.does == "sends"):
            raise refusal(f"{self.does} with {count} frames", "give `sends` one of `frame`, `text`, `hex`, others none")
        return self


class ByIDCall(Section):
    """A call about a response that exists (H2), or of the list of models: its path is below `/v1/`."""

    path: str = Field(pattern=r"^[!-~]+$", description="such as responses/resp_a1, or models")
    at: At | None = Field(default=None, description="a second behind what was before if left out")
    method: Literal["GET", "DELETE", "POST"] = Field(default="GET", description="of the call")
    query: str = Field(default="", pattern=r"^[!-~]*$", description="what stands behind the question mark")
    key: Key | None = Field(default=None, description="in the place of the scenario's")


class House(Section):
    """How the house stands (R12-R14)."""

    drains_at: At | None = Field(default=None, description="seconds from the beginning to where the gateway drains")
    is_throttled: bool = Field(default=False, description="the replay budget is spent (R13)")
    is_patient: bool = Field(default=False, description="no route is left alone for its faults (C3)")
    cooling: tuple[str, ...] = Field(default=(), strict=False, description="routes that are left alone")


class Fault(Section):
    """What a store does wrong: at the `on`-th call of that name, or at every one if `on` is 0."""

    store: Literal["ledger", "records"] = Field(description="whose fault it is")
    call: str = Field(description="; ".join(f"of the {store} {', '.join(calls)}" for store, calls in CALLS.items()))
    on: int = Field(default=1, ge=0, description="which of them goes wrong, from 1 on; 0 is every one")
    how: Literal["unavailable", "raises", "hangs"] = Field(description="what becomes of it")

    @field_validator("call")
    @classmethod
    def _of_the_store(cls, call: str, info: ValidationInfo) -> str:
        store = info.data.get("store")
        calls = [] if store is None else CALLS[store]
        if calls and call not in calls:
            raise refusal(f"is no call of {store}", suggestion(call, calls))
        return call


class Swap(Section):
    """C2: from that time on the model has these routes, in this order, with `settings` of each over the configured."""

    at: At = Field(description="seconds from the beginning")
    routes: Annotated[tuple[RouteName, ...], AfterValidator(_some)] = Field(
        strict=False, description="those of the model from then on, in their order"
    )
    settings: dict[str, Members] = Field(default={}, description="by route, what is set in the place of `config`")


class Scenario(Section):
    """One scenario. `requests`, if there are any, are made one after the other, each on top of `request`."""

    about: str = Field(min_length=1, description="what it shows, in a sentence")
    rules: Annotated[tuple[RuleId, ...], AfterValidator(_some)] = Field(
        strict=False, description="the rules that it shows, by the ids that `gateway rules` explains"
    )
    cases: tuple[CaseNumber, ...] = Field(default=(), strict=False, description="bug reports, by number")
    article: str | None = Field(default=None, description="the boundary of the article that it is")
    doors: Annotated[tuple[DoorName, ...], AfterValidator(_some), AfterValidator(_once_each)] = Field(
        default=DOORS, strict=False, description="through which it is played"
    )
    request: Members = Field(default={}, description=f"members of each request, over {json.dumps(DEFAULTS)}")
    requests: tuple[Members, ...] = Field(
        default=(), strict=False, description="made one after the other, each with its members over `request`"
    )
    pauses: tuple[Annotated[float, Field(gt=0, le=SECONDS_MAX)], ...] = Field(
        default=(),
        strict=False,
        description="seconds from a turn's last word to the next request; 1 where none is left",
    )
    omits: tuple[str, ...] = Field(default=(), strict=False, description="members of the request that are left out")
    nulls: tuple[str, ...] = Field(default=(), strict=False, description="members of the request that are null")
    body: str | None = Field(default=None, description="the body or frame as it is, in the place of a request")
    method: Literal["POST", "GET"] = Field(default="POST", description="on HTTP")
    path: Literal["/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"] = Field(
        default="/v1/responses", description="on HTTP"
    )
    encoding: Literal["gzip", "deflate", "zstd"] | None = Field(
        default=None, description="on HTTP: how the body is compressed, and what its header says"
    )
    headers: Headers = Field(default={}, description="of the request or the handshake")
    key: Key = Field(default="demo-key", description="what the client shows; none if it is empty")
    subprotocols: tuple[str, ...] = Field(default=(), strict=False, description="on a WebSocket: what it offers")
    begins_at: At = Field(default=0.0, description="on a WebSocket: when its first request is made")
    stays_seconds: At = Field(default=2.0, description="on a WebSocket: for how long the client stays after its turns")
    client: tuple[ClientAct, ...] = Field(default=(), strict=False, description="what it does beside its requests")
    origins: dict[str, RouteName] = Field(
        default={}, description="responses of the account that were made before, by id, with the routes that made them"
    )
    call: tuple[ByIDCall, ...] = Field(
        default=(), strict=False, description="made one by one behind the requests, on HTTP connections of their own"
    )
    upstream: tuple[UpstreamReply, ...] = Field(default=(), strict=False, description="the routes' answers, in order")
    house: House = Field(default=House(), description="how the house stands")
    fault: tuple[Fault, ...] = Field(default=(), strict=False, description="what a store does wrong")
    swap: tuple[Swap, ...] = Field(default=(), strict=False, description="other tables of routes, from a time on")
    config: Annotated[dict[str, Members], AfterValidator(_routes_as_tables)] = Field(
        default={},
        description="tables of gateway.toml over the usual ones; `account`, `key` and `model` stand for the one of "
        "that kind, `route` for every route, `routes.a` for one",
    )
    tells_whole_records: bool = Field(
        default=False, description="whether records tell of door, key, client, money and each kind of token, too"
    )
    differs: dict[Literal["client", "upstream", "money", "records"], str] = Field(
        default={}, description="the columns in which the doors differ, each with its why"
    )

    @field_validator("client")
    @classmethod
    def _stalls_end(cls, acts: tuple[ClientAct, ...]) -> tuple[ClientAct, ...]:
        stalls = max((act.at for act in acts if act.does == "stalls"), default=-1.0)
        if stalls >= 0 and not any(act.at > stalls and act.does in ("leaves", "reads") for act in acts):
            raise refusal("stalls for ever", "let it read again or leave, at a time of its own")
        return acts

    @field_validator("call")
    @classmethod
    def _calls_are_of_http(cls, calls: tuple[ByIDCall, ...], info: ValidationInfo) -> tuple[ByIDCall, ...]:
        if calls and info.data.get("doors") not in (None, ("http",)):
            raise refusal("makes calls that a WebSocket has no word for", 'write doors = ["http"]')
        return calls

    def pause_before(self, number: int) -> float:
        """Seconds before the request of that number, from 0 on; none before the first. So turns have times of their
        own."""
        if number == 0:
            return 0.0
        return self.pauses[number - 1] if number <= len(self.pauses) else BETWEEN_TURNS_SECONDS

    @property
    def routes(self) -> tuple[str, ...]:
        """The routes of the model, in order: `a`, and those that have a reply."""
        return tuple(sorted({"a", *(reply.route for reply in self.upstream)}))

    def bodies(self) -> list[dict[str, Any]]:
        """The members of each request, in order."""
        return [self._members(one) for one in self.requests or ({},)]

    def _members(self, own: Mapping[str, Any]) -> dict[str, Any]:
        members = {**DEFAULTS, **self.request, **own, **dict.fromkeys(self.nulls)}
        return {name: value for name, value in members.items() if name not in self.omits}


SECTIONS: Final[Mapping[str, type[Section]]] = {
    "upstream": UpstreamReply,
    "client": ClientAct,
    "call": ByIDCall,
    "house": House,
    "fault": Fault,
    "swap": Swap,
}
"""Its tables, by their names."""


class ScenarioError(Exception):
    """A scenario that cannot be played: everything that is wrong with it, one line for each."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError."""
    try:
        return parse_scenario(text_of(path), path.name)
    except Unreadable as error:
        raise ScenarioError([Problem(error.file, "", error.problem, "write it as a file of UTF-8")]) from None


def parse_scenario(text: str, file: str) -> Scenario:
    """The scenario in a text; `file` is its name in problems. Raises ScenarioError."""
    try:
        return Scenario.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([Problem(file, "", f"is not valid TOML ({error})", "correct the syntax there")]) from None
    except ValidationError as error:
        problems = list(mistakes(error, file, Scenario, SECTIONS))
    except RecursionError:
        problems = [Problem(file, "", "is nested too deeply", "write it flatter")]
    except ValueError as error:  # of a number with thousands of digits
        problems = [Problem(file, "", f"cannot be read ({error})", "correct it there")]
    raise ScenarioError(problems)
