"""The rows of keys: one for each secret that was ever given out, by its digest. A key that was rotated has several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gateway.core.keys import Key, KeyLimits
from gateway.store.database import Params, Row

COLUMNS: Final = (
    "key_id, digest, name, account, created_at, expires_at, revoked_at, models, requests_per_minute, spend_per_day,"
    " spend_per_month, time_zone, replay_never"
)
FIND: Final = f"select {COLUMNS} from api_key where digest = :digest and revoked_at is null"
ALL: Final = f"select {COLUMNS} from api_key order by account, name, created_at, key_id"
NAMED: Final = f"select {COLUMNS} from api_key where name = :name order by account, created_at, key_id for update"
ONE: Final = f"select {COLUMNS} from api_key where key_id = :key_id for update"
ADD: Final = f"""
insert into api_key ({COLUMNS})
values (:key_id, :digest, :name, :account, :created_at, :expires_at, null, :models, :requests_per_minute,
        :spend_per_day, :spend_per_month, :time_zone, :replay_never)
"""
EXPIRE: Final = "update api_key set expires_at = :expires_at where key_id = :key_id"
REVOKE: Final = "update api_key set revoked_at = :now where key_id = :key_id and revoked_at is null"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is kept. Times are seconds since the epoch."""

    key_id: str
    key: Key
    created_at: float
    revoked_at: float | None = None

    def state(self, now: float) -> str:
        """One word."""
        if self.revoked_at is not None:
            return "revoked"
        expires_at = self.key.expires_at
        return "expired" if expires_at is not None and now >= expires_at else "active"


def stored_key(row: Row) -> StoredKey:
    """A row of COLUMNS."""
    key_id, _, name, account, created_at, expires_at, revoked_at, models, *counted, time_zone, replay_never = row
    per_minute, per_day, per_month = counted
    allowed = None if models is None else frozenset(models.split())
    key = Key(
        name, account, bool(replay_never), expires_at, KeyLimits(allowed, per_minute, per_day, per_month, time_zone)
    )
    return StoredKey(key_id, key, created_at, revoked_at)


def digest_in(row: Row) -> str:
    """The row's digest."""
    return str(row[1])


def row_of(stored: StoredKey, digest: str) -> Params:
    """The parameters of ADD."""
    key, limits = stored.key, stored.key.limits
    row: dict[str, Any] = {
        "key_id": stored.key_id,
        "digest": digest,
        "name": key.name,
        "account": key.account,
        "created_at": stored.created_at,
        "expires_at": key.expires_at,
        "models": None if limits.models is None else " ".join(sorted(limits.models)),
        "requests_per_minute": limits.requests_per_minute,
        "spend_per_day": limits.spend_per_day_nanodollars,
        "spend_per_month": limits.spend_per_month_nanodollars,
        "time_zone": limits.time_zone,
        "replay_never": int(key.replay_never),
    }
    return row
