"""Where a body's members stand, and what is said of a body that is none: as a reader finds it that takes one step at a
time (H3)."""

import json
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.request import MEMBERS_MAX, MalformedBody, Member, RequestBody

SPACES: Final = st.text(st.sampled_from(" \t\n\r"), max_size=2)
NAMES: Final = st.sampled_from(['"a"', '"model"', '""', '"\\u0061"', '"b\\""', '"é"', '"\t"', '"a', "a", "1"])
VALUES: Final = st.sampled_from(["1", "null", '"x"', '"},"', "[1, {}]", '{"a" : 1}', '{"a":1,"a":2}', "NaN", "", "01"])
BETWEEN: Final = st.sampled_from([",", ",", ",", ",,", "", ":", "\x0b"])


@st.composite
def written_bodies(draw: st.DrawFn) -> str:
    """An object, or nearly one."""
    text = draw(SPACES) + draw(st.sampled_from(["{", "{", "{", "[", ""])) + draw(SPACES)
    for _ in range(draw(st.integers(0, 4))):
        text += draw(NAMES) + draw(SPACES) + draw(st.sampled_from([":", ":", ":", ""])) + draw(SPACES) + draw(VALUES)
        text += draw(SPACES) + draw(BETWEEN) + draw(SPACES)
    text = text.rstrip(",") if draw(st.booleans()) else text
    return text + draw(st.sampled_from(["}", "}", "}", "]", "", "}}", "} x"])) + draw(SPACES)


@given(written_bodies() | st.text(st.sampled_from('{}[]":,\\ \n0a-.eu1'), max_size=14))
@example('{"a":1}')
@example('{ "a" : 1 , "b" : 2 } ')
@settings(max_examples=600, deadline=None)
def test_members_are_found_as_by_a_reader_that_takes_one_step_at_a_time(text: str) -> None:
    """H3: their values and places, and the words for what is wrong, to the character."""
    assert found(text) == expected(text)


def test_of_many_members_and_one_that_is_wrong_the_first_trouble_is_told() -> None:
    """H3."""
    many = "{" + ",".join(f'"n{number}":1' for number in range(MEMBERS_MAX)) + ","
    for rest in ('"n0":1}', '"x":1}', '"x":}', '"x" 1}', '"x":1 "y":1}', "}"):
        assert found(many + rest) == expected(many + rest)


def found(text: str) -> dict[str, Member] | str:
    try:
        return RequestBody(text.encode()).members
    except MalformedBody as refused:
        return str(refused)


def expected(text: str) -> dict[str, Member] | str:
    """The same, slowly."""
    try:
        return Reader(text).members()
    except MalformedBody as refused:
        return str(refused)
    except json.JSONDecodeError as error:
        return f"the body is not JSON: {error.msg.removesuffix(' at')} at character {error.pos}"


class Reader:
    """A text and a place in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def members(self) -> dict[str, Member]:
        members: dict[str, Member] = {}
        self.skip_spaces()
        if not self.takes("{"):
            json.JSONDecoder(object_pairs_hook=unique, parse_constant=refused).decode(self.text)
            raise MalformedBody("the body is not a JSON object")
        self.skip_spaces()
        is_open = self.text[self.at : self.at + 1] != "}"
        while is_open:
            is_open = self.read_member(members)
        end = self.at + 1
        if not self.takes("}"):
            raise self.trouble("expected ',' or '}'")
        self.skip_spaces()
        if self.at < len(self.text):
            raise json.JSONDecodeError("something follows the object", self.text, end)
        return members

    def read_member(self, members: dict[str, Member]) -> bool:
        """One member; whether a comma follows it."""
        start = self.at
        if self.text[start : start + 1] != '"':
            raise self.trouble("expected a member name in double quotes")
        name = self.read_value()
        self.skip_spaces()
        if not self.takes(":"):
            raise self.trouble("expected ':'")
        self.skip_spaces()
        value_start, value, value_end = self.at, self.read_value(), self.at
        if name in members:
            raise MalformedBody(f"the key {name!r} stands twice in the body")
        if len(members) == MEMBERS_MAX:
            raise MalformedBody(f"the body has more than {MEMBERS_MAX} members")
        self.skip_spaces()
        has_comma = self.takes(",")
        if has_comma:
            self.skip_spaces()
        members[name] = Member(value, start, value_start, value_end, self.at)
        return has_comma

    def read_value(self) -> Any:
        decoder = json.JSONDecoder(object_pairs_hook=unique, parse_constant=refused)
        value, self.at = decoder.raw_decode(self.text, self.at)
        return value

    def skip_spaces(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\t", "\n", "\r"):
            self.at += 1

    def takes(self, sign: str) -> bool:
        is_there = self.text[self.at : self.at + 1] == sign
        self.at += is_there
        return is_there

    def trouble(self, words: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(words, self.text, self.at)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise MalformedBody(f"the key {twice!r} stands twice in one object")
    return dict(pairs)


def refused(name: str) -> Any:
    raise MalformedBody(f"{name} is not JSON")
