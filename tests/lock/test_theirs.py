"""`gateway lock check --config THEIR.toml`: what an operator's settings make of the pack."""

from pathlib import Path

import pytest

from gateway.config import Config, parse
from gateway.config.tables import ANY_NAME, SECTIONS
from gateway.lock import player
from gateway.lock.pack import shipped
from gateway.lock.theirs import NOT_TAKEN_OVER, ROUTE_FIELDS, SERVER_FIELDS, Otherwise, left_out, played_with, stand_ins

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
{key}
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
    server: str = "",
    limits: str = "",
    key: str = "",
    near: str = "",
    far: str = "",
    routes: str = '["near", "far"]',
) -> Config:
    text = FILE.format(server=server, limits=limits, key=key, near=near, far=far, routes=routes)
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


def test_with_one_route_nothing_is_replayed() -> None:
    """R14: the second is missing in what is played."""
    (found,) = otherwise(theirs(routes='["near"]'), "r15-break-before-the-first-event")
    split = found.lines.index("http, with these settings:")
    assert [any("R14" in line for line in half) for half in (found.lines[:split], found.lines[split:])] == [False, True]


@pytest.mark.parametrize(
    ("name", "routes", "standing"),
    [
        ("r15-break-before-the-first-event", ["x", "y", "z"], {"a": "x", "b": "y"}),
        ("r11-second-failure", ["x", "y", "z"], {"a": "x", "b": "y", "c": "z"}),
        ("r11-second-failure", ["x", "y"], {"a": "x", "b": "y", "c": None}),
        ("r11-second-failure", ["x"], {"a": "x", "b": None, "c": None}),
    ],
)
def test_their_routes_stand_for_a_scenarios_in_order(
    name: str, routes: list[str], standing: dict[str, str | None]
) -> None:
    assert stand_ins(shipped(), [name], routes) == standing


def test_a_route_that_drains_is_taken_over() -> None:
    """C3."""
    (found,) = otherwise(theirs(near='state = "drain"'), "r15-break-before-the-first-event")
    assert found.lines[found.lines.index("http, with these settings:") + 2].split()[:2] == ["0", "b"]


def test_a_limit_of_a_requests_size_is_taken_over() -> None:
    """C5."""
    (found,) = otherwise(theirs(near="request_bytes_max = 5"), "r15-break-before-the-first-event")
    assert found.lines[found.lines.index("http, with these settings:") + 2].split()[:2] == ["0", "b"]


def test_keys_that_all_say_never_are_taken_over() -> None:
    """R10a."""
    (found,) = otherwise(theirs(key='replay = "never"'), "r15-break-before-the-first-event")
    assert any("R10a" in line for line in found.lines)
    assert otherwise(theirs(key='replay = "never"'), "r10a-by-key") == []


OTHER_KEY = '[keys.other]\naccount = "x"\nsecret = { inline = "k2" }\n'


@pytest.mark.parametrize(
    ("models", "is_told"),
    [("", True), ('models = ["their-model"]', True), ('models = ["another"]', False)],
    ids=["of all models", "of this model", "of another model"],
)
def test_where_keys_differ_none_is_taken_over_and_that_is_said(models: str, is_told: bool) -> None:
    config = theirs(key=f'replay = "never"\n{OTHER_KEY}{models}', far='[models.another]\nroutes = ["near"]')
    assert (otherwise(config, "r15-break-before-the-first-event") == []) is is_told
    assert any(words.startswith('replay = "never" of x,') for words in left_out(config, "their-model")) is is_told


def test_a_transport_that_is_not_taken_over_is_named() -> None:
    assert "transports" in left_out(theirs(), "their-model")
    told = left_out(theirs(far='transport = "websocket"'), "their-model")
    assert 'transports (transport = "websocket" of far)' in told


def test_what_a_swap_sets_stays_as_it_is() -> None:
    """C2."""
    assert otherwise(theirs(near="idle_timeout = 20"), "c2-a-route-that-was-changed") == []


def test_each_key_of_a_configuration_is_taken_over_or_named() -> None:
    """A new one has to be sorted: nothing is left out in silence."""
    form = {".".join(part for part in place if part != ANY_NAME): section for place, section in SECTIONS.items()}
    whole = {f"{place}.{key}" for place, section in form.items() for key in section.model_fields}
    within = {key for key in whole if key.rpartition(".")[0] in whole}
    taken = {f"server.{key}" for key in SERVER_FIELDS} | {f"routes.{key}" for key in ROUTE_FIELDS} | {"keys.replay"}
    taken |= {key for key in whole if key.partition(".")[0] in ("limits", "estimate")}
    named = {key for keys in NOT_TAKEN_OVER.values() for key in keys}
    assert not taken & named
    assert taken | named == whole - within - {"routes.profile"}  # that says what the others are if they are left out


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
