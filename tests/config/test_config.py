import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from pydantic import ValidationError

from config.samples import ACCOUNT, ENVIRON, KEY, ROUTE, SMALLEST, key, ledger_beside, parsed, problems, route, server
from gateway import limits
from gateway.config import (
    Account,
    Candidate,
    Config,
    ConfigError,
    Estimate,
    LedgerTable,
    Limits,
    ModelConfig,
    RouteConfig,
    Server,
    StaticKey,
    load,
    load_routes,
    parse,
)
from gateway.core.failures import RETRYABLE_CODES
from gateway.core.keys import Key
from gateway.core.money import FREE, Price
from gateway.core.routing import Listed, in_order

DEPLOY = Path(__file__).parents[2] / "deploy"


# --- what a valid file becomes ----------------------------------------------------------------------------------------


def test_the_smallest_file_gets_every_default() -> None:
    assert parsed(SMALLEST) == Config(
        server=Server(),
        limits=Limits(),
        estimate=Estimate(),
        ledger=ledger_beside("."),
        accounts={"main": Account("main", None)},
        keys=(StaticKey(Key("laptop", "main"), "s3cret-client"),),
        routes={"openai": RouteConfig("openai", "https://api.openai.com/v1", FREE, "s3cret-upstream")},
        models={"gpt-5.6": ModelConfig("gpt-5.6", in_order(["openai"]), 16384)},
    )


def test_the_defaults_are_those_of_the_specification() -> None:
    config = parsed(SMALLEST)

    assert config.server.model_dump() == {
        "host": "127.0.0.1",
        "port": 8080,
        "absent_store": "upstream",
        "start": "late",
        "start_latest": 27.0,
        "connection_grace": 0.0,
        "connection_limit": 3600.0,
        "drain_timeout": 30.0,
        "write_timeout": 60.0,
        "head_timeout": 15.0,
        "body_pause": 20.0,
        "body_timeout": 600.0,
        "replay_side_effect_tools": False,
        "replay_expanded_continuations": False,
        "failed_metered": "charge",
        "delivered_unmetered": "estimate",
        "allow_inline_secrets": False,
        "log_format": "json",
        "log_level": "info",
        "data_plane": "fast",
        "tls_certificate": None,
        "tls_key": None,
        "control_socket": None,
        "metrics_host": "127.0.0.1",
        "metrics_port": 9464,
        "trusted_hops": 0,
    }
    assert config.limits.model_dump() == {
        "hold_bytes_max": 4194304,
        "hold_events_max": 1024,
        "event_bytes_max": 33554432,
        "body_bytes_max": 33554432,
        "inbound_bytes_max": 1073741824,
        "body_bytes_per_second_min": 500,
        "waiting_creates_max": 16,
        "waiting_bytes_max": 67108864,
        "remembered_bytes_max": 33554432,
        "all_remembered_bytes_max": 536870912,
        "connections_max": 8192,
        "sockets_max": 16384,
        "connections_per_key_max": 4096,
        "turns_max": 8192,
        "turns_per_key_max": 4096,
    }
    assert config.estimate.model_dump() == {"image_tokens": 1000, "file_tokens": 5000}
    assert config.routes["openai"].retryable_codes == RETRYABLE_CODES


def test_a_route_takes_all_it_is_given() -> None:
    lines = (
        'base_url = "http://[::1]:9000/v1/"',
        'transport = "sse"',
        'credential = "none"',
        'model = "vendor/gpt:5"',
        "first_event_timeout = 3",
        "idle_timeout = 4.5",
        "connect_timeout = 0.25",
        'retryable_codes = ["odd", "odd", "even"]',
        'headers = { "X-Team" = "a b", "openai-project" = "p" }',
        'price = { input = "1.25", cached_input = "0.125", output = "10", reasoning = "12" }',
    )

    assert parsed(route(*lines)).routes["openai"] == RouteConfig(
        name="openai",
        base_url="http://[::1]:9000/v1",
        price=Price(1_250_000_000, 125_000_000, 10_000_000_000, 12_000_000_000),
        credential=None,
        upstream_model="vendor/gpt:5",
        first_event_seconds=3.0,
        idle_seconds=4.5,
        connect_seconds=0.25,
        retryable_codes=frozenset({"odd", "even"}),
        headers=(("x-team", "a b"), ("openai-project", "p")),
    )


def test_whole_seconds_become_floats() -> None:
    seconds = parsed(server("drain_timeout = 5")).server.drain_timeout

    assert (seconds, type(seconds)) == (5.0, float)


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key", "control_socket"])
def test_a_relative_file_starts_at_the_configurations_folder(name: str, tmp_path: Path) -> None:
    other = {"tls_certificate": 'tls_key = "k"', "tls_key": 'tls_certificate = "c"'}.get(name, "")
    assert getattr(parsed(server(f'{name} = "a/b"\n{other}'), tmp_path).server, name) == str(tmp_path / "a/b")
    assert getattr(parsed(server(f'{name} = "/a/b"\n{other}'), tmp_path).server, name) == "/a/b"
    assert problems(server(f'{name} = ""\n{other}')) == [
        f"gateway.toml: server.{name}: is empty; give it a value or leave the key out"
    ]


