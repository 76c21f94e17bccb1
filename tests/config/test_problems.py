import pickle

import pytest

from config.samples import ACCOUNT, KEY, MODEL, ROUTE, SMALLEST, parsed, problems, route, server
from gateway.config import ConfigError, Limits, Problem
from gateway.config.explain import fields_at


def test_all_problems_are_told_at_once() -> None:
    text = """
    [server]
    prot = 8080
    port = 70000
    log_level = "inof"
    [limit]
    hold_bytes_max = 1
    [accounts.main]
    balance = 12.5
    [keys.laptop]
    account = "mian"
    secret = { env = "GATEWAY_KEX" }
    [keys.desk]
    account = "main"
    secret = { env = "OTHER_KEY" }
    [keys.shelf]
    account = "main"
    secret = { env = "OTHER_KEY" }
    [routes.openai]
    base_url = "api.openai.com/v1"
    credential = { evn = "OPENAI_API_KEY" }
    transport = "websokcet"
    idle_timeout = -1
    [models."gpt-5.6"]
    routes = ["opneai", "openai", "openai"]
    """
    amount_fix = 'write dollars as decimal text, up to 9 digits before and after the point, for example "12.50"'

    assert problems(text) == [
        "gateway.toml: server.port: is 70000, which is too high; write 65535 or less",
        'gateway.toml: server.log_level: is not one of the words allowed here; did you mean "info"?',
        'gateway.toml: server.prot: is not a known key; did you mean "port"?',
        f"gateway.toml: accounts.main.balance: must be text, not a number or another type; {amount_fix}",
        "gateway.toml: keys.laptop.secret: the environment's GATEWAY_KEX is unset or empty; "
        "set it before the gateway starts",
        "gateway.toml: routes.openai.base_url: is not an http:// or https:// URL; "
        'write it like "https://api.openai.com/v1"',
        'gateway.toml: routes.openai.transport: is not one of the words allowed here; did you mean "websocket"?',
        'gateway.toml: routes.openai.credential.evn: is not a known key; did you mean "env"?',
        "gateway.toml: routes.openai.idle_timeout: is -1, which is too low; write a number above 0",
        'gateway.toml: routes.openai.price: is missing; add price = "free" or { input = "1.25", output = "10" }',
        'gateway.toml: limit: is not a known key; did you mean "limits"?',
        'gateway.toml: keys.laptop.account: names no account of this file; did you mean "main"?',
        "gateway.toml: keys.shelf.secret: is the same secret as keys.desk's; give each its own",
        'gateway.toml: models."gpt-5.6".routes[0]: names no route of this file; did you mean "openai"?',
        'gateway.toml: models."gpt-5.6".routes[2]: lists a route a second time; remove it',
    ]


def test_a_problem_is_data_too() -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(server("port = -1"))

    assert caught.value.problems == (
        Problem("gateway.toml", "server.port", "is -1, which is too low", "write 0 or more"),
    )
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_an_empty_file_lacks_what_serves_anybody() -> None:
    assert problems("") == [
        "gateway.toml: accounts: is missing; add a table [accounts.NAME]",
        "gateway.toml: keys: is missing; add a table [keys.NAME]",
        "gateway.toml: routes: is missing; add a table [routes.NAME]",
        'gateway.toml: models: is missing; add a table [models."NAME"]',
    ]


def test_a_key_under_the_wrong_header_is_sent_home() -> None:
    assert problems(SMALLEST + "log_level = 'info'") == [
        'gateway.toml: models."gpt-5.6".log_level: is not a known key; it belongs in [server]'
    ]


def test_a_key_like_no_other_is_shown_the_known_ones() -> None:
    assert problems("[estimate]\nvideos = 1\n" + SMALLEST) == [
        "gateway.toml: estimate.videos: is not a known key; use one of: image_tokens, file_tokens"
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("host = 1", "must be text; write it in quotes"),
        ('host = ""', "is empty; give it a value or leave the key out"),
        ('port = "80"', "must be a whole number; write it without quotes and without a decimal point"),
        ("port = 80.0", "must be a whole number; write it without quotes and without a decimal point"),
        ("port = true", "must be a whole number; write it without quotes and without a decimal point"),
        ("absent_store = false", "is not one of the words allowed here; use one of: upstream, false"),
        ('start = "erly"', 'is not one of the words allowed here; did you mean "early"?'),
        ('start_latest = "27"', "must be a number; write it without quotes"),
        ("start_latest = nan", "must be a finite number; write a number of seconds"),
        ("write_timeout = true", "must be a number; write it without quotes"),
        ("write_timeout = 60000", "is 60000, which is too high; write 3600 or less"),
        ("write_timeout = 0", "is 0, which is too low; write a number above 0"),
        ("connection_grace = -0.5", "is -0.5, which is too low; write 0 or more"),
        ("connection_limit = 3600.5", "is 3600.5, which is too high; write 3600 or less"),
        ("connection_limit = inf", "must be a finite number; write a number of seconds"),
        ("drain_timeout = 1979-05-27", "must be a number; write it without quotes"),
        ("replay_side_effect_tools = 1", "must be true or false; write one of the two, without quotes"),
        ('failed_metered = "voided"', 'is not one of the words allowed here; did you mean "void"?'),
        ('delivered_unmetered = "estimated"', 'is not one of the words allowed here; did you mean "estimate"?'),
        ('log_format = "xml"', "is not one of the words allowed here; use one of: json, console"),
    ],
)
def test_a_bad_value_is_told_with_its_fix(line: str, words: str) -> None:
    assert problems(server(line)) == [f"gateway.toml: server.{line.split(' = ')[0]}: {words}"]


