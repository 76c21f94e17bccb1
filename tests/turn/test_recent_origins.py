"""What a process remembers of origins that the records do not know yet, and what it asks them (O1, O2, O3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import trio

from gateway import limits
from gateway.core.failures import Refusal
from gateway.core.origin import Bond, Maker
from gateway.ports import LedgerUnavailable, Origin
from gateway.records.memory import MemoryRecords
from gateway.turn.origins import Origins, Trace
from support.virtual import in_orders

RESP = Origin("main", "resp_1", "a", "gpt-test")


class Asked(MemoryRecords):
    """Records that note what they are asked."""

    is_away = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[object] = []

    async def origin(self, account: str, response_id: str) -> Origin | None:
        """Where a response was made."""
        self.asked.append(response_id)
        if self.is_away:
            raise LedgerUnavailable
        return await super().origin(account, response_id)

    async def origins_of_marks(self, account: str, marks: Sequence[str]) -> Mapping[str, Maker]:
        """Where they were made."""
        self.asked.append(tuple(marks))
        if self.is_away:
            raise LedgerUnavailable
        return await super().origins_of_marks(account, marks)


def none_is_gone(_maker: Maker) -> bool:
    """Every upstream is there."""
    return False


def learn(origins: Origins, *marks: str, route: str = "a", response_id: str | None = "resp_1") -> list[str]:
    """Learn so, and which steps are left to be taken."""
    return list(
        origins.learn(Trace(response_id, marks), "main", Maker(route), "gpt-test", is_stored=True, is_held=False)
    )


@in_orders(1)
async def test_what_was_learned_is_known_before_it_is_written() -> None:
    """O1, O3: the client's next request may be here already."""
    records = Asked()
    origins = Origins(records)
    assert learn(origins, "one", "two") == ["learn_origin", "learn_marks"]
    assert await origins.of_response("main", "resp_1") == RESP
    assert (origins.recent("main", "resp_1"), origins.recent("other", "resp_1")) == (RESP, None)
    assert await origins.of_bond("main", Bond("resp_1"), none_is_gone) == Maker("a")
    assert await origins.of_bond("main", Bond(marks=("two", "unknown")), none_is_gone) == Maker("a")
    assert records.asked == []


@in_orders(1)
async def test_the_steps_make_it_last() -> None:
    """O1, O3: with the model by whose name its client knows it; a response that is stored nowhere is not written."""
    records = Asked()
    for step in (
        Origins(records)
        .learn(Trace("resp_1", ("one",)), "main", Maker("a"), "gpt-test", is_stored=True, is_held=False)
        .values()
    ):
        await step()
    assert (records.origins, records.marks) == ({("main", "resp_1"): RESP}, {("main", "one"): Maker("a")})
    assert (
        list(Origins(records).learn(Trace("resp_2", ()), "main", Maker("a"), "m", is_stored=False, is_held=False)) == []
    )
    assert list(
        Origins(records).learn(Trace(None, ("one",)), "main", Maker("a"), "m", is_stored=False, is_held=False)
    ) == ["learn_marks"]


@in_orders(1)
async def test_another_account_s_is_not_known() -> None:
    """O1."""
    records = Asked()
    origins = Origins(records)
    learn(origins, "one")
    assert await origins.of_response("other", "resp_1") is None
    assert await origins.of_bond("other", Bond(marks=("one",)), none_is_gone) is None
    assert records.asked == ["resp_1", ("one",)]


@in_orders(1)
async def test_the_first_that_was_learned_stays() -> None:
    """O1: as in the records."""
    origins = Origins(Asked())
    learn(origins, "one")
    learn(origins, "one", route="b")
    assert await origins.of_response("main", "resp_1") == RESP
    assert await origins.of_bond("main", Bond(marks=("one",)), none_is_gone) == Maker("a")


@pytest.mark.parametrize(("after", "is_known"), [(-0.001, True), (0.0, False), (0.001, False)])
@in_orders(1)
async def test_it_is_remembered_for_as_long_as_a_connection_may_last(after: float, is_known: bool) -> None:
    """W10: the upstream's socket knows it no longer than that."""
    origins = Origins(Asked())
    learn(origins)
    await trio.sleep(limits.CONNECTION_SECONDS_MAX + after)
    assert (await origins.of_response("main", "resp_1") is not None) is is_known
    learn(origins, route="b")
    known = await origins.of_response("main", "resp_1")
    assert known is not None
    assert known.route == ("a" if is_known else "b")


@in_orders(1)
async def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process does not remember more than so many; one that is learned anew is new."""
    monkeypatch.setattr(limits, "RECENT_ORIGINS_MAX", 2)
    origins = Origins(Asked())
    for name in ("resp_1", "resp_2", "resp_3"):
        learn(origins, response_id=name)
    known = [await origins.of_response("main", name) is not None for name in ("resp_1", "resp_2", "resp_3")]
    assert (known, repr(origins)) == ([False, True, True], "<Origins, 2 are recent>")


@in_orders(1)
async def test_the_newest_mark_that_is_known_decides() -> None:
    """O3: what is remembered before what is written; nothing is looked up where the newest is remembered."""
    records = Asked()
    records.marks.update({("main", "one"): Maker("c"), ("main", "two"): Maker("b")})
    origins = Origins(records)
    learn(origins, "one")
    assert await origins.of_bond("main", Bond(marks=("one", "two")), none_is_gone) == Maker("a")
    assert records.asked == []
    assert await origins.of_bond("main", Bond(marks=("two", "one")), none_is_gone) == Maker("b")
    assert await origins.of_bond("main", Bond(marks=("three", "one", "two")), none_is_gone) == Maker("a")
    assert await origins.of_bond("main", Bond(marks=("three",)), none_is_gone) is None
    assert await origins.of_bond("main", Bond(), none_is_gone) is None
    assert records.asked == [("two", "one"), ("three", "one", "two"), ("three",)]


@in_orders(1)
async def test_a_response_that_nobody_knows_is_refused_by_its_parameter() -> None:
    """O2: a refusal repeats a little of its name."""
    with pytest.raises(Refusal) as refused:
        await Origins(Asked()).of_bond("main", Bond("r" * 65), none_is_gone)
    assert str(refused.value) == f"previous_response_not_found: the response {'r' * 64!r} is not known here"
    assert refused.value.param == "previous_response_id"


@in_orders(1)
async def test_of_what_was_learned_a_moment_ago_it_is_known_which_upstream_of_the_name_made_it() -> None:
    """O3, C2: as of what is on record."""
    origins, maker = Origins(Asked()), Maker("a", "here")
    origins.learn(Trace("resp_1", ("one",)), "main", maker, "gpt-test", is_stored=True, is_held=False)
    bonds = [Bond("resp_1"), Bond(marks=("one",))]
    assert [await origins.of_bond("main", bond, none_is_gone) for bond in bonds] == [maker, maker]


@pytest.mark.parametrize("bond", [Bond("resp_2"), Bond(marks=("two",))])
@in_orders(1)
async def test_while_the_records_are_away_nothing_is_guessed(bond: Bond) -> None:
    """O2, X."""
    records = Asked()
    records.is_away = True
    with pytest.raises(Refusal) as refused:
        await Origins(records).of_bond("main", bond, none_is_gone)
    text = "where the request belongs cannot be looked up while the ledger is away"
    assert str(refused.value) == f"ledger_unavailable: {text}"
