"""K1: a scenario is read with every mistake named: file, key, problem, fix."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.lock.pack import shipped
from gateway.lock.player import play
from gateway.lock.reading import read_playable
from gateway.lock.scenario import ScenarioError, parse_scenario, read_scenario

HEAD = 'about = "x"\nrules = ["R1"]\n'


def mistakes(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(HEAD + text, "x.toml")
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("body = ", "x.toml: is not valid TOML (Invalid value (at end of document)); correct the syntax there"),
        ('rule = ["R1"]', 'x.toml: rule: is not a known key; did you mean "rules"?'),
        ('[[upstream]]\ndoes = ["answer"]', "x.toml: upstream[0].route: is missing; add it"),
        ('[[upstream]]\nroute = "a"\ndo = []', 'x.toml: upstream[0].do: is not a known key; did you mean "does"?'),
        (
            '[[upstream]]\nroute = "a"\ndoes = ["create"]',
            "x.toml: upstream[0].does[0]: 'create' is not in the notation; begin it with one of: created, queued, "
            "in_progress, delta, completed, "
            "incomplete, cancelled, failed, error, answer, comment, done, break, silence",
        ),
        (
            '[[fault]]\nstore = "ledger"\ncall = "reserv"\nhow = "raises"',
            'x.toml: fault[0].call: is no call of ledger; did you mean "reserve"?',
        ),
        (
            '[[client]]\nat = 1\ndoes = "jumps"',
            "x.toml: client[0].does: is not one of the words allowed here; write 'leaves', 'half-closes', 'stalls', "
            "'reads', 'sends', 'posts' or 'connects'",
        ),
        (
            '[[client]]\nat = 1\ndoes = "stalls"',
            "x.toml: client: stalls for ever; let it read again or leave, at a time of its own",
        ),
        (
            "[[client]]\nat = -1\ndoes = 'leaves'",
            "x.toml: client[0].at: is -1, which is too low; write 0 or more",
        ),
        (
            '[[upstream]]\nroute = "a"\ndoes = "answer"',
            'x.toml: upstream[0].does: must be a list; write it as ["first", "second"]',
        ),
        ("request = 1", "x.toml: request: must be a table; write it as [table] with keys below, or as { key = value }"),
        ("upstream = 1", "x.toml: upstream: must be a list; write each of them as a table [[upstream]]"),
        (
            "cases = ['7']",
            "x.toml: cases[0]: must be a whole number; write it without quotes and without a decimal point",
        ),
        (
            "[[client]]\nat = 1\ndoes = 'sends'\nhex = 'xyz'",
            "x.toml: client[0].hex: is not in the form that it needs; write what matches ^([0-9a-fA-F]{2})*$",
        ),
        (
            "[differs]\nclients = 'x'",
            "x.toml: differs.clients: is not one of the words allowed here; write 'client', 'upstream', 'money' or "
            "'records'",
        ),
        (
            '[[upstream]]\nroute = "a"\nrefuses = true\ndoes = ["answer"]',
            "x.toml: upstream[0]: refuses the connection and has does; keep one of the two",
        ),
        (
            "[[client]]\nat = 1\ndoes = 'sends'",
            "x.toml: client[0]: sends with 0 frames; give `sends` one of `frame`, `text`, `hex`, others none",
        ),
        (
            "[[client]]\nat = 1\ndoes = 'leaves'\nkey = 'k'",
            "x.toml: client[0]: leaves with key; leave it out, or let it post",
        ),
        (
            "[[client]]\nat = 1\ndoes = 'connects'\nkey = 'k'\nrequest = { input = 'x' }",
            "x.toml: client[0]: connects with request; leave it out, or let it post",
        ),
        ('[headers]\nx = "a\\r\\ny: b"', "x.toml: headers: 'x' is no header; write a token and one line of Latin-1"),
        (
            '[[upstream]]\nroute = "a"\nheaders = { "x y" = "" }',
            "x.toml: upstream[0].headers: 'x y' is no header; write a token and one line of Latin-1",
        ),
        ('key = "a\\nb"', "x.toml: key: cannot stand in a header; write one line of Latin-1"),
        ('doors = ["http", "http"]', "x.toml: doors: names a door twice; name each once"),
        (
            "request = { x = inf }",
            "x.toml: request: holds a date or a number that JSON has no word for; write it as a text",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_fix(text: str, mistake: str) -> None:
    assert mistakes(text) == [mistake]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("rules = []", "rules"),
        ('rules = ["R1", "B99"]', "rules[1]"),
        ('rules = ["R1"]\ncases = [-1]', "cases[0]"),
        ('rules = ["R1"]\nbegins_at = 1e308', "begins_at"),
        ('rules = ["R1"]\n[[client]]\nat = nan\ndoes = "leaves"', "client[0].at"),
        ('rules = ["R1"]\n[[client]]\nat = 1\ndoes = "posts"\ntimes = 1000000000000', "client[0].times"),
        ('rules = ["R1"]\n[[client]]\nat = 1\ndoes = "posts"\ntimes = true', "client[0].times"),
        ('rules = ["R1"]\n[[client]]\nat = 1\ndoes = "sends"\nhex = "xyz"', "client[0].hex"),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(f'about = "x"\n{text}', "x.toml")
    assert [problem.path for problem in raised.value.problems] == [place]


def test_all_mistakes_are_told_at_once() -> None:
    assert len(mistakes("rule = []\n[house]\ndrain_at = 1\n[[client]]\nat = 1")) == 3


MISTAKES = """
[[upstream]]
route = "d"
does = ["create", 3.0, { together = [1.0] }]
[[fault]]
store = "ledger"
call = "reserv"
how = "rises"
[[client]]
at = 1
does = "stalls"
[[call]]
path = "x"
[config.server]
drain_timeout = -1
start = "soon"
[config.route]
idle_timeot = 5
"""


def test_no_mistake_hides_another(tmp_path: Path) -> None:
    """Neither of the same reply, nor of another table, nor of what is configured."""
    file = tmp_path / "x.toml"
    file.write_text(f'about = "x"\nrules = ["B99"]\n{MISTAKES}', encoding="utf-8")
    with pytest.raises(ScenarioError) as raised:
        read_playable(file)
    assert [problem.path for problem in raised.value.problems] == [
        "rules[0]",
        "client",
        "call",
        "upstream[0].route",
        "upstream[0].does[0]",
        "upstream[0].does[2]",
        "fault[0].call",
        "fault[0].how",
        "server.start",
        "server.drain_timeout",
        "routes.a.idle_timeot",
        "routes.b.idle_timeot",
        "routes.c.idle_timeot",
    ]


@pytest.mark.parametrize("text", ["config = 1", "[config]\nroutes = 1", "upstream = 1", "upstream = [1]", "config ="])
def test_of_what_is_no_table_nothing_is_told_twice(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as raised:
        read_playable(file)
    paths = [problem.path for problem in raised.value.problems]
    assert len(paths) == len(set(paths))


def test_a_configuration_that_no_operator_could_write_is_told_by_its_key() -> None:
    scenario = parse_scenario(f"{HEAD}[config.server]\ndrain_timeout = -1", "x.toml")
    with pytest.raises(ScenarioError) as raised:
        play(scenario, "x.toml")
    assert str(raised.value) == "x.toml: config: server.drain_timeout: is -1, which is too low; write 0 or more"


def test_a_route_that_does_not_reply_cannot_be_configured() -> None:
    scenario = parse_scenario(f"{HEAD}[config.routes.c]\nidle_timeout = 5", "x.toml")
    with pytest.raises(ScenarioError) as raised:
        play(scenario, "x.toml")
    assert str(raised.value) == "x.toml: config.routes.c: is no route here; give it a reply, or name one of: a"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            'routes = ["a", "c"]',
            "x.toml: swap: c: is no route here; list it, and give it a reply; those with one are: a",
        ),
        (
            'routes = ["a"]\nsettings = { b = { idle_timeout = 5 } }',
            "x.toml: swap: b: is no route here; list it, and give it a reply; those with one are: a",
        ),
        ('routes = ["a", "a"]', "x.toml: swap: models.gpt-test.routes[1]: lists a route a second time; remove it"),
        (
            'routes = ["a"]\nsettings = { a = { idle_timeout = 0 } }',
            "x.toml: swap: routes.a.idle_timeout: is 0, which is too low; write a number above 0",
        ),
    ],
)
def test_a_swap_that_cannot_be_made_is_told(text: str, mistake: str) -> None:
    """C2."""
    scenario = parse_scenario(f"{HEAD}[[swap]]\nat = 1.0\n{text}", "x.toml")
    with pytest.raises(ScenarioError) as raised:
        play(scenario, "x.toml")
    assert str(raised.value) == mistake


@pytest.mark.parametrize("name", shipped().names)
def test_every_scenario_says_what_it_is_about_in_a_sentence(name: str) -> None:
    scenario = read_scenario(shipped().scenario(name))
    assert scenario.about.endswith(".")
    assert scenario.rules


def bodies(text: str) -> list[dict[str, Any]]:
    return parse_scenario(HEAD + text, "x.toml").bodies()


def test_requests_are_laid_over_the_request_and_that_over_the_usual_one() -> None:
    assert bodies('omits = ["input"]\nnulls = ["b"]\nrequests = [{ c = 1 }, { a = 2 }]\n[request]\na = 1') == [
        {"model": "gpt-test", "store": False, "a": 1, "c": 1, "b": None},
        {"model": "gpt-test", "store": False, "a": 2, "b": None},
    ]


@pytest.mark.parametrize("is_whole", [False, True])
def test_records_tell_who_asked_and_what_was_paid_if_a_scenario_wants_it(is_whole: bool) -> None:
    """L1: what is absent stands in other columns, or is alike in all scenarios."""
    written = f'tells_whole_records = {str(is_whole).lower()}\n[[upstream]]\nroute = "a"\ndoes = ["answer"]\n'
    for door, columns in play(parse_scenario(HEAD + written, "x.toml"), "x.toml").items():
        (record,) = columns["records"]
        more = {"key": "main", "door": door, "client": "client.test", "reserved": 4_001_000, "paid": 7000}
        assert {name: record[name] for name in more if name in record} == (more if is_whole else {})
        assert record["attempts"][0].get("parts") == ("0/0" if is_whole else None)


def test_the_routes_are_those_that_reply() -> None:
    assert parse_scenario(f'{HEAD}[[upstream]]\nroute = "b"\ndoes = []', "x.toml").routes == ("a", "b")


def test_a_call_by_id_is_http_s_alone() -> None:
    """K1, H2: a WebSocket has no word for it."""
    written = 'about = "x"\nrules = ["H2"]\n[[call]]\npath = "responses/resp_1"\n'
    with pytest.raises(ScenarioError, match="makes calls that a WebSocket has no word for"):
        parse_scenario(written, "x.toml")
    (call,) = parse_scenario(f'doors = ["http"]\n{written}', "x.toml").call
    assert (call.method, call.path, call.query) == ("GET", "responses/resp_1", "")


@pytest.mark.parametrize("line", ['path = "a b"', 'path = "x"\nquery = "a b"', 'path = "x"\nmethod = "PUT"', ""])
def test_a_call_that_is_none_is_named(line: str) -> None:
    """K1."""
    with pytest.raises(ScenarioError, match=r"call\[0\]"):
        parse_scenario(f'about = "x"\nrules = ["H2"]\ndoors = ["http"]\n[[call]]\n{line}\n', "x.toml")


OTHERS = f"""{HEAD}doors = ["http"]
headers = {{ session-id = "mine", openai-beta = "b" }}
request = {{ instructions = "short" }}

