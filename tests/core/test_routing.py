"""Which route serves next (M1, R14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing import next_route


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
