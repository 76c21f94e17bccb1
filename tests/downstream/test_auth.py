"""Who is let in (W1, B6)."""

from __future__ import annotations

import pytest

from gateway.config import Key
from gateway.core.failures import Refusal
from gateway.downstream.auth import Keys

LAPTOP = Key("laptop", "main", "sk-laptop", replay_never=False)
SERVER = Key("server", "other", "sk-sërver", replay_never=True)
KEYS = Keys([LAPTOP, SERVER])


@pytest.mark.parametrize(
    "authorization", ["Bearer sk-laptop", "bearer sk-laptop", "BEARER   sk-laptop", "  Bearer sk-laptop  "]
)
def test_a_known_key_is_let_in(authorization: str) -> None:
    """RFC 9110: the scheme is read in any case."""
    assert KEYS.admit(authorization) is LAPTOP


def test_each_key_is_its_own() -> None:
    """B6: it draws on its own account."""
    assert KEYS.admit("Bearer sk-sërver") is SERVER


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        " ",
        "Bearer",
        "Bearer ",
        "Basic sk-laptop",
        "sk-laptop",
        "Bearersk-laptop",
        "Bearer sk-laptop2",
        "Bearer sk-lapto",
        "Bearer SK-LAPTOP",
        "Bearer sk-laptop, Bearer sk-laptop",
        "Bearer \udcff",
        "Bearer " + "x" * 100_000,
    ],
)
def test_anything_else_is_refused_by_one_name(authorization: str | None) -> None:
    """X: 401, and nothing is told about the key."""
    with pytest.raises(Refusal) as caught:
        KEYS.admit(authorization)

    assert (caught.value.code, caught.value.public.status) == ("invalid_api_key", 401)
    assert "sk-" not in caught.value.message


def test_a_repr_shows_names_and_no_secret() -> None:
    """L1: no keys in logs."""
    assert repr(KEYS) == "<Keys laptop, server>"