def test_a_key_may_forbid_replay() -> None:
    assert parsed(key('secret = { env = "GATEWAY_KEY" }\nreplay = "never"')).keys[0].key.replay_never


def test_the_connection_limit_may_be_shortened() -> None:
    assert parsed(server("connection_limit = 60")).server.connection_limit == 60.0


def test_nothing_of_a_configuration_can_be_changed() -> None:
    config = parsed(SMALLEST)

    with pytest.raises(ValidationError):
        setattr(config.server, "port", 1)  # noqa: B010 - mypy knows that it is frozen
    with pytest.raises(FrozenInstanceError):
        setattr(config, "keys", ())  # noqa: B010 - the same


# --- files and TOML ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[routes.openai]\n[routes.openai]",
            "line 2: declares the table routes.openai a second time; rename or remove one of the two",
        ),
        (
            '[models."gpt-5.6"]\n\n[models."gpt-5.6"]',
            'line 3: declares the table models."gpt-5.6" a second time; rename or remove one of the two',
        ),
        ("[server]\nport = 1\nport = 2\n", "line 3: sets a key a second time; remove one of the two"),
        ("a = { b = 1, b = 2 }\n", "line 1: sets a key a second time; remove one of the two"),
        ("[server\nport = 1", "line 1: is not valid TOML (Expected ']' at the end of a table declaration)"),
        ("port = ", "the end of the file: is not valid TOML (Invalid value)"),
    ],
)
def test_bad_toml_is_told_with_its_line(text: str, line: str) -> None:
    (found,) = problems(text)

    without_column = re.sub(r", column \d+", "", found)  # tomllib's own affair
    assert without_column.removesuffix("; correct the syntax there") == f"gateway.toml: {line}"


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALLEST.replace("\n", "\r\n").encode())

    assert load(path, ENVIRON) == parsed(SMALLEST, tmp_path)


def test_a_problem_names_the_path_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text(server("port = -1"))

    with pytest.raises(ConfigError, match=re.escape(f"{path}: server.port: is -1")):
        load(path, ENVIRON)


def test_a_secret_file_starts_at_the_directory_of_the_loaded_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file")
    (tmp_path / "gateway.toml").write_text(key('secret = { file = "key" }'))

    assert load(tmp_path / "gateway.toml", ENVIRON).keys[0].secret == "from-a-file"


def test_an_absent_file_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "absent.toml", ENVIRON)

    expected = "cannot be read (No such file or directory); check the path and its permissions"
    assert str(caught.value) == f"{tmp_path / 'absent.toml'}: {expected}"


def test_a_file_in_another_encoding_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_bytes(b"[server]\n# caf\xe9\n")

    with pytest.raises(ConfigError) as caught:
        load(path, ENVIRON)

    assert str(caught.value) == f"{path}: line 2: is not UTF-8 text; save the file as UTF-8"


# --- the files that are shipped ---------------------------------------------------------------------------------------


def test_the_example_loads_with_the_two_variables_it_asks_for() -> None:
    config = load(DEPLOY / "gateway.example.toml", {"OPENAI_API_KEY": "a", "GATEWAY_KEY": "b"})

    assert config.models["gpt-5.6"].routes == ("openai",)
    assert config.routes["openai"].price == Price(1_250_000_000, 125_000_000, 10_000_000_000, 10_000_000_000)
    assert (config.routes["openai"].credential, config.keys[0].secret) == ("a", "b")


def test_the_example_shows_defaults_where_it_says_so() -> None:
    text = (DEPLOY / "gateway.example.toml").read_text()
    settings = (Server.model_fields, Limits.model_fields, Estimate.model_fields, LedgerTable.model_fields)
    shown = re.findall(r"^(?:# )?([a-z_]+ = [^#\n]+)", text.split("# --- who may")[0], re.MULTILINE)

    assert {line.split(" = ")[0] for line in shown} == {name for fields in settings for name in fields}
    sections = re.sub(r"^# (?=\[|[a-z_]+ = )", "", text, flags=re.MULTILINE).split("# --- who may")[0]
    left_out = [name for fields in settings for name, field in fields.items() if field.default is None]
    sections = re.sub(rf"^({'|'.join(left_out)}) = .*", "", sections, flags=re.MULTILINE)
    assert parsed(sections + SMALLEST) == parsed(SMALLEST)


def test_the_second_route_of_the_example_works_as_it_is_shown() -> None:
    text = (DEPLOY / "gateway.example.toml").read_text()
    start, end = text.index("# [routes.azure]"), text.index("[models.")
    route_shown = re.sub(r"^# ", "", text[start:end], flags=re.MULTILINE)
    both = text.replace(text[start:end], route_shown).replace('routes = ["openai"]', 'routes = ["openai", "azure"]')

    config = parse(both, file="", environ=ENVIRON | {"AZURE_OPENAI_API_KEY": "c"}, directory=DEPLOY)

    assert config.models["gpt-5.6"].routes == ("openai", "azure")


