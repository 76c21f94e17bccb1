"""Which route serves next (M1, R14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing import by_affinity, next_route


@pytest.mark.parametrize(
    ("routes", "tried", "cooling", "chosen"),
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
    routes: tuple[str, ...], tried: tuple[str, ...], cooling: set[str], chosen: str | None
) -> None:
    assert next_route(routes, tried, cooling) == chosen


NAMES = st.sampled_from("abcdef")


@given(st.lists(NAMES, unique=True), st.sets(NAMES), st.sets(NAMES))
def test_a_turn_walks_its_routes_in_order_and_each_once(routes: list[str], tried: set[str], cooling: set[str]) -> None:
    """R11, R14: asked until there is none, with what was tried before."""
    walked: list[str] = []
    while (name := next_route(routes, tried | set(walked), cooling)) is not None:
        walked.append(name)

    assert walked == [name for name in routes if name not in tried | cooling]


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
