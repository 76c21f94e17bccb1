"""Keys made, listed, rotated and revoked by hand, each within one transaction of the store (B6). Blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gateway.core.keys import Key
from gateway.core.money import Result
from gateway.keys.rows import ADD, ALL, EXPIRE, NAMED, ONE, REVOKE, StoredKey, row_of, stored_key
from gateway.keys.secrets import digest_of, new_key_id, new_secret
from gateway.store.database import Session
from gateway.store.money import LOAD_ACCOUNT


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made, and its secret, which is shown once and kept nowhere."""

    stored: StoredKey
    secret: str = field(repr=False)


def create_key(session: Session, key: Key) -> NewKey | Result:
    """A first key of this name for its account. EXISTS if the account has one that still works, ACCOUNT_NOT_FOUND or
    ACCOUNT_CLOSED if nobody would pay."""
    accounts = session.fetch(LOAD_ACCOUNT, {"name": key.account})  # locked: two of one name cannot be made at once
    if not accounts:
        return Result.ACCOUNT_NOT_FOUND
    if accounts[0][4]:
        return Result.ACCOUNT_CLOSED
    if working(keys_called(session, key.name, key.account), session.now()):
        return Result.EXISTS
    return _add(session, key)


def all_keys(session: Session) -> Sequence[StoredKey]:
    """Every key there ever was, by account, name and age."""
    return [stored_key(row) for row in session.fetch(ALL, {})]


def keys_called(session: Session, name: str, account: str | None) -> Sequence[StoredKey]:
    """The keys of this name, of one account or of all, the oldest first."""
    rows = session.fetch(NAMED, {"name": name})
    return [stored for stored in map(stored_key, rows) if account in (None, stored.key.account)]


def keys_with_id(session: Session, key_id: str, account: str | None) -> Sequence[StoredKey]:
    """The key with this id, if there is one."""
    rows = session.fetch(ONE, {"key_id": key_id})
    return [stored for stored in map(stored_key, rows) if account in (None, stored.key.account)]


def working(keys: Sequence[StoredKey], now: float) -> Sequence[StoredKey]:
    """Those that let somebody in."""
    return [stored for stored in keys if stored.state(now) == "active"]


def revoke_keys(session: Session, keys: Sequence[StoredKey]) -> None:
    """They let nobody in any more."""
    now = session.now()
    session.run_each(REVOKE, [{"key_id": stored.key_id, "now": now} for stored in keys])


def rotate_key(
    session: Session, keys: Sequence[StoredKey], overlap_seconds: float, expires_at: float | None = None
) -> NewKey:
    """One more key like the newest of these working ones, which end after the overlap. Where that one was to expire and
    nothing else is said, the new one lives for as long as it was meant to."""
    now = session.now()
    newest = keys[-1]
    ends = [(stored.key_id, _earlier(stored.key.expires_at, now + overlap_seconds)) for stored in keys]
    session.run_each(EXPIRE, [{"key_id": key_id, "expires_at": ends_at} for key_id, ends_at in ends])
    if expires_at is None and newest.key.expires_at is not None:
        expires_at = now + newest.key.expires_at - newest.created_at
    return _add(session, replace(newest.key, expires_at=expires_at))


def _earlier(one: float | None, other: float) -> float:
    return other if one is None else min(one, other)


def _add(session: Session, key: Key) -> NewKey:
    new = NewKey(StoredKey(new_key_id(), key, session.now()), new_secret())
    session.run_each(ADD, [row_of(new.stored, digest_of(new.secret))])
    return new
