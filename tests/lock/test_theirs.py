"""`gateway lock check --config THEIR.toml`: what an operator's settings make of the pack."""

from pathlib import Path

import pytest

from gateway.config import Config, parse
from gateway.lock import player
from gateway.lock.pack import shipped
from gateway.lock.theirs import Otherwise, played_with, stand_ins

FILE = """
[server]
allow_inline_secrets = true
{server}
[limits]
{limits}
[accounts.x]
balance = "unlimited"
[keys.x]
account = "x"
secret = {{ inline = "other-key" }}
[routes.near]
base_url = "http://near.test/v1"
credential = "none"
price = "free"
{near}
[routes.far]
base_url = "http://far.test/v1"
credential = "none"
price = "free"
{far}
[models."their-model"]
routes = {routes}
"""


def theirs(
    server: str = "", limits: str = "", near: str = "", far: str = "", routes: str = '["near", "far"]'
) -> Config:
    text = FILE.format(server=server, limits=limits, near=near, far=far, routes=routes)
    return parse(text, file="their.toml", environ={}, directory=Path())


def otherwise(config: Config, *names: str) -> list[Otherwise]:
    return list(played_with(shipped(), names or shipped().names, config, "their-model"))


def test_a_configuration_of_defaults_changes_nothing() -> None:
    """Their names, prices and secrets are not taken over."""
    assert otherwise(theirs(), "r5-no-event-in-time", "r15-every-retryable-code", "b6-max-output-tokens") == []


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"near": "first_event_timeout = 5"}, "r5-no-event-in-time"),
        ({"near": "idle_timeout = 20"}, "t4-silence-in-mid-answer"),
        ({"near": "connect_timeout = 1"}, "r15-connect-just-in-time"),
        ({"near": 'retryable_codes = ["my_code"]'}, "r15-every-retryable-code"),
        ({"far": "first_event_timeout = 5"}, "t2-of-the-second-attempt"),
        ({"server": 'absent_store = "false"'}, "r10-store-left-out"),
        ({"server": 'failed_metered = "void"'}, "r4-failure-with-usage"),
        ({"server": 'start = "early"'}, "r15-break-before-the-first-event"),
        ({"server": "replay_expanded_continuations = true"}, "w10-an-expanded-continuation-is-not-replayed"),
        ({"limits": "hold_events_max = 1"}, "b1-reserved-and-settled-once"),
    ],
    ids=str,
)
def test_their_settings_are_played_on_routes_a_and_b(settings: dict[str, str], name: str) -> None:
    assert [found.name for found in otherwise(theirs(**settings), name)] == [name]


def test_what_a_scenario_sets_itself_stays_as_it_is() -> None:
    """It is what the scenario is about."""
    config = theirs(near="first_event_timeout = 20\nidle_timeout = 20", limits="hold_events_max = 7")
    assert otherwise(config, "t2-of-the-route", "r6-failure-at-the-idle-limit", "r7-held-events") == []


def test_one_route_stands_for_all() -> None:
    config = theirs(near="first_event_timeout = 5", routes='["near"]')
    assert [found.name for found in otherwise(config, "t2-of-the-second-attempt")] == ["t2-of-the-second-attempt"]


@pytest.mark.parametrize(
    ("name", "routes", "standing"),
    [
        ("r15-break-before-the-first-event", ["x", "y", "z"], {"a": "x", "b": "y"}),
        ("r11-second-failure", ["x", "y", "z"], {"a": "x", "b": "y", "c": "z"}),
        ("r11-second-failure", ["x", "y"], {"a": "x", "b": "y", "c": "y"}),
    ],
)
def test_their_routes_stand_for_a_scenarios_in_order(name: str, routes: list[str], standing: dict[str, str]) -> None:
    assert stand_ins(shipped(), [name], routes) == standing


def test_a_crash_under_their_settings_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def crashes(*_arguments: object) -> None:
        raise ExceptionGroup("as a nursery does", [OSError("of theirs")])

    monkeypatch.setattr(player, "_perform", crashes)
    (found,) = otherwise(theirs(), "r5-no-event-in-time")
    assert found.lines == ["the gateway crashed on http: OSError('of theirs')"]


def test_what_differs_is_shown_as_two_pictures() -> None:
    (found,) = otherwise(theirs(near="first_event_timeout = 5"), "r5-no-event-in-time")
    heads = [line for line in found.lines if line.endswith(":")]
    assert heads == [
        "http, by default:",
        "http, with these settings:",
        "websocket, by default:",
        "websocket, with these settings:",
    ]
    assert any(line.startswith("5 ") and "first_event_timeout" in line for line in found.lines)


def test_where_the_pictures_are_alike_the_entries_are_shown() -> None:
    """Here the request id of the head that leaves early: it names no upstream's."""
    (found,) = otherwise(theirs(server="start_latest = 1"), "t2-of-the-route")
    assert found.lines[0] == "http, by default:"
