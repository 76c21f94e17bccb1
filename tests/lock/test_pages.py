"""A scenario as a page: instants side by side, both doors in one picture where they are alike."""

from gateway.lock.pages import page, picture
from gateway.lock.scenario import parse_scenario
from gateway.lock.transcript import Columns, Entry

COLUMNS: Columns = {
    "client": [
        {"at": 0, "status": 200, "headers": {}},
        {"at": 2.5, "event": 'data: {"type":"response.output_text.delta"}\n\n'},
        {"at": 2.5, "event": 'data: {"type":"response.output_text.delta"}\n\n'},
        {"at": 2.5, "comment": ": keepalive\n\n"},
        {"at": 3, "event": 'data: {"type":"response.failed","response":{"error":{"code":"slow_down"}}}\n\n'},
        {"at": 3, "end": True},
    ],
    "upstream": [{"at": 0, "route": "a", "closed_at": 3, "headers": {}, "body": "{}"}],
    "money": [{"at": 0, "turn": 1, "entry": "reserve 7"}, {"at": 3, "turn": 1, "entry": "void"}],
    "records": [{"turn": 1, "attempts": [{"route": "a", "ended": "3 s", "outcome": "slow_down", "verdict": "R2 x"}]}],
}


def rows(columns: Columns) -> list[list[str]]:
    """The picture's lines, their cells told apart by what lies between them."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in picture(columns).splitlines()]


def test_what_happened_at_one_instant_stands_on_one_line() -> None:
    assert rows(COLUMNS) == [
        ["at", "asked", "decided", "the client got", "money"],
        ["0", "a", "reserve 7"],
        ["2.5", "output_text.delta × 2, a comment"],
        ["3", "a: slow_down, R2 x", "failed slow_down", "void"],
    ]


def test_what_is_long_goes_on_in_the_next_line() -> None:
    many = [{"at": 0, "frame": f'{{"type":"response.event_{number}"}}'} for number in range(6)]
    assert [row[-1] for row in rows({**COLUMNS, "client": many})][1:3] == [
        "reserve 7",
        "event_5",
    ]


def test_a_status_a_body_and_a_close_are_told() -> None:
    told: list[Entry] = [
        {"at": 3, "status": 503, "headers": {}},
        {"at": 3, "body": '{"error":{"code":"x"}}'},
        {"at": 3, "close": 1001},
    ]
    assert rows({**COLUMNS, "client": told})[-1][2] == "status 503, error x, close 1001"


def test_doors_that_are_alike_share_a_picture() -> None:
    scenario = parse_scenario('about = "What it is."\nrules = ["R1"]\ncases = [3]', "x.toml")
    text = page("a-name", scenario, {"http": COLUMNS, "websocket": COLUMNS})
    assert text.count("```text") == 1
    assert "HTTP and WebSocket:" in text
    assert "# a-name\n\nWhat it is.\n\nRules: R1. Bug cases: 3.\n" in text


def test_doors_that_differ_have_a_picture_each() -> None:
    scenario = parse_scenario('about = "What it is."\nrules = ["R1"]\n[differs]\nmoney = "A reason."', "x.toml")
    text = page("a-name", scenario, {"http": COLUMNS, "websocket": {**COLUMNS, "money": []}})
    assert text.count("```text") == 2
    assert "The doors differ in 'money': A reason." in text