def test_every_limit_refuses_zero_or_less() -> None:
    names = list(Limits.model_fields)
    lines = "\n".join(f"{name} = {-1 if name.startswith('waiting') else 0}" for name in names)

    found = problems(f"[limits]\n{lines}\n" + SMALLEST)

    assert [line.split(": ")[1] for line in found] == [f"limits.{name}" for name in names]


def test_a_number_of_any_size_is_a_problem_and_no_crash() -> None:
    assert problems(server(f"start_latest = 1{'0' * 400}"))[0].startswith("gateway.toml: server.start_latest: ")
    assert problems(server(f"port = 1{'0' * 5000}"))[0].startswith(
        "gateway.toml: the end of the file: is not valid TOML"
    )


@pytest.mark.parametrize("codes", ['"odd"', "{ a = 1 }", "1"])
def test_retryable_codes_are_a_list(codes: str) -> None:
    assert problems(route(f"retryable_codes = {codes}")) == [
        'gateway.toml: routes.openai.retryable_codes: must be a list; write it as ["first", "second"]'
    ]


@pytest.mark.parametrize(
    ("code", "words"),
    [("1", "must be text; write it in quotes"), ('""', "is empty; give it a value or leave the key out")],
)
def test_a_retryable_code_is_a_word(code: str, words: str) -> None:
    assert problems(route(f'retryable_codes = ["odd", {code}]')) == [
        f"gateway.toml: routes.openai.retryable_codes[1]: {words}"
    ]


@pytest.mark.parametrize(
    ("routes", "line"),
    [
        ("[]", "routes: is empty; add at least one entry"),
        ('"openai"', 'routes: must be a list; write it as ["first", "second"]'),
        (
            '["openai", 1]',
            'routes[1]: must be the name of a route, or a table; write "NAME", or { name = "NAME", weight = 3 }',
        ),
        ('["elsewhere"]', "routes[0]: names no route of this file; use one of: openai"),
        ('["openai", "openai"]', "routes[1]: lists a route a second time; remove it"),
        ('[{ name = "openai" }, { name = "openai" }]', "routes[1]: lists a route a second time; remove it"),
        ('[{ name = "opneai" }]', 'routes[0].name: names no route of this file; did you mean "openai"?'),
        ("[{ weight = 1 }]", 'routes[0].name: is missing; add name = "NAME" of a table in routes'),
        ('[{ name = "openai", weigth = 2 }]', 'routes[0].weigth: is not a known key; did you mean "weight"?'),
        ('[{ name = "openai", weight = 0 }]', "routes[0].weight: is 0, which is too low; write 1 or more"),
        ('[{ name = "openai", weight = 1001 }]', "routes[0].weight: is 1001, which is too high; write 1000 or less"),
        ('[{ name = "openai", priority = 0 }]', "routes[0].priority: is 0, which is too low; write 1 or more"),
        ('[{ name = "openai", priority = 101 }]', "routes[0].priority: is 101, which is too high; write 100 or less"),
        (
            '[{ name = "openai", weight = 1.5 }]',
            "routes[0].weight: must be a whole number; write it without quotes and without a decimal point",
        ),
    ],
)
def test_a_model_lists_routes_of_the_file_once(routes: str, line: str) -> None:
    assert problems(ACCOUNT + KEY + ROUTE + f"[models.m]\nroutes = {routes}\n") == [f"gateway.toml: models.m.{line}"]


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "true", "10000001"])
def test_the_default_reservation_is_a_sensible_number_of_tokens(value: str) -> None:
    (line,) = problems(SMALLEST + f"max_output_tokens = {value}")

    assert line.startswith('gateway.toml: models."gpt-5.6".max_output_tokens: ')


def test_names_that_logs_cannot_carry_are_refused() -> None:
    assert problems(SMALLEST + '[models."a\\nb"]\nroutes = ["openai"]') == [
        'gateway.toml: models."a\\nb": is not a usable name; use 1 to 128 visible ASCII characters without spaces'
    ]


def test_an_unknown_key_may_have_any_name() -> None:
    assert problems('"[key]" = 1\n' + SMALLEST) == ['gateway.toml: "[key]": is not a known key; did you mean "keys"?']


def test_a_suggested_name_keeps_its_problem_on_one_line() -> None:
    renamed = ROUTE.replace("[routes.openai]", '[routes."a\\nb"]')

    assert problems(ACCOUNT + KEY + renamed + MODEL) == [
        'gateway.toml: routes."a\\nb": is not a usable name; use 1 to 128 visible ASCII characters without spaces',
        'gateway.toml: models."gpt-5.6".routes[0]: names no route of this file; use one of: "a\\nb"',
    ]


