"""Keys made, rotated and revoked by hand (B6): on both databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.keys import Key, KeyLimits
from gateway.core.ledger import CloseAccount
from gateway.core.money import Result
from gateway.keys.administration import NewKey, all_keys, create_key, keys_called, revoke_keys, rotate_key, working
from gateway.keys.rows import StoredKey
from gateway.keys.secrets import PREFIX, is_secret
from gateway.store.commit import commit
from gateway.store.schema import AnyDatabase
from gateway.store.store import grant
from keys.stores import opened_store

CI = Key("ci", "main", limits=KeyLimits(frozenset({"small"}), 60, 5, 6, "Asia/Tokyo"))
DAY = 86_400.0


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyDatabase]:
    """A store with the accounts `main` and `other`."""
    dsn = request.getfixturevalue("fresh_dsn") if request.param == "postgres" else None
    with opened_store(tmp_path, dsn) as opened:
        grant(opened.database, {"other": 5})
        yield opened.database


def made(database: AnyDatabase, key: Key) -> NewKey:
    with database.transaction() as session:
        new = create_key(session, key)
    assert isinstance(new, NewKey)
    return new


def rotated(database: AnyDatabase, name: str, overlap_seconds: float, expires_at: float | None = None) -> NewKey:
    with database.transaction() as session:
        keys = working(keys_called(session, name, "main"), session.now())
        return rotate_key(session, keys, overlap_seconds, expires_at)


def stored(database: AnyDatabase) -> list[StoredKey]:
    with database.snapshot() as session:
        return list(all_keys(session))


def test_a_secret_is_256_random_bits_and_is_kept_nowhere(database: AnyDatabase) -> None:
    """B6: nothing but its digest is in the store."""
    new = made(database, CI)
    assert is_secret(new.secret)
    assert new.secret.startswith(PREFIX)
    assert len(new.secret) == len(PREFIX) + 43
    assert new.secret not in repr(new)
    with database.snapshot() as session:
        assert new.secret not in str(session.fetch("select * from api_key", {}))
    assert stored(database) == [new.stored]
    assert re.fullmatch("key_[0-9a-f]{16}", new.stored.key_id)
    assert made(database, replace(CI, name="two")).secret != new.secret


def test_a_second_key_of_one_name_and_account_is_refused(database: AnyDatabase) -> None:
    """B6: they would share their limits; another account may use the name, and so may a name whose keys ended."""
    first = made(database, CI)
    with database.transaction() as session:
        assert create_key(session, CI) is Result.EXISTS
    made(database, replace(CI, account="other"))
    with database.transaction() as session:
        revoke_keys(session, [first.stored])
    made(database, replace(CI, expires_at=1.0))
    made(database, CI)
    assert len(stored(database)) == 4


@pytest.mark.parametrize("account", ["nobody", "closed"])
def test_a_key_needs_an_account_that_pays(database: AnyDatabase, account: str) -> None:
    """B6."""
    grant(database, {"closed": None})
    commit(database, [CloseAccount("closed")])
    with database.transaction() as session:
        refused = create_key(session, replace(CI, account=account))
    assert refused is {"nobody": Result.ACCOUNT_NOT_FOUND, "closed": Result.ACCOUNT_CLOSED}[account]
    assert stored(database) == []


def test_a_rotated_key_is_the_same_but_for_its_secret(database: AnyDatabase) -> None:
    """B6: name, account and limits stay; the old one ends after the overlap."""
    old = made(database, CI)
    new = rotated(database, "ci", DAY)
    first, second = stored(database)
    assert (first.key_id, second) == (old.stored.key_id, new.stored)
    assert new.stored.key == CI
    assert new.secret != old.secret
    ends_at = first.key.expires_at
    assert ends_at is not None
    assert 0 <= ends_at - DAY - old.stored.created_at < 60


def test_an_overlap_makes_no_key_live_longer(database: AnyDatabase) -> None:
    """B6: one that was to end before stays so; its follower gets the lifetime that it was given."""
    old = made(database, CI)
    ends_at = old.stored.created_at + 10.0
    with database.transaction() as session:
        session.run_each("update api_key set created_at = :at - 100, expires_at = :at", [{"at": ends_at}])
    new = rotated(database, "ci", DAY)
    assert stored(database)[0].key.expires_at == ends_at
    assert new.stored.key.expires_at == pytest.approx(new.stored.created_at + 100.0, abs=5)
    assert rotated(database, "ci", DAY, expires_at=4e9).stored.key.expires_at == 4e9


def test_a_key_that_is_rotated_twice_in_one_overlap_ends_all_before_it(database: AnyDatabase) -> None:
    """B6: the newest is what is followed; no overlap is prolonged."""
    made(database, CI)
    rotated(database, "ci", 3600.0)
    newest = rotated(database, "ci", DAY)
    ends = [known.key.expires_at for known in stored(database)]
    assert ends[2] is None
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[1] - ends[0] == pytest.approx(DAY - 3600.0, abs=60)
    assert newest.stored.key == CI


def test_a_key_without_an_overlap_ends_at_once(database: AnyDatabase) -> None:
    """B6."""
    made(database, CI)
    new = rotated(database, "ci", 0.0)
    with database.snapshot() as session:
        now = session.now()
    assert [known.state(now) for known in stored(database)] == ["expired", "active"]
    assert stored(database)[1] == new.stored


def test_a_key_is_revoked_once(database: AnyDatabase) -> None:
    """B6: the time at which it was stays."""
    key = made(database, CI).stored
    with database.transaction() as session:
        revoke_keys(session, [key])
    (first,) = stored(database)
    with database.transaction() as session:
        revoke_keys(session, [key])
    assert stored(database) == [first]
    assert first.state(0.0) == "revoked"
