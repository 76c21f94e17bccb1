"""The two doors, for whatever a turn does, it does the same through either; and the log, caught and not printed."""

import gc
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs
from werkzeug.routing.rules import Rule

from support.gateways import DOORS, Transports
from support.slices import leave_to_the_long_tier


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    """`http`, then `websocket`."""
    return str(request.param)


@pytest.fixture(params=["sse", "sse, plain", "websocket"])
def each_transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """C5: any door, any transport, either data plane, the same turn."""
    transport, _, plane = request.param.partition(", ")
    monkeypatch.setattr(Transports, "chosen", transport)
    monkeypatch.setattr(Transports, "data_plane", plane or "fast")
    return str(request.param)


ORDERS_OF_THE_OTHERS = 1
"""What a turn does is the same over all of them, and so is what depends on the order of tasks: one order shows it."""


ONE_IN = 8
"""Of the turns over another transport or the plain data plane so many are in the fast suite, whichever they are: the
lock plays its scenarios there, too. The long tier has all of them."""


@pytest.hookimpl(tryfirst=True)  # before the tiers are chosen by these marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is about HTTP itself (`over_http`) has nothing to say of a WebSocket; most of the other ways takes long."""
    items[:] = [item for item in items if not (isinstance(item, pytest.Function) and _is_left_out(item))]
    for item in items:
        if isinstance(item, pytest.Function) and _transport_of(item) != "sse":
            leave_to_the_long_tier(item, ONE_IN)


def _is_left_out(item: pytest.Function) -> bool:
    transport = _transport_of(item)
    if transport == "websocket" and item.get_closest_marker("over_http") is not None:
        return True
    return transport != "sse" and int(str(_parameters(item).get("order", 0))) >= ORDERS_OF_THE_OTHERS


def _transport_of(item: pytest.Function) -> str:
    return str(_parameters(item).get("each_transport", "sse"))


def _parameters(item: pytest.Function) -> Mapping[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log's entries, in order."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture(autouse=True, scope="session")
def _thousands_of_gateways_are_made_quickly() -> Iterator[None]:
    """Each test makes a gateway of its own. A fifth of its time would go into compiling the same six URL rules anew,
    and some more into looking for garbage among the thousands of tests that were collected."""
    compile_builder: Callable[..., Any] = Rule._compile_builder
    builders: dict[tuple[str, bool, bool], Any] = {}

    def compile_once(rule: Rule, append_unknown: bool = True) -> Any:
        key = (rule.rule, rule.websocket, append_unknown)
        if key not in builders:
            builders[key] = compile_builder(rule, append_unknown)
        return builders[key]

    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rule, "_compile_builder", compile_once)
        yield
    gc.unfreeze()