def test_a_route_with_another_fault_is_still_known_to_its_models() -> None:
    assert problems(route('transport = "carrier pigeon"')) == [
        "gateway.toml: routes.openai.transport: is not one of the words allowed here; use one of: sse, websocket"
    ]


def test_a_list_of_names_and_tables_could_mean_anything() -> None:
    """M1."""
    both = ROUTE + ROUTE.replace("openai]", "azure]")
    text = ACCOUNT + KEY + both + '[models.m]\nroutes = ["openai", { name = "azure", weight = 2 }]\n'
    assert problems(text) == [
        "gateway.toml: models.m.routes: mixes names and tables; write every entry as a table, or every one as a name"
    ]


def test_tables_of_the_wrong_type_are_told() -> None:
    assert problems("server = 3\naccounts = []\nkeys = { laptop = 1 }\nroutes = {}\nmodels = 'm'") == [
        "gateway.toml: server: must be a table; write it as [table] with keys below, or as { key = value }",
        "gateway.toml: accounts: must be a table; write it as [table] with keys below, or as { key = value }",
        "gateway.toml: keys.laptop: must be a table; write it as [table] with keys below, or as { key = value }",
        "gateway.toml: routes: is empty; add at least one entry",
        "gateway.toml: models: must be a table; write it as [table] with keys below, or as { key = value }",
    ]


def test_an_account_nobody_defined_leaves_nothing_to_suggest() -> None:
    assert problems("[accounts]\n" + KEY + ROUTE + MODEL) == [
        "gateway.toml: accounts: is empty; add at least one entry",
        "gateway.toml: keys.laptop.account: names no account of this file; define one first",
    ]


def test_every_table_of_the_file_is_known_to_the_explanations() -> None:
    paths = ((), ("server",), ("limits",), ("estimate",), ("accounts", "a"), ("keys", "a"), ("routes", "a"))
    nested = (
        ("models", "a"),
        ("models", "a", "routes", 0),
        ("keys", "a", "secret"),
        ("routes", "a", "credential"),
        ("routes", "a", "price"),
    )

    assert all(fields_at(path) for path in (*paths, *nested))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "sockets_max = 100",
            "limits.sockets_max: is 100, fewer than limits.connections_max, which is 8192; "
            "write limits.sockets_max = 16384, or lower limits.connections_max",
        ),
        (
            "connections_max = 20000",
            "limits.connections_max: is 20000, more than limits.sockets_max, which is 16384 if left out; "
            "write limits.sockets_max = 40000, or lower limits.connections_max",
        ),
        (
            "connections_max = 60000\nsockets_max = 59999",
            "limits.sockets_max: is 59999, fewer than limits.connections_max, which is 60000; "
            "write limits.sockets_max = 65536, or lower limits.connections_max",
        ),
    ],
)
def test_fewer_sockets_than_connections_are_told_with_both_keys(lines: str, told: str) -> None:
    assert problems(f"[limits]\n{lines}\n{SMALLEST}") == [f"gateway.toml: {told}"]


@pytest.mark.parametrize("lines", ["connections_max = 7\nsockets_max = 7", "connections_max = 16384"])
def test_as_many_sockets_as_connections_are_enough(lines: str) -> None:
    assert parsed(f"[limits]\n{lines}\n{SMALLEST}").limits.sockets_max >= 7


def test_a_bound_of_the_wrong_type_is_told_once() -> None:
    assert len(problems(f'[limits]\nsockets_max = "few"\n{SMALLEST}')) == 1
    assert len(problems(f"[limits]\nsockets_max = true\n{SMALLEST}")) == 1


@pytest.mark.parametrize("line", ["head_timeout = 0.5", "body_pause = 0", "body_timeout = 4000"])
def test_a_pace_that_honest_clients_cannot_keep_or_that_none_needs_is_told(line: str) -> None:
    assert [problem.partition(" is ")[0] for problem in problems(server(line))] == [
        f"gateway.toml: server.{line.partition(' = ')[0]}:"
    ]


@pytest.mark.parametrize(("here", "there"), [("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")])
def test_half_of_tls_is_told_with_all_that_is_wrong(here: str, there: str) -> None:
    assert problems(server(f'prot = 1\n{here} = "file.pem"')) == [
        'gateway.toml: server.prot: is not a known key; did you mean "port"?',
        f"gateway.toml: server.{here}: is of no use without server.{there}; add server.{there}, or remove it",
    ]


@pytest.mark.parametrize("name", ["host", "metrics_host"])
@pytest.mark.parametrize("host", ["127..0.1", "a" * 64 + ".test", ".", "é" * 70, "a\\u0000b"])
def test_what_is_no_host_name_is_told(name: str, host: str) -> None:
    """Python's own look-up would end in a traceback."""
    assert problems(server(f'{name} = "{host}"')) == [
        f"gateway.toml: server.{name}: is no host name: a part of it is empty or too long; "
        'write an address like "127.0.0.1"'
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "localhost", "gateway.test.", "é.test", "fe80::1%eth0"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    assert parsed(server(f'host = "{host}"')).server.host == host
