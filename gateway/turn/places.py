"""How many may be here at once, in all and by key (limits.py): who comes beyond it is turned away before it costs
anything (ports.Places)."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager

from gateway import limits
from gateway.core.failures import Refusal


class Room:
    """Things of one kind, counted. `taken` is how many are here; those that name a key count for it, too."""

    def __init__(self, what: str, places_max: int, places_per_key_max: int) -> None:
        self._what = what
        self._places_max = places_max
        self._places_per_key_max = places_per_key_max
        self._by_key: Counter[str] = Counter()
        self.taken = 0

    def __repr__(self) -> str:
        return f"<Room, {self.taken} of {self._places_max} {self._what}>"

    @property
    def taken_by_keys(self) -> int:
        """How many name a key."""
        return self._by_key.total()

    def place(self, key: str | None) -> Place:
        """One place, until the block ends. Entering it raises Refusal `too_many_turns`, and then it holds nothing."""
        return Place(self, key)

    def take(self, key: str | None) -> None:
        """Take one. Raises Refusal."""
        self._turn_away_beyond_bounds(key)
        self.taken += 1
        if key is not None:
            self._by_key[key] += 1

    def _turn_away_beyond_bounds(self, key: str | None) -> None:
        if self.taken >= self._places_max:
            raise Refusal("too_many_turns", f"this process serves no more than {self._places_max} {self._what} at once")
        if key is not None and self._by_key[key] >= self._places_per_key_max:
            most = self._places_per_key_max
            raise Refusal("too_many_turns", f"a key may have no more than {most} {self._what} at once")

    def give_back(self, key: str | None) -> None:
        """A key that has nothing left here is forgotten: keys come and go."""
        self.taken -= 1
        if key is not None:
            self._by_key[key] -= 1
            if not self._by_key[key]:
                del self._by_key[key]


class Place:
    """One of a room's. Thousands are held at once: a generator for each would take five times as much."""

    __slots__ = ("_key", "_room")

    def __init__(self, room: Room, key: str | None) -> None:
        self._room = room
        self._key = key

    def __enter__(self) -> None:
        self._room.take(self._key)

    def __exit__(self, *_exception: object) -> None:
        self._room.give_back(self._key)


class BoundedPlaces:
    """The places of one process (ports.Places)."""

    def __init__(
        self,
        connections_max: int = limits.CONNECTIONS_MAX,
        connections_per_key_max: int = limits.CONNECTIONS_PER_KEY_MAX,
        turns_max: int = limits.TURNS_MAX,
        turns_per_key_max: int = limits.TURNS_PER_KEY_MAX,
    ) -> None:
        self._connections = Room("connections", connections_max, connections_per_key_max)
        self._turns = Room("turns", turns_max, turns_per_key_max)

    def __repr__(self) -> str:
        return f"<BoundedPlaces {self._connections}, {self._turns}>"

    @property
    def open_turns(self) -> int:
        """How many turns hold a place, on HTTP also those whose body still arrives."""
        return self._turns.taken

    @property
    def open_connections(self) -> int:
        """How many requests and WebSockets hold a place."""
        return self._connections.taken

    @property
    def open_websockets(self) -> int:
        """How many of them are WebSockets."""
        return self._connections.taken_by_keys

    def connection(self, key: str, *, lasts: bool) -> AbstractContextManager[None]:
        """A request or, if it `lasts`, a WebSocket, which counts for its key (ports.Places)."""
        return self._connections.place(key if lasts else None)

    def turn(self, key: str) -> AbstractContextManager[None]:
        """A turn (ports.Places)."""
        return self._turns.place(key)