[[client]]
at = 0.0
does = "posts"
key = "their-key"
headers = {{ session-id = "theirs" }}
request = {{ input = "other" }}

[[call]]
path = "models"
key = ""

[[upstream]]
route = "a"
does = [1.0, "answer"]

[config.accounts.theirs]
balance = "1"

[config.keys.theirs]
account = "theirs"
secret = {{ inline = "their-key" }}
"""


def test_somebody_else_may_post_and_call_beside_the_scenarios_own_client() -> None:
    """K1: with another key, of another account, on top of the first request and over the scenario's headers."""
    columns = play(parse_scenario(OTHERS, "x.toml"), "x.toml")["http"]

    assert sorted(turn["account"] for turn in columns["records"]) == ["main", "theirs"]
    assert sorted(call["headers"]["session-id"] for call in columns["upstream"]) == ["mine", "theirs"]
    bodies = sorted((json.loads(call["body"]) for call in columns["upstream"]), key=lambda body: body["input"])
    assert [(body["input"], body["instructions"]) for body in bodies] == [("hi", "short"), ("other", "short")]
    assert [entry["status"] for entry in columns["client"] if "status" in entry] == [200, 200, 401]


def test_another_websocket_may_be_opened() -> None:
    """K1."""
    text = f'{HEAD}doors = ["websocket"]\n[[client]]\nat = 0.5\ndoes = "connects"\nkey = "nobody"\n'
    columns = play(parse_scenario(f'{text}[[upstream]]\nroute = "a"\ndoes = ["answer"]', "x.toml"), "x.toml")

    frames = columns["websocket"]["client"]
    assert [(entry["at"], entry["status"]) for entry in frames if "status" in entry] == [(0.5, 401)]
