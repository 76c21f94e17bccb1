"""Which route serves next (M1, C3, R14)."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing import Listed, by_affinity, draw_of, in_order, next_route


@pytest.mark.parametrize(
    ("routes", "tried", "closed", "chosen"),
    [
        pytest.param(("a", "b", "c"), (), (), "a", id="M1-the-first-in-order"),
        pytest.param(("a", "b", "c"), ("a",), (), "b", id="R15-another-than-the-one-tried"),
        pytest.param(("a", "b", "c"), ("b",), (), "a", id="M1-order-not-position"),
        pytest.param(("a", "b", "c"), (), {"a"}, "b", id="C3-one-is-cooling"),
        pytest.param(("a", "b", "c"), ("a",), {"b"}, "c", id="C3-tried-and-cooling"),
        pytest.param(("a", "b"), ("a",), {"b"}, None, id="R14-none-is-left"),
        pytest.param(("a",), ("a",), (), None, id="R14-the-only-one-was-tried"),
        pytest.param((), (), (), None, id="R14-there-is-none"),
        pytest.param(("a",), ("z",), {"y"}, "a", id="names-that-are-not-routes"),
    ],
)
def test_the_first_route_that_may_serve_is_next(
    routes: tuple[str, ...], tried: tuple[str, ...], closed: set[str], chosen: str | None
) -> None:
    assert next_route(in_order(routes), tried, closed) == chosen


@pytest.mark.parametrize(
    ("draw", "chosen"),
    [(0.0, "a"), (0.7499, "a"), (0.75, "b"), (0.9999, "b")],
)
def test_routes_of_one_priority_share_the_turns_by_weight(draw: float, chosen: str) -> None:
    """M1: three in four to `a`; at the border the next one begins."""
    assert next_route((Listed("a", 1, 3), Listed("b", 1, 1)), (), (), draw) == chosen


@pytest.mark.parametrize(("closed", "chosen"), [((), "b"), (("b",), "c"), (("b", "c"), "a"), (("a",), "b")])
def test_a_lower_priority_number_is_asked_first_whatever_the_weights(closed: tuple[str, ...], chosen: str) -> None:
    """M1, C3."""
    listed = (Listed("a", 3, 100), Listed("b", 1), Listed("c", 2, 50))
    assert next_route(listed, (), closed, draw=0.0) == chosen


def test_what_is_tried_or_closed_leaves_its_share_to_the_others() -> None:
    """C3: in the proportion of their own weights."""
    listed = (Listed("a", 1, 6), Listed("b", 1, 3), Listed("c", 1, 1))
    assert [next_route(listed, ("a",), (), draw) for draw in (0.0, 0.7499, 0.75)] == ["b", "b", "c"]
    assert next_route(listed, ("a",), ("b",), 0.0) == "c"


@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan")])
def test_a_draw_outside_of_its_range_is_a_mistake(draw: float) -> None:
    with pytest.raises(ValueError, match="a draw is a number"):
        next_route(in_order("ab"), (), (), draw)


NAMES = st.sampled_from("abcdef")
LISTS = st.lists(st.builds(Listed, NAMES, st.integers(1, 3), st.integers(1, 1000)), unique_by=lambda entry: entry.name)
DRAWS = st.floats(0, 1, exclude_max=True)


@given(st.lists(NAMES, unique=True), st.sets(NAMES), st.sets(NAMES))
def test_a_turn_walks_its_routes_in_order_and_each_once(routes: list[str], tried: set[str], closed: set[str]) -> None:
    """R11, R14: asked until there is none, with what was tried before."""
    walked: list[str] = []
    while (name := next_route(in_order(routes), tried | set(walked), closed)) is not None:
        walked.append(name)

    assert walked == [name for name in routes if name not in tried | closed]


@given(LISTS, st.sets(NAMES), st.sets(NAMES), DRAWS)
def test_whoever_serves_may_and_nobody_of_a_lower_number_could(
    listed: list[Listed], tried: set[str], closed: set[str], draw: float
) -> None:
    """M1, C3, R14, by any draw."""
    left = {entry.name: entry.priority for entry in listed if entry.name not in tried | closed}
    chosen = next_route(listed, tried, closed, draw)
    assert (chosen is None) == (left == {})
    assert chosen is None or left[chosen] == min(left.values())


@given(st.integers(0, 10**9), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_the_draws_of_successive_choices_meet_every_share_within_three_turns(start: int, weights: list[int]) -> None:
    """M1: of any 100 turns in a row, wherever they begin."""
    listed = [Listed(str(number), 1, weight) for number, weight in enumerate(weights)]
    got = Counter(next_route(listed, (), (), draw_of(number)) for number in range(start, start + 100))
    for entry in listed:
        assert abs(got[entry.name] - 100 * entry.weight / sum(weights)) < 3.5


TEXTS = st.text(max_size=8)


@given(st.lists(NAMES, unique=True, min_size=1), TEXTS, TEXTS)
def test_affinity_ranks_every_route_whatever_their_order(routes: list[str], account: str, affinity: str) -> None:
    """O3: each process and each worker ranks them alike."""
    ranked = by_affinity(routes, account, affinity)
    assert sorted(ranked) == sorted(routes)
    assert by_affinity(list(reversed(routes)), account, affinity) == ranked


@given(st.lists(NAMES, unique=True, min_size=2), TEXTS)
def test_a_route_that_goes_moves_only_what_it_had(routes: list[str], affinity: str) -> None:
    """O3: rendezvous; the others keep their rank."""
    ranked = by_affinity(routes, "main", affinity)
    for gone in routes:
        assert by_affinity([name for name in routes if name != gone], "main", affinity) == [
            name for name in ranked if name != gone
        ]


def test_affinities_spread_over_the_routes_and_accounts_apart() -> None:
    """O3: of a thousand conversations each of four routes gets about a quarter."""
    firsts = [by_affinity("abcd", "main", str(number))[0] for number in range(1000)]
    assert all(200 < firsts.count(route) < 300 for route in "abcd")
    assert firsts != [by_affinity("abcd", "other", str(number))[0] for number in range(1000)]


def test_what_is_asked_one_after_the_other_has_a_priority_each() -> None:
    """M1: from 1 on."""
    assert in_order(["b", "a"]) == (Listed("b", 1), Listed("a", 2))


@pytest.mark.parametrize(("affinity", "preferred"), [("one", "acb"), ("two", "cba"), ("three", "bca"), ("four", "cab")])
def test_an_affinity_s_order_is_the_same_on_every_node_and_in_every_release(affinity: str, preferred: str) -> None:
    """O3: a conversation that is under way stays where it is when a gateway is replaced."""
    assert by_affinity(("a", "b", "c"), "main", affinity) == list(preferred)


def test_any_text_is_an_affinity() -> None:
    """O3, E8: a cache key may hold half of a character."""
    assert sorted(by_affinity(("a", "b"), "main", "\ud800")) == ["a", "b"]
