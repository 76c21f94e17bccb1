"""K1: a transcript is JSON with an entry on each line; two of them are compared by door, column and entry."""

import pytest

from gateway.lock.transcript import DIFFERENCES_SHOWN_MAX, Columns, changed_columns, differences, from_text, to_text

COLUMNS: Columns = {"client": [{"at": 0, "frame": "ü"}, {"at": 1}], "upstream": [], "money": [], "records": []}


def test_an_entry_is_a_line() -> None:
    assert to_text({"http": COLUMNS}) == (
        '{\n"http": {\n "client": [\n  {"at": 0, "frame": "ü"},\n  {"at": 1}\n ],\n'
        ' "upstream": [],\n "money": [],\n "records": []\n}\n}\n'
    )


def test_what_was_written_is_read_again() -> None:
    assert from_text(to_text({"http": COLUMNS, "websocket": COLUMNS})) == {"http": COLUMNS, "websocket": COLUMNS}


def test_what_is_alike_has_no_differences() -> None:
    assert (
        differences({"http": COLUMNS}, {"http": COLUMNS}),
        changed_columns({"http": COLUMNS}, {"http": COLUMNS}),
    ) == (
        [],
        [],
    )


def test_what_differs_is_told_by_door_and_column() -> None:
    played: Columns = {**COLUMNS, "client": [{"at": 0, "frame": "ü"}, {"at": 2}]}
    assert differences({"http": COLUMNS}, {"http": played}) == ["http, client:", '  -{"at": 1}', '  +{"at": 2}']
    assert changed_columns({"http": COLUMNS}, {"http": played}) == ["http client"]


def test_a_door_that_is_missing_differs_in_all_that_it_had() -> None:
    assert changed_columns({"http": COLUMNS, "websocket": COLUMNS}, {"http": COLUMNS}) == ["websocket client"]


@pytest.mark.parametrize("at", [0, 100, 170, 990])
def test_of_long_lines_what_is_around_the_first_difference_is_shown(at: int) -> None:
    """And their beginning, which is their time."""

    def said(letter: str) -> Columns:
        return {**COLUMNS, "client": [{"at": 7, "frame": "x" * at + letter + "x" * (999 - at)}]}

    _, before, after = differences({"http": said("a")}, {"http": said("b")})
    assert (before.startswith('  -{"at": 7'), after.startswith('  +{"at": 7')) == (True, True)
    assert before != after.replace("+", "-", 1)


def test_no_more_is_shown_than_a_reader_takes_in() -> None:
    long: Columns = {**COLUMNS, "client": [{"at": number, "frame": "x" * 999} for number in range(99)]}
    shown = differences({"http": COLUMNS}, {"http": long})
    assert (len(shown), shown[-1]) == (DIFFERENCES_SHOWN_MAX + 1, "…")
    assert max(map(len, shown)) < 170
