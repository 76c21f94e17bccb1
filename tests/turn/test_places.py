"""How many may be here at once, in all and by key (X: `too_many_turns`)."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from gateway import limits
from gateway.core.failures import Refusal
from gateway.turn.places import BoundedPlaces, Room


def refused(room: Room, key: str | None) -> str:
    with pytest.raises(Refusal) as caught, room.place(key):
        pass
    return str(caught.value)


def test_a_room_has_so_many_places_and_so_many_for_a_key() -> None:
    """The last is given, and none beyond it; what names no key counts in all alone."""
    room = Room("turns", 3, 2)
    with ExitStack() as here:
        here.enter_context(room.place("a"))
        here.enter_context(room.place("a"))
        assert refused(room, "a") == "too_many_turns: a key may have no more than 2 turns at once"
        here.enter_context(room.place(None))
        assert (room.taken, room.taken_by_keys, repr(room)) == (3, 2, "<Room, 3 of 3 turns>")
        assert refused(room, "b") == "too_many_turns: this process serves no more than 3 turns at once"
        assert refused(room, None) == "too_many_turns: this process serves no more than 3 turns at once"
        assert (room.taken, room.taken_by_keys) == (3, 2)
    assert (room.taken, room.taken_by_keys) == (0, 0)


def test_a_place_is_given_back_whatever_happens_in_it() -> None:
    """Also to the key."""
    room = Room("turns", 5, 2)
    with room.place("a"):
        with pytest.raises(ZeroDivisionError), room.place("a"):
            raise ZeroDivisionError
        with room.place("a"):
            assert (room.taken, room.taken_by_keys) == (2, 2)
        assert (room.taken, room.taken_by_keys) == (1, 1)


def test_a_key_that_has_nothing_left_is_forgotten() -> None:
    """Keys come and go."""
    room = Room("turns", 5, 2)
    with room.place("a"), room.place("a"):
        pass
    assert (dict(room._by_key), room.taken) == ({}, 0)


def test_a_websocket_counts_for_its_key_as_a_connection_and_a_request_does_not() -> None:
    """And a turn in a room of its own."""
    places = BoundedPlaces(3, 1, 2, 1)
    with places.connection("a", lasts=True), places.connection("a", lasts=False), places.turn("a"):
        shown = (places.open_connections, places.open_websockets, places.open_turns)
        assert (shown, repr(places)) == ((2, 1, 1), "<BoundedPlaces <Room, 2 of 3 connections>, <Room, 1 of 2 turns>>")
        with pytest.raises(Refusal, match="a key may have no more than 1 connections at once"):
            places.connection("a", lasts=True).__enter__()
        with pytest.raises(Refusal, match="a key may have no more than 1 turns at once"):
            places.turn("a").__enter__()
        with places.connection("b", lasts=True), pytest.raises(Refusal, match="no more than 3 connections at once"):
            places.connection("c", lasts=False).__enter__()
        with places.turn("b"), pytest.raises(Refusal, match="no more than 2 turns at once"):
            places.turn("c").__enter__()


def test_the_bounds_are_those_of_the_limits() -> None:
    places = BoundedPlaces()
    rooms = f"{limits.CONNECTIONS_MAX} connections>, <Room, 0 of {limits.TURNS_MAX} turns>"
    assert repr(places) == f"<BoundedPlaces <Room, 0 of {rooms}>"
