"""K1: a transcript is the same under every order of tasks."""

import pytest

from gateway.lock.pack import shipped
from gateway.lock.player import play
from gateway.lock.scenario import read_scenario
from gateway.lock.transcript import to_text
from support.slices import is_in_the_slice

NAMES = shipped().names
ORDERS = 200
ONE_IN = 2
SEEDED = {name: 1 + number % (ORDERS - 1) for number, name in enumerate(NAMES) if is_in_the_slice(name, ONE_IN)}
"""One order for every other scenario beside that of the check; together they are many."""


def played(name: str, order: int) -> str:
    return to_text(play(read_scenario(shipped().scenario(name)), f"{name}.toml", order=order))


@pytest.mark.parametrize("name", SEEDED)
def test_another_order_of_tasks_gives_the_same_transcript(name: str) -> None:
    assert played(name, SEEDED[name]) == shipped().transcript(name).read_text("utf-8")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_two_hundred_orders_of_tasks_give_the_same_transcript(name: str) -> None:
    recorded = shipped().transcript(name).read_text("utf-8")
    assert [order for order in range(ORDERS) if played(name, order) != recorded] == []
