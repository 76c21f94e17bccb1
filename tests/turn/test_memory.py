"""What connections remember, within their bounds (W10)."""

from __future__ import annotations

import json

import pytest

from gateway import limits
from gateway.core.continuation import Heard, Remembered
from gateway.core.eligibility import StatePolicy
from gateway.core.events import read_event
from gateway.core.request import TurnRequest
from gateway.downstream.bodies import read_body, turn_request
from gateway.turn.memory import ConnectionMemory, Lane, Memories
from gateway.upstream.scripts import response_object


def request(**fields: object) -> TurnRequest:
    body = read_body(json.dumps({"model": "m", "store": False, **fields}).encode())
    return turn_request(body, {}, StatePolicy())


def played(
    memory: ConnectionMemory, lane: Lane, name: str, size_bytes: int = 100, *, ending: str = "completed"
) -> Remembered | None:
    """A turn on that lane, with so many bytes of input."""
    data = json.dumps({"type": f"response.{ending}", "response": response_object(name, ending)}).encode()
    event = read_event(data, data)
    assert event is not None
    heard = memory.heard()
    heard.note([event])
    asked = request(input=["x" * (size_bytes - 2)])
    made = memory.made_of(asked, None, heard)
    memory.learn(lane, None, heard, made)
    return made


def knows(memory: ConnectionMemory, *names: str) -> list[bool]:
    return [memory.recall(request(previous_response_id=name)) is not None for name in names]


def test_a_lane_has_its_latest_response_and_no_other() -> None:
    """W10."""
    memory = Memories().connection()
    for name in ("resp_1", "resp_2"):
        played(memory, None, name)
    played(memory, "lane", "resp_3")
    played(memory, "lane", "resp_4", ending="incomplete")
    assert knows(memory, "resp_1", "resp_2", "resp_3", "resp_4") == [False, True, True, False]


def test_a_response_is_remembered_on_whichever_lane_it_has() -> None:
    """W10: and once its lane has another, no more."""
    memory = Memories().connection()
    played(memory, None, "resp_1")
    played(memory, "lane", "resp_2")
    names = ["resp_1", "resp_2", "resp_3"]
    assert [memory.remembers(name) for name in names] == [True, True, False]
    played(memory, "lane", "resp_3")
    assert [memory.remembers(name) for name in names] == [True, False, True]


@pytest.mark.parametrize("named", [None, "", "resp_2", 5, ["resp_1"], {"a": 1}])
def test_what_names_no_response_recalls_nothing(named: object) -> None:
    """W10, H3: whatever a client writes."""
    memory = Memories().connection()
    played(memory, None, "resp_1")
    assert memory.recall(request(previous_response_id=named)) is None


def test_the_oldest_lane_makes_room_for_one_too_many() -> None:
    """W10: 32 lanes with a name and the one without."""
    memory = Memories().connection()
    names = [f"resp_{number}" for number in range(limits.REMEMBERED_LANES_MAX + 1)]
    for name in names[:-1]:
        played(memory, name, name)
    assert all(knows(memory, *names[:-1]))
    played(memory, "one more", names[-1])
    assert knows(memory, *names) == [False, *[True] * limits.REMEMBERED_LANES_MAX]


def test_the_oldest_lanes_make_room_for_bytes() -> None:
    """W10: the bound is the connection's."""
    all_of_them = Memories(connection_bytes_max=1000)
    memory = all_of_them.connection()
    for name, size_bytes in (("resp_1", 400), ("resp_2", 600)):
        played(memory, name, name, size_bytes)
    assert knows(memory, "resp_1", "resp_2") == [True, True]
    played(memory, "resp_3", "resp_3", 500)
    assert knows(memory, "resp_1", "resp_2", "resp_3") == [False, False, True]
    assert (memory.size_bytes, all_of_them.size_bytes) == (500, 500)


def test_a_response_that_is_too_large_leaves_nothing_in_its_lane() -> None:
    """W10: the latest one is forgotten, and the one before is not the latest."""
    all_of_them = Memories(connection_bytes_max=1000)
    memory = all_of_them.connection()
    played(memory, None, "resp_1")
    played(memory, None, "resp_2", 1001)
    assert knows(memory, "resp_1", "resp_2") == [False, False]
    assert all_of_them.size_bytes == 0


def test_of_all_connections_the_oldest_response_makes_room() -> None:
    """W10: and what is larger than all of it stays nowhere."""
    all_of_them = Memories(connection_bytes_max=1000, bytes_max=900)
    first, second = all_of_them.connection(), all_of_them.connection()
    played(first, None, "resp_1", 400)
    played(second, None, "resp_2", 400)
    played(first, "lane", "resp_3", 100)
    assert (knows(first, "resp_1", "resp_3"), knows(second, "resp_2")) == ([True, True], [True])
    played(second, "lane", "resp_4", 1)
    assert (knows(first, "resp_1", "resp_3"), knows(second, "resp_2", "resp_4")) == ([False, True], [True, True])
    played(second, None, "resp_5", 950)
    assert (knows(first, "resp_3"), knows(second, "resp_4", "resp_5"), all_of_them.size_bytes) == (
        [False],
        [False, False],
        0,
    )


def test_what_a_connection_remembered_goes_with_it() -> None:
    """W10."""
    all_of_them = Memories()
    memory, other = all_of_them.connection(), all_of_them.connection()
    for lane in (None, "a", "b"):
        played(memory, lane, f"resp_{lane}")
    played(other, None, "resp_other")
    memory.close()
    assert (knows(memory, "resp_a"), knows(other, "resp_other")) == ([False], [True])
    assert all_of_them.size_bytes == 100


@pytest.mark.parametrize(("lane", "fork"), [(None, "fork"), ("lane", None), ("lane", "fork")])
def test_a_failure_evicts_only_what_its_own_lane_still_has(lane: Lane, fork: Lane) -> None:
    """W10: not what the lane has gone on to meanwhile, nor another lane's."""
    memory = Memories().connection()
    parent = played(memory, lane, "resp_1")
    failed = Heard(0)
    failed.has_failed = True
    memory.learn(fork, parent, failed, None)
    memory.learn(lane, None, failed, None)
    assert knows(memory, "resp_1") == [True]
    memory.learn(lane, parent, failed, None)
    assert knows(memory, "resp_1") == [False]


def test_a_turn_without_an_end_evicts_nothing() -> None:
    """W10: its client left, and can go on from what it has."""
    memory = Memories().connection()
    parent = played(memory, None, "resp_1")
    memory.learn(None, parent, memory.heard(), None)
    assert knows(memory, "resp_1") == [True]
