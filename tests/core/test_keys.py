"""What a key may do (B6, X)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.failures import Refusal
from gateway.core.keys import Key, KeyLimits

NAMES = st.text(alphabet="a/%2F:@", min_size=1, max_size=6)


@example(("a/b", "c"), ("a%2Fb", "c"))
@example(("a/b", "c"), ("a", "b/c"))
@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_no_two_keys_are_counted_as_one(one: tuple[str, str], other: tuple[str, str]) -> None:
    """B6: whatever names hold, a label belongs to one pair of account and name."""
    labels = {Key(name, account).label for account, name in (one, other)}
    assert len(labels) == len({one, other})


def test_a_label_is_readable_where_names_are_plain() -> None:
    """B6: it stands in the store's spend windows."""
    assert Key("ci", "main").label == "main/ci"


@pytest.mark.parametrize(("now", "is_refused"), [(99.999, False), (100.0, True), (101.0, True)])
def test_a_key_ends_at_its_instant(now: float, is_refused: bool) -> None:
    """X: `expired_api_key`."""
    key = Key("ci", "main", expires_at=100.0)
    if is_refused:
        with pytest.raises(Refusal, match="expired_api_key: the key ci"):
            key.require_unexpired(now)
    else:
        key.require_unexpired(now)


def test_a_key_without_an_end_does_not_end() -> None:
    """B6."""
    Key("ci", "main").require_unexpired(1e12)


def test_a_model_that_a_key_may_not_use_is_refused_by_its_parameter() -> None:
    """X: `model_not_allowed`."""
    key = Key("ci", "main", limits=KeyLimits(models=frozenset({"small"})))
    key.require_model("small")
    with pytest.raises(Refusal, match="model_not_allowed: the key ci may not use this model") as caught:
        key.require_model("large")

    assert (caught.value.code, caught.value.public.status, caught.value.param) == ("model_not_allowed", 403, "model")


def test_a_key_without_a_list_may_use_any_model() -> None:
    """B6."""
    Key("ci", "main").require_model("large")