def test_the_example_of_a_routes_file_can_be_used_as_it_is() -> None:
    text = (DEPLOY / "routes.example.toml").read_text()
    environ = ENVIRON | {"AZURE_OPENAI_API_KEY": "c"}
    cold = (DEPLOY / "gateway.example.toml").read_text().split("# --- where models run")[0]
    both = cold.replace('#   routes = "routes.toml"', f'routes = "{DEPLOY}/routes.example.toml"')

    config = parse(both, file="gateway.toml", environ=environ, directory=DEPLOY)

    assert config.table_hash == load_routes(Candidate(text, "routes"), environ, DEPLOY)
    assert config.models["gpt-5.6"].routes == ("openai", "azure")


def test_what_the_example_of_a_routes_file_shows_may_be_said() -> None:
    shown = (DEPLOY / "routes.example.toml").read_text()
    shown = re.sub(r"^# (?=(?:base_url|credential|stores|response))", "", shown, flags=re.MULTILINE)
    shown = shown.replace('{ file = "/run/secrets/local" }', '{ env = "OTHER_KEY" }')

    assert load_routes(Candidate(shown, "routes"), ENVIRON | {"AZURE_OPENAI_API_KEY": "c"}, DEPLOY)


def test_the_demo_needs_nothing_from_outside() -> None:
    config = load(DEPLOY / "demo.toml", {})

    first = RouteConfig("first", "http://127.0.0.1:8081/v1", FREE)
    second = RouteConfig("second", "http://127.0.0.1:8082/v1", FREE)
    assert config == Config(
        server=Server(absent_store="false", allow_inline_secrets=True, log_format="console"),
        limits=Limits(hold_bytes_max=limits.HOLD_BYTES_MAX),
        estimate=Estimate(),
        ledger=ledger_beside(DEPLOY, store="memory"),
        accounts={"demo": Account("demo", None)},
        keys=(StaticKey(Key("demo", "demo"), "demo-key"),),
        routes={"first": first, "second": second},
        models={
            "gpt-demo": ModelConfig("gpt-demo", in_order(["first", "second"]), 16384),
            "gpt-5.6-terra": ModelConfig("gpt-5.6-terra", in_order(["first", "second"]), 16384),
        },
    )


@pytest.mark.parametrize(
    ("lines", "request_bytes_max"),
    [
        ("", None),
        ('transport = "websocket"', 16 * 1024 * 1024),
        ('transport = "websocket"\nrequest_bytes_max = 1000', 1000),
        ("request_bytes_max = 1000", 1000),
    ],
)
def test_a_websocket_carries_no_more_than_its_upstream_takes(lines: str, request_bytes_max: int | None) -> None:
    """C5: also where the file names no figure."""
    assert parsed(route(lines)).routes["openai"].request_bytes_max == request_bytes_max


@pytest.mark.parametrize(
    ("routes", "listed"),
    [
        pytest.param('["a", "b"]', in_order("ab"), id="names-in-their-order"),
        pytest.param('[{ name = "a" }, { name = "b" }]', in_order("ab"), id="tables-that-say-no-more-than-names"),
        pytest.param(
            '[{ name = "a", weight = 3 }, { name = "b" }]', (Listed("a", 1, 3), Listed("b", 1, 1)), id="shares"
        ),
        pytest.param(
            '[{ name = "a", priority = 2 }, { name = "b", weight = 1000, priority = 100 }, { name = "c" }]',
            (Listed("a", 2, 1), Listed("b", 100, 1000), Listed("c", 1, 1)),
            id="priorities",
        ),
    ],
)
def test_a_model_lists_its_routes_by_order_or_by_priority_and_weight(routes: str, listed: tuple[Listed, ...]) -> None:
    """M1."""
    tables = "".join(ROUTE.replace("openai]", f"{name}]") for name in "abc")
    found = parsed(ACCOUNT + KEY + tables + f"[models.m]\nroutes = {routes}\n").models["m"]
    assert (found.listed, found.routes) == (listed, tuple(entry.name for entry in listed))


def test_a_route_may_be_full_or_drain() -> None:
    """C3, C6."""
    found = parsed(route('concurrency = 1\nstate = "drain"')).routes["openai"]
    assert (found.attempts_max, found.is_draining) == (1, True)
    assert problems(route('concurrency = 0\nstate = "draining"')) == [
        "gateway.toml: routes.openai.concurrency: is 0, which is too low; write 1 or more",
        'gateway.toml: routes.openai.state: is not one of the words allowed here; did you mean "drain"?',
    ]


def test_a_websocket_route_takes_all_it_is_given() -> None:
    lines = 'transport = "websocket"\nsocket_age_limit = 60\nsocket_idle_timeout = 30\nidle_sockets_max = 0'
    found = parsed(route(lines)).routes["openai"]
    assert (found.transport, found.socket_age_seconds, found.socket_idle_seconds) == ("websocket", 60.0, 30.0)
    assert found.idle_sockets_max == 0
