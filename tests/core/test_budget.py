"""The replay budget at its edges (C4, R13)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import limits
from gateway.core.budget import ReplayBudget


def budget(turns: int, replays: int = 0, *, at: float = 0.0, workers: int = 1) -> ReplayBudget:
    """One in which so much began at that time."""
    made = ReplayBudget(workers)
    for _ in range(turns):
        made.turn_began(at)
    for _ in range(replays):
        made.replay_began(at)
    return made


@pytest.mark.parametrize(("replays", "is_spent"), [(9, False), (10, True), (11, True)])
def test_ten_replays_a_second_are_always_allowed(replays: int, is_spent: bool) -> None:
    """C4: the floor, where a fifth of one turn would be none."""
    assert budget(1, replays).is_spent(0.0) is is_spent


@pytest.mark.parametrize(("replays", "is_spent"), [(19, False), (20, True)])
def test_a_fifth_of_the_turns_may_be_replayed(replays: int, is_spent: bool) -> None:
    """C4."""
    assert budget(100, replays).is_spent(0.0) is is_spent


@pytest.mark.parametrize(("replays", "is_spent"), [(200, False), (201, True)])
def test_a_fifth_is_a_fifth_however_many_they_are(replays: int, is_spent: bool) -> None:
    """C4: one more replay may begin while they are fewer."""
    assert budget(1001, replays).is_spent(0.0) is is_spent


def test_by_itself_a_process_has_the_whole_floor() -> None:
    """C6."""
    made = ReplayBudget()
    spent = []
    for _ in range(11):
        spent.append(made.is_spent(0.0))
        made.replay_began(0.0)
    assert spent == [False] * 10 + [True]


@pytest.mark.parametrize(("now", "is_spent"), [(0.0, True), (0.999, True), (1.0, False), (1.001, False)])
def test_the_floor_is_back_after_a_second(now: float, is_spent: bool) -> None:
    """C4: at the second's end, not before."""
    assert budget(1, 10).is_spent(now) is is_spent


@pytest.mark.parametrize(("now", "is_spent"), [(9.999, False), (10.0, True), (10.001, True)])
def test_turns_count_for_ten_seconds(now: float, is_spent: bool) -> None:
    """C4: with their end the share is gone, and only the floor is left."""
    made = budget(200)
    for _ in range(10):
        made.replay_began(now)
    assert made.is_spent(now) is is_spent


@pytest.mark.parametrize(("now", "is_spent"), [(14.999, True), (15.0, False)])
def test_replays_count_for_ten_seconds(now: float, is_spent: bool) -> None:
    """C4: until their end the share is spent."""
    made = budget(0, 20, at=5.0)
    for _ in range(100):
        made.turn_began(10.0)
    for _ in range(10):
        made.replay_began(now - 0.5)
    for _ in range(10, 20):
        made.turn_began(now)
    assert made.is_spent(now) is is_spent


@pytest.mark.parametrize(("workers", "floor"), [(1, 10), (2, 5), (3, 3), (10, 1), (64, 1)])
def test_a_worker_has_its_part_of_the_floor(workers: int, floor: int) -> None:
    """C6: rounded down, at least one."""
    assert [budget(1, replays, workers=workers).is_spent(0.0) for replays in (floor - 1, floor)] == [False, True]


def test_what_is_remembered_is_bounded() -> None:
    """Above the bound the share is of fewer turns, never of more."""
    made = budget(limits.BUDGET_TURNS_MAX + 1000)
    assert repr(made) == f"<ReplayBudget, 0 replays, {limits.BUDGET_TURNS_MAX} turns>"
    made = budget(0, limits.BUDGET_TURNS_MAX + 1000)
    assert repr(made) == f"<ReplayBudget, {limits.BUDGET_TURNS_MAX} replays, 0 turns>"


def test_a_turn_is_forgotten_with_its_window() -> None:
    """C4: also where nobody asks for a replay."""
    made = budget(3, at=0.0)
    made.turn_began(9.999)
    assert repr(made) == "<ReplayBudget, 0 replays, 4 turns>"
    made.turn_began(10.0)
    assert repr(made) == "<ReplayBudget, 0 replays, 2 turns>"


@given(st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=300))
def test_a_budget_that_is_obeyed_bounds_the_replays_of_every_window(happenings: list[tuple[float, bool]]) -> None:
    """C4: in any 10 s a fifth of the turns and the floor of ten in each second, whatever came when."""
    made, now = ReplayBudget(), 0.0
    turns: list[float] = []
    replays: list[float] = []
    for pause, fails in happenings:
        now += pause / 20
        made.turn_began(now)
        turns.append(now)
        if fails and not made.is_spent(now):
            made.replay_began(now)
            replays.append(now)
        of_turns, of_replays = ([at for at in began if at > now - 10] for began in (turns, replays))
        assert len(of_replays) <= max(0.2 * len(of_turns) + 1, 0) + 10 * 11
