"""A key as the gateway knows it once its secret has let somebody in: whose it is, and what it may do (B6). Pure.

Neither the secret nor its digest is here: a key can be logged, shown and compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gateway.core.failures import Refusal

UTC: Final = "UTC"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a key may do; None is no limit. Its days and months are those of its time zone."""

    models: frozenset[str] | None = None
    requests_per_minute: int | None = None
    spend_per_day_nanodollars: int | None = None
    spend_per_month_nanodollars: int | None = None
    time_zone: str = UTC


@dataclass(frozen=True, slots=True)
class Key:
    """Who is asking, and the account that pays. `expires_at` is wall-clock time, seconds since the epoch."""

    name: str
    account: str
    replay_never: bool = False
    expires_at: float | None = None
    limits: KeyLimits = KeyLimits()
    label: str = field(init=False, repr=False, compare=False)
    """What its requests and its spending are counted by: account and name, so that a rotated key goes on where the one
    before it stood. No two pairs have one label: an account's own slashes are written otherwise."""

    def __post_init__(self) -> None:
        label = f"{self.account.replace('%', '%25').replace('/', '%2F')}/{self.name}"
        object.__setattr__(self, "label", label)

    def require_unexpired(self, now: float) -> None:
        """Raises Refusal `expired_api_key`."""
        if self.expires_at is not None and now >= self.expires_at:
            raise Refusal("expired_api_key", f"the key {self.name} has expired")

    def require_model(self, model: str) -> None:
        """Raises Refusal `model_not_allowed`."""
        if self.limits.models is not None and model not in self.limits.models:
            raise Refusal("model_not_allowed", f"the key {self.name} may not use this model", param="model")
